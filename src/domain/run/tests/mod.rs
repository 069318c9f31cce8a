//! What a run promises, one sentence a test. Here is how the tests speak to a run; the sentences lie beside it.

use std::{sync::Arc, time::Duration};

use super::*;
use crate::domain::{
    call::{Arguments, EffectClass, Failure, Timing, ToolResult},
    event::{Event, Fact, InputKind, ParkReason, RestartCause, RunEnd},
    message::validate,
    outcome::{Block, Breakage, FaultClass, Limit, Stop},
    policy::Verdict,
    usage::{Limits, Usage},
};

mod answers;
mod approvals;
mod calls;
mod ending;
mod failures;
mod inputs;
mod limits;
mod pause;
mod properties;
mod restart;
mod time;
mod turns;

/// A run being played, with its log as it is appended.
struct Play {
    run: Run,
    log: Vec<Fact>,
    /// Milliseconds.
    now: i64,
}

impl Play {
    fn new() -> Self {
        Self { run: Run::new(run_id()), log: Vec::new(), now: 0 }
    }

    /// A run that has just asked its model for the first time.
    fn started() -> Self {
        Self::limited(Limits::default())
    }

    fn limited(limits: Limits) -> Self {
        Self::tasked(&serde_json::json!({"limits": limits}))
    }

    /// A run whose task has these fields.
    fn tasked(fields: &serde_json::Value) -> Self {
        let mut play = Self::new();
        play.tell(Input::Submit(task(fields)));
        play.tell(start());
        play
    }

    /// A run in whose first turn these calls wait for their locks.
    fn acting(calls: &[(&str, &str)]) -> Self {
        let mut play = Self::started();
        play.asks(calls);
        play
    }

    fn attempt(&mut self, input: Input) -> Result<Vec<&'static str>, Refused> {
        let facts = self.run.decide(input, Timestamp::from_micros(self.now * 1_000))?;
        for fact in &facts {
            self.run.evolve(fact);
        }
        let kinds = facts.iter().map(|fact| fact.event.kind()).collect();
        self.log.extend(facts);
        Ok(kinds)
    }

    /// Returns the kinds of the facts that came of it.
    fn tell(&mut self, input: Input) -> Vec<&'static str> {
        self.attempt(input).unwrap()
    }

    fn replies(&mut self, proposal: Proposal) -> Vec<&'static str> {
        let input = self.reply(proposal);
        self.tell(input)
    }

    fn reply(&self, proposal: Proposal) -> Input {
        let Phase::Thinking { attempt, .. } = self.run.phase else { panic!("no request is open") };
        Input::Replied { turn: self.run.turn, attempt, proposal: Box::new(proposal) }
    }

    fn says(&mut self, text: &str) -> Vec<&'static str> {
        self.replies(proposal(text, Vec::new(), Stop::EndTurn))
    }

    /// The model asks for `(id, tool)`s, all allowed.
    fn asks(&mut self, calls: &[(&str, &str)]) -> Vec<&'static str> {
        let calls = calls.iter().map(|(id, tool)| call(id, tool)).collect();
        self.replies(proposal("", calls, Stop::ToolCalls))
    }

    fn fails(&mut self, class: FaultClass, retry_after: Option<Duration>) -> Vec<&'static str> {
        let failure = self.failure(class, retry_after, None);
        self.tell(failure)
    }

    /// The request fails, and this model could go on.
    fn fails_beside(&mut self, class: FaultClass, fallback: &str) -> Vec<&'static str> {
        let failure = self.failure(class, None, Some(fallback.into()));
        self.tell(failure)
    }

    fn failure(&self, class: FaultClass, retry_after: Option<Duration>, fallback: Option<Arc<str>>) -> Input {
        let Phase::Thinking { attempt, .. } = self.run.phase else { panic!("no request is open") };
        Input::ModelFailed {
            turn: self.run.turn,
            attempt,
            class,
            error: "no".to_owned(),
            retry_after,
            usage: None,
            waited: Duration::ZERO,
            shown: self.run.projection(None).bytes,
            allowed: None,
            fits: false,
            parks: None,
            fallback,
            jitter: 0.5,
        }
    }

    fn grants(&mut self, id: &str) -> Vec<&'static str> {
        self.tell(granted(id, None))
    }

    fn ends(&mut self, id: &str) -> Vec<&'static str> {
        self.tell(Input::CallEnded(result(id)))
    }

    fn restarts(&mut self) -> Vec<&'static str> {
        self.tell(Input::Restart { cause: RestartCause::Process, error: None })
    }

    fn end(&self) -> &RunEnd {
        let last = &self.log.last().unwrap().event;
        let Event::RunEnd(end) = last else { panic!("the log ends with {}", last.kind()) };
        end
    }

    fn outcome(&self) -> Outcome {
        self.end().outcome
    }

    /// The results of record, in the order in which they came: call and failure.
    fn results(&self) -> Vec<(&str, Option<Failure>)> {
        let results = self.log.iter().filter_map(|fact| {
            let Event::Result(result) = &fact.event else { return None };
            Some((result.call.as_str(), result.failure))
        });
        results.collect()
    }

    /// What the model would be shown now, in short.
    fn transcript(&self) -> Vec<String> {
        assert_eq!(validate(self.run.history()), Ok(()));
        let short = |message: &Message| match message {
            Message::System(text) => format!("system: {text}"),
            Message::User(text) => format!("user: {text}"),
            Message::Assistant(reply) => {
                let calls: Vec<_> = reply.calls.iter().map(|call| call.id.as_str()).collect();
                format!("model: {}{}", reply.text, calls.join(" "))
            }
            Message::Tool(result) => format!("tool {}: {}", result.call, result.output),
        };
        self.run.history().iter().map(short).collect()
    }
}

