//! What every store promises, as tests that each one must pass.

use std::{sync::Arc, time::Duration};

use tokio::time::timeout;

use super::{
    BatchRecord, EventStore, RunFilter, RunRecord, StoreError, TaskRecord, Ticket,
    feed::Feed,
    memory::MemoryStore,
    samples::{end, every_kind, run_end, run_id, submitted, text, texts, turn},
    sqlite::{Options, SqliteStore},
};
use crate::domain::{
    event::{Envelope, Fact},
    id::{BatchId, Pos, RunId, Seq},
    time::Timestamp,
};

const DEADLINE: Duration = Duration::from_secs(60);

/// A store under test, and the folder that it lives in.
struct Subject {
    store: Arc<dyn EventStore>,
    close: Box<dyn Fn()>,
    _folder: Option<tempfile::TempDir>,
}

fn memory() -> Subject {
    let store = Arc::new(MemoryStore::default());
    let closing = Arc::clone(&store);
    Subject { store, close: Box::new(move || closing.close()), _folder: None }
}

fn sqlite() -> Subject {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(&folder.path().join("log.db"), Options::default()).unwrap());
    let closing = Arc::clone(&store);
    Subject { store, close: Box::new(move || closing.close()), _folder: Some(folder) }
}

macro_rules! contract {
    ($($promise:ident),+ $(,)?) => {
        mod in_memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $promise() {
                super::$promise(super::memory()).await;
            })+
        }
        mod in_sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $promise() {
                super::$promise(super::sqlite()).await;
            })+
        }
    };
}

contract! {
    every_kind_of_event_comes_back_as_it_went_in,
    a_conflict_is_told_and_harms_nothing_else,
    what_builds_on_a_failed_append_fails_too,
    of_two_that_expect_the_same_exactly_one_wins,
    an_append_of_nothing_only_checks_the_head,
    a_reader_sees_what_was_handed_over_before,
    reading_starts_after_the_cursor_even_within_an_append,
    a_page_of_a_run_is_the_beginning_of_what_is_to_be_read,
    places_are_dense_over_interleaved_runs_whatever_the_page,
    a_feed_loses_and_doubles_nothing_while_eight_write,
    a_feed_of_one_run_gives_that_run_alone,
    runs_are_found_without_their_logs,
    a_later_checkpoint_replaces_an_earlier_one,
    batches_and_their_tasks_are_kept_in_order,
    a_closed_store_takes_and_gives_nothing,
}

fn seq(raw: u64) -> Seq {
    Seq::new(raw)
}

async fn everything(store: &dyn EventStore, page: usize) -> Vec<Envelope> {
    let mut facts = Vec::new();
    loop {
        let after = facts.last().map_or(Pos::START, |last: &Envelope| last.pos);
        let more = store.read_all(after, page).await.unwrap();
        if more.is_empty() {
            return facts;
        }
        facts.extend(more);
    }
}

/// Appends and waits.
async fn put(store: &dyn EventStore, run: RunId, expected: u64, facts: &[Fact]) {
    let ticket = store.append(run, seq(expected), facts).unwrap();
    store.durable(ticket).await.unwrap();
}

async fn every_kind_of_event_comes_back_as_it_went_in(subject: Subject) {
    let facts = every_kind();
    put(&*subject.store, run_id(1), 0, &facts).await;
    let read = subject.store.read(run_id(1), Seq::START).await.unwrap();
    let placed = facts.into_iter().zip(1..).map(|(fact, place)| {
        text(&Envelope { v: 1, pos: Pos::new(place), run: run_id(1), seq: seq(place), fact })
    });
    assert_eq!(texts(&read), placed.collect::<Vec<_>>());
    assert_eq!(texts(&everything(&*subject.store, 1).await), texts(&read));
}

