//! herder stops and starts again: what a run was about is gone on with, and nothing is done twice.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use herder::{
    actor::supervisor::Unended,
    domain::{
        call::{Access, Arguments, EffectClass, Failure, Mode, Scope},
        event::FileChange,
        id::{CallId, RunId},
        outcome::Stop,
        policy::Verdict,
        run::{Input, Judgement, Proposal, ProposedCall, Run},
    },
    tool::Output,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;
use uuid::Uuid;

use crate::{
    doubles::{Double, Gate, Trouble, TroubledStore},
    stage::{Plan, Stage, calls, says},
};

/// A tool that counts how often it is run.
fn counting(name: &str, effect: EffectClass) -> (Double, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let tool = Double::new(name, move |_, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        async { Output::ok("counted") }
    });
    (tool.effect(effect), count)
}

fn two_turns() -> Value {
    json!([calls(&[("a", "gate", json!({}))]), calls(&[("b", "gate", json!({}))]), says("done")])
}

/// Another tree over the same log and the same folder.
async fn again(stage: &Stage, plan: Plan) -> Stage {
    Plan { store: stage.store.clone(), ..plan }.start_in(stage.folder.clone()).await
}

#[tokio::test(start_paused = true)]
async fn a_drain_lets_a_turn_end_and_the_next_start_goes_on_as_if_nothing_had_been() {
    let gate = Gate::closed();
    let stage = Plan::paused().tool(Double::gated("gate", &gate)).start().await;
    let submitted = stage.run(&two_turns());
    let run = submitted.run;
    gate.until_inside(1).await;
    let drain = tokio::spawn({
        let supervisor = stage.supervisor.clone();
        async move { supervisor.drain(Duration::from_secs(25)).await }
    });
    tokio::task::yield_now().await;
    gate.open.add_permits(1);
    drain.await.unwrap();
    assert!(matches!(submitted.done.await.unwrap().end, Err(Unended::Stopped)));
    let kinds = stage.kinds(run).await;
    assert_eq!(kinds[kinds.len() - 3..], ["turn_end", "turn_start", "interrupted"]);

    let gate = Gate::closed();
    gate.open.add_permits(10);
    let stage = again(&stage, Plan::paused().tool(Double::gated("gate", &gate))).await;
    let resumed = stage.supervisor.resume(run).await.unwrap();
    assert_eq!(stage.outcome(resumed).await, "done");
    let undisturbed = stage.run(&two_turns());
    let other = undisturbed.run;
    assert_eq!(stage.outcome(undisturbed).await, "done");
    assert_eq!(stage.transcript(run).await, stage.transcript(other).await);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_does_not_end_its_turn_in_time_is_interrupted_and_goes_on_later() {
    let plan = || Plan::paused().tool(Double::slow("slow", Duration::from_secs(60)));
    let stage = plan().start().await;
    let script = json!([calls(&[("a", "slow", json!({}))]), { "text": "done", "delay_ms": 10 }]);
    let asleep = stage.run(&json!([{ "fault": { "status": 503, "retry_after_s": 50 } }, says("done")]));
    let (submitted, waits) =
        (stage.run(&script), stage.run(&json!([{ "text": "done", "delay_ms": 60_000 }])));
    let runs = [submitted.run, waits.run, asleep.run];
    stage.until(runs[0], "call_started", 1).await;
    stage.until(runs[1], "turn_start", 1).await;
    stage.until(runs[2], "model_retry", 1).await;
    let since = Instant::now();
    stage.supervisor.drain(Duration::from_secs(10)).await;
    assert!(since.elapsed() < Duration::from_secs(11), "{:?}", since.elapsed());
    for run in runs {
        assert_eq!(stage.kinds(run).await.last(), Some(&"interrupted"));
    }
    assert_eq!(stage.results(runs[0]).await[0].failure, Some(Failure::Cancelled));
    assert!(stage.supervisor.resume(runs[0]).await.is_err(), "the tree is down");

    let stage = again(&stage, plan()).await;
    for run in runs {
        let resumed = stage.supervisor.resume(run).await.unwrap();
        assert_eq!(stage.outcome(resumed).await, "done");
    }
    assert_eq!(stage.results(runs[0]).await.len(), 1, "what was interrupted is not repeated");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_when_herder_stops_is_made_after_the_next_start() {
    let (alone, count) = counting("alone", EffectClass::Outside);
    let plan = |alone: Double| {
        Plan::paused()
            .tool(Double::heeding("hold").on("file", Mode::Exclusive))
            .tool(alone.on("file", Mode::Exclusive))
    };
    let stage = plan(alone).start().await;
    let holds = stage.run(&json!([calls(&[("a", "hold", json!({}))]), says("done")]));
    stage.until(holds.run, "call_started", 1).await;
    let waits = stage.run(&json!([calls(&[("a", "alone", json!({}))]), says("done")]));
    let run = waits.run;
    stage.until(run, "decision", 1).await;
    stage.supervisor.drain(Duration::ZERO).await;
    assert_eq!((stage.results(run).await.len(), count.load(Ordering::SeqCst)), (0, 0));

    let (alone, count) = counting("alone", EffectClass::Outside);
    let stage = again(&stage, plan(alone)).await;
    let resumed = stage.supervisor.resume(run).await.unwrap();
    assert_eq!(stage.outcome(resumed).await, "done");
    assert_eq!((stage.results(run).await.len(), count.load(Ordering::SeqCst)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn runs_that_wait_for_a_slot_when_herder_stops_are_left_as_they_are() {
    let plan = || Plan::paused().settings(|settings| settings.max_live_runs = 1);
    let stage = plan().start().await;
    let (first, second) = (stage.run(&json!([{ "fault": "stall" }])), stage.run(&json!([says("done")])));
    let run = second.run;
    stage.until(first.run, "turn_start", 1).await;
    stage.supervisor.drain(Duration::ZERO).await;
    assert!(matches!(second.done.await.unwrap().end, Err(Unended::Stopped)));
    assert_eq!(stage.kinds(run).await, ["submitted"]);
    let stage = again(&stage, plan()).await;
    let resumed = stage.supervisor.resume(run).await.unwrap();
    assert_eq!(stage.outcome(resumed).await, "done");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_to_be_started_again_holds_up_no_drain() {
    let store = TroubledStore::new(|_, _, facts| {
        facts.iter().any(|fact| fact.event.kind() == "message").then_some(Trouble::Panics)
    });
    let stage = Plan { store: Arc::new(store), ..Plan::paused() }.start().await;
    let submitted = stage.run(&json!([says("done")]));
    let run = submitted.run;
    stage.until(run, "restart", 4).await;
    let since = Instant::now();
    stage.supervisor.drain(Duration::from_secs(25)).await;
    assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
    assert!(matches!(submitted.done.await.unwrap().end, Err(Unended::Stopped)));
    assert!(!stage.kinds(run).await.contains(&"run_end"));
}

/// A log that ends when a call had started: as if herder had been killed then.
async fn killed_in(
    stage: &Stage,
    tool: &str,
    arguments: Value,
    effect: EffectClass,
    change: Option<FileChange>,
) -> RunId {
    let file = change.as_ref().map(|change| change.path.clone());
    let mut run = killed_before(stage, tool, arguments, effect, file, &json!({})).await;
    tell(stage, &mut run, Input::Granted { call: CallId::new("a"), change }).await;
    run.id()
}

/// A log that ends when a call waited for its file.
async fn killed_before(
    stage: &Stage,
    tool: &str,
    arguments: Value,
    effect: EffectClass,
    file: Option<Arc<str>>,
    more: &Value,
) -> Run {
    let script = json!([calls(&[("a", tool, arguments.clone())]), says("done")]);
    let alone = |path| Access { scope: Scope::File, path, mode: Mode::Exclusive };
    let judgement = Judgement::Judged {
        verdict: Verdict::Allow,
        rule: "a rule".to_owned(),
        effect,
        access: file.map(alone).into_iter().collect(),
        ask: None,
    };
    let call = ProposedCall {
        id: Some("a".into()),
        name: tool.into(),
        arguments: Arguments::parse(&arguments.to_string()).unwrap(),
        judgement,
    };
    let proposal = Proposal { calls: vec![call], ..Proposal::new(Stop::ToolCalls) };
    let mut run = Run::new(RunId::new(Uuid::now_v7()));
    for input in [
        Input::Submit(stage.task("ws", &script, more)),
        Input::Start { model: "m".into(), tools: vec![tool.into()] },
        Input::Replied { turn: 1, attempt: 1, proposal: Box::new(proposal) },
    ] {
        tell(stage, &mut run, input).await;
    }
    run
}

async fn tell(stage: &Stage, run: &mut Run, input: Input) {
    let facts = run.decide(input, stage.supervisor.services().clock.now()).unwrap();
    let ticket = stage.store.append(run.id(), run.seq(), &facts).unwrap();
    stage.store.durable(ticket).await.unwrap();
    facts.iter().for_each(|fact| run.evolve(fact));
}

/// The change of a file in the workspace `ws` from one text to another.
fn change_of(stage: &Stage, file: &str, before: &str, after: &str) -> FileChange {
    let path = fs::canonicalize(stage.path("ws", file)).unwrap();
    FileChange { path: path.to_str().unwrap().into(), before: Some(hash(before)), after: hash(after) }
}

fn hash(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn an_edit_that_had_started_is_settled_by_what_the_file_holds() {
    let edit = json!({ "path": "a.txt", "old_text": "one", "new_text": "two" });
    for (now, after, ok) in
        [("one\n", "two\n", true), ("two\n", "two\n", true), ("three\n", "three\n", false)]
    {
        let stage = Plan::default().start().await;
        stage.write("ws", "a.txt", now);
        let change = change_of(&stage, "a.txt", "one\n", "two\n");
        let run = killed_in(&stage, "edit", edit.clone(), EffectClass::Write, Some(change)).await;
        let resumed = stage.supervisor.resume(run).await.unwrap();
        assert_eq!(stage.outcome(resumed).await, "done");
        assert_eq!(stage.text("ws", "a.txt"), after);
        let results = stage.results(run).await;
        let unknown = (!ok).then_some(Failure::OutcomeUnknown);
        assert_eq!((results.len(), results[0].ok, results[0].failure), (1, ok, unknown), "{now}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_that_had_started_is_repeated_and_anything_else_is_not() {
    for (effect, times, failure) in
        [(EffectClass::Read, 1, None), (EffectClass::Outside, 0, Some(Failure::OutcomeUnknown))]
    {
        let (tool, count) = counting("tool", effect);
        let stage = Plan::paused().tool(tool).start().await;
        let run = killed_in(&stage, "tool", json!({}), effect, None).await;
        let resumed = stage.supervisor.resume(run).await.unwrap();
        assert_eq!(stage.outcome(resumed).await, "done");
        assert_eq!(count.load(Ordering::SeqCst), times);
        let results = stage.results(run).await;
        assert_eq!((results.len(), results[0].failure), (1, failure));
    }
}

#[tokio::test]
async fn an_edit_in_doubt_is_settled_before_another_run_edits_the_file() {
    let made = (true, None, true);
    for (now, repeated) in [("ONE\ntwo\n", false), ("one\ntwo\n", true)] {
        let stage = Plan::default().start().await;
        stage.write("ws", "a.txt", now);
        let edit = |old: &str, new: &str| json!({ "path": "a.txt", "old_text": old, "new_text": new });
        let change = change_of(&stage, "a.txt", "one\ntwo\n", "ONE\ntwo\n");
        let (file, second) = (Some(change.path.clone()), edit("two", "TWO"));
        let waits = killed_before(&stage, "edit", second, EffectClass::Write, file, &json!({})).await.id();
        let doubted = killed_in(&stage, "edit", edit("one", "ONE"), EffectClass::Write, Some(change)).await;

        stage.supervisor.settle([waits, doubted]).await.unwrap();
        // The one that waited comes first in the input, and is through before the other one has its turn.
        for run in [waits, doubted] {
            let resumed = stage.supervisor.resume(run).await.unwrap();
            assert_eq!(stage.outcome(resumed).await, "done");
        }

        assert_eq!(stage.text("ws", "a.txt"), "ONE\nTWO\n");
        let result = &stage.results(doubted).await[0];
        assert_eq!((result.ok, result.failure, result.timing.is_some() == repeated), made, "{result:?}");
        assert_eq!(result.output.contains("made before"), !repeated, "{result:?}");
        assert_eq!(stage.results(waits).await.len(), 1);
    }
}

#[tokio::test]
async fn a_run_that_ends_as_its_doubt_is_settled_is_over_when_it_is_taken_up() {
    let stage = Plan::default().start().await;
    stage.write("ws", "a.txt", "two\n");
    let change = change_of(&stage, "a.txt", "one\n", "two\n");
    let edit = json!({ "path": "a.txt", "old_text": "one", "new_text": "two" });
    let more = json!({ "limits": { "max_turns": 1 } });
    let file = Some(change.path.clone());
    let mut run = killed_before(&stage, "edit", edit, EffectClass::Write, file, &more).await;
    tell(&stage, &mut run, Input::Granted { call: CallId::new("a"), change: Some(change) }).await;
    let run = run.id();
    stage.supervisor.settle([run]).await.unwrap();
    let resumed = stage.supervisor.resume(run).await.unwrap();
    assert_eq!(stage.outcome(resumed).await, "budget: turns");
    assert!(stage.results(run).await[0].ok);
}

#[tokio::test(start_paused = true)]
async fn what_leaves_no_doubt_is_not_touched_by_settling() {
    let stage = Plan::paused().tool(Double::quick("tool")).start().await;
    let run = killed_in(&stage, "tool", json!({}), EffectClass::Outside, None).await;
    let before = stage.kinds(run).await;
    stage.supervisor.settle([run, RunId::new(Uuid::now_v7())]).await.unwrap();
    assert_eq!(stage.kinds(run).await, before);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_was_taken_up_is_cancelled_while_it_waits_for_its_slot() {
    let plan = Plan::paused().tool(Double::quick("tool"));
    let stage = plan.settings(|settings| settings.max_live_runs = 1).start().await;
    let first = stage.run(&json!([{ "fault": "stall" }]));
    stage.until(first.run, "turn_start", 1).await;
    let run = killed_in(&stage, "tool", json!({}), EffectClass::Outside, None).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let resumed = stage.supervisor.resume(run).await.unwrap();
    stage.supervisor.cancel(run).await.unwrap();
    let end = stage.end(resumed).await;
    assert_eq!((end.outcome.to_string(), end.duration_us), ("cancelled".to_owned(), 0));
    assert_eq!(stage.results(run).await[0].failure, Some(Failure::OutcomeUnknown));
}

#[tokio::test]
async fn a_paused_run_that_was_killed_in_its_calls_ends_its_turn_first_and_is_held_then() {
    let stage = Plan::default().start().await;
    stage.write("ws", "a.txt", "one\n");
    let arguments = json!({ "path": "a.txt" });
    let mut run = killed_before(&stage, "read", arguments, EffectClass::Read, None, &json!({})).await;
    tell(&stage, &mut run, Input::Pause).await;
    let resumed = stage.supervisor.resume(run.id()).await.unwrap();
    stage.until(run.id(), "parked", 1).await;
    assert_eq!(stage.results(run.id()).await.len(), 1);
    stage.unpause(run.id()).await.unwrap();
    assert_eq!(stage.outcome(resumed).await, "done");
}