fn run_id() -> RunId {
    RunId::from_bytes([7; 16])
}

fn spec(limits: Limits) -> Arc<TaskSpec> {
    task(&serde_json::json!({"limits": limits}))
}

fn task(fields: &serde_json::Value) -> Arc<TaskSpec> {
    let mut task = serde_json::json!({"task": "task", "attempt": 1, "model": "m", "workspace": "/w"});
    task.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    Arc::new(serde_json::from_value(task).unwrap())
}

fn start() -> Input {
    Input::Start { model: "scripted:m".into(), tools: vec!["read".into(), "edit".into(), "bash".into()] }
}

fn proposal(text: &str, calls: Vec<ProposedCall>, stop: Stop) -> Proposal {
    let usage = Some(Usage { input: 10, output: 5, ..Usage::default() });
    Proposal { text: text.into(), calls, usage, duration: Duration::from_millis(1), ..Proposal::new(stop) }
}

fn call(id: &str, tool: &str) -> ProposedCall {
    judged(id, tool, Verdict::Allow)
}

fn judged(id: &str, tool: &str, verdict: Verdict) -> ProposedCall {
    let effect = match tool {
        "read" => EffectClass::Read,
        "edit" => EffectClass::Write,
        _ => EffectClass::Outside,
    };
    let judgement =
        Judgement::Judged { verdict, rule: "a rule".to_owned(), effect, access: Vec::new(), ask: None };
    ProposedCall {
        id: Some(id).filter(|id| !id.is_empty()).map(Arc::from),
        name: tool.into(),
        arguments: Arguments::empty(),
        judgement,
    }
}

fn refused(id: &str, failure: Failure, why: &str) -> ProposedCall {
    ProposedCall { judgement: Judgement::Refused { failure, why: why.to_owned() }, ..call(id, "read") }
}

fn granted(id: &str, change: Option<FileChange>) -> Input {
    Input::Granted { call: CallId::new(id), change }
}

fn change() -> FileChange {
    FileChange { path: "/w/a".into(), before: Some("0a".to_owned()), after: "0b".to_owned() }
}

fn result(id: &str) -> ToolResult {
    let timing = Some(Timing { waited_us: 1, granted_at: Timestamp::from_micros(1), held_us: 1 });
    ToolResult {
        call: CallId::new(id),
        ok: true,
        output: format!("did {id}").into(),
        failure: None,
        terminate: false,
        timing,
    }
}

fn say(when: InputKind, text: &str) -> Input {
    Input::Say { when, text: text.into(), expected_turn: None, key: None }
}
