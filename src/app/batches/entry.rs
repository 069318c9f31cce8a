//! One batch of many: what is of record of it, and who drives it, if anybody does.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::{board::Board, record::Record, status::Status};
use crate::{
    actor::supervisor::Load,
    app::batch::Asked,
    domain::{
        id::{BatchId, RunId},
        time::Timestamp,
    },
    store::{BatchRecord, EventStore, StoreError, TaskRecord},
};

/// One batch.
pub(super) struct Entry {
    pub(super) id: BatchId,
    pub(super) created_at: Timestamp,
    pub(super) status: watch::Sender<Status>,
    /// Held while the batch is changed: changes are made one at a time, and are on disk before the next.
    pub(super) work: Arc<tokio::sync::Mutex<Work>>,
    /// Where its tasks stand, while it is driven or cannot go on.
    board: Mutex<Shown>,
    /// What was spent on it before this process is counted.
    is_counted: AtomicBool,
    /// Somebody tells of its ends.
    is_told_of: AtomicBool,
    /// Why what is of record of it is not to be touched.
    unread: Option<Unread>,
}

/// The results of a batch.
#[derive(Default)]
struct Shown {
    board: Option<Arc<Board>>,
    /// Without a board: the order in which results came.
    order: Arc<[RunId]>,
}

/// What is of record of a batch is not understood, perhaps because a later version wrote it. It stays as it is.
#[derive(Clone, Debug, thiserror::Error)]
#[error("what is of record of the batch is not understood: {0}")]
pub struct Unread(String);

/// What a batch goes by.
pub(super) struct Work {
    pub(super) name: String,
    pub(super) record: Record,
    pub(super) driver: Option<Driver>,
}

/// How whoever drives a batch is spoken to.
pub(super) struct Driver {
    pub(super) asks: mpsc::UnboundedSender<Asked>,
    pub(super) cancel: CancellationToken,
}

impl Entry {
    pub(super) fn new(id: BatchId, name: String, created_at: Timestamp, record: Record) -> Self {
        let summary = record.summary.clone().unwrap_or_default();
        let status = Status {
            id,
            name: name.clone(),
            key: record.key.clone(),
            labels: record.labels.clone(),
            created_at,
            state: record.state,
            concurrency: record.concurrency.get(),
            counts: summary.counts,
            running: 0,
            waits: Vec::new(),
            retries: 0,
            max_cost: record.max_cost,
            halted: summary.halted,
            unaffordable: false,
            error: None,
            ends: 0,
        };
        Self {
            id,
            created_at,
            status: watch::Sender::new(status),
            work: Arc::new(tokio::sync::Mutex::new(Work { name, record, driver: None })),
            board: Mutex::default(),
            is_counted: AtomicBool::new(false),
            is_told_of: AtomicBool::new(false),
            unread: None,
        }
    }

    /// A batch of the log; nothing, if no daemon took it on.
    pub(super) fn of(batch: BatchRecord) -> Option<Self> {
        let BatchRecord { id, name, created_at, options } = batch;
        let error = match serde_json::from_str(&options) {
            Ok(record) => return Some(Self::new(id, name, created_at, record)),
            Err(error) => Unread(error.to_string()),
        };
        let options: Option<serde_json::Value> = serde_json::from_str(&options).ok();
        // One that was run by itself has no input here.
        if options.as_ref().is_some_and(|options| options.is_object() && options.get("digest").is_none()) {
            return None;
        }
        let key = options.and_then(|options| Some(options.get("key")?.as_str()?.to_owned()));
        let entry = Self::new(id, name, created_at, Record::unread(key));
        entry.fail(error.to_string());
        Some(Self { unread: Some(error), ..entry })
    }

    /// Whether what is of record may be changed.
    pub(super) fn check(&self) -> Result<(), Unread> {
        self.unread.clone().map_or(Ok(()), Err)
    }

    /// Whether it is for the caller to tell of its ends: for the first one who asks.
    pub(super) fn is_to_be_told_of(&self) -> bool {
        !self.is_told_of.swap(true, Ordering::Relaxed)
    }

    /// Whether what was spent on it before is yet to be counted: for the first one who asks.
    pub(super) fn is_to_be_counted(&self) -> bool {
        !self.is_counted.swap(true, Ordering::Relaxed)
    }

    /// Nothing is counted for it any more.
    pub(super) fn is_no_longer_counted(&self) {
        self.is_counted.store(false, Ordering::Relaxed);
    }

    /// Puts a change on record, and tasks with it; it is in force once it is on disk.
    pub(super) async fn write(
        &self,
        store: &dyn EventStore,
        work: &mut Work,
        record: Record,
        tasks: Vec<TaskRecord>,
    ) -> Result<(), StoreError> {
        let options = serde_json::to_string(&record).map_err(|error| StoreError::Encode(Arc::new(error)))?;
        let batch =
            BatchRecord { id: self.id, name: work.name.clone(), created_at: self.created_at, options };
        store.durable(store.record_batch(batch, tasks)?).await?;
        work.record = record;
        self.publish(work);
        Ok(())
    }

    fn publish(&self, work: &Work) {
        let record = &work.record;
        self.status.send_modify(|status| {
            status.name.clone_from(&work.name);
            status.labels.clone_from(&record.labels);
            status.state = record.state;
            status.concurrency = record.concurrency.get();
            status.max_cost = record.max_cost;
            if let Some(summary) = &record.summary {
                status.halted = summary.halted;
            }
        });
    }

    /// Says why the batch does not go on, though it is open.
    pub(super) fn fail(&self, error: String) {
        tracing::error!(batch.id = %self.id, error, "batch cannot go on");
        self.status.send_modify(|status| status.error = Some(error));
    }

    pub(super) fn status(&self, load: &Load) -> Status {
        let mut status = self.status.borrow().clone();
        let live = load.by_batch.get(&Some(self.id)).copied().unwrap_or_default();
        status.running = live.min(status.counts.in_flight);
        status.waits = load.waits.iter().filter(|wait| wait.batch == Some(self.id)).cloned().collect();
        status.retries = load.retries.get(&Some(self.id)).copied().unwrap_or_default();
        status
    }

    pub(super) fn board(&self) -> Option<Arc<Board>> {
        self.shown().board.clone()
    }

    pub(super) fn set_board(&self, board: Arc<Board>) {
        self.shown().board = Some(board);
    }

    /// Nothing changes any more: results are read from the log, in the order in which they came.
    pub(super) fn put_board_away(&self) {
        let order = self.order();
        *self.shown() = Shown { board: None, order };
    }

    /// The order in which results have come, as far as this process knows it.
    pub(super) fn order(&self) -> Arc<[RunId]> {
        let shown = self.shown();
        shown.board.as_ref().map_or_else(|| shown.order.clone(), |board| board.order())
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
