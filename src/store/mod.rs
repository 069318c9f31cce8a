//! The log: every fact of every run, appended once and never changed.
//!
//! An append is handed over at once and answered with a ticket; whoever must know that it is on disk waits for the
//! ticket. Tickets become durable in the order in which they were handed over, over all runs. What a reader or
//! a subscriber is given is durable.

mod audit;
#[cfg(test)]
mod contract;
mod damage;
pub mod feed;
pub mod folder;
pub mod health;
mod lock;
pub mod memory;
mod runs;
#[cfg(test)]
mod samples;
pub mod sqlite;
mod tickets;

use std::{collections::BTreeMap, sync::Arc};

use futures_util::{FutureExt, future::BoxFuture};
use tokio::sync::watch;

use self::health::Health;
pub use self::{
    audit::{AuditFilter, AuditRecord},
    damage::Damage,
    runs::{Asked, RunCounts, RunFilter, RunRecord},
};
use crate::domain::{
    event::{Envelope, Fact},
    id::{BatchId, Pos, RunId, Seq},
    time::Timestamp,
};

/// Stands for one append that was handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub(crate) u64);

/// Where facts are kept. Every question but [`EventStore::read_all`] is answered with what was handed over before it.
pub trait EventStore: Send + Sync + 'static {
    /// Hands `facts` over, to follow event `expected` of `run` (zero for a new run). Returns at once.
    ///
    /// Whether the run really is at `expected` is told by [`Self::durable`]. If it is not, or if the write fails, this
    /// append and every later one of the run that builds on it fail; nothing of them is stored.
    ///
    /// # Errors
    /// Only if a fact cannot be encoded or the store has been closed.
    fn append(&self, run: RunId, expected: Seq, facts: &[Fact]) -> Result<Ticket, StoreError>;

    /// Waits until an append is on disk, as durable as the store was told to be.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if the run was elsewhere, otherwise why the write failed.
    fn durable(&self, ticket: Ticket) -> BoxFuture<'_, Result<(), StoreError>>;

    /// The facts of one run after `after`.
    fn read(&self, run: RunId, after: Seq) -> BoxFuture<'_, Result<Vec<Envelope>, StoreError>>;

    /// The first facts of one run after `after`: `limit` or as many as there are, or fewer if they are large; at least one
    /// if there is one.
    fn read_some(
        &self,
        run: RunId,
        after: Seq,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<Envelope>, StoreError>> {
        async move {
            let mut facts = self.read(run, after).await?;
            facts.truncate(limit);
            Ok(facts)
        }
        .boxed()
    }

    /// Facts of all runs after `after`, in the order of the store; at least one append if there is one, and no more
    /// appends once `limit` facts are reached, or fewer if they are large. What cannot be read is an error only where it
    /// comes first: what stands before it is a page.
    fn read_all(&self, after: Pos, limit: usize) -> BoxFuture<'_, Result<Vec<Envelope>, StoreError>>;

    /// The place of the last durable fact. It only says that there is more to read; the facts are read by cursor.
    fn watch(&self) -> watch::Receiver<Pos>;

    /// Whether what is handed over becomes durable. While it is stuck, questions are answered with what is durable, since
    /// the rest may be long in coming.
    fn health(&self) -> watch::Receiver<Health> {
        watch::channel(Health::Well).1
    }

    /// Runs that match, oldest first.
    fn runs(&self, filter: RunFilter) -> BoxFuture<'_, Result<Vec<RunRecord>, StoreError>>;

    /// How many runs match, and how they stand; the filter's `before` and `limit` do not count.
    fn count(&self, filter: RunFilter) -> BoxFuture<'_, Result<RunCounts, StoreError>>;

    /// Keeps a snapshot of a run's state as of `through`; a later one replaces it. Losing it costs time, not facts.
    /// One of events that the log does not have, since their append failed, fails with [`StoreError::Conflict`].
    fn save_checkpoint(&self, run: RunId, through: Seq, state: Vec<u8>) -> Result<Ticket, StoreError>;

    /// The last snapshot of a run, if there is one.
    fn checkpoint(&self, run: RunId) -> BoxFuture<'_, Result<Option<Checkpoint>, StoreError>>;

    /// Records a batch, or replaces its options, and adds tasks to it; a task's hash replaces an older one.
    fn record_batch(&self, batch: BatchRecord, tasks: Vec<TaskRecord>) -> Result<Ticket, StoreError>;

    /// Every batch of the store, oldest first.
    fn batches(&self) -> BoxFuture<'_, Result<Vec<BatchRecord>, StoreError>>;

    /// The tasks of a batch, in the order in which they were recorded.
    fn tasks(&self, batch: BatchId) -> BoxFuture<'_, Result<Vec<TaskRecord>, StoreError>>;

    /// Takes batches off the record, with their tasks, and runs with all that is of record of them. What is open stays: a
    /// run that has not ended, a batch that has such a run. All of it goes at once or nothing does. Their places and
    /// numbers are not used again; whoever reads on finds a gap.
    fn forget(&self, batches: Vec<BatchId>, runs: Vec<RunId>) -> Result<Ticket, StoreError>;

    /// Keeps a small fact of whoever runs the runs, not of any one of them, or with no value forgets it.
    fn save_setting(&self, name: &str, value: Option<String>) -> Result<Ticket, StoreError>;

    /// Every such fact that is kept, by name.
    fn settings(&self) -> BoxFuture<'_, Result<BTreeMap<String, String>, StoreError>>;

    /// Records that somebody asked for a change.
    fn record_audit(&self, record: AuditRecord) -> Result<Ticket, StoreError>;

    /// The records of changes that match, oldest first.
    fn audit(&self, filter: AuditFilter) -> BoxFuture<'_, Result<Vec<AuditRecord>, StoreError>>;
}

/// A snapshot of a run's state, and the last event that is in it.
pub type Checkpoint = (Seq, Vec<u8>);

/// A batch, as it was started last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchRecord {
    /// The batch.
    pub id: BatchId,
    /// What it is called: for a file, the file's name.
    pub name: String,
    /// When it was first started.
    pub created_at: Timestamp,
    /// Its options, as JSON text.
    pub options: String,
}

/// A task of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRecord {
    /// The task's id.
    pub task_id: Arc<str>,
    /// The hash of its line's canonical JSON.
    pub hash: String,
}

/// Why the log did not take or give something.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Somebody else wrote to the run.
    #[error("run {run} is at event {actual}, not {expected}")]
    Conflict { run: RunId, expected: Seq, actual: Seq },
    /// The medium failed; what was durable before still is.
    #[error("event log unavailable")]
    Unavailable(#[source] Arc<dyn std::error::Error + Send + Sync>),
    /// The store was closed while the request was under way.
    #[error("event log closed")]
    Closed,
    /// A stored event cannot be read.
    #[error("event log damaged at position {pos}, run {run}; `herder doctor STATE --repair` mends it")]
    Damaged {
        pos: Pos,
        run: RunId,
        #[source]
        source: Arc<Damage>,
    },
    /// The medium holds no sound log any more. Nothing more is written to it.
    #[error(
        "the event log's file is damaged; stop herder and salvage it with `herder doctor STATE --repair`"
    )]
    Malformed(#[source] Arc<dyn std::error::Error + Send + Sync>),
    /// A fact cannot be encoded.
    #[error("event cannot be encoded")]
    Encode(#[source] Arc<serde_json::Error>),
}
