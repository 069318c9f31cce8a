//! A run whose actor dies goes on from its log, or ends, as policy and its history say; nobody else notices.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use herder::{
    actor::supervisor::Unended,
    domain::{
        call::{EffectClass, Mode},
        event::{Event, Fact},
        id::RunId,
        restart::RestartPolicy,
    },
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    doubles::{Double, Gate, Trouble, TroubledStore},
    stage::{Plan, Stage, calls, says},
};

fn script() -> Value {
    let look = |id| calls(&[(id, "look", json!({}))]);
    json!([look("a"), { "fault": { "status": 503 } }, look("b"), says("done")])
}

fn stage_with(store: TroubledStore) -> Plan {
    Plan { store: Arc::new(store), ..Plan::paused() }.tool(Double::quick("look").effect(EffectClass::Read))
}

/// The task of a run that gets into trouble; its first fact tells it from the others.
fn is_troubled(stage: &Stage, script: &Value) -> herder::actor::supervisor::Submitted {
    stage.submit("ws", script, &json!({ "task_id": "troubled" }))
}

/// Trouble for the run of that task alone, with its `nth` append, as often as `times`.
fn once(trouble: Trouble, nth: usize) -> TroubledStore {
    of_troubled(move |before, _| (before == nth).then_some(trouble))
}

fn of_troubled(judge: impl Fn(usize, &[Fact]) -> Option<Trouble> + Send + Sync + 'static) -> TroubledStore {
    let troubled = std::sync::OnceLock::<RunId>::new();
    TroubledStore::new(move |run, before, facts| {
        if let Some(Event::Submitted(spec)) = facts.first().map(|fact| &fact.event)
            && spec.task_id.as_deref() == Some("troubled")
        {
            troubled.set(run).unwrap();
        }
        if troubled.get() == Some(&run) { judge(before, facts) } else { None }
    })
}

