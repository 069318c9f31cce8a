//! A run in short: what a list of open runs shows of each.
//!
//! Folded from the same facts as [`Run`](super::run::Run) and never at odds with it, in a few hundred bytes: of the
//! conversation only the beginning of the last answer is kept, of a call only its name and the first thing that it
//! touches. Decides nothing.

use std::sync::Arc;

use super::{
    call::{Access, Mode},
    event::{Decision, Event, Fact, ParkReason, Resolution},
    id::{BatchId, CallId, RunId, Seq},
    message::Reply,
    outcome::Outcome,
    task::TaskSpec,
    time::Timestamp,
    usage::Usage,
};

/// Characters kept of what a model said last.
const TEXT_CHARS: usize = 80;
/// Characters kept of a tool's name: a model may ask for any.
const NAME_CHARS: usize = 64;

/// A run in short.
#[derive(Clone, Debug, PartialEq)]
pub struct Glance {
    /// The run.
    pub run: RunId,
    /// The last event folded in.
    pub seq: Seq,
    /// Its batch, if any.
    pub batch: Option<BatchId>,
    /// Its task's id, if any.
    pub task_id: Option<Arc<str>>,
    /// Which attempt at the task it is.
    pub attempt: u32,
    /// The model's name.
    pub model: Arc<str>,
    /// The name of the model that it began with, whose fallbacks are its.
    pub first_model: Arc<str>,
    /// Where it stands.
    pub stand: Stand,
    /// Since when it stands there.
    pub since: Timestamp,
    /// The running turn, or the last one; 0 before the first.
    pub turn: u32,
    /// Calls that have their result.
    pub answered: u32,
    /// What it has used up.
    pub usage: Usage,
    /// The beginning of what the model said last, on one line.
    pub text: Box<str>,
    /// When it was submitted.
    pub submitted_at: Timestamp,
    /// When it got its slot, if it has.
    pub started_at: Option<Timestamp>,
    /// When the last thing happened to it.
    pub last_at: Timestamp,
    /// How it will end, once somebody has asked for its end.
    pub ending: Option<Outcome>,
    /// A person has paused it.
    pub paused: bool,
    /// It has given up its slot, and waits for this.
    pub parked: Option<ParkReason>,
    /// herder stopped in the middle of it, and has not taken it up again.
    interrupted: bool,
}

/// Where a run stands. What is open belongs to where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stand {
    /// Nothing is of record.
    New,
    /// Waits for a slot.
    Queued,
    /// Between two turns, or before the first.
    Between,
    /// A request to the model is due or out.
    Thinking {
        /// Requests of the turn that failed.
        retries: u32,
        /// When the request is due.
        not_before: Timestamp,
    },
    /// These calls have no result yet.
    Acting(Vec<CallGlance>),
    /// Nothing will change any more.
    Ended(Outcome),
}

/// A call without a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallGlance {
    /// The call.
    pub id: CallId,
    /// The tool's name.
    pub tool: Arc<str>,
    /// How far it is.
    pub stage: CallStage,
    /// Since when it is there.
    pub since: Timestamp,
    /// The first thing that it touches, one that it wants alone before others.
    pub access: Option<Access>,
}

/// How far a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CallStage {
    /// Asked for.
    Asked,
    /// Waits for a person to decide: this is the number of the approval.
    Deciding(u32),
    /// Waits for its locks and its permit.
    Waiting,
    /// May be taking effect.
    Running,
}

impl CallStage {
    /// The public name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Deciding(_) => "deciding",
            Self::Waiting => "waiting",
            Self::Running => "running",
        }
    }
}

impl Stand {
    /// The names of the places where an open run can stand, in the order in which it passes them.
    pub const OPEN: [&'static str; 5] = ["new", "queued", "between", "thinking", "acting"];

    /// The public name.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Queued => "queued",
            Self::Between => "between",
            Self::Thinking { .. } => "thinking",
            Self::Acting(_) => "acting",
            Self::Ended(_) => "ended",
        }
    }
}

