//! One run as a state that is folded from its log.
//!
//! [`Run::decide`] turns an input into facts or a refusal, [`Run::evolve`] folds one fact in, [`Run::owed`] derives the
//! outstanding work from state alone. The live step and recovery use the same three, so they cannot differ.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use super::{
    call::ToolCall,
    context::{self, Projection},
    event::{CommandGroup, FileChange, ParkReason, QueuedInput},
    id::{CallId, RunId, Seq},
    message::Message,
    outcome::Outcome,
    task::TaskSpec,
    time::Timestamp,
    usage::{Usage, bytes_of},
};

mod activity;
mod approvals;
mod decide;
mod effect;
mod evolve;
mod input;
mod open;
mod repeats;
#[cfg(test)]
mod tests;

use activity::Activity;
pub use approvals::Approval;
pub use effect::{Effect, EffectId};
pub use input::{Answer, Ask, Input, Judgement, Proposal, ProposedCall, Refused};
pub use open::{OpenCall, OpenCalls, Stage};
use repeats::Repeats;

/// A run, as its log says.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    id: RunId,
    seq: Seq,
    phase: Phase,
    spec: Option<Arc<TaskSpec>>,
    /// The models that it has asked, in their order; the last is the one that is asked.
    models: Vec<Arc<str>>,
    turn: u32,
    /// Everything said since the task, the task first; system rules and facts are not in it.
    history: Vec<Message>,
    /// Text bytes in `history`: what its size in tokens is estimated from.
    history_bytes: usize,
    call_ids: BTreeSet<CallId>,
    /// What people were asked, in order: the first is number 1.
    approvals: Vec<Approval>,
    /// How many of them, the first ones, were asked for and answered before the run was taken here from a file.
    foreign_approvals: usize,
    inputs: VecDeque<QueuedInput>,
    inputs_seen: u32,
    input_keys: BTreeSet<Arc<str>>,
    /// Answers and failures so far: the number of the scripted model's next reply.
    replies: u32,
    answered: u32,
    usage: Usage,
    submitted_at: Timestamp,
    started_at: Option<Timestamp>,
    last_at: Timestamp,
    /// The last fact that says that somebody was at work on it.
    alive_at: Timestamp,
    /// Wall time up to then.
    lived: Duration,
    /// Whether wall time passes: not before the start, after the end, while it is parked, or while herder is down.
    living: bool,
    /// How often herder died in the running turn: not when it was told to stop.
    crashes: u32,
    activity: Activity,
    /// When the run was restarted with nothing recorded since, oldest first.
    idle_restarts: Vec<Timestamp>,
    /// Calls that keep failing.
    repeats: Repeats,
    /// Answers in a row that asked for calls and were cut.
    truncated: u32,
    /// Corrections in a row of an answer's form.
    corrections: u32,
    /// How much of the conversation the model is shown at most, once it was too long, and in which turn that was set.
    narrowed: Option<Narrowed>,
    /// Tokens that an answer may have at most, once there was no room for more.
    answer_at_most: Option<u32>,
    /// What the open request may use up, if it is counted and has gone out.
    out: Option<Usage>,
    ending: Option<Outcome>,
    paused: bool,
    parked: Option<ParkReason>,
}

/// Where a run stands.
#[derive(Clone, Debug, PartialEq)]
pub enum Phase {
    /// Nothing is of record.
    New,
    /// Submitted; waits for a slot.
    Queued,
    /// Between two turns, or before the first.
    Between,
    /// A request to the model is due or out.
    Thinking {
        /// Which request of the turn; the first is 1.
        attempt: u32,
        /// Failed requests of the turn that used up a try.
        tries: u32,
        /// When it is due.
        not_before: Timestamp,
    },
    /// Calls are open.
    Acting(OpenCalls),
    /// Nothing will change any more.
    Ended(Outcome),
}

/// A limit on what the model is shown, found out by asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Narrowed {
    bytes: usize,
    turn: u32,
}

