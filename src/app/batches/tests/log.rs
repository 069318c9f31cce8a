//! A log that fails for a while, and runs that others work on.

use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::BoxFuture;

use super::*;
use crate::{
    domain::{
        event::{Envelope, Fact},
        id::{Pos, RunId, Seq},
    },
    store::{AuditFilter, AuditRecord, BatchRecord, Checkpoint, RunCounts, RunRecord, TaskRecord, Ticket},
};

/// A log that can be told to take nothing, or to keep nothing.
#[derive(Default)]
struct Failing {
    log: MemoryStore,
    fails: AtomicBool,
    /// What it is handed next is as good as on disk, and gone.
    forgets: AtomicBool,
}

/// Stands for what was not taken.
const LOST: Ticket = Ticket(u64::MAX);

/// Stands for what was taken in vain.
const FORGOTTEN: Ticket = Ticket(u64::MAX - 1);

impl Failing {
    fn or_lost(&self, take: impl FnOnce() -> Result<Ticket, StoreError>) -> Result<Ticket, StoreError> {
        if self.fails.load(Ordering::SeqCst) { Ok(LOST) } else { take() }
    }
}

impl EventStore for Failing {
    fn append(&self, run: RunId, expected: Seq, facts: &[Fact]) -> Result<Ticket, StoreError> {
        if self.forgets.swap(false, Ordering::SeqCst) {
            return Ok(FORGOTTEN);
        }
        self.or_lost(|| self.log.append(run, expected, facts))
    }

