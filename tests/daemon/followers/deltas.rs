//! More text than memory should hold, spoken while some who wanted it do not read.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use axum::{Router, body::Body, routing::get};
use futures_util::StreamExt;
use herder::{
    actor::{Live, LiveDelta},
    daemon::{
        hub::{Deltas, Hub},
        server::Limits,
    },
    domain::{
        event::{Fact, decode},
        id::{Pos, RunId, Seq},
    },
    store::{EventStore, memory::MemoryStore},
};
use serde_json::Value;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use super::{in_time, reader::Reader};
use crate::harness::start;

const DELTAS: u64 = 200_000;
/// Pieces of text between two events of record.
const TURN: u64 = 1_000;
/// Bytes that may be held at any time of the two hundred million that are spoken.
const GROWTH: u64 = 48 << 20;

fn run() -> RunId {
    RunId::from_bytes([7; 16])
}

fn fact(kind: &str, data: &str) -> Fact {
    let stored = format!(r#"[{{"v":1,"at":1760000000000000,"turn":1,"kind":"{kind}","data":{data}}}]"#);
    decode(stored.as_bytes(), run(), Pos::new(1), Seq::new(1)).unwrap().remove(0).fact
}

fn append(store: &MemoryStore, after: u64, kind: &str, data: &str) {
    store.append(run(), Seq::new(after), &[fact(kind, data)]).unwrap();
}

/// Bytes of memory that this process holds.
fn held() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Reads to the end of the run: the places of its events, and how many pieces of text there were and how many were missed.
/// Pieces come in the order in which they were spoken.
async fn listen(mut reader: Reader, tally: Arc<AtomicU64>) -> (Vec<u64>, u64, u64) {
    let (mut ids, mut heard, mut missed, mut last) = (Vec::new(), 0, 0, None);
    loop {
        let sent = in_time(reader.next()).await.expect("the stream goes on to the end of the run");
        match &*sent.name {
            "text" => {
                let data: Value = serde_json::from_str(&sent.data).unwrap();
                let number: u64 = data["text"].as_str().unwrap()[..8].parse().unwrap();
                assert!(last.is_none_or(|last| last < number), "{number} came after {last:?}");
                last = Some(number);
                heard += 1;
            }
            "lagged" => {
                let data: Value = serde_json::from_str(&sent.data).unwrap();
                missed += data["missed"].as_u64().unwrap();
            }
            _ => ids.extend(sent.id),
        }
        tally.store(heard + missed, Relaxed);
        if sent.name == "run_end" {
            return (ids, heard, missed);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_megabytes_of_speech_cost_no_memory_though_one_listener_does_not_read() {
    let (store, live) = (Arc::new(MemoryStore::default()), broadcast::channel(4_096).0);
    append(&store, 0, "submitted", r#"{"task":"t","attempt":1,"model":"m","workspace":"/w"}"#);
    let hub = Hub::start(store.clone(), live.clone(), &CancellationToken::new()).await.unwrap();
    let hub = Arc::new(hub);
    let followed = hub.clone();
    let follow = move || {
        let events = followed.run(run(), Seq::START, Deltas::With).into_stream();
        async move { Body::from_stream(events.map(Ok::<_, Infallible>)) }
    };
    let server = start(Router::new().route("/events", get(follow)), Limits::default());
    let open = async || Reader::open(&server.path, "/events", None).await;
    let (leaves, stalls, reads) = (open().await, open().await, open().await);
    in_time(async {
        while hub.followers() < 3 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let tally = Arc::new(AtomicU64::new(0));
    let reading = tokio::spawn(listen(reads, tally.clone()));

    let before = held();
    let text = "x".repeat(1_000);
    let mut most = 0;
    for number in 0..DELTAS {
        let what = LiveDelta::Text(format!("{number:08}{text}").into());
        live.send(Live { run: run(), turn: 1, what }).unwrap();
        if number % TURN == 0 {
            append(&store, 1 + number / TURN, "turn_start", "{}");
            most = most.max(held().saturating_sub(before));
        }
        tokio::task::yield_now().await;
    }
    assert!(most < GROWTH, "{most} bytes more were held");
    // The one that reads has had everything that it will ever have.
    in_time(async {
        while tally.load(Relaxed) < DELTAS {
            tokio::task::yield_now().await;
        }
    })
    .await;
    drop(leaves);
    in_time(async {
        while hub.followers() > 2 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    })
    .await;
    append(
        &store,
        1 + DELTAS / TURN,
        "run_end",
        r#"{"outcome":"done","usage":{"input":0,"output":0},"turns":1,"calls":0,"queued_us":1,"duration_us":1,
            "active_us":1}"#,
    );
    let events: Vec<u64> = (1..=2 + DELTAS / TURN).collect();
    let (ids, heard, missed) = reading.await.unwrap();
    assert_eq!((ids, heard + missed), (events.clone(), DELTAS));
    assert!(heard > 0);
    // The one that stalled has every event of record, and is told how much text it missed.
    let (ids, heard, missed) = listen(stalls, tally).await;
    assert_eq!((ids, heard + missed), (events, DELTAS));
    assert!(missed > DELTAS / 2, "{missed} of {DELTAS} were missed");
    let growth = held().saturating_sub(before);
    assert!(growth < GROWTH, "{growth} bytes more are held");
}
