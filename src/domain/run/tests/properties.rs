//! What holds for every run, whatever is asked of it or reported to it, in whatever order.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

mod glance;
mod people;
mod sound;

use people::{Asked, Person, asked, person};

/// Something that happens to a run. What it is about is chosen among what is there, so most steps make sense.
#[derive(Clone, Debug)]
enum Step {
    Start,
    Reply { calls: Vec<Plan>, says: bool, fits: bool, stop: Stop, counted: bool },
    Fail { class: FaultClass, fallback: Option<&'static str> },
    Grant { which: usize, tells_change: bool },
    NotMade { which: usize },
    Finish { which: usize, ok: bool, terminate: bool },
    Say { when: InputKind, turn: Option<u32> },
    CancelCall { which: usize },
    Limits(Limits),
    Pause,
    Resume,
    Send,
    Park,
    Unpark,
    End(Outcome),
    Interrupt,
    Restart(RestartCause),
    GiveUp,
    Person(Person),
    Garbage(Garbage),
}

/// A call that the model asks for.
#[derive(Clone, Debug)]
struct Plan {
    id: &'static str,
    tool: &'static str,
    arguments: &'static str,
    /// Absent: it cannot be judged.
    verdict: Option<Verdict>,
    /// What a person is asked if one is to decide.
    asked: Option<Asked>,
}

/// A report that belongs nowhere.
#[derive(Clone, Copy, Debug)]
enum Garbage {
    Task,
    LateReply,
    EarlyReply,
    Grant,
    Result,
    OldResult,
}

fn step() -> impl Strategy<Value = Step> {
    let tool = prop::sample::select(vec!["read", "read", "edit", "edit", "bash", "", "open a window!"]);
    let verdict = prop_oneof![
        6 => Just(Some(Verdict::Allow)),
        3 => Just(Some(Verdict::Ask)),
        1 => Just(Some(Verdict::Deny)),
        1 => Just(None),
    ];
    let id = prop::sample::select(vec!["", " ", "a", "b", "a_2", "call_1_1"]);
    let arguments = prop::sample::select(vec!["{}", "{ }", r#"{"a": 1, "b": 2}"#, r#"{"b": 2, "a": 1}"#]);
    let plan = (id, tool, arguments, verdict, prop::option::weighted(0.8, asked()))
        .prop_map(|(id, tool, arguments, verdict, asked)| Plan { id, tool, arguments, verdict, asked });
    let stop = prop_oneof![
        8 => Just(Stop::ToolCalls),
        4 => Just(Stop::EndTurn),
        1 => prop::sample::select(Stop::ALL),
    ];
    let calls = prop_oneof![1 => Just(Vec::new()), 7 => prop::collection::vec(plan, 1..4)];
    let reply = (calls, any::<bool>(), any::<bool>(), stop, any::<bool>())
        .prop_map(|(calls, says, fits, stop, counted)| Step::Reply { calls, says, fits, stop, counted });
    let class = prop_oneof![prop::sample::select(FaultClass::ALL), Just(FaultClass::ContextOverflow)];
    let fallback = prop::option::of(prop::sample::select(vec!["second", "third"]));
    let failure = (class, fallback).prop_map(|(class, fallback)| Step::Fail { class, fallback });
    let when = prop::sample::select(vec![InputKind::Steer, InputKind::FollowUp]);
    let say = (when, prop::option::weighted(0.3, 0..4_u32)).prop_map(|(when, turn)| Step::Say { when, turn });
    let outcome = vec![Outcome::Cancelled, Outcome::Budget(Limit::Cost), Outcome::Blocked(Block::Policy)];
    use Garbage::*;
    let garbage = prop::sample::select(vec![Task, LateReply, EarlyReply, Grant, Result, OldResult]);
    prop_oneof![
        2 => Just(Step::Start),
        30 => reply,
        5 => failure,
        30 => (any::<usize>(), any::<bool>())
            .prop_map(|(which, tells_change)| Step::Grant { which, tells_change }),
        3 => any::<usize>().prop_map(|which| Step::NotMade { which }),
        30 => (any::<usize>(), any::<bool>(), any::<bool>())
            .prop_map(|(which, ok, terminate)| Step::Finish { which, ok, terminate }),
        5 => say,
        1 => prop::sample::select(outcome).prop_map(Step::End),
        2 => any::<usize>().prop_map(|which| Step::CancelCall { which }),
        1 => limits().prop_map(Step::Limits),
        4 => prop::sample::select(vec![Step::Pause, Step::Resume]),
        10 => Just(Step::Send),
        6 => prop::sample::select(vec![Step::Park, Step::Unpark, Step::Unpark]),
        1 => Just(Step::Interrupt),
        5 => prop::sample::select(vec![RestartCause::Process, RestartCause::Actor, RestartCause::Import]).prop_map(Step::Restart),
        1 => Just(Step::GiveUp),
        20 => person().prop_map(Step::Person),
        5 => garbage.prop_map(Step::Garbage),
    ]
}

/// Steps, each with the milliseconds that the clock moves before it; now and then it moves back.
fn steps() -> impl Strategy<Value = Vec<(i64, Step)>> {
    prop::collection::vec((-500..2_000_i64, step()), 0..80)
}

fn limits() -> impl Strategy<Value = Limits> {
    let limit = |range: std::ops::Range<u32>| prop::option::weighted(0.3, range);
    (limit(0..8), limit(0..16), limit(0..200), limit(0..60), limit(0..60), limit(0..4), limit(0..4)).prop_map(
        |(turns, calls, tokens, wall, active, at_once, repeats)| Limits {
            max_turns: turns,
            max_tool_calls: calls,
            max_calls_per_turn: at_once,
            max_repeats: repeats,
            max_total_tokens: tokens.map(u64::from),
            wall_time_s: wall.map(u64::from),
            active_time_s: active.map(u64::from),
            ..Limits::default()
        },
    )
}

/// How the task has its answers taken.
fn manner() -> impl Strategy<Value = serde_json::Value> {
    let (formal, retries) = (prop::bool::weighted(0.3), any::<bool>());
    (formal, retries, prop::bool::weighted(0.1)).prop_map(|(formal, retries, stops)| {
        let mut manner = serde_json::json!({
            "on_truncated": if retries { "retry" } else { "block" },
            "stop_on_tool_error": stops,
        });
        if formal {
            manner["response_format"] = serde_json::json!({"type": "json_object"});
        }
        manner
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_run_keeps_its_promises_live_replayed_and_restarted_anywhere(
        limits in limits(),
        manner in manner(),
        waits in prop::bool::weighted(0.1),
        steps in steps(),
    ) {
        let mut live = World::new(limits, manner);
        if !waits {
            live.tell(start());
        }
        for (ms, step) in steps {
            live.play.now += ms;
            live.take(step);
        }
        live.assert_log_is_sound();
        live.assert_replay_equals_live();
        live.assert_glances_agree();

        // A log may end anywhere: by appends, and where it was written by others, by facts.
        let mut past = World::of(Play::new());
        for append in &live.appends {
            for fact in append {
                past.fold(fact);
                past.play.now = past.play.run.last_at.as_micros() / 1_000;
                let mut revived = World { play: past.play.copy(), appends: Vec::new() };
                let used = revived.play.run.usage();
                revived.live_to_the_end();
                revived.assert_log_is_sound();
                assert!(revived.play.run.usage().total() >= used.total());
            }
        }
    }
}

/// A run being played at random.
struct World {
    play: Play,
    appends: Vec<Vec<Fact>>,
}

impl World {
    fn of(play: Play) -> Self {
        Self { play, appends: Vec::new() }
    }

    fn new(limits: Limits, mut manner: serde_json::Value) -> Self {
        let mut world = Self::of(Play::new());
        manner["limits"] = serde_json::to_value(limits).unwrap();
        world.tell(Input::Submit(task(&manner)));
        world
    }

    fn tell(&mut self, input: Input) {
        let before = self.play.log.len();
        let restarts = matches!(input, Input::Restart { .. });
        let in_doubt = if restarts { self.unrepeatable() } else { BTreeSet::new() };
        if self.play.attempt(input).is_err() {
            return;
        }
        self.appends.push(self.play.log[before..].to_vec());
        self.assert_state_is_sound();
        for effect in self.play.run.owed() {
            let Effect::RunCall { call, doubt, .. } = effect else { continue };
            assert!(!restarts || doubt.is_some() || !in_doubt.contains(&call.id), "{} is repeated", call.id);
        }
    }

    fn fold(&mut self, fact: &Fact) {
        self.play.run.evolve(fact);
        self.play.log.push(fact.clone());
    }

    /// Calls that may have taken effect, reads left out.
    fn unrepeatable(&self) -> BTreeSet<CallId> {
        let Phase::Acting(calls) = self.play.run.phase() else { return BTreeSet::new() };
        let unrepeatable = |open: &&OpenCall| match &open.stage {
            Stage::Started(decision, _) | Stage::InDoubt(decision, _) => decision.effect != EffectClass::Read,
            Stage::Asked
            | Stage::Deciding(_)
            | Stage::Rejected(..)
            | Stage::Judged(_)
            | Stage::Answered(_) => false,
        };
        calls.iter().filter(unrepeatable).map(|open| open.call.id.clone()).collect()
    }

    fn open(&self, which: usize, fits: impl Fn(&OpenCall) -> bool) -> Option<&OpenCall> {
        let Phase::Acting(calls) = self.play.run.phase() else { return None };
        let open: Vec<_> = calls.iter().filter(|open| fits(open)).collect();
        open.get(which.checked_rem(open.len())?).copied()
    }

    fn take(&mut self, step: Step) {
        let garbage = matches!(step, Step::Garbage(_));
        if let Some(input) = self.input(step) {
            let before = self.appends.len();
            self.tell(input);
            assert!(!garbage || self.appends.len() == before, "a report that belongs nowhere was believed");
        }
    }

    fn input(&self, step: Step) -> Option<Input> {
        let run = &self.play.run;
        let (turn, attempt) = match run.phase() {
            Phase::Thinking { attempt, .. } => (run.turn(), *attempt),
            Phase::New | Phase::Queued | Phase::Between | Phase::Acting(_) | Phase::Ended(_) => {
                (run.turn(), 1)
            }
        };
        Some(match step {
            Step::Start => start(),
            Step::Reply { calls, says, fits, stop, counted } => {
                let calls = calls.into_iter().map(Plan::propose).collect();
                let mut proposal = proposal(if says { "words" } else { "" }, calls, stop);
                proposal.usage = proposal.usage.filter(|_| counted);
                let is_formal = run.spec().is_some_and(|spec| spec.response_format.is_some());
                proposal.misfit = (is_formal && !fits).then(|| "no JSON".into());
                Input::Replied { turn, attempt, proposal: Box::new(proposal) }
            }
            Step::Fail { class, fallback } if matches!(run.phase(), Phase::Thinking { .. }) => {
                self.play.failure(class, None, fallback.map(Arc::from))
            }
            Step::Fail { .. } => return None,
            Step::Grant { which, tells_change } => {
                let open = self.open(which, |open| !open.is_started() && !open.is_answered())?;
                granted(open.call.id.as_str(), Some(change()).filter(|_| tells_change))
            }
            Step::NotMade { which } => {
                let open = self.open(which, |open| matches!(open.stage, Stage::InDoubt(..)))?;
                Input::NotMade(open.call.id.clone())
            }
            Step::Finish { which, ok, terminate } => {
                let open = self.open(which, OpenCall::is_started)?;
                let failure = Some(Failure::Failed).filter(|_| !ok);
                Input::CallEnded(ToolResult { ok, failure, terminate, ..result(open.call.id.as_str()) })
            }
            Step::Say { when, turn } => {
                Input::Say { when, text: "go on".into(), expected_turn: turn, key: None }
            }
            Step::CancelCall { which } => {
                Input::CancelCall(self.open(which, |open| !open.is_started())?.call.id.clone())
            }
            Step::Limits(limits) => Input::SetLimits(limits),
            Step::Pause => Input::Pause,
            Step::Resume => Input::Resume,
            Step::Send => {
                let usage = Usage { input: 3, output: 2, estimated: true, ..Usage::default() };
                Input::RequestSent { turn, attempt, usage }
            }
            Step::Park => Input::Park(ParkReason::Paused),
            Step::Unpark => Input::Unpark,
            Step::End(outcome) => Input::End(outcome),
            Step::Interrupt => Input::Interrupt,
            Step::Restart(cause) => Input::Restart { cause, error: None },
            Step::GiveUp => Input::GiveUp { breakage: Breakage::Panic, error: "died".to_owned() },
            Step::Person(person) => self.person(person)?,
            Step::Garbage(garbage) => self.garbage(garbage, turn, attempt)?,
        })
    }

    fn garbage(&self, garbage: Garbage, turn: u32, attempt: u32) -> Option<Input> {
        let proposal = || Box::new(proposal("stray", Vec::new(), Stop::EndTurn));
        Some(match garbage {
            Garbage::Task => Input::Submit(spec(Limits::default())),
            Garbage::LateReply => {
                Input::Replied { turn: turn.checked_sub(1)?, attempt, proposal: proposal() }
            }
            Garbage::EarlyReply => Input::Replied { turn, attempt: attempt + 1, proposal: proposal() },
            Garbage::Grant => granted("nobody", None),
            Garbage::Result => Input::CallEnded(result("nobody")),
            Garbage::OldResult => {
                Input::CallEnded(result(self.play.results().first().map(|(call, _)| *call)?))
            }
        })
    }

    /// Does what the run owes, as a shell would that takes it up, until it has ended.
    fn live_to_the_end(&mut self) {
        if self.play.run.parked().is_some() && self.play.run.ending.is_none() {
            // Where its log was cut off it is only sound again when it goes on.
            let _ = self.play.attempt(Input::Resume);
            self.tell(Input::Unpark);
        } else {
            self.tell(Input::Restart { cause: RestartCause::Process, error: None });
            self.tell(Input::Resume);
            self.tell(start());
        }
        for _ in 0..200 {
            match self.play.run.owed().into_iter().next() {
                Some(Effect::AskModel { turn, attempt, .. }) => {
                    let proposal = Box::new(proposal("done", Vec::new(), Stop::EndTurn));
                    self.tell(Input::Replied { turn, attempt, proposal });
                }
                Some(Effect::RunCall { call, doubt, .. }) => {
                    if doubt.is_none() {
                        self.tell(granted(call.id.as_str(), None));
                    }
                    self.tell(Input::CallEnded(result(call.id.as_str())));
                }
                None if self.decide_one() => {}
                None => break,
            }
        }
        assert!(self.play.run.outcome().is_some(), "nothing is owed and the run has not ended");
    }
}

impl Play {
    fn copy(&self) -> Self {
        Self { run: self.run.clone(), log: self.log.clone(), now: self.now }
    }
}

impl Plan {
    fn propose(self) -> ProposedCall {
        let Self { id, tool, arguments, verdict, asked } = self;
        let arguments = Arguments::parse(arguments).unwrap();
        match verdict {
            Some(verdict) => {
                let mut call = ProposedCall { arguments, ..judged(id, tool, verdict) };
                if let Judgement::Judged { ask, .. } = &mut call.judgement {
                    *ask = asked.filter(|_| verdict == Verdict::Ask).map(Asked::ask);
                }
                call
            }
            None => ProposedCall {
                name: tool.into(),
                arguments,
                ..refused(id, Failure::InvalidArguments, "what?")
            },
        }
    }
}
