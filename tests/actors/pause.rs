//! Runs that are held, one by one or behind a gate: nothing of them goes on, and none of them gets lost.

use std::time::Duration;

use herder::{
    actor::supervisor::{AskError, Load, Submitted, Unended},
    domain::{
        gate::{PauseMode, Scope},
        id::{BatchId, RunId},
        run::{Input, Refused},
    },
};
use serde_json::{Value, json};
use tokio::time::Instant;
use uuid::Uuid;

use crate::{
    doubles::{Double, Gate},
    stage::{PATIENCE, Plan, Stage, calls, says},
};

/// Goes through the gate, then is done.
pub(crate) fn script() -> Value {
    json!([calls(&[("a", "gate", json!({}))]), says("done")])
}

/// Goes through the gate, then has so many turns more.
pub(crate) fn long_script(turns: usize) -> Value {
    let quick = |n| calls(&[(&format!("c{n}"), "quick", json!({}))]);
    let first = calls(&[("a", "gate", json!({}))]);
    [first].into_iter().chain((0..turns).map(quick)).chain([says("done")]).collect()
}

pub(crate) async fn held(stage: &Stage) -> usize {
    stage.supervisor.load().await.held
}

pub(crate) async fn until_held(stage: &Stage, count: usize) {
    let come = async {
        while held(stage).await != count {
            // On paused time this lets it pass.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, come).await.expect("the run does not get there");
}

pub(crate) async fn until_live(stage: &Stage, count: usize) {
    while stage.supervisor.load().await.live != count {
        tokio::task::yield_now().await;
    }
}

/// A run that is parked before its second request, by its own pause.
pub(crate) async fn parked(stage: &Stage, gate: &Gate) -> Submitted {
    parked_in(stage, gate, &script()).await
}

pub(crate) async fn parked_in(stage: &Stage, gate: &Gate, script: &Value) -> Submitted {
    let submitted = stage.run(script);
    gate.until_inside(1).await;
    stage.pause(submitted.run).await.unwrap();
    gate.open.add_permits(1);
    until_held(stage, 1).await;
    submitted
}

pub(crate) async fn again(stage: &Stage, plan: Plan) -> Stage {
    Plan { store: stage.store.clone(), ..plan }.start_in(stage.folder.clone()).await
}

#[tokio::test(start_paused = true)]
async fn a_paused_run_ends_its_turn_and_goes_on_when_it_is_resumed_as_if_nothing_had_been() {
    let gate = Gate::closed();
    let stage = Plan::paused().tool(Double::gated("gate", &gate)).start().await;
    let submitted = parked(&stage, &gate).await;
    let run = submitted.run;
    let kinds = stage.kinds(run).await;
    assert_eq!(kinds[kinds.len() - 4..], ["result", "turn_end", "turn_start", "parked"]);
    assert_eq!(stage.supervisor.load().await, Load { held: 1, ..Load::default() });

    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(stage.kinds(run).await.len(), kinds.len(), "something goes on");
    stage.unpause(run).await.unwrap();
    let end = stage.end(submitted).await;
    assert_eq!((end.outcome.to_string(), end.duration_us < 3_600_000_000), ("done".to_owned(), true));
    assert!(!stage.kinds(run).await.contains(&"restart"));

    gate.open.add_permits(1);
    let undisturbed = stage.run(&script());
    let other = undisturbed.run;
    assert_eq!(stage.outcome(undisturbed).await, "done");
    assert_eq!(stage.transcript(run).await, stage.transcript(other).await);
}

#[tokio::test(start_paused = true)]
async fn a_parked_run_holds_no_slot_and_waits_for_one_when_it_is_resumed() {
    let gate = Gate::closed();
    let plan = Plan::paused().tool(Double::gated("gate", &gate));
    let stage = plan.settings(|settings| settings.max_live_runs = 1).start().await;
    let first = parked(&stage, &gate).await;
    let second = stage.run(&script());
    gate.until_inside(1).await;
    stage.unpause(first.run).await.unwrap();
    assert_eq!(stage.supervisor.load().await.queued, 1);
    gate.open.add_permits(1);
    assert_eq!(stage.outcome(second).await, "done");
    assert_eq!(stage.outcome(first).await, "done");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_paused_before_it_started_does_not_start() {
    let gate = Gate::closed();
    let plan = Plan::paused().tool(Double::gated("gate", &gate));
    let stage = plan.settings(|settings| settings.max_live_runs = 1).start().await;
    let first = stage.run(&script());
    let (second, third) = (stage.run(&json!([says("done")])), stage.run(&json!([says("done")])));
    gate.until_inside(1).await;
    stage.pause(second.run).await.unwrap();
    assert_eq!(held(&stage).await, 1);
    gate.open.add_permits(1);
    for submitted in [first, third] {
        assert_eq!(stage.outcome(submitted).await, "done");
    }
    assert_eq!(stage.kinds(second.run).await, ["submitted", "paused"]);
    stage.unpause(second.run).await.unwrap();
    assert_eq!(stage.outcome(second).await, "done");
}

#[tokio::test(start_paused = true)]
async fn pausing_or_resuming_again_says_that_nothing_changed() {
    let gate = Gate::closed();
    let stage = Plan::paused().tool(Double::gated("gate", &gate)).start().await;
    let refusal = |answer| if let Err(AskError::Refused(refused)) = answer { Some(refused) } else { None };
    let submitted = stage.run(&script());
    gate.until_inside(1).await;
    assert_eq!(refusal(stage.unpause(submitted.run).await), Some(Refused::NotPaused));
    stage.pause(submitted.run).await.unwrap();
    assert_eq!(refusal(stage.pause(submitted.run).await), Some(Refused::Paused));
    gate.open.add_permits(1);
    until_held(&stage, 1).await;
    assert_eq!(refusal(stage.pause(submitted.run).await), Some(Refused::Paused));
    stage.unpause(submitted.run).await.unwrap();
    assert_eq!(stage.outcome(submitted).await, "done");
    let nobody = RunId::new(Uuid::now_v7());
    assert!(matches!(stage.pause(nobody).await, Err(AskError::NoSuchRun)));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_sleeps_before_a_retry_parks_at_once_and_sleeps_out_what_is_left_when_resumed() {
    let stage = Plan::paused().start().await;
    let submitted = stage.run(&json!([{ "fault": { "status": 503, "retry_after_s": 50 } }, says("done")]));
    let run = submitted.run;
    stage.until(run, "model_retry", 1).await;
    let since = Instant::now();
    stage.pause(run).await.unwrap();
    until_held(&stage, 1).await;
    assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
    tokio::time::sleep(Duration::from_secs(20)).await;
    stage.unpause(run).await.unwrap();
    assert_eq!(stage.outcome(submitted).await, "done");
    assert!(since.elapsed() >= Duration::from_secs(50), "{:?}", since.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_is_said_to_a_parked_run_is_heard_in_its_next_request() {
    let gate = Gate::closed();
    let stage = Plan::paused().tool(Double::gated("gate", &gate)).start().await;
    let submitted = parked(&stage, &gate).await;
    let run = submitted.run;
    let steer = herder::actor::run::say(herder::domain::event::InputKind::Steer, "faster");
    stage.supervisor.ask(run, steer).await.unwrap();
    assert_eq!(held(&stage).await, 1);
    stage.unpause(run).await.unwrap();
    assert_eq!(stage.outcome(submitted).await, "done");
    let transcript = stage.transcript(run).await;
    assert_eq!(transcript[2..], ["tool a: passed", "user: faster", "model: done"]);
}

#[tokio::test(start_paused = true)]
async fn a_gate_for_a_model_holds_its_runs_and_no_other() {
    let gate = Gate::closed();
    let stage = Plan::paused().tool(Double::gated("gate", &gate)).start().await;
    let submitted = stage.run(&script());
    gate.until_inside(1).await;
    assert!(stage.supervisor.hold(Scope::Model("m".into()), PauseMode::Hold).await);
    assert!(!stage.supervisor.hold(Scope::Model("m".into()), PauseMode::Hold).await);
    let late = stage.run(&json!([says("done")]));
    let other = stage.submit("ws", &json!([]), &json!({ "model": "other" }));
    assert_eq!(stage.outcome(other).await, "failed: setup", "it got its slot");
    gate.open.add_permits(1);
    until_held(&stage, 2).await;
    assert_eq!(stage.kinds(late.run).await, ["submitted"]);
    assert_eq!(stage.supervisor.gates().await.iter().count(), 1);

    assert!(stage.supervisor.release(Scope::Model("m".into())).await);
    assert!(!stage.supervisor.release(Scope::Model("m".into())).await);
    for submitted in [submitted, late] {
        assert_eq!(stage.outcome(submitted).await, "done");
    }
}

#[tokio::test(start_paused = true)]
async fn a_soft_gate_lets_live_runs_end_and_starts_none() {
    let gate = Gate::closed();
    let stage = Plan::paused().tool(Double::gated("gate", &gate)).start().await;
    let live = stage.run(&script());
    gate.until_inside(1).await;
    stage.supervisor.hold(Scope::All, PauseMode::Soft).await;
    let late = stage.run(&json!([says("done")]));
    gate.open.add_permits(1);
    assert_eq!(stage.outcome(live).await, "done");
    assert_eq!(held(&stage).await, 1);
    stage.supervisor.release(Scope::All).await;
    assert_eq!(stage.outcome(late).await, "done");
}

#[tokio::test(start_paused = true)]
async fn a_gate_that_opens_lets_runs_go_in_the_order_in_which_they_were_submitted() {
    let plan = Plan::paused().settings(|settings| settings.max_live_runs = 1);
    let stage = plan.start().await;
    let batch = BatchId::new(Uuid::from_u128(1));
    let first: Vec<_> =
        (0..5).map(|_| stage.submit("ws", &json!([says("done")]), &json!({ "batch": batch }))).collect();
    // Some of them are still queued.
    stage.supervisor.hold(Scope::Batch(batch), PauseMode::Soft).await;
    let later: Vec<_> =
        (0..5).map(|_| stage.submit("ws", &json!([says("done")]), &json!({ "batch": batch }))).collect();
    stage.supervisor.release(Scope::Batch(batch)).await;
    let mut starts = Vec::new();
    for submitted in first.into_iter().chain(later) {
        let run = submitted.run;
        assert_eq!(stage.outcome(submitted).await, "done");
        starts.push(stage.log(run).await[1].pos);
    }
    assert!(starts.is_sorted(), "{starts:?}");
}

#[tokio::test(start_paused = true)]
async fn a_run_goes_on_only_when_neither_a_person_nor_a_gate_holds_it() {
    let gate = Gate::closed();
    let stage = Plan::paused().tool(Double::gated("gate", &gate)).start().await;
    let submitted = parked(&stage, &gate).await;
    stage.supervisor.hold(Scope::All, PauseMode::Soft).await;
    stage.unpause(submitted.run).await.unwrap();
    assert_eq!(held(&stage).await, 1);
    stage.pause(submitted.run).await.unwrap();
    stage.supervisor.release(Scope::All).await;
    assert_eq!(held(&stage).await, 1);
    stage.unpause(submitted.run).await.unwrap();
    assert_eq!(stage.outcome(submitted).await, "done");
}

#[tokio::test(start_paused = true)]
async fn held_runs_hold_up_no_drain_and_stay_held_over_a_restart_until_they_are_resumed() {
    let gate = Gate::closed();
    let plan = || Plan::paused().tool(Double::gated("gate", &gate)).tool(Double::heeding("wait"));
    let stage = plan().start().await;
    let parked = parked(&stage, &gate).await;
    let at_work = stage.run(&json!([calls(&[("a", "wait", json!({}))]), says("done")]));
    stage.until(at_work.run, "call_started", 1).await;
    stage.pause(at_work.run).await.unwrap();
    stage.supervisor.hold(Scope::All, PauseMode::Soft).await;
    let waits = stage.run(&json!([says("done")]));
    stage.pause(waits.run).await.unwrap();
    let runs = [parked.run, at_work.run, waits.run];
    stage.supervisor.drain(Duration::ZERO).await;
    for stopped in [parked, waits] {
        assert!(matches!(stopped.done.await.unwrap().end, Err(Unended::Stopped)));
    }
    assert_eq!(stage.kinds(runs[0]).await.last(), Some(&"parked"));
    assert_eq!(stage.kinds(runs[1]).await.last(), Some(&"interrupted"));

    let stage = again(&stage, plan()).await;
    for run in runs {
        let resumed = stage.supervisor.resume(run).await.unwrap();
        let before = stage.kinds(run).await.len();
        assert_eq!(held(&stage).await, 1);
        assert_eq!(stage.kinds(run).await.len(), before);
        stage.unpause(run).await.unwrap();
        assert_eq!(stage.outcome(resumed).await, "done");
    }
    assert!(!stage.kinds(runs[0]).await.contains(&"restart"));
}

#[tokio::test(start_paused = true)]
async fn a_held_run_is_cancelled_at_once() {
    let gate = Gate::closed();
    let stage = Plan::paused().tool(Double::gated("gate", &gate)).start().await;
    let one = parked(&stage, &gate).await;
    let run = one.run;
    let seq = stage.supervisor.cancel(run).await.unwrap();
    assert_eq!(stage.outcome(one).await, "cancelled");
    let log = stage.log(run).await;
    assert_eq!(log.last().unwrap().seq, seq);
    let kinds = stage.kinds(run).await;
    assert_eq!(kinds[kinds.len() - 4..], ["parked", "cancel_requested", "turn_end", "run_end"]);

    let two = parked(&stage, &gate).await;
    stage.supervisor.hold(Scope::All, PauseMode::Hold).await;
    let three = stage.run(&json!([says("done")]));
    for submitted in [two, three] {
        stage.supervisor.cancel(submitted.run).await.unwrap();
        assert_eq!(stage.outcome(submitted).await, "cancelled");
    }
    assert_eq!(stage.supervisor.load().await, Load::default());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_paused_and_resumed_as_it_parks_is_never_lost() {
    for round in 0..20 {
        let gate = Gate::closed();
        let plan = Plan::default().tool(Double::quick("quick"));
        let stage = plan.tool(Double::gated("gate", &gate)).start().await;
        let submitted = parked_in(&stage, &gate, &long_script(20)).await;
        let run = submitted.run;
        let mut turns = 0;
        // Whoever asks is turned away only by a run that has ended.
        'playing: loop {
            for input in [Input::Resume, Input::Pause] {
                for _ in 0..(round + turns) % 7 {
                    tokio::task::yield_now().await;
                }
                match stage.supervisor.ask(run, input).await {
                    Ok(_) => {}
                    Err(AskError::NoSuchRun | AskError::Refused(Refused::Ended)) => break 'playing,
                    Err(error) => panic!("{error}"),
                }
            }
            turns += 1;
        }
        let ended = tokio::time::timeout(PATIENCE, stage.outcome(submitted)).await;
        assert_eq!(ended.expect("the run was lost"), "done");
        assert_eq!(stage.results(run).await.len(), 21);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gate_that_opens_as_runs_park_behind_it_loses_none() {
    let gate = Gate::closed();
    let plan = Plan::default().tool(Double::quick("quick")).tool(Double::gated("gate", &gate));
    let stage = plan.settings(|settings| settings.max_live_runs = 5).start().await;
    let runs: Vec<_> = (0..20).map(|_| stage.run(&long_script(10))).collect();
    gate.until_inside(5).await;
    gate.open.add_permits(20);
    let mut rounds = 0;
    while stage.supervisor.load().await != Load::default() {
        stage.supervisor.hold(Scope::All, PauseMode::Hold).await;
        for _ in 0..rounds % 11 * 20 {
            tokio::task::yield_now().await;
        }
        stage.supervisor.release(Scope::All).await;
        rounds += 1;
    }
    for submitted in runs {
        assert_eq!(stage.outcome(submitted).await, "done");
    }
}