async fn a_conflict_is_told_and_harms_nothing_else(subject: Subject) {
    let store = &*subject.store;
    put(store, run_id(1), 0, &[turn(1), turn(2)]).await;
    let wrong = store.append(run_id(1), seq(1), &[turn(9)]).unwrap();
    let right = store.append(run_id(1), seq(2), &[turn(3)]).unwrap();
    let other = store.append(run_id(2), Seq::START, &[turn(1)]).unwrap();
    for _ in 0..2 {
        let StoreError::Conflict { run, expected, actual } = store.durable(wrong).await.unwrap_err() else {
            panic!("not a conflict");
        };
        assert_eq!((run, expected, actual), (run_id(1), seq(1), seq(2)));
    }
    store.durable(right).await.unwrap();
    store.durable(other).await.unwrap();
    let turns: Vec<_> = everything(store, 10).await.iter().map(|one| (one.run, one.fact.turn)).collect();
    assert_eq!(turns, [(run_id(1), 1), (run_id(1), 2), (run_id(1), 3), (run_id(2), 1)]);
}

async fn what_builds_on_a_failed_append_fails_too(subject: Subject) {
    let store = &*subject.store;
    let chain: Vec<_> =
        [5, 6, 7].map(|expected| store.append(run_id(1), seq(expected), &[turn(1)]).unwrap()).into();
    for ticket in chain {
        assert!(matches!(store.durable(ticket).await, Err(StoreError::Conflict { actual: Seq::START, .. })));
    }
    assert!(store.read(run_id(1), Seq::START).await.unwrap().is_empty());
    put(store, run_id(1), 0, &[turn(1)]).await;
}

async fn of_two_that_expect_the_same_exactly_one_wins(subject: Subject) {
    for round in 0..50 {
        let race = [1, 2].map(|racer| {
            let store = Arc::clone(&subject.store);
            tokio::spawn(async move {
                let ticket = store.append(run_id(1), seq(round), &[turn(racer)]).unwrap();
                store.durable(ticket).await.is_ok()
            })
        });
        let mut won = Vec::new();
        for racer in race {
            won.push(racer.await.unwrap());
        }
        assert_eq!(won.iter().filter(|won| **won).count(), 1, "round {round}: {won:?}");
        let last = subject.store.read(run_id(1), seq(round)).await.unwrap();
        assert_eq!(last.iter().map(|one| one.fact.turn).collect::<Vec<_>>(), [if won[0] { 1 } else { 2 }]);
    }
}

async fn an_append_of_nothing_only_checks_the_head(subject: Subject) {
    let store = &*subject.store;
    put(store, run_id(1), 0, &[]).await;
    put(store, run_id(1), 0, &[turn(1)]).await;
    put(store, run_id(1), 1, &[]).await;
    let wrong = store.append(run_id(1), seq(2), &[]).unwrap();
    assert!(matches!(store.durable(wrong).await, Err(StoreError::Conflict { .. })));
    put(store, run_id(1), 1, &[turn(2)]).await;
    let places: Vec<_> = everything(store, 10).await.iter().map(|one| one.pos.get()).collect();
    assert_eq!(places, [1, 2]);
}

async fn a_reader_sees_what_was_handed_over_before(subject: Subject) {
    let store = &*subject.store;
    for number in 0..200 {
        let ticket = store.append(run_id(1), seq(number), &[turn(1)]).unwrap();
        let read = store.read(run_id(1), seq(number)).await.unwrap();
        assert_eq!(read.iter().map(|one| one.seq).collect::<Vec<_>>(), [seq(number + 1)]);
        assert_eq!(store.watch().borrow().get(), number + 1);
        store.durable(ticket).await.unwrap();
    }
}

