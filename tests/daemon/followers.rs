//! Many who follow many runs, some of whom stop reading: whoever reads has everything once and in order, whoever does not is
//! cut off and goes on later, and neither the runs nor the daemon's memory notice.

mod daemon;
mod deltas;
mod reader;

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

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
#[derive(Clone)]
enum Followed {
    /// Everything after this place.
    All(u64),
    Batch(String),
    Run(RunId),
}

impl Followed {
    fn route(&self) -> String {
        match self {
            Self::All(after) => format!("/v1/events?after={after}"),
            Self::Batch(batch) => format!("/v1/events?batch={batch}"),
            Self::Run(run) => format!("/v1/runs/{run}/events"),
        }
    }

    /// Runs whose end ends what is followed.
    const fn ends(&self) -> usize {
        match self {
            Self::All(_) => (BATCHES + 1) * RUNS,
            Self::Batch(_) => RUNS,
            Self::Run(_) => 1,
        }
    }

    /// The ids of the events that are to come.
    fn wanted(&self, log: &[Envelope], batches: &BTreeMap<RunId, String>) -> Vec<u64> {
        let id = |event: &Envelope| match self {
            Self::All(after) => (event.pos.get() > *after).then_some(event.pos.get()),
            Self::Batch(batch) => (batches.get(&event.run) == Some(batch)).then_some(event.pos.get()),
            Self::Run(run) => (event.run == *run).then_some(event.seq.get()),
        };
        log.iter().filter_map(id).collect()
    }
}

/// Reads to the end. On a busy machine even this may be too slow for the events of all; then it goes on where it was.
async fn follow(socket: PathBuf, mut reader: Reader, followed: Followed) -> Vec<u64> {
    let (mut ids, mut ends) = (Vec::new(), 0);
    loop {
        let had = reader.until(followed.ends() - ends).await;
        ids.extend(had.ids);
        ends += had.ends;
        match had.over {
            Over::Enough => return ids,
            Over::Gap => {
                assert!(!matches!(followed, Followed::Run(_)), "a run that says little was too much")
            }
            Over::CutOff => panic!("a client that reads was cut off"),
        }
        reader = Reader::open(&socket, &followed.route(), ids.last().copied()).await;
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
    let late = Followed::All(daemon.log().await.last().unwrap().pos.get());
    let mut stalled = Vec::new();
    for _ in 0..20 {
        stalled.push(Reader::open(daemon.socket(), &late.route(), None).await);
    }
    let all = (0..20).map(|_| Followed::All(0));
    let of_batches = (0..60).map(|number| Followed::Batch(batches[number % BATCHES].clone()));
    let of_runs = (0..100).flat_map(|client| {
        let handful = runs.iter().cycle().skip(client).step_by(RUNS / HANDFUL + 1);
        handful.take(HANDFUL).map(|run| Followed::Run(*run)).collect::<Vec<_>>()
    });
    let mut readers = Vec::new();
    for followed in all.chain(of_batches).chain(of_runs) {
        let reader = Reader::open(daemon.socket(), &followed.route(), None).await;
        let following = follow(daemon.socket().to_owned(), reader, followed.clone());
        readers.push((followed, tokio::spawn(following)));
    }
    let followers = (stalled.len() + readers.len()) as u64;
    in_time(async { while daemon.status().await.followers < followers {} }).await;
    let before = daemon.status().await.rss_bytes.unwrap();

    daemon.post::<Changed>("resume", &json!({})).await;
    let mut had = Vec::new();
    for (followed, reader) in readers {
        had.push((followed, in_time(reader).await.unwrap()));
    }
    let status: Status = daemon.status().await;
    assert_eq!((status.runs.open, status.runs.ended["done"]), (0, ((BATCHES + 1) * RUNS) as u64));
    let growth = status.rss_bytes.unwrap().saturating_sub(before);
    assert!(growth < GROWTH, "{growth} bytes more are held");

    for reader in stalled {
        let Had { mut ids, ends, over } = in_time(reader.until(late.ends())).await;
        assert!(matches!(over, Over::Gap | Over::CutOff), "a client that did not read kept its place");
        let resumed = Reader::open(daemon.socket(), &late.route(), ids.last().copied()).await;
        let rest = in_time(resumed.until(late.ends() - ends)).await;
        assert!(matches!(rest.over, Over::Enough), "{:?}", rest.over);
        ids.extend(rest.ids);
        had.push((late.clone(), ids));
    }
    let log = daemon.log().await;
    let batches = daemon.batches_of_runs().await;
    for (followed, ids) in had {
        assert!(ids == followed.wanted(&log, &batches), "{}: {} events", followed.route(), ids.len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_and_those_who_steer_it_do_not_wait_for_a_client_that_stopped_reading() {
    const LOUD: usize = 200;
    let daemon = Daemon::start().await;
    daemon.write("long.txt", &"A line of a long file, not one of which is left out.\n".repeat(900));
    let loud = json!({ "calls": [{ "name": "read", "arguments": { "path": "long.txt" } }] });
    let mut script = vec![loud; LOUD];
    script.push(json!({ "text": "done", "delay_ms": 86_400_000 }));
    let limits = json!({ "max_turns": 1_000 });
    // Nothing happens before both follow: who comes late is shown what is of record as fast as it reads.
    daemon.post::<Changed>("pause", &json!({})).await;
    let run = daemon.submit(&json!({ "task": "Read.", "script": script, "limits": limits })).await;
    let path = format!("/v1/runs/{run}/events");
    let stalled = Reader::open(daemon.socket(), &format!("{path}?live=true"), None).await;
    let mut reader = Reader::open(daemon.socket(), &path, None).await;
    in_time(async { while daemon.status().await.followers < 2 {} }).await;
    daemon.post::<Changed>("resume", &json!({})).await;
    let mut ids = Vec::new();
    // Far more happens than the sockets, the queue and the server hold of it; the stalled client has read nothing.
    let mut turns = 0;
    while turns <= LOUD {
        let event = in_time(reader.next()).await.expect("the stream goes on");
        turns += usize::from(event.name == "turn_start");
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