    fn durable(&self, ticket: Ticket) -> BoxFuture<'_, Result<(), StoreError>> {
        if ticket == LOST {
            let full: Arc<dyn std::error::Error + Send + Sync> = Arc::new(std::io::Error::other("disk full"));
            return std::future::ready(Err(StoreError::Unavailable(full))).boxed();
        }
        if ticket == FORGOTTEN {
            return std::future::ready(Ok(())).boxed();
        }
        self.log.durable(ticket)
    }

    fn read(&self, run: RunId, after: Seq) -> BoxFuture<'_, Result<Vec<Envelope>, StoreError>> {
        self.log.read(run, after)
    }

    fn read_all(&self, after: Pos, limit: usize) -> BoxFuture<'_, Result<Vec<Envelope>, StoreError>> {
        self.log.read_all(after, limit)
    }

    fn watch(&self) -> watch::Receiver<Pos> {
        self.log.watch()
    }

    fn runs(&self, filter: RunFilter) -> BoxFuture<'_, Result<Vec<RunRecord>, StoreError>> {
        self.log.runs(filter)
    }

    fn count(&self, filter: RunFilter) -> BoxFuture<'_, Result<RunCounts, StoreError>> {
        self.log.count(filter)
    }

    fn save_checkpoint(&self, run: RunId, through: Seq, state: Vec<u8>) -> Result<Ticket, StoreError> {
        self.or_lost(|| self.log.save_checkpoint(run, through, state))
    }

    fn checkpoint(&self, run: RunId) -> BoxFuture<'_, Result<Option<Checkpoint>, StoreError>> {
        self.log.checkpoint(run)
    }

    fn record_batch(&self, batch: BatchRecord, tasks: Vec<TaskRecord>) -> Result<Ticket, StoreError> {
        self.or_lost(|| self.log.record_batch(batch, tasks))
    }

    fn batches(&self) -> BoxFuture<'_, Result<Vec<BatchRecord>, StoreError>> {
        self.log.batches()
    }

    fn tasks(&self, batch: BatchId) -> BoxFuture<'_, Result<Vec<TaskRecord>, StoreError>> {
        self.log.tasks(batch)
    }

    fn forget(&self, batches: Vec<BatchId>, runs: Vec<RunId>) -> Result<Ticket, StoreError> {
        self.or_lost(|| self.log.forget(batches, runs))
    }

    fn save_setting(&self, name: &str, value: Option<String>) -> Result<Ticket, StoreError> {
        self.or_lost(|| self.log.save_setting(name, value))
    }

    fn settings(&self) -> BoxFuture<'_, Result<BTreeMap<String, String>, StoreError>> {
        self.log.settings()
    }

    fn record_audit(&self, record: AuditRecord) -> Result<Ticket, StoreError> {
        self.or_lost(|| self.log.record_audit(record))
    }

    fn audit(&self, filter: AuditFilter) -> BoxFuture<'_, Result<Vec<AuditRecord>, StoreError>> {
        self.log.audit(filter)
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_goes_on_by_itself_once_its_log_does() {
    let log = Arc::new(Failing::default());
    let daemon = Daemon::start(&Disk::with(log.clone())).await;
    let id = daemon.submit(at_once(1), &[held("a"), quick("b")]).await.unwrap().id;
    daemon.gate.until_asked(1).await;
    log.fails.store(true, Ordering::SeqCst);
    daemon.gate.open.add_permits(1_000);
    tokio::time::sleep(Duration::from_secs(600)).await;
    let status = daemon.batches.get(id).await.unwrap();
    assert_eq!((status.state, status.error), (BatchState::Open, None));
    log.fails.store(false, Ordering::SeqCst);
    // What was lost rests before it is tried again, and the other may go first.
    let ids: Vec<_> = daemon.results(id).await.into_iter().map(|(id, ..)| id).collect();
    assert_eq!(sorted(ids), ["a", "b"]);
    assert_eq!(daemon.ended(id).await.state, BatchState::Ended);
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_cancelled_though_the_log_has_lost_its_runs() {
    let log = Arc::new(Failing::default());
    let daemon = Daemon::start(&Disk::with(log.clone())).await;
    let id = daemon.submit(at_once(1), &[held("a"), quick("b")]).await.unwrap().id;
    daemon.gate.until_asked(1).await;
    log.fails.store(true, Ordering::SeqCst);
    daemon.gate.open.add_permits(1_000);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(daemon.batches.cancel(id).await.is_err());
    log.fails.store(false, Ordering::SeqCst);
    assert!(soon(daemon.batches.cancel(id)).await.unwrap());
    let status = daemon.ended(id).await;
    assert_eq!((status.state, status.counts.in_flight, status.counts.waiting), (BatchState::Cancelled, 0, 1));
    let results = daemon.results(id).await;
    assert_eq!(results.len(), 1);
    assert_eq!(results[0].0, "a");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_batch_is_put_on_record_once_the_log_takes_it() {
    let log = Arc::new(Failing::default());
    let daemon = Daemon::start(&Disk::with(log.clone())).await;
    let id = daemon.submit(at_once(1), &[quick("a"), held("b")]).await.unwrap().id;
    daemon.gate.until_asked(1).await;
    let entry = daemon.batches.entry(id).unwrap();
    let work = entry.work.lock().await;
    daemon.gate.open.add_permits(1);
    daemon.until(id, |status| status.counts.settled.get("done") == Some(&2)).await;
    log.fails.store(true, Ordering::SeqCst);
    drop(work);
    tokio::time::sleep(Duration::from_secs(600)).await;
    let status = daemon.batches.get(id).await.unwrap();
    assert_eq!((status.state, status.error), (BatchState::Open, None));
    log.fails.store(false, Ordering::SeqCst);
    assert_eq!(daemon.ended(id).await.state, BatchState::Ended);
}

#[tokio::test]
async fn a_run_that_is_worked_on_is_ended_by_whoever_works_on_it() {
    let disk = Disk::in_memory();
    let daemon = Daemon::start(&disk).await;
    let id = daemon.submit(keyed("k"), &[held("a")]).await.unwrap().id;
    daemon.gate.until_asked(1).await;
    let entry = daemon.batches.entry(id).unwrap();
    // Nobody drives it any more, but its run goes on.
    entry.work.lock().await.driver = None;
    assert!(soon(daemon.batches.cancel(id)).await.unwrap());
    assert_eq!(daemon.results(id).await, [result("a", 1, "cancelled")]);
    assert_eq!(daemon.supervisor.load().await.live, 0);
    let status = daemon.ended(id).await;
    assert_eq!(status.counts.settled, BTreeMap::from([("cancelled".to_owned(), 1)]));
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_cancelled_though_the_end_of_a_run_never_comes_to_be_of_record() {
    let log = Arc::new(Failing::default());
    let daemon = Daemon::start(&Disk::with(log.clone())).await;
    let id = daemon.submit(at_once(1), &[held("a")]).await.unwrap().id;
    daemon.gate.until_asked(1).await;
    let entry = daemon.batches.entry(id).unwrap();
    // Nobody drives it any more, but its run goes on.
    entry.work.lock().await.driver = None;
    log.forgets.store(true, Ordering::SeqCst);
    assert!(soon(daemon.batches.cancel(id)).await.unwrap());
    assert!(!log.forgets.load(Ordering::SeqCst));
    assert_eq!(daemon.results(id).await, [result("a", 1, "cancelled")]);
    assert_eq!(daemon.ended(id).await.state, BatchState::Cancelled);
}

#[tokio::test]
async fn batches_that_are_tried_again_keep_nobody_waiting() {
    let log = Arc::new(Failing::default());
    let daemon = Daemon::start(&Disk::with(log.clone())).await;
    let ids = [
        daemon.submit(at_once(1), &[held("a")]).await.unwrap().id,
        daemon.submit(at_once(1), &[held("b")]).await.unwrap().id,
    ];
    daemon.gate.until_asked(2).await;
    let [busy, left] = ids.map(|id| daemon.batches.entry(id).unwrap());
    let work = busy.work.lock().await;
    left.work.lock().await.driver = None;
    left.fail("it has no model".to_owned());
    daemon.batches.take_up_the_rest();
    daemon.until(ids[1], |status| status.error.is_none()).await;
    drop(work);
    daemon.gate.open.add_permits(2);
    for id in ids {
        assert_eq!(daemon.results(id).await.len(), 1);
    }
}