async fn reading_starts_after_the_cursor_even_within_an_append(subject: Subject) {
    let store = &*subject.store;
    put(store, run_id(1), 0, &[turn(1), turn(2), turn(3)]).await;
    put(store, run_id(1), 3, &[turn(4), turn(5)]).await;
    for after in 0..=5 {
        let expected: Vec<_> = (after + 1..=5).collect();
        let read = store.read(run_id(1), seq(after)).await.unwrap();
        assert_eq!(read.iter().map(|one| one.seq.get()).collect::<Vec<_>>(), expected);
        let read = store.read_all(Pos::new(after), 100).await.unwrap();
        assert_eq!(read.iter().map(|one| one.pos.get()).collect::<Vec<_>>(), expected);
    }
    assert!(store.read(run_id(1), seq(u64::MAX)).await.unwrap().is_empty());
    assert!(store.read_all(Pos::new(u64::MAX), 1).await.unwrap().is_empty());
    assert!(store.read(run_id(9), Seq::START).await.unwrap().is_empty());
    let pages = [(0, 1, 3), (0, 3, 3), (0, 4, 5), (1, 2, 2), (1, 0, 2)];
    for (after, limit, count) in pages {
        let page = store.read_all(Pos::new(after), limit).await.unwrap();
        assert_eq!(page.len(), count, "after {after}, limit {limit}");
    }
}

