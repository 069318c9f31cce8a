//! The calls of the running turn: how far each is, and what their results come to.
//!
//! A call is found and answered without looking at the others, however many there are.

use std::{collections::BTreeMap, ops::Deref, sync::Arc};

use super::Effect;
use crate::domain::{
    call::{Failure, ToolCall, ToolResult},
    event::{ApprovalRequested, ApprovalResolved, CommandGroup, Decision, FileChange},
    id::CallId,
};

/// A call of the running turn.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenCall {
    /// What was asked.
    pub call: ToolCall,
    /// How far it is.
    pub stage: Stage,
    /// What a person was last asked about it, and is what was approved once it is judged.
    pub asked: Option<Arc<ApprovalRequested>>,
    /// How often that was.
    pub(super) times_asked: u32,
    /// The processes that it runs.
    pub group: Option<CommandGroup>,
}

/// How far a call is.
#[derive(Clone, Debug, PartialEq)]
pub enum Stage {
    /// Asked for.
    Asked,
    /// A person is to decide.
    Deciding(Arc<Decision>),
    /// Nobody approved of it; it has yet to be told so.
    Rejected(Arc<Decision>, Arc<ApprovalResolved>),
    /// Judged; if allowed, it waits for its locks and its permit.
    Judged(Arc<Decision>),
    /// It may have taken effect.
    Started(Arc<Decision>, Option<FileChange>),
    /// It was started by a process or an actor that is gone; whether it took effect can be told from the file.
    InDoubt(Arc<Decision>, FileChange),
    /// It has its result.
    Answered(Arc<ToolResult>),
}

impl Stage {
    /// What was decided, while the call has no result.
    pub(super) const fn decision(&self) -> Option<&Arc<Decision>> {
        match self {
            Self::Deciding(decision)
            | Self::Rejected(decision, _)
            | Self::Judged(decision)
            | Self::Started(decision, _)
            | Self::InDoubt(decision, _) => Some(decision),
            Self::Asked | Self::Answered(_) => None,
        }
    }
}

impl OpenCall {
    fn new(call: &ToolCall) -> Self {
        Self { call: call.clone(), stage: Stage::Asked, asked: None, times_asked: 0, group: None }
    }

    pub(super) fn owed(&self) -> Option<Effect> {
        let (decision, doubt) = match &self.stage {
            Stage::Judged(decision) | Stage::Started(decision, _) => (decision, None),
            Stage::InDoubt(decision, change) => (decision, Some(change.clone())),
            Stage::Asked | Stage::Deciding(_) | Stage::Rejected(..) | Stage::Answered(_) => return None,
        };
        let (call, decision, approved) = (self.call.clone(), decision.clone(), self.asked.clone());
        Some(Effect::RunCall { call, decision, approved, doubt })
    }

    pub(super) const fn is_answered(&self) -> bool {
        matches!(self.stage, Stage::Answered(_))
    }

    /// Whether the call may be taking effect right now.
    pub const fn is_started(&self) -> bool {
        matches!(self.stage, Stage::Started(..))
    }
}

/// The calls of one answer, in the order in which the model asked.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenCalls {
    calls: Vec<OpenCall>,
    places: BTreeMap<CallId, usize>,
    /// Calls that people are to decide about.
    deciding: usize,
    /// The results so far.
    pub(super) batch: Batch,
}

/// What the results of a turn's calls come to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Batch {
    /// How many there are.
    pub(super) answered: usize,
    /// How many of them ask for the run's end.
    terminating: usize,
    /// The first of a call that failed.
    pub(super) failed: Option<Arc<ToolResult>>,
}

impl Batch {
    pub(super) fn count(&mut self, result: &Arc<ToolResult>) {
        self.answered += 1;
        self.terminating += usize::from(result.terminate);
        if self.failed.is_none() && result.failure.is_some_and(Failure::is_of_the_call) {
            self.failed = Some(result.clone());
        }
    }

    /// Whether all of them ask for the run's end.
    pub(super) const fn terminates(&self) -> bool {
        self.answered > 0 && self.terminating == self.answered
    }
}

impl OpenCalls {
    pub(super) fn of(calls: &[ToolCall]) -> Self {
        let calls: Vec<_> = calls.iter().map(OpenCall::new).collect();
        let places = calls.iter().enumerate().map(|(place, open)| (open.call.id.clone(), place)).collect();
        Self { calls, places, deciding: 0, batch: Batch::default() }
    }

    /// A call by its id.
    pub fn get(&self, id: &CallId) -> Option<&OpenCall> {
        self.calls.get(*self.places.get(id)?)
    }

    pub(super) fn set(&mut self, id: &CallId, stage: Stage) {
        let Some(open) = self.places.get(id).and_then(|place| self.calls.get_mut(*place)) else { return };
        let was = std::mem::replace(&mut open.stage, stage);
        let decides = |stage: &Stage| usize::from(matches!(stage, Stage::Deciding(_)));
        self.deciding = self.deciding + decides(&open.stage) - decides(&was);
    }

    /// Whether all that is left to do waits for people to decide.
    pub const fn waits_for_people(&self) -> bool {
        self.deciding > 0 && self.deciding == self.unanswered()
    }

    /// Whether anything waits for people to decide.
    pub const fn asks_people(&self) -> bool {
        self.deciding > 0
    }

    pub(super) fn get_mut(&mut self, id: &CallId) -> Option<&mut OpenCall> {
        self.calls.get_mut(*self.places.get(id)?)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut OpenCall> {
        self.calls.iter_mut()
    }

    /// Gives a call its result; returns the stage that it was at, unless it has one.
    pub(super) fn answer(&mut self, result: &Arc<ToolResult>) -> Option<Stage> {
        let open = self.get_mut(&result.call).filter(|open| !open.is_answered())?;
        let was = std::mem::replace(&mut open.stage, Stage::Answered(result.clone()));
        self.deciding -= usize::from(matches!(was, Stage::Deciding(_)));
        self.batch.count(result);
        Some(was)
    }

    /// How many have no result yet.
    pub(super) const fn unanswered(&self) -> usize {
        self.calls.len() - self.batch.answered
    }

    /// The results that there are, in the order in which the model asked.
    pub(super) fn into_results(self) -> impl Iterator<Item = Arc<ToolResult>> {
        self.calls.into_iter().filter_map(|open| match open.stage {
            Stage::Answered(result) => Some(result),
            Stage::Asked
            | Stage::Deciding(_)
            | Stage::Rejected(..)
            | Stage::Judged(_)
            | Stage::Started(..)
            | Stage::InDoubt(..) => None,
        })
    }
}

impl Deref for OpenCalls {
    type Target = [OpenCall];

    fn deref(&self) -> &[OpenCall] {
        &self.calls
    }
}