impl Run {
    /// A run of which nothing is of record.
    pub fn new(id: RunId) -> Self {
        Self {
            id,
            seq: Seq::START,
            phase: Phase::New,
            spec: None,
            models: Vec::new(),
            turn: 0,
            history: Vec::new(),
            history_bytes: 0,
            call_ids: BTreeSet::new(),
            approvals: Vec::new(),
            foreign_approvals: 0,
            inputs: VecDeque::new(),
            inputs_seen: 0,
            input_keys: BTreeSet::new(),
            replies: 0,
            answered: 0,
            usage: Usage::default(),
            submitted_at: Timestamp::default(),
            started_at: None,
            last_at: Timestamp::default(),
            alive_at: Timestamp::default(),
            lived: Duration::ZERO,
            living: false,
            crashes: 0,
            activity: Activity::default(),
            idle_restarts: Vec::new(),
            repeats: Repeats::default(),
            truncated: 0,
            corrections: 0,
            narrowed: None,
            answer_at_most: None,
            out: None,
            ending: None,
            paused: false,
            parked: None,
        }
    }

    /// Its name.
    pub const fn id(&self) -> RunId {
        self.id
    }

    /// The last event folded in.
    pub const fn seq(&self) -> Seq {
        self.seq
    }

    /// Where it stands.
    pub const fn phase(&self) -> &Phase {
        &self.phase
    }

    /// What was asked of it; absent only before the first event.
    pub const fn spec(&self) -> Option<&Arc<TaskSpec>> {
        self.spec.as_ref()
    }

    /// What it has used up, with the most that its open request may if nobody hears its answer.
    pub fn usage_at_most(&self) -> Usage {
        let mut usage = self.usage;
        usage += self.out.unwrap_or_default();
        usage
    }

    /// Tokens that an answer may have at most, once there was no room for more.
    pub const fn answer_at_most(&self) -> Option<u32> {
        self.answer_at_most
    }

    /// Whether herder stopped in the middle of it, and has not taken it up again.
    pub const fn is_interrupted(&self) -> bool {
        self.started_at.is_some()
            && self.parked.is_none()
            && !self.living
            && !matches!(self.phase, Phase::Ended(_))
    }

    /// The model that is asked: the task's, unless another one goes on in its place.
    pub fn model(&self) -> Option<&Arc<str>> {
        self.models.last().or_else(|| self.spec.as_ref().map(|spec| &spec.model))
    }

    /// The models that it has asked, in their order.
    pub fn models(&self) -> &[Arc<str>] {
        &self.models
    }

    /// The running turn, or the last one; 0 before the first.
    pub const fn turn(&self) -> u32 {
        self.turn
    }

    /// Everything said since the task, the task first.
    pub fn history(&self) -> &[Message] {
        &self.history
    }

    /// Text bytes in the history.
    pub const fn history_bytes(&self) -> usize {
        self.history_bytes
    }

    /// What the model is shown next, within `budget_tokens` (an estimate; `None` is no limit) and within what it turned out to
    /// bear.
    pub fn projection(&self, budget_tokens: Option<u64>) -> Projection {
        let Some(spec) = &self.spec else { return Projection::default() };
        match self.narrowed {
            None => context::project(spec, &self.history, self.history_bytes, budget_tokens),
            Some(Narrowed { bytes, .. }) => {
                let budget = budget_tokens.map_or(bytes, |tokens| bytes.min(bytes_of(tokens)));
                context::narrow(spec, &self.history, budget)
            }
        }
    }

    /// Answers and failures so far.
    pub const fn replies(&self) -> u32 {
        self.replies
    }

    /// Calls that have their result.
    pub const fn answered(&self) -> u32 {
        self.answered
    }

    /// What it has used up.
    pub const fn usage(&self) -> Usage {
        self.usage
    }

    /// When it was submitted.
    pub const fn submitted_at(&self) -> Timestamp {
        self.submitted_at
    }