/// Eight tasks append 200 events each, one to three an append, all runs interleaved.
async fn eight_write(store: &Arc<dyn EventStore>) {
    let writers = (1..=8).map(|writer| {
        let store = Arc::clone(store);
        tokio::spawn(async move {
            let mut head = 0;
            let mut tickets: Vec<Ticket> = Vec::new();
            while head < 200 {
                let count = (1 + head % 3).min(200 - head);
                let facts: Vec<_> = (0..count).map(|_| turn(1)).collect();
                tickets.push(store.append(run_id(writer), seq(head), &facts).unwrap());
                head += count;
                if head % 7 == 0 {
                    tokio::task::yield_now().await;
                }
            }
            // In the order of handing over: once the last is durable, all are.
            store.durable(*tickets.last().unwrap()).await.unwrap();
            for ticket in tickets {
                assert!(matches!(futures_util::FutureExt::now_or_never(store.durable(ticket)), Some(Ok(()))));
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
}

fn assert_whole(facts: &[Envelope]) {
    assert_eq!(facts.iter().map(|one| one.pos.get()).collect::<Vec<_>>(), (1..=8 * 200).collect::<Vec<_>>());
    for writer in 1..=8 {
        let run = facts.iter().filter(|one| one.run == run_id(writer));
        assert_eq!(run.map(|one| one.seq.get()).collect::<Vec<_>>(), (1..=200).collect::<Vec<_>>());
    }
}

async fn a_page_of_a_run_is_the_beginning_of_what_is_to_be_read(subject: Subject) {
    let store = &*subject.store;
    put(store, run_id(1), 0, &[turn(1), turn(2), turn(3)]).await;
    put(store, run_id(1), 3, &[turn(4), turn(5)]).await;
    for after in (0..7).map(seq) {
        let all = texts(&store.read(run_id(1), after).await.unwrap());
        for limit in 1..7 {
            let some = texts(&store.read_some(run_id(1), after, limit).await.unwrap());
            assert_eq!(some, all[..all.len().min(limit)], "{limit} after {after}");
        }
    }
}

async fn places_are_dense_over_interleaved_runs_whatever_the_page(subject: Subject) {
    eight_write(&subject.store).await;
    for page in [1, 7, 100, usize::MAX] {
        assert_whole(&everything(&*subject.store, page).await);
    }
}

async fn a_feed_loses_and_doubles_nothing_while_eight_write(subject: Subject) {
    put(&*subject.store, run_id(1), 0, &[]).await;
    let mut feed = Feed::all(Arc::clone(&subject.store), Pos::START);
    let following = tokio::spawn(async move {
        let mut facts = Vec::new();
        while facts.len() < 8 * 200 {
            facts.extend(feed.next().await.unwrap());
        }
        (feed, facts)
    });
    eight_write(&subject.store).await;
    let (mut feed, facts) = timeout(DEADLINE, following).await.unwrap().unwrap();
    assert_whole(&facts);
    // It waits for more, and a wait that is given up costs nothing.
    assert!(futures_util::FutureExt::now_or_never(feed.next()).is_none());
    put(&*subject.store, run_id(9), 0, &[turn(1)]).await;
    assert_eq!(timeout(DEADLINE, feed.next()).await.unwrap().unwrap().len(), 1);
    let mut late = Feed::all(Arc::clone(&subject.store), Pos::new(1600));
    assert_eq!(timeout(DEADLINE, late.next()).await.unwrap().unwrap()[0].pos, Pos::new(1601));
}

async fn a_feed_of_one_run_gives_that_run_alone(subject: Subject) {
    let mut feed = Feed::run(Arc::clone(&subject.store), run_id(3), seq(5));
    let following = tokio::spawn(async move {
        let mut seqs = Vec::new();
        while seqs.len() < 195 {
            seqs.extend(feed.next().await.unwrap().iter().map(|one| (one.run, one.seq.get())));
        }
        seqs
    });
    eight_write(&subject.store).await;
    let seqs = timeout(DEADLINE, following).await.unwrap().unwrap();
    assert_eq!(seqs, (6..=200).map(|place| (run_id(3), place)).collect::<Vec<_>>());
}

async fn runs_are_found_without_their_logs(subject: Subject) {
    let store = &*subject.store;
    let batch = BatchId::from_bytes([9; 16]);
    put(store, run_id(0xa1), 0, &[submitted(10, Some(batch), "a", 1), turn(1), run_end(20)]).await;
    put(store, run_id(0xa2), 0, &[submitted(30, Some(batch), "a", 2)]).await;
    put(store, run_id(0xb1), 0, &[submitted(40, None, "a", 1)]).await;
    put(store, run_id(0xb2), 0, &[submitted(50, Some(batch), "b", 1), turn(1)]).await;
    put(store, run_id(0xb2), 2, &[run_end(60)]).await;
    let found = |filter: RunFilter| async move {
        let records = store.runs(filter).await.unwrap();
        records.iter().map(|one| u64::from(one.run.as_bytes()[15])).collect::<Vec<_>>()
    };
    let all = RunFilter::default;
    assert_eq!(found(all()).await, [0xa1, 0xa2, 0xb1, 0xb2]);
    assert_eq!(found(RunFilter { batch: Some(batch), ..all() }).await, [0xa1, 0xa2, 0xb2]);
    assert_eq!(found(RunFilter { ended: Some(true), ..all() }).await, [0xa1, 0xb2]);
    assert_eq!(found(RunFilter { ended: Some(false), ..all() }).await, [0xa2, 0xb1]);
    assert_eq!(found(RunFilter { task_id: Some("a".into()), ..all() }).await, [0xa1, 0xa2, 0xb1]);
    assert_eq!(
        found(RunFilter { task_id: Some("a".into()), batch: Some(batch), ..all() }).await,
        [0xa1, 0xa2]
    );
    assert_eq!(found(RunFilter { limit: Some(2), ..all() }).await, [0xb1, 0xb2]);
    assert_eq!(found(RunFilter { limit: Some(1), ended: Some(false), ..all() }).await, [0xb1]);
    let prefixed = |prefix: &str| found(RunFilter { id_prefix: Some(prefix.into()), ..all() });
    assert_eq!(prefixed("00000000-0000-0000-0000-0000000000b").await, [0xb1, 0xb2]);
    assert_eq!(prefixed("00000000-0000-0000-0000-0000000000a2").await, [0xa2]);
    assert_eq!(prefixed("").await.len(), 4);
    for nothing in ["1", "zz", "000000000000", "00000000-0000-0000-0000-0000000000a20", "ü"] {
        assert_eq!(prefixed(nothing).await, [0_u64; 0], "{nothing}");
    }
    let first = RunFilter { limit: Some(1), id_prefix: Some(run_id(0xa1).to_string()), ..all() };
    let record = RunRecord {
        run: run_id(0xa1),
        batch: Some(batch),
        task_id: Some("a".into()),
        attempt: 1,
        submitted_at: Timestamp::from_micros(10),
        end: Some(Arc::new(end())),
        ended_at: Some(Timestamp::from_micros(20)),
    };
    assert_eq!(store.runs(first).await.unwrap(), [record]);
}

async fn a_later_checkpoint_replaces_an_earlier_one(subject: Subject) {
    let store = &*subject.store;
    assert_eq!(store.checkpoint(run_id(1)).await.unwrap(), None);
    put(store, run_id(1), 0, &(1..=8).map(turn).collect::<Vec<_>>()).await;
    for through in [3, 8] {
        store.save_checkpoint(run_id(1), seq(through), vec![0xff, 0]).unwrap();
    }
    assert_eq!(store.checkpoint(run_id(1)).await.unwrap(), Some((seq(8), vec![0xff, 0])));
    let ahead = store.save_checkpoint(run_id(1), seq(9), Vec::new()).unwrap();
    assert!(matches!(store.durable(ahead).await, Err(StoreError::Conflict { .. })));
    assert_eq!(store.checkpoint(run_id(1)).await.unwrap().map(|(through, _)| through), Some(seq(8)));
    assert_eq!(store.checkpoint(run_id(2)).await.unwrap(), None);
}

async fn batches_and_their_tasks_are_kept_in_order(subject: Subject) {
    let store = &*subject.store;
    let batch = |id: u8, created: i64, options: &str| BatchRecord {
        id: BatchId::from_bytes([id; 16]),
        name: format!("batch-{id}.jsonl"),
        created_at: Timestamp::from_micros(created),
        options: options.to_owned(),
    };
    let task = |id: &str, hash: &str| TaskRecord { task_id: id.into(), hash: hash.to_owned() };
    store.record_batch(batch(2, 10, "{}"), vec![task("z", "1"), task("a", "2")]).unwrap();
    store.record_batch(batch(1, 20, "{}"), vec![task("z", "3")]).unwrap();
    let again = store.record_batch(batch(2, 30, r#"{"x":1}"#), vec![task("m", "4"), task("z", "5")]).unwrap();
    store.durable(again).await.unwrap();
    assert_eq!(store.batches().await.unwrap(), [batch(2, 10, r#"{"x":1}"#), batch(1, 20, "{}")]);
    let tasks = store.tasks(BatchId::from_bytes([2; 16])).await.unwrap();
    assert_eq!(tasks, [task("z", "5"), task("a", "2"), task("m", "4")]);
    assert_eq!(store.tasks(BatchId::from_bytes([7; 16])).await.unwrap(), []);
}

async fn a_closed_store_takes_and_gives_nothing(subject: Subject) {
    let mut feed = Feed::all(Arc::clone(&subject.store), Pos::START);
    let handed_over = subject.store.append(run_id(1), Seq::START, &[turn(1)]).unwrap();
    assert_eq!(timeout(DEADLINE, feed.next()).await.unwrap().unwrap().len(), 1);
    let waiting = tokio::spawn(async move { feed.next().await });
    (subject.close)();
    assert!(matches!(timeout(DEADLINE, waiting).await.unwrap().unwrap(), Err(StoreError::Closed)));
    subject.store.durable(handed_over).await.unwrap();
    let refused = subject.store.append(run_id(1), seq(1), &[turn(1)]);
    assert!(matches!(refused, Err(StoreError::Closed)));
    assert!(matches!(subject.store.read(run_id(1), Seq::START).await, Err(StoreError::Closed)));
    assert!(matches!(subject.store.durable(Ticket(99)).await, Err(StoreError::Closed)));
}