fn holds(facts: &[Fact], kind: &str) -> bool {
    facts.iter().any(|fact| fact.event.kind() == kind)
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_actor_dies_anywhere_ends_as_if_it_had_not() {
    let stage = stage_with(TroubledStore::new(|_, _, _| None)).start().await;
    let undisturbed = stage.run(&script());
    let run = undisturbed.run;
    assert_eq!(stage.outcome(undisturbed).await, "done");
    let expected = stage.transcript(run).await;
    let appends = stage.log(run).await.len();

    for trouble in [Trouble::Refuses, Trouble::Loses, Trouble::Panics] {
        let mut restarted = 0;
        for nth in 1..appends {
            let stage = stage_with(once(trouble, nth)).start().await;
            let (troubled, other) = (is_troubled(&stage, &script()), stage.run(&script()));
            let (run, other_run) = (troubled.run, other.run);
            assert_eq!(stage.outcome(troubled).await, "done", "{trouble:?} {nth}");
            assert_eq!(stage.transcript(run).await, expected, "{trouble:?} {nth}");
            restarted += stage.kinds(run).await.iter().filter(|kind| **kind == "restart").count();
            assert_eq!(stage.outcome(other).await, "done");
            assert!(!stage.kinds(other_run).await.contains(&"restart"));
        }
        assert!(restarted >= 8, "{restarted}");
    }
}

#[tokio::test(start_paused = true)]
async fn policy_says_whether_a_run_whose_actor_died_goes_on() {
    for (policy, expected) in [
        (RestartPolicy::Never, "failed: panic"),
        (RestartPolicy::OnFailure, "done"),
        (RestartPolicy::Always, "done"),
    ] {
        let stage = stage_with(once(Trouble::Panics, 3)).settings(|settings| settings.restart = policy);
        let stage = stage.start().await;
        let troubled = is_troubled(&stage, &script());
        let end = stage.end(troubled).await;
        assert_eq!(end.outcome.to_string(), expected);
        assert_eq!(end.error.is_some(), policy == RestartPolicy::Never);
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_dies_again_and_again_waits_longer_each_time_and_is_then_given_up() {
    let store = of_troubled(|_, facts| holds(facts, "message").then_some(Trouble::Panics));
    let stage = stage_with(store).start().await;
    let (troubled, other) = (is_troubled(&stage, &script()), stage.run(&script()));
    let run = troubled.run;
    let end = stage.end(troubled).await;
    assert_eq!(end.outcome.to_string(), "failed: restart_limit");
    assert!(end.error.unwrap().contains("disk is on fire"));
    let mut last = None;
    let mut waits = Vec::new();
    for one in stage.log(run).await {
        if one.fact.event.kind() == "restart" {
            waits.extend(last.map(|last| one.fact.at.since(last)));
        }
        last = Some(one.fact.at);
    }
    assert_eq!(waits.len(), 5);
    for (wait, ceiling) in waits.iter().zip([1, 2, 4, 8, 16].map(Duration::from_secs)) {
        let slack = Duration::from_millis(5);
        assert!(*wait + slack >= ceiling / 2 && *wait <= ceiling + slack, "{waits:?}");
    }
    assert_eq!(stage.outcome(other).await, "done");
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_log_takes_nothing_any_more_is_let_go_and_its_slot_is_free() {
    for trouble in [Trouble::Refuses, Trouble::Loses, Trouble::Panics] {
        let store = Arc::new(of_troubled(move |before, _| (before > 0).then_some(trouble)));
        let plan = Plan { store: store.clone(), ..Plan::paused() };
        let stage = plan.settings(|settings| settings.max_live_runs = 1).start().await;
        let short = json!([says("done")]);
        let (troubled, other) = (is_troubled(&stage, &short), stage.run(&short));
        let run = troubled.run;
        assert!(matches!(troubled.done.await.unwrap().end, Err(Unended::Left)), "{trouble:?}");
        assert_eq!(stage.kinds(run).await, ["submitted"]);
        assert!(store.appends(run) < 20, "{trouble:?}: {}", store.appends(run));
        assert_eq!(stage.outcome(other).await, "done");
    }
}

#[tokio::test(start_paused = true)]
async fn an_end_that_the_log_did_not_take_is_reached_again() {
    let failed = AtomicUsize::new(0);
    let store = of_troubled(move |_, facts| {
        let first = holds(facts, "run_end") && failed.fetch_add(1, Ordering::SeqCst) == 0;
        first.then_some(Trouble::Refuses)
    });
    let stage = stage_with(store).start().await;
    let troubled = is_troubled(&stage, &script());
    assert_eq!(stage.outcome(troubled).await, "done");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_to_be_started_again_is_cancelled_at_once() {
    let deaths = Arc::new(AtomicUsize::new(0));
    let counted = deaths.clone();
    let store = of_troubled(move |_, facts| {
        let dies = holds(facts, "message");
        counted.fetch_add(usize::from(dies), Ordering::SeqCst);
        dies.then_some(Trouble::Panics)
    });
    let stage = stage_with(store).start().await;
    let troubled = is_troubled(&stage, &script());
    let run = troubled.run;
    stage.until(run, "restart", 3).await;
    while deaths.load(Ordering::SeqCst) < 4 {
        tokio::task::yield_now().await;
    }
    let since = Instant::now();
    stage.supervisor.cancel(run).await.unwrap();
    assert_eq!(stage.outcome(troubled).await, "cancelled");
    assert!(since.elapsed() < Duration::from_millis(10), "{:?}", since.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_whose_actor_dies_over_it_ends_as_cancelled() {
    let failed = AtomicUsize::new(0);
    let store = of_troubled(move |_, facts| {
        let first = holds(facts, "cancel_requested") && failed.fetch_add(1, Ordering::SeqCst) == 0;
        first.then_some(Trouble::Panics)
    });
    let stage = stage_with(store).start().await;
    let troubled = is_troubled(&stage, &json!([{ "fault": "stall" }]));
    stage.until(troubled.run, "turn_start", 1).await;
    let since = Instant::now();
    // The answer dies with the actor.
    let _ = stage.supervisor.cancel(troubled.run).await;
    assert_eq!(stage.outcome(troubled).await, "cancelled");
    assert!(since.elapsed() < Duration::from_millis(10), "{:?}", since.elapsed());
}

#[tokio::test(start_paused = true)]
async fn calls_of_a_dead_actor_leave_the_queue_and_are_queued_anew() {
    let gate = Gate::closed();
    let store = of_troubled(|_, facts| holds(facts, "input_queued").then_some(Trouble::Panics));
    let plan = Plan { store: Arc::new(store), ..Plan::paused() }
        .tool(Double::gated("hold", &gate).on("file", Mode::Shared))
        .tool(Double::quick("alone").on("file", Mode::Exclusive))
        .tool(Double::quick("share").on("file", Mode::Shared));
    let stage = plan.settings(|settings| settings.restart = RestartPolicy::Never).start().await;
    let asks = |tool| json!([calls(&[("a", tool, json!({}))]), says("done")]);
    let held = stage.run(&asks("hold"));
    gate.until_inside(1).await;
    let troubled = is_troubled(&stage, &asks("alone"));
    stage.until(troubled.run, "decision", 1).await;
    let shares = stage.run(&asks("share"));
    stage.until(shares.run, "decision", 1).await;
    let word = herder::actor::run::say(herder::domain::event::InputKind::Steer, "hello");
    let since = Instant::now();
    assert!(stage.supervisor.ask(troubled.run, word).await.is_err());
    assert_eq!(stage.outcome(troubled).await, "failed: panic");
    assert_eq!(stage.outcome(shares).await, "done");
    assert_eq!(since.elapsed(), Duration::ZERO, "the first still holds the file");
    gate.open.add_permits(1);
    assert_eq!(stage.outcome(held).await, "done");
}