    /// When it got its slot, if it has.
    pub const fn started_at(&self) -> Option<Timestamp> {
        self.started_at
    }

    /// How it ended, if it has.
    pub const fn outcome(&self) -> Option<Outcome> {
        match &self.phase {
            Phase::Ended(outcome) => Some(*outcome),
            Phase::New | Phase::Queued | Phase::Between | Phase::Thinking { .. } | Phase::Acting(_) => None,
        }
    }

    /// When the open request is due, if one is.
    pub const fn not_before(&self) -> Option<Timestamp> {
        match &self.phase {
            Phase::Thinking { not_before, .. } => Some(*not_before),
            Phase::New | Phase::Queued | Phase::Between | Phase::Acting(_) | Phase::Ended(_) => None,
        }
    }

    /// Whether a person wants it to be held before its next request.
    pub const fn is_paused(&self) -> bool {
        self.paused
    }

    /// What it waits for without a slot, if it had one and gave it up.
    pub const fn parked(&self) -> Option<ParkReason> {
        self.parked
    }

    /// Restarts with nothing recorded since, oldest first.
    pub fn idle_restarts(&self) -> &[Timestamp] {
        &self.idle_restarts
    }

    /// How long it has been going on since it got its slot, by `now`; the time in which it was parked or herder was down
    /// is left out.
    pub fn wall(&self, now: Timestamp) -> Duration {
        let running = if self.living { now.since(self.alive_at) } else { Duration::ZERO };
        self.lived + running
    }

    /// How long a request or a tool of it was at work, by `now`.
    pub fn active(&self, now: Timestamp) -> Duration {
        let running = if self.activity.busy > 0 { now.since(self.activity.since) } else { Duration::ZERO };
        self.activity.total + running
    }

    /// Calls of the running turn that may have been made by somebody who is gone, and what each would have changed.
    pub fn in_doubt(&self) -> impl Iterator<Item = (&CallId, &FileChange)> {
        self.calls().iter().filter_map(|open| match &open.stage {
            Stage::InDoubt(_, change) => Some((&open.call.id, change)),
            Stage::Asked
            | Stage::Deciding(_)
            | Stage::Rejected(..)
            | Stage::Judged(_)
            | Stage::Started(..)
            | Stage::Answered(_) => None,
        })
    }

    /// The processes that its open calls run, or ran when somebody was last at work on it.
    pub fn command_groups(&self) -> impl Iterator<Item = &CommandGroup> {
        self.calls().iter().filter(|open| !open.is_answered()).filter_map(|open| open.group.as_ref())
    }

    /// Calls of the running turn that wait for a lock, a permit or an actor.
    pub fn waiting_calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.calls()
            .iter()
            .filter(|open| matches!(open.stage, Stage::Judged(_) | Stage::InDoubt(..)))
            .map(|open| &open.call)
    }

    /// Whether a call of the run may be taking effect right now.
    pub fn is_acting(&self) -> bool {
        self.calls().iter().any(OpenCall::is_started)
    }

    fn calls(&self) -> &[OpenCall] {
        match &self.phase {
            Phase::Acting(calls) => calls,
            Phase::New | Phase::Queued | Phase::Between | Phase::Thinking { .. } | Phase::Ended(_) => &[],
        }
    }

    /// Returns the work still owed. A run that has ended or is parked owes nothing.
    pub fn owed(&self) -> Vec<Effect> {
        match &self.phase {
            Phase::Thinking { .. } | Phase::Acting(_) if self.parked.is_some() => Vec::new(),
            Phase::New | Phase::Queued | Phase::Between | Phase::Ended(_) => Vec::new(),
            Phase::Thinking { attempt, not_before, .. } => {
                vec![Effect::AskModel { turn: self.turn, attempt: *attempt, not_before: *not_before }]
            }
            Phase::Acting(calls) => calls.iter().filter_map(OpenCall::owed).collect(),
        }
    }
}
