//! What people were asked about a run's calls, and what is still for them to decide.

use std::sync::Arc;

use super::{Phase, Run, Stage};
use crate::domain::{
    event::{ApprovalRequested, ApprovalResolved, Grant},
    time::Timestamp,
};

/// What people were asked about a call, and what became of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Approval {
    /// What they were asked.
    pub request: Arc<ApprovalRequested>,
    /// When.
    pub at: Timestamp,
    /// What a person answered, if one did.
    pub answered: Option<Arc<ApprovalResolved>>,
    /// What became of it last, once something has.
    pub resolved: Option<Arc<ApprovalResolved>>,
}

impl Run {
    /// What people were asked about its calls, in order; the first is number 1.
    pub fn approvals(&self) -> &[Approval] {
        &self.approvals
    }

    /// One of them by its number.
    pub fn approval(&self, number: u32) -> Option<&Approval> {
        self.approvals.get(usize::try_from(number).ok()?.checked_sub(1)?)
    }

    /// What people are to decide.
    pub fn open_approvals(&self) -> impl Iterator<Item = &Arc<ApprovalRequested>> {
        self.calls().iter().filter_map(|open| match &open.stage {
            Stage::Deciding(_) => open.asked.as_ref(),
            Stage::Asked
            | Stage::Rejected(..)
            | Stage::Judged(_)
            | Stage::Started(..)
            | Stage::InDoubt(..)
            | Stage::Answered(_) => None,
        })
    }

    /// What is approved beforehand: by people of here, who may not be those of the log that it was taken from.
    pub fn grants(&self) -> impl Iterator<Item = &Grant> {
        self.approvals
            .iter()
            .skip(self.foreign_approvals)
            .filter_map(|approval| approval.answered.as_ref()?.grant.as_ref())
    }

    /// Whether all that is left to do in it waits for people to decide.
    pub fn waits_for_people(&self) -> bool {
        matches!(&self.phase, Phase::Acting(calls) if calls.waits_for_people())
    }

    /// Whether people are to decide about a call of it.
    pub fn asks_people(&self) -> bool {
        matches!(&self.phase, Phase::Acting(calls) if calls.asks_people())
    }
}
