//! A run in short: what a list of open runs shows of each.
//!
//! Folded from the same facts as [`Run`](super::run::Run) and never at odds with it, in a few hundred bytes: of the
//! conversation only the beginning of the last answer is kept, of a call only its name and the first thing that it
//! touches. Decides nothing.

use std::sync::Arc;

use super::{
    call::{Access, Mode},
    event::{Decision, Event, Fact, ParkReason},
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

    /// Whether herder stopped in the middle of it, and has not taken it up again.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted && self.parked.is_none() && !matches!(self.stand, Stand::Ended(_))
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
            | Event::InputQueued(_)
            | Event::InputClaimed(_)
            | Event::Correction(_)
            | Event::LimitsSet(_) => {}
        }
        self.interrupted = match &fact.event {
            Event::Interrupted(_) => self.started_at.is_some(),
            event => self.interrupted && !event.is_sign_of_life(),
        };
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
        self.model = Arc::clone(&spec.model);
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
mod tests {
    use super::*;
    use crate::domain::event::{TurnStart, decode};
    use crate::domain::id::Pos;

    fn facts(stored: &str) -> Vec<Fact> {
        let read = decode(stored.as_bytes(), run(), Pos::new(1), Seq::new(1)).unwrap();
        read.into_iter().map(|one| one.fact).collect()
    }

    fn run() -> RunId {
        RunId::from_bytes([7; 16])
    }

    #[test]
    fn it_tells_the_calls_that_run_and_wait_and_what_for() {
        let mut glance = Glance::new(run());
        for fact in facts(
            r#"[
            {"v":1,"at":1,"turn":0,"kind":"submitted","data":{"task":"t","task_id":"t-1","attempt":2,"model":"m","workspace":"/w"}},
            {"v":1,"at":2,"turn":0,"kind":"run_start","data":{"model":"p:m","tools":[]}},
            {"v":1,"at":3,"turn":1,"kind":"turn_start","data":{}},
            {"v":1,"at":4,"turn":1,"kind":"model_retry","data":{"attempt":1,"class":"stall","error":"e","not_before":5}},
            {"v":1,"at":6,"turn":1,"kind":"message","data":{"text":"\n two\nlines","calls":[
                {"id":"a","name":"read","arguments":{}},{"id":"b","name":"edit","arguments":{}},{"id":"c","name":"edit","arguments":{}}
            ],"stop":"tool_calls","usage":{"input":5,"output":2}}},
            {"v":1,"at":6,"turn":1,"kind":"decision","data":{"call":"b","verdict":"allow","rule":"r","effect":"write","access":[
                {"scope":"tree","path":"/w","mode":"shared"},{"scope":"file","path":"/w/b","mode":"exclusive"}
            ]}},
            {"v":1,"at":7,"turn":1,"kind":"decision","data":{"call":"c","verdict":"allow","rule":"r","effect":"write"}},
            {"v":1,"at":8,"turn":1,"kind":"call_started","data":{"call":"c"}},
            {"v":1,"at":9,"turn":1,"kind":"result","data":{"call":"a","ok":true,"output":"o"}}
        ]"#,
        ) {
            glance.evolve(&fact);
        }
        let calls: Vec<_> = glance
            .calls()
            .iter()
            .map(|call| {
                let access = call.access.as_ref().map(ToString::to_string);
                (&*call.tool, call.stage.as_str(), call.since.as_micros(), access)
            })
            .collect();
        let wanted = Some("exclusive file /w/b".to_owned());
        assert_eq!(calls, [("edit", "waiting", 6, wanted), ("edit", "running", 8, None)]);
        assert_eq!((&*glance.text, glance.answered, glance.usage.total()), ("two lines", 1, 7));
        assert_eq!((glance.task_id.as_deref(), glance.attempt, &*glance.model), (Some("t-1"), 2, "m"));
        let turn = Fact { at: Timestamp::from_micros(9), turn: 2, event: Event::TurnStart(TurnStart {}) };
        glance.evolve(&turn);
        assert_eq!(glance.stand, Stand::Thinking { retries: 0, not_before: Timestamp::from_micros(9) });
        assert_eq!((glance.seq, glance.turn), (Seq::new(10), 2));
    }

    #[test]
    fn it_stays_small_whatever_is_said() {
        assert!(size_of::<Glance>() <= 320, "{}", size_of::<Glance>());
        let long = "é".repeat(10_000);
        let mut glance = Glance::new(run());
        for fact in facts(&format!(
            r#"[{{"v":1,"at":6,"turn":1,"kind":"message","data":{{"text":"{long}","calls":[
                {{"id":"a","name":"{long}","arguments":{{}}}}
            ],"stop":"tool_calls","usage":{{"input":5,"output":2}}}}}}]"#
        )) {
            glance.evolve(&fact);
        }
        assert_eq!(glance.text.chars().count(), TEXT_CHARS);
        assert_eq!(glance.calls()[0].tool.chars().count(), NAME_CHARS);
    }
}
