//! What a run owes: the work that the shell does for it.

use std::sync::Arc;

use crate::domain::{
    call::ToolCall,
    event::{ApprovalRequested, Decision, FileChange},
    id::CallId,
    time::Timestamp,
};

/// Work for the shell. It carries its identity, so a late or doubled report is recognised.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Send the turn's request.
    AskModel {
        /// The turn.
        turn: u32,
        /// Which request of the turn.
        attempt: u32,
        /// Not before this.
        not_before: Timestamp,
    },
    /// Queue the call for its locks, then run it.
    RunCall {
        /// What was asked.
        call: ToolCall,
        /// What was decided, with what the call touches.
        decision: Arc<Decision>,
        /// What a person has approved of: it is this, or it is asked about again.
        approved: Option<Arc<ApprovalRequested>>,
        /// The call may have been made already: first see whether this change is there.
        doubt: Option<FileChange>,
    },
}

/// What an effect is known by while it is under way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EffectId {
    /// A model request.
    Request(u32, u32),
    /// A call.
    Call(CallId),
}

impl Effect {
    /// What the effect is known by.
    pub fn id(&self) -> EffectId {
        match self {
            Self::AskModel { turn, attempt, .. } => EffectId::Request(*turn, *attempt),
            Self::RunCall { call, .. } => EffectId::Call(call.id.clone()),
        }
    }
}
