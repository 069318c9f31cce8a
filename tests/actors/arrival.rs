//! A run is with the supervisor once, however it comes and however often; whoever brought it hears what became of it.

use std::{sync::Arc, time::Duration};

use futures_util::FutureExt as _;
use herder::{
    actor::supervisor::{Load, SubmitError, Submitted, Unended},
    domain::{
        event::{Event, Fact},
        gate::{PauseMode, Scope},
        id::RunId,
        run::Refused,
    },
    store::StoreError,
};
use serde_json::{Value, json};
use tokio::time::timeout;
use uuid::Uuid;

use crate::{
    doubles::{Double, Gate, Trouble, TroubledStore},
    stage::{PATIENCE, Plan, Stage, calls, says},
};

fn asks(tool: &str) -> Value {
    json!([calls(&[("a", tool, json!({}))]), says("done")])
}

fn new_run() -> RunId {
    RunId::new(Uuid::now_v7())
}

/// One slot, and what holds it until the gate lets it pass.
async fn one_slot(plan: Plan) -> (Stage, Arc<Gate>, Submitted) {
    let gate = Gate::closed();
    let plan = plan.tool(Double::gated("gate", &gate)).settings(|settings| settings.max_live_runs = 1);
    let stage = plan.start().await;
    let first = stage.run(&asks("gate"));
    gate.until_inside(1).await;
    (stage, gate, first)
}

/// A store that does not get tasks of this id to the disk.
fn loses(task: &'static str) -> Arc<TroubledStore> {
    let is_lost = move |fact: &Fact| matches!(&fact.event, Event::Submitted(spec) if spec.task_id.as_deref() == Some(task));
    Arc::new(TroubledStore::new(move |_, _, facts| facts.iter().any(is_lost).then_some(Trouble::Loses)))
}

async fn unended(submitted: Submitted) -> Unended {
    timeout(PATIENCE, submitted.done).await.unwrap().unwrap().end.unwrap_err()
}

