//! Each event once and in order, whenever a reader comes.

use super::*;
use crate::store::sqlite::{Options, SqliteStore};

const RUNS: u64 = 8;
const EVENTS: u64 = 150;
const READERS: u64 = 12;

/// Writes runs at once, while readers come at moments spread over the writing.
async fn write_and_read(store: Arc<dyn EventStore>) {
    let live = broadcast::channel(1).0;
    let hub = Arc::new(Hub::start(store.clone(), live, &CancellationToken::new()).await.unwrap());
    let (total, mut tasks) = (RUNS * EVENTS, tokio::task::JoinSet::new());
    for number in 0..READERS {
        let (hub, store) = (hub.clone(), store.clone());
        tasks.spawn(async move {
            // Some come before the first event, none after the last.
            let comes = number * total / READERS;
            store.watch().wait_for(|pos| pos.get() >= comes).await.unwrap();
            let after = comes / 2;
            let mut all = Client { hub: &hub, run: None, reader: None, last: after };
            let run = run_id(number % RUNS);
            let mut one = Client { hub: &hub, run: Some(run), reader: None, last: 0 };
            tokio::join!(all.read(total), one.read(EVENTS));
            assert_eq!(one.reader.unwrap().next().await, None, "a run has ended, its stream has not");
        });
    }
    for run in 0..RUNS {
        let store = store.clone();
        tasks.spawn(async move {
            for place in 0..EVENTS {
                let fact = match place {
                    0 => submitted(None),
                    _ if place == EVENTS - 1 => run_end(),
                    _ => turn(1),
                };
                let ticket = store.append(run_id(run), Seq::new(place), &[fact]).unwrap();
                store.durable(ticket).await.unwrap();
                tokio::task::yield_now().await;
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert_eq!(hub.shared.registry.entered(), 0);
    assert_eq!(hub.board().totals(|_| true, Default::default()).open(), 0);
}

/// A client that resumes where it was cut off.
struct Client<'a> {
    hub: &'a Hub,
    run: Option<RunId>,
    reader: Option<Reader>,
    last: u64,
}

impl Client<'_> {
    async fn read(&mut self, through: u64) {
        while self.last < through {
            if self.reader.is_none() {
                let stream = match self.run {
                    Some(run) => self.hub.run(run, Seq::new(self.last), Deltas::Without),
                    None => self.hub.all(Pos::new(self.last), Filter::default(), Deltas::Without),
                };
                let mut reader = Reader::new(stream);
                reader.greeting().await;
                self.reader = Some(reader);
            }
            let sent = self.reader.as_mut().unwrap().next().await.unwrap();
            if sent.event == "gap" {
                assert_eq!(sent.data["after"], self.last);
                self.reader = None;
                continue;
            }
            assert_eq!(sent.id, Some(self.last + 1), "{sent:?}");
            let (place, run) = if self.run.is_some() { ("seq", self.run) } else { ("pos", None) };
            assert_eq!(sent.data[place], self.last + 1);
            assert!(run.is_none_or(|run| sent.data["run"] == run.to_string()));
            self.last += 1;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_that_come_while_eight_write_have_each_event_once_and_in_order() {
    write_and_read(Arc::new(MemoryStore::default())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_have_they_from_a_log_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&folder.path().join("log.db"), Options::default()).unwrap();
    write_and_read(Arc::new(store)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_follow_a_thousand_runs_and_are_woken_only_by_their_own() {
    let world = world().await;
    let mut readers = Vec::new();
    for number in 0..200 {
        let mut reader = world.reader_of(run_id(number * 5), 0, Deltas::Without).await;
        readers.push(tokio::spawn(async move { reader.rest().await }));
    }
    timeout(DEADLINE, async {
        while world.hub.shared.registry.entered() < 200 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    let script = [submitted(None), turn(1), turn(1), turn(1), run_end()];
    for (fact, place) in script.iter().zip(0..) {
        for run in 0..1_000 {
            world.store.append(run_id(run), Seq::new(place), std::slice::from_ref(fact)).unwrap();
        }
        tokio::task::yield_now().await;
    }
    for (reader, number) in readers.into_iter().zip(0..) {
        let sent = timeout(DEADLINE, reader).await.unwrap().unwrap();
        let run = run_id(number * 5_u64).to_string();
        let seen: Vec<_> = sent.iter().map(|sent| (sent.id, sent.data["run"] == run)).collect();
        assert_eq!(seen, (1..=5).map(|id| (Some(id), true)).collect::<Vec<_>>());
    }
    assert_eq!(world.hub.shared.registry.entered(), 0);
}

#[tokio::test]
async fn a_frame_is_the_envelope_with_its_place_as_id() {
    let world = world().await;
    world.append(run_id(1), 0, &[submitted(None)]);
    let mut of_run = world.reader_of(run_id(2), 0, Deltas::Without).await;
    let mut of_all = world.reader_of_all(1, Filter::default()).await;
    world.append(run_id(2), 0, &[submitted(None)]);
    let data = serde_json::json!({
        "v": 1, "pos": 2, "run": run_id(2), "seq": 1, "at": "2025-10-09T08:53:20.000000Z", "turn": 0,
        "kind": "submitted", "data": {"task": "t", "attempt": 1, "model": "m", "workspace": "/w", "limits": {}, "priority": 0},
    });
    let sent = |id| Sent { id: Some(id), event: "submitted".to_owned(), data: data.clone() };
    assert_eq!(of_run.next().await, Some(sent(1)));
    assert_eq!(of_all.next().await, Some(sent(2)));
}

#[tokio::test]
async fn line_breaks_between_the_tokens_of_arguments_do_not_break_a_frame() {
    let world = world().await;
    let call = "{\"id\":\"a\",\"name\":\"read\",\"arguments\":{\r\n\n  \"path\":\n \"a\\nb\"\n}}";
    let data = format!(r#"{{"calls":[{call}],"stop":"tool_calls","usage":{{"input":1,"output":1}}}}"#);
    world.append(run_id(1), 0, &[submitted(None), fact(1, "message", &data)]);
    let mut reader = world.reader_of(run_id(1), 1, Deltas::Without).await;
    let sent = reader.next().await.unwrap();
    assert_eq!(sent.data["data"]["calls"][0]["arguments"]["path"], "a\nb");
}
