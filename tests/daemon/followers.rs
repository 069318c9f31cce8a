//! Many who follow many runs, some of whom stop reading: whoever reads has everything once and in order, whoever does not is
//! cut off and goes on later, and neither the runs nor the daemon's memory notice.

mod daemon;
mod deltas;
mod reader;

use std::{collections::BTreeMap, time::Duration};

use herder::{
    daemon::wire::{Changed, Status},
    domain::{event::Envelope, id::RunId},
};
use serde_json::{Value, json};

use self::{
    daemon::Daemon,
    reader::{Had, Over, Reader},
};

/// Longer than any of this takes on a machine that has much else to do.
const DEADLINE: Duration = Duration::from_secs(200);

async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, work).await.expect("this does not hang")
}

const BATCHES: usize = 9;
/// In each batch, and as many that are in none.
const RUNS: usize = 100;
/// Runs that one client follows.
const HANDFUL: usize = 4;
/// Bytes that a thousand runs and two hundred clients may cost: far less than what twenty of them leave unread.
const GROWTH: u64 = 256 << 20;

/// Who follows what.
enum Followed {
    All,
    Batch(String),
    Run(RunId),
}

/// The places of the events that a follower is to have.
fn wanted(log: &[Envelope], followed: &Followed, batches: &BTreeMap<RunId, String>) -> Vec<u64> {
    log.iter()
        .filter_map(|event| match followed {
            Followed::All => Some(event.pos.get()),
            Followed::Batch(batch) => (batches.get(&event.run) == Some(batch)).then_some(event.pos.get()),
            Followed::Run(run) => (event.run == *run).then_some(event.seq.get()),
        })
        .collect()
}

fn route(followed: &Followed) -> String {
    match followed {
        Followed::All => "/v1/events".to_owned(),
        Followed::Batch(batch) => format!("/v1/events?batch={batch}"),
        Followed::Run(run) => format!("/v1/runs/{run}/events"),
    }
}

/// Runs whose end ends what is followed.
const fn ends(followed: &Followed) -> usize {
    match followed {
        Followed::All => (BATCHES + 1) * RUNS,
        Followed::Batch(_) => RUNS,
        Followed::Run(_) => 1,
    }
}

fn task(id: usize) -> Value {
    let script =
        json!([{ "calls": [{ "name": "list", "arguments": {} }] }, { "text": "It is done. ".repeat(40) }]);
    json!({ "id": format!("task-{id}"), "task": "Look around.", "script": script })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_clients_follow_a_thousand_runs_and_twenty_of_them_stop_reading() {
    let daemon = Daemon::start().await;
    daemon.post::<Changed>("pause", &json!({})).await;
    let mut batches = Vec::new();
    for _ in 0..BATCHES {
        batches.push(daemon.submit_batch(&(0..RUNS).map(task).collect::<Vec<_>>()).await);
    }
    let mut runs: Vec<RunId> = Vec::new();
    for number in 0..RUNS {
        runs.push(daemon.submit(&task(number)).await.parse().unwrap());
    }
    // Twenty follow everything and stop reading, twenty follow everything, sixty a batch, a hundred a few runs each.
    let mut stalled = Vec::new();
    for _ in 0..20 {
        stalled.push(Reader::open(daemon.socket(), "/v1/events", None).await);
    }
    let all = (0..20).map(|_| Followed::All);
    let of_batches = (0..60).map(|number| Followed::Batch(batches[number % BATCHES].clone()));
    let of_runs = (0..100).flat_map(|client| {
        let handful = runs.iter().cycle().skip(client).step_by(RUNS / HANDFUL + 1);
        handful.take(HANDFUL).map(|run| Followed::Run(*run)).collect::<Vec<_>>()
    });
    let mut readers = Vec::new();
    for followed in all.chain(of_batches).chain(of_runs) {
        let reader = Reader::open(daemon.socket(), &route(&followed), None).await;
        let enough = ends(&followed);
        readers.push((followed, tokio::spawn(async move { reader.until(enough).await })));
    }
    let followers = (stalled.len() + readers.len()) as u64;
    in_time(async { while daemon.status().await.followers < followers {} }).await;
    let before = daemon.status().await.rss_bytes.unwrap();

    daemon.post::<Changed>("resume", &json!({})).await;
    let mut had = Vec::new();
    for (followed, reader) in readers {
        let Had { ids, over, .. } = in_time(reader).await.unwrap();
        assert!(matches!(over, Over::Enough), "a client that reads was cut off");
        had.push((followed, ids));
    }
    let status: Status = daemon.status().await;
    assert_eq!((status.runs.open, status.runs.ended["done"]), (0, ((BATCHES + 1) * RUNS) as u64));
    let growth = status.rss_bytes.unwrap().saturating_sub(before);
    assert!(growth < GROWTH, "{growth} bytes more are held");

    for reader in stalled {
        let enough = ends(&Followed::All);
        let Had { mut ids, ends, over } = in_time(reader.until(enough)).await;
        assert!(matches!(over, Over::Gap | Over::CutOff), "a client that did not read kept its place");
        let resumed = Reader::open(daemon.socket(), "/v1/events", ids.last().copied()).await;
        let rest = in_time(resumed.until(enough - ends)).await;
        assert!(matches!(rest.over, Over::Enough), "{:?}", rest.over);
        ids.extend(rest.ids);
        had.push((Followed::All, ids));
    }
    let log = daemon.log().await;
    let batches = daemon.batches_of_runs().await;
    for (followed, ids) in had {
        assert!(ids == wanted(&log, &followed, &batches), "{}: {} events", route(&followed), ids.len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_and_those_who_steer_it_do_not_wait_for_a_client_that_stopped_reading() {
    const LOUD: u64 = 150;
    let daemon = Daemon::start().await;
    let loud = json!({ "text": "x".repeat(60_000), "calls": [{ "name": "list", "arguments": {} }] });
    let mut script = vec![loud; usize::try_from(LOUD).unwrap()];
    script.push(json!({ "text": "done", "delay_ms": 86_400_000 }));
    let limits = json!({ "max_turns": 1_000 });
    let run = daemon.submit(&json!({ "task": "Talk.", "script": script, "limits": limits })).await;
    let path = format!("/v1/runs/{run}/events");
    let stalled = Reader::open(daemon.socket(), &format!("{path}?live=true"), None).await;
    let mut reader = Reader::open(daemon.socket(), &path, None).await;
    let mut ids = Vec::new();
    // Far more than the sockets, the queue and the server hold of it is said; the stalled client has read nothing.
    let mut turns = 0;
    while turns <= LOUD {
        let event = in_time(reader.next()).await.expect("the stream goes on");
        turns += u64::from(event.name == "turn_start");
        ids.extend(event.id);
    }
    for verb in ["pause", "resume", "cancel"] {
        let changed: Changed = in_time(daemon.post(&format!("runs/{run}/{verb}"), &json!({}))).await;
        assert!(changed.changed, "{verb}");
    }
    ids.extend(in_time(reader.until(1)).await.ids);
    assert_eq!(ids, (1..=ids.len() as u64).collect::<Vec<_>>());

    let Had { ids: mut late, over, .. } = in_time(stalled.until(1)).await;
    assert!(matches!(over, Over::Gap | Over::CutOff), "a client that did not read kept its place");
    let resumed = Reader::open(daemon.socket(), &path, late.last().copied()).await;
    late.extend(in_time(resumed.until(1)).await.ids);
    assert_eq!(late, ids);
}