async fn until_load(stage: &Stage, load: Load) {
    let come = async {
        while stage.supervisor.load().await != load {
            // On paused time this lets it pass.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, come).await.expect("it never gets there");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_taken_up_again_wherever_it_is_stays_one_and_all_hear_its_end() {
    let (stage, gate, live) = one_slot(Plan::paused()).await;
    let (queued, held) = (stage.run(&asks("gate")), stage.run(&asks("gate")));
    stage.pause(held.run).await.unwrap();
    let mut all = Vec::new();
    for one in [live, queued, held] {
        let run = one.run;
        all.push(one);
        for _ in 0..2 {
            all.push(stage.supervisor.resume(run).await.unwrap());
        }
    }
    let load = stage.supervisor.load().await;
    assert_eq!((load.live, load.queued, load.held), (1, 1, 1));
    // It comes by all places on its way.
    stage.unpause(all[6].run).await.unwrap();
    gate.open.add_permits(3);
    for one in all {
        let run = one.run;
        assert_eq!(stage.outcome(one).await, "done");
        let kinds = stage.kinds(run).await;
        assert!(!kinds.contains(&"restart") && !kinds.contains(&"unparked"), "{kinds:?}");
    }
    assert_eq!(stage.supervisor.load().await, Load::default());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_takes_a_run_up_as_it_parks_or_ends_hears_its_end() {
    let stage = Arc::new(Plan::default().tool(Double::quick("quick")).start().await);
    for round in 0..40 {
        let submitted = stage.run(&json!([asks("quick")[0], asks("quick")[0], says("done")]));
        let run = submitted.run;
        let others = tokio::spawn({
            let stage = stage.clone();
            async move {
                let mut others = Vec::new();
                while !others.iter().any(|other: &Submitted| !other.done.is_empty()) {
                    others.push(stage.supervisor.resume(run).await.unwrap());
                    tokio::task::yield_now().await;
                }
                others
            }
        });
        for _ in 0..round {
            tokio::task::yield_now().await;
        }
        // It may have ended.
        if stage.pause(run).await.is_ok() {
            let _ = stage.unpause(run).await;
        }
        for told in others.await.unwrap().into_iter().chain([submitted]) {
            let ended = timeout(PATIENCE, stage.outcome(told)).await;
            assert_eq!(ended.expect("nobody told the end"), "done");
        }
        assert!(!stage.kinds(run).await.contains(&"restart"));
    }
    assert_eq!(stage.supervisor.load().await, Load::default());
}

#[tokio::test(start_paused = true)]
async fn those_who_take_a_run_up_at_once_share_it_and_one_who_leaves_does_not_undo_it() {
    let (stage, _, first) = one_slot(Plan::paused()).await;
    let waits = stage.run(&json!([says("done")]));
    let runs = [first.run, waits.run];
    stage.supervisor.drain(Duration::ZERO).await;
    assert!(matches!(unended(waits).await, Unended::Stopped));

    let plan = Plan { store: stage.store.clone(), ..Plan::paused() }.tool(Double::quick("gate"));
    let stage = plan.start_in(stage.folder.clone()).await;
    assert!(stage.supervisor.resume(runs[0]).now_or_never().is_none(), "it has to read the log");
    for run in runs {
        let (one, two) = tokio::join!(stage.supervisor.resume(run), stage.supervisor.resume(run));
        for told in [one.unwrap(), two.unwrap()] {
            assert_eq!(stage.outcome(told).await, "done");
        }
        assert!(stage.kinds(run).await.iter().filter(|kind| **kind == "restart").count() <= 1);
    }
}

#[tokio::test(start_paused = true)]
async fn what_has_ended_is_over_at_once_and_what_never_was_is_not_taken_up() {
    let stage = Plan::paused().start().await;
    let submitted = stage.run(&json!([says("done")]));
    let run = submitted.run;
    assert_eq!(stage.outcome(submitted).await, "done");
    stage.supervisor.hold(Scope::All, PauseMode::Hold).await;
    for _ in 0..2 {
        let again = stage.supervisor.resume(run).await.unwrap();
        assert_eq!(stage.outcome(again).await, "done");
        // That nothing starts any more makes no difference.
        stage.supervisor.close();
    }
    let never = stage.supervisor.resume(new_run()).await;
    assert!(matches!(never, Err(SubmitError::Refused(Refused::OutOfTurn))));
    assert_eq!(stage.supervisor.load().await, Load::default());
}

#[tokio::test(start_paused = true)]
async fn a_submitter_that_hangs_up_leaves_its_run_in_good_hands() {
    let store = Arc::new(TroubledStore::new(|_, _, _| None));
    let stage = Plan { store: store.clone(), ..Plan::paused() }.start().await;
    let run = new_run();
    store.disk.send_replace(false);
    let task = stage.task("ws", &json!([says("done")]), &json!({}));
    assert!(stage.supervisor.submit(run, task).now_or_never().is_none(), "it has to wait for the disk");
    store.disk.send_replace(true);
    timeout(PATIENCE, stage.until(run, "run_end", 1)).await.expect("nobody has the run");
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_task_never_reached_the_disk_is_gone_wherever_it_is() {
    let store = loses("lost");
    let (stage, gate, first) = one_slot(Plan { store: store.clone(), ..Plan::paused() }).await;
    let lost = || stage.submit("ws", &json!([says("done")]), &json!({ "task_id": "lost" }));
    store.disk.send_replace(false);
    let (queued, cancelled) = (lost(), lost());
    let cancel = tokio::spawn({
        let (supervisor, run) = (stage.supervisor.clone(), cancelled.run);
        async move { supervisor.cancel(run).await }
    });
    until_load(&stage, Load { live: 2, queued: 1, by_batch: [(None, 2)].into(), ..Load::default() }).await;
    stage.supervisor.hold(Scope::All, PauseMode::Soft).await;
    let held = lost();
    until_load(&stage, Load { live: 2, held: 2, by_batch: [(None, 2)].into(), ..Load::default() }).await;
    store.disk.send_replace(true);
    let runs = [queued.run, cancelled.run, held.run];
    for one in [queued, cancelled, held] {
        assert!(matches!(unended(one).await, Unended::NotRecorded(StoreError::Conflict { .. })));
    }
    assert!(cancel.await.unwrap().is_err());

    stage.supervisor.release(Scope::All).await;
    gate.open.add_permits(1);
    assert_eq!(stage.outcome(first).await, "done");
    let live = lost();
    assert!(matches!(unended(live).await, Unended::NotRecorded(_)));
    assert_eq!(stage.supervisor.load().await, Load::default());
    for run in runs {
        assert!(stage.log(run).await.is_empty());
        let resumed = stage.supervisor.resume(run).await;
        assert!(matches!(resumed, Err(SubmitError::Refused(Refused::OutOfTurn))));
    }
}

#[tokio::test(start_paused = true)]
async fn a_submitter_that_waits_for_the_disk_is_told_that_its_task_is_not_there() {
    let stage = Plan { store: loses("lost"), ..Plan::paused() }.start().await;
    let task = stage.task("ws", &json!([says("done")]), &json!({ "task_id": "lost" }));
    let submitted = stage.supervisor.submit(new_run(), task).await;
    assert!(matches!(submitted, Err(SubmitError::Store(StoreError::Conflict { .. }))));
    until_load(&stage, Load::default()).await;
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_taken_leaves_the_run_that_has_it_alone() {
    let (stage, gate, first) = one_slot(Plan::paused()).await;
    let task = stage.task("ws", &json!([says("other")]), &json!({}));
    let submitted = stage.supervisor.submit(first.run, task).await;
    assert!(matches!(submitted, Err(SubmitError::Store(StoreError::Conflict { .. }))));
    gate.open.add_permits(1);
    assert_eq!(stage.outcome(first).await, "done");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_of_record_is_taken_on_although_herder_stops_and_goes_on_later() {
    let (stage, _, first) = one_slot(Plan::paused()).await;
    let task = |stage: &Stage| stage.task("ws", &json!([says("done")]), &json!({}));
    stage.supervisor.close();
    let closed = stage.supervisor.submit(new_run(), task(&stage)).await.unwrap();
    let resumed = stage.supervisor.resume(closed.run).await.unwrap();
    let runs = [closed.run, new_run()];
    for one in [closed, resumed] {
        assert!(matches!(unended(one).await, Unended::Stopped));
    }
    stage.supervisor.drain(Duration::ZERO).await;
    assert!(matches!(unended(first).await, Unended::Stopped));
    let down = stage.supervisor.submit(runs[1], task(&stage)).await.unwrap();
    assert!(down.done.await.is_err());

    let stage = Plan { store: stage.store.clone(), ..Plan::paused() }.start_in(stage.folder.clone()).await;
    for run in runs {
        let resumed = stage.supervisor.resume(run).await.unwrap();
        assert_eq!(stage.outcome(resumed).await, "done");
    }
}
