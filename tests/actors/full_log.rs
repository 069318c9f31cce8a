//! The log's disk is full: nothing starts, nothing is done twice, and everything goes on once there is room.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use herder::{actor::supervisor::Unended, tool::Output};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::{
    doubles::{Double, TroubledStore},
    stage::{PATIENCE, Plan, calls, says},
};

/// Far longer than anything takes that waits for no disk.
const LONG: Duration = Duration::from_secs(60);

fn three_turns() -> Value {
    json!([calls(&[("a", "fills", json!({}))]), calls(&[("b", "counts", json!({}))]), says("done")])
}

/// A tool that fills the disk as it runs, and one that counts how often it is run.
fn tools(store: &Arc<TroubledStore>) -> (Double, Double, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let (counted, full) = (count.clone(), store.clone());
    let fills = Double::new("fills", move |_, _| {
        full.fill();
        async { Output::ok("full") }
    });
    let counts = Double::new("counts", move |_, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        async { Output::ok("counted") }
    });
    (fills, counts, count)
}

#[tokio::test(start_paused = true)]
async fn while_the_disk_is_full_no_run_starts_and_none_is_lost() {
    let store = Arc::new(TroubledStore::new(|_, _, _| None));
    store.fill();
    let stage = Plan { store: store.clone(), ..Plan::paused() }.start().await;
    let runs: Vec<_> = (0..3).map(|_| stage.run(&json!([says("done")]))).collect();
    sleep(LONG).await;
    let load = stage.supervisor.load().await;
    assert_eq!((load.live, load.queued), (0, 3));
    store.make_room();
    for run in runs {
        assert_eq!(timeout(PATIENCE, stage.outcome(run)).await.unwrap(), "done");
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_at_work_waits_for_room_and_then_does_the_rest_once() {
    let store = Arc::new(TroubledStore::new(|_, _, _| None));
    let (fills, counts, count) = tools(&store);
    let plan = Plan { store: store.clone(), ..Plan::paused() }.tool(fills).tool(counts);
    let stage = plan.start().await;
    let submitted = stage.run(&three_turns());
    let run = submitted.run;
    stage.until(run, "result", 1).await;
    sleep(LONG).await;
    assert_eq!(count.load(Ordering::SeqCst), 0);
    assert!(!stage.kinds(run).await.contains(&"restart"));
    store.make_room();
    assert_eq!(timeout(PATIENCE, stage.outcome(submitted)).await.unwrap(), "done");
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn herder_stops_though_the_disk_stays_full_and_goes_on_from_what_was_durable() {
    let store = Arc::new(TroubledStore::new(|_, _, _| None));
    let (fills, counts, count) = tools(&store);
    let plan = Plan { store: store.clone(), ..Plan::paused() }.tool(fills).tool(counts);
    let stage = plan.start().await;
    let submitted = stage.run(&three_turns());
    stage.until(submitted.run, "result", 1).await;
    timeout(PATIENCE, stage.supervisor.drain(Duration::from_secs(1))).await.unwrap();
    let over = submitted.done.await;
    assert!(matches!(over.map(|over| over.end), Ok(Err(Unended::Stopped)) | Err(_)));
    assert_eq!(count.load(Ordering::SeqCst), 0);
}
