//! One batch of many: what is of record of it, and who drives it, if anybody does.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::{board::Board, record::Record, status::Status};
use crate::{
    actor::supervisor::Load,
    app::batch::Asked,
    domain::{id::BatchId, time::Timestamp},
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
    board: Mutex<Option<Arc<Board>>>,
}

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
            paused: record.paused,
            concurrency: record.concurrency.get(),
            counts: summary.counts,
            running: 0,
            halted: summary.halted,
            error: None,
        };
        Self {
            id,
            created_at,
            status: watch::Sender::new(status),
            work: Arc::new(tokio::sync::Mutex::new(Work { name, record, driver: None })),
            board: Mutex::default(),
        }
    }

    /// A batch of the log; nothing, if no daemon took it on.
    pub(super) fn of(batch: BatchRecord) -> Option<Self> {
        let record = serde_json::from_str(&batch.options).ok()?;
        Some(Self::new(batch.id, batch.name, batch.created_at, record))
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
            status.paused = record.paused;
            status.concurrency = record.concurrency.get();
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
        status
    }

    pub(super) fn board(&self) -> Option<Arc<Board>> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_board(&self, board: Option<Arc<Board>>) {
        *self.board.lock().unwrap_or_else(PoisonError::into_inner) = board;
    }
}