impl Glance {
    /// A run of which nothing is of record.
    pub fn new(run: RunId) -> Self {
        Self {
            run,
            seq: Seq::START,
            batch: None,
            task_id: None,
            attempt: 1,
            model: Arc::default(),
            first_model: Arc::default(),
            stand: Stand::New,
            since: Timestamp::default(),
            turn: 0,
            answered: 0,
            usage: Usage::default(),
            text: Box::default(),
            submitted_at: Timestamp::default(),
            started_at: None,
            last_at: Timestamp::default(),
            ending: None,
            paused: false,
            parked: None,
            interrupted: false,
        }
    }

    /// Whether it is held: nothing of it is under way, and it has no slot.
    pub fn is_held(&self) -> bool {
        self.parked.is_some() || self.paused && matches!(self.stand, Stand::New | Stand::Queued)
    }

    /// Whether people have decided about all that it gave its slot up for, and it has none yet.
    pub fn is_answered(&self) -> bool {
        self.parked == Some(ParkReason::Approval) && !self.paused && self.approvals().next().is_none()
    }

    /// Whether herder stopped in the middle of it, and has not taken it up again.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted && self.parked.is_none() && !matches!(self.stand, Stand::Ended(_))
    }

    /// The numbers of the approvals that its calls wait for.
    pub fn approvals(&self) -> impl Iterator<Item = u32> {
        self.calls().iter().filter_map(|call| match call.stage {
            CallStage::Deciding(approval) => Some(approval),
            CallStage::Asked | CallStage::Waiting | CallStage::Running => None,
        })
    }

    /// The calls without a result, in the order in which the model asked.
    pub fn calls(&self) -> &[CallGlance] {
        match &self.stand {
            Stand::Acting(calls) => calls,
            Stand::New | Stand::Queued | Stand::Between | Stand::Thinking { .. } | Stand::Ended(_) => &[],
        }
    }

    /// Folds one fact in.
    pub fn evolve(&mut self, fact: &Fact) {
        let at = fact.at;
        match &fact.event {
            Event::Submitted(spec) => self.take_on(spec, at),
            Event::RunStart(_) => {
                self.started_at = Some(at);
                self.stand_at(Stand::Between, at);
            }
            Event::TurnStart(_) => {
                self.turn = fact.turn;
                self.stand_at(Stand::Thinking { retries: 0, not_before: at }, at);
            }
            Event::Message(reply) => self.hear(reply, at),
            Event::Decision(decision) => self.judge(decision, at),
            Event::ApprovalRequested(request) => {
                self.change(&request.call, CallStage::Waiting, CallStage::Deciding(request.approval), at);
            }
            Event::ApprovalResolved(resolved) => {
                let stage = match resolved.resolution {
                    Resolution::Approved => Some(CallStage::Waiting),
                    // It waits to be told so.
                    Resolution::Rejected | Resolution::Expired => Some(CallStage::Asked),
                    // What comes of the call is in the same append.
                    Resolution::Superseded | Resolution::Withdrawn => None,
                };
                if let Some(stage) = stage {
                    self.change(&resolved.call, CallStage::Deciding(resolved.approval), stage, at);
                }
            }
            Event::CallStarted(started) => {
                self.change(&started.call, CallStage::Waiting, CallStage::Running, at);
            }
            Event::Result(result) => self.answer(&result.call, at),
            Event::TurnEnd(_) => self.stand_at(Stand::Between, at),
            Event::ModelRetry(retry) => {
                self.usage += retry.usage.unwrap_or_default();
                if let Stand::Thinking { retries, not_before } = &mut self.stand {
                    (*retries, *not_before) = (retry.attempt, retry.not_before);
                }
            }
            Event::ModelSwitched(switched) => {
                self.usage += switched.usage.unwrap_or_default();
                self.model = switched.to.clone();
                if let Stand::Thinking { retries, not_before } = &mut self.stand {
                    (*retries, *not_before) = (*retries + 1, at);
                }
            }
            Event::RequestLost(lost) => self.usage += lost.usage,
            Event::CancelRequested(requested) => self.ending = Some(requested.outcome),
            Event::Restart(_) => self.wait_again(at),
            Event::RunEnd(end) => {
                (self.paused, self.parked) = (false, None);
                self.stand_at(Stand::Ended(end.outcome), at);
            }
            Event::Paused(_) => self.paused = true,
            Event::Resumed(_) => self.paused = false,
            Event::Parked(parked) => self.parked = Some(parked.reason),
            Event::Unparked(_) => self.go_on(at),
            Event::Interrupted(_)
            | Event::CommandGroup(_)
            | Event::RequestSent(_)
            | Event::InputQueued(_)
            | Event::InputClaimed(_)
            | Event::Correction(_)
            | Event::LimitsSet(_) => {}
        }
        if fact.event.is_sign_of_life() {
            self.interrupted = matches!(fact.event, Event::Interrupted(_)) && self.started_at.is_some();
        }
        self.last_at = at;
        self.seq = self.seq.plus(1);
    }

    fn go_on(&mut self, at: Timestamp) {
        if let Some(ParkReason::Quota | ParkReason::Auth) = self.parked.take()
            && let Stand::Thinking { not_before, .. } = &mut self.stand
        {
            *not_before = (*not_before).min(at);
        }
    }

    fn stand_at(&mut self, stand: Stand, at: Timestamp) {
        (self.stand, self.since) = (stand, at);
    }

    fn take_on(&mut self, spec: &TaskSpec, at: Timestamp) {
        self.batch = spec.batch;
        self.task_id.clone_from(&spec.task_id);
        self.attempt = spec.attempt;
        (self.model, self.first_model) = (spec.model.clone(), spec.model.clone());
        self.submitted_at = at;
        self.stand_at(Stand::Queued, at);
    }

    fn hear(&mut self, reply: &Reply, at: Timestamp) {
        self.usage += reply.usage;
        if !reply.text.trim().is_empty() {
            self.text = one_line(&reply.text);
        }
        let asked = |call: &super::call::ToolCall| CallGlance {
            id: call.id.clone(),
            tool: name(&call.name),
            stage: CallStage::Asked,
            since: at,
            access: None,
        };
        let calls: Vec<_> = reply.calls.iter().map(asked).collect();
        self.stand_at(if calls.is_empty() { Stand::Between } else { Stand::Acting(calls) }, at);
    }

    fn open_calls(&mut self) -> &mut [CallGlance] {
        match &mut self.stand {
            Stand::Acting(calls) => calls,
            Stand::New | Stand::Queued | Stand::Between | Stand::Thinking { .. } | Stand::Ended(_) => &mut [],
        }
    }

    fn judge(&mut self, decision: &Decision, at: Timestamp) {
        if let Some(call) = self.open_calls().iter_mut().find(|call| call.id == decision.call) {
            (call.stage, call.since) = (CallStage::Waiting, at);
            call.access = decision.access.iter().max_by_key(|one| one.mode == Mode::Exclusive).cloned();
        }
    }

    fn change(&mut self, id: &CallId, from: CallStage, to: CallStage, at: Timestamp) {
        if let Some(call) = self.open_calls().iter_mut().find(|call| call.id == *id && call.stage == from) {
            (call.stage, call.since) = (to, at);
        }
    }

    fn answer(&mut self, id: &CallId, at: Timestamp) {
        let Stand::Acting(calls) = &mut self.stand else { return };
        let Some(index) = calls.iter().position(|call| call.id == *id) else { return };
        calls.remove(index);
        self.answered += 1;
        if calls.is_empty() {
            self.stand_at(Stand::Between, at);
        }
    }

    /// Whoever ran the calls is gone. Those that may not be run again are answered in the same append.
    fn wait_again(&mut self, at: Timestamp) {
        for call in self.open_calls().iter_mut().filter(|call| call.stage == CallStage::Running) {
            (call.stage, call.since) = (CallStage::Waiting, at);
        }
    }
}

fn one_line(text: &str) -> Box<str> {
    let start = text.trim_start().chars().take(TEXT_CHARS);
    start.map(|char| if char.is_control() { ' ' } else { char }).collect::<String>().into()
}

fn name(full: &Arc<str>) -> Arc<str> {
    match full.char_indices().nth(NAME_CHARS) {
        None => Arc::clone(full),
        Some((end, _)) => full[..end].into(),
    }
}

#[cfg(test)]
mod tests;
