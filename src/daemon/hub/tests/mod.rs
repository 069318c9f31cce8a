//! What a stream of events promises, one sentence a test. Here is how the tests write a log and read a stream; the
//! sentences lie beside it.

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use tokio::{sync::broadcast, time::timeout};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    actor::LiveDelta,
    domain::{
        event::{Fact, decode},
        id::BatchId,
    },
    store::memory::MemoryStore,
};

mod damage;
mod deltas;
mod ends;
mod filters;
mod once;
mod slow;

const DEADLINE: Duration = Duration::from_secs(60);

/// A hub over a log in memory.
struct World {
    store: Arc<MemoryStore>,
    live: broadcast::Sender<Live>,
    closing: CancellationToken,
    hub: Hub,
}

async fn world() -> World {
    let store = Arc::new(MemoryStore::default());
    let (live, closing) = (broadcast::channel(1_024).0, CancellationToken::new());
    let hub = Hub::start(store.clone(), live.clone(), &closing).await.unwrap();
    World { store, live, closing, hub }
}

impl World {
    /// Appends facts, each in an append of its own, behind what the run has.
    fn append(&self, run: RunId, after: u64, facts: &[Fact]) {
        append(&*self.store, run, after, facts);
    }

    /// One run, followed from its beginning, with what it has already sent.
    async fn reader_of(&self, run: RunId, after: u64, deltas: Deltas) -> Reader {
        let mut reader = Reader::new(self.hub.run(run, Seq::new(after), deltas));
        reader.greeting().await;
        reader
    }

    async fn reader_of_all(&self, after: u64, filter: Filter) -> Reader {
        let mut reader = Reader::new(self.hub.all(Pos::new(after), filter, Deltas::Without));
        reader.greeting().await;
        reader
    }
}

fn append(store: &dyn EventStore, run: RunId, after: u64, facts: &[Fact]) {
    for (fact, place) in facts.iter().zip(after..) {
        store.append(run, Seq::new(place), std::slice::from_ref(fact)).unwrap();
    }
}

/// What a client makes of one server-sent event.
#[derive(Clone, Debug, PartialEq)]
struct Sent {
    id: Option<u64>,
    event: String,
    data: Value,
}

impl Sent {
    fn parse(text: &str) -> Self {
        let mut sent = Self { id: None, event: String::new(), data: Value::Null };
        for line in text.lines() {
            match line.split_once(": ") {
                Some(("id", id)) => sent.id = Some(id.parse().unwrap()),
                Some(("event", event)) => event.clone_into(&mut sent.event),
                Some(("data", data)) => sent.data = serde_json::from_str(data).unwrap(),
                Some(("retry" | "", _)) => line.clone_into(&mut sent.event),
                Some(_) | None => panic!("{line:?} is no line of an event"),
            }
        }
        sent
    }
}

/// A client.
struct Reader {
    stream: EventStream,
    sent: std::collections::VecDeque<Sent>,
}

impl Reader {
    fn new(stream: EventStream) -> Self {
        Self { stream, sent: std::collections::VecDeque::new() }
    }

    async fn greeting(&mut self) {
        assert_eq!(self.next().await.unwrap().event, "retry: 1000");
    }

    /// The next event; nothing once the run has ended and the stream has said so, or is over.
    async fn next(&mut self) -> Option<Sent> {
        let sent = self.sent().await?;
        if sent.event != "end" || sent.data["code"] != "ended" {
            return Some(sent);
        }
        assert_eq!(self.sent().await, None, "something came after the end");
        None
    }

    async fn sent(&mut self) -> Option<Sent> {
        if self.sent.is_empty() {
            let chunk = timeout(DEADLINE, self.stream.next()).await.unwrap()?;
            assert!(chunk.ends_with(b"\n\n"), "an event is cut in two");
            let text = std::str::from_utf8(&chunk).unwrap();
            self.sent.extend(text.trim_end().split("\n\n").map(Sent::parse));
        }
        self.sent.pop_front()
    }

    /// The ids of the next events, which are all of record.
    async fn ids(&mut self, count: usize) -> Vec<u64> {
        let mut ids = Vec::new();
        for _ in 0..count {
            let sent = self.next().await.unwrap();
            ids.push(sent.id.unwrap_or_else(|| panic!("{sent:?} is not of record")));
        }
        ids
    }

    /// Every event until the stream ends.
    async fn rest(&mut self) -> Vec<Sent> {
        let mut rest = Vec::new();
        while let Some(sent) = self.next().await {
            rest.push(sent);
        }
        rest
    }
}

fn run_id(number: u64) -> RunId {
    RunId::from_bytes(u128::from(number).to_be_bytes())
}

fn batch_id(number: u8) -> BatchId {
    BatchId::from_bytes([number; 16])
}

fn fact(turn: u32, kind: &str, data: &str) -> Fact {
    let stored = format!(r#"[{{"v":1,"at":1760000000000000,"turn":{turn},"kind":"{kind}","data":{data}}}]"#);
    decode(stored.as_bytes(), run_id(1), Pos::new(1), Seq::new(1)).unwrap().remove(0).fact
}

fn submitted(batch: Option<BatchId>) -> Fact {
    let batch = batch.map(|batch| format!(r#""batch":"{batch}","#)).unwrap_or_default();
    fact(0, "submitted", &format!(r#"{{"task":"t",{batch}"attempt":1,"model":"m","workspace":"/w"}}"#))
}

fn turn(turn: u32) -> Fact {
    fact(turn, "turn_start", "{}")
}

/// A result that takes ten kilobytes.
fn result() -> Fact {
    let output = "x".repeat(10_000);
    fact(1, "result", &format!(r#"{{"call":"a","ok":true,"output":"{output}"}}"#))
}

fn run_end() -> Fact {
    let usage = r#"{"input":0,"output":0}"#;
    let numbers = r#""turns":1,"calls":0,"queued_us":1,"duration_us":1,"active_us":1"#;
    fact(1, "run_end", &format!(r#"{{"outcome":"done","usage":{usage},{numbers}}}"#))
}
