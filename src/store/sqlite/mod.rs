//! The log in a SQLite file.
//!
//! Facts are encoded by whoever appends them; one thread writes them, many appends a transaction; a few threads read.
//! The number of open files is fixed. Killing the process at any point loses nothing that a ticket was answered for.
//! That no second process writes is for whoever opens it to see to, by the state folder's lock.

mod ahead;
mod append;
mod check;
mod compact;
#[cfg(test)]
mod damaged;
mod follow;
#[cfg(test)]
mod full;
mod list;
mod mend;
mod orphans;
mod pages;
mod queue;
mod read;
mod rows;
mod salvage;
mod schema;
mod survey;
mod tail;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod versions;
mod writer;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread::JoinHandle,
    time::Duration,
};

use futures_util::{FutureExt, future::BoxFuture};
use rusqlite::ErrorCode;
use tokio::sync::watch;

pub use self::{
    ahead::{AheadDamage, ahead_damage, check_ahead},
    compact::compact,
    salvage::{Salvaged, salvage},
    survey::{Finding, Repaired, Survey, repair, survey},
};
use self::{
    append::Append,
    queue::{Queue, Request},
    read::Readers,
    tail::Tail,
    writer::Writer,
};
use super::{
    AuditFilter, AuditRecord, BatchRecord, Checkpoint, EventStore, RunCounts, RunFilter, RunRecord,
    StoreError, TaskRecord, Ticket, health::Health, tickets::Tickets,
};
use crate::domain::{
    event::{Envelope, Fact},
    id::{BatchId, Pos, RunId, Seq},
};

/// Threads that read. Two, so that a long log that is being read does not hold up a short question.
const READERS: usize = 2;

/// Runs that an error names.
const MOST_NAMED: usize = 5;

/// What a durable append outlives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// The loss of power: every commit waits for the disk.
    #[default]
    Power,
    /// The process's own death only: the last appends may be lost with the power, the file stays whole.
    Process,
}

/// How a log is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// What a durable append outlives.
    pub durability: Durability,
    /// How long another process may hold the file before a write fails.
    pub busy_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { durability: Durability::Power, busy_timeout: Duration::from_secs(5) }
    }
}

/// Why a log could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It was made by a later version.
    #[error("{path}: the log has schema {found}, this version knows {known}; use a newer herder")]
    Newer { path: PathBuf, found: usize, known: usize },
    /// There is nothing in it yet.
    #[error("{path}: no log has been written yet")]
    Empty { path: PathBuf },
    /// There is nothing in it any more: what lies beside it shows that there was.
    #[error("{path}: the log is gone, though the folder was used; put it back from a copy, or `herder doctor {folder} --repair` begins an empty one that knows of nothing that was done", folder = folder(path))]
    Gone { path: PathBuf },
    /// A folder is in its place.
    #[error("{path}: a folder is where the log should be; move it away and put the log back")]
    NoFile { path: PathBuf },
    /// It is no sound log.
    #[error("{path}: the log is damaged; nothing was changed, and `herder doctor {folder} --repair` salvages what can be read", folder = folder(path))]
    Malformed { path: PathBuf, source: Option<rusqlite::Error> },
    /// It cannot be reached.
    #[error("{path}: the log cannot be opened")]
    Sqlite {
        path: PathBuf,
        #[source]
        source: rusqlite::Error,
    },
    /// A new one cannot be made.
    #[error("{path}: cannot be written")]
    Unwritable {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// Rows of runs are gone whose events are there.
    #[error("{path}: damaged: events are there of runs that are not known: {}; what was done for them would be done again, so nothing is; `herder doctor {folder} --repair` puts them back", runs.join(", "), folder = folder(path))]
    Rowless { path: PathBuf, runs: Vec<String> },
    /// Its threads could not be started.
    #[error("the log's threads cannot be started")]
    Thread(#[source] std::io::Error),
}

impl OpenError {
    fn sqlite(path: &Path, source: rusqlite::Error) -> Self {
        let path = path.to_owned();
        if is_malformed(&source) {
            Self::Malformed { path, source: Some(source) }
        } else {
            Self::Sqlite { path, source }
        }
    }
}

fn folder(log: &Path) -> std::path::Display<'_> {
    log.parent().unwrap_or(log).display()
}

impl From<rusqlite::Error> for StoreError {
    fn from(source: rusqlite::Error) -> Self {
        if is_malformed(&source) {
            Self::Malformed(Arc::new(source))
        } else {
            Self::Unavailable(Arc::new(source))
        }
    }
}

/// Whether the file is no sound database.
fn is_malformed(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

/// A log in a SQLite file. Dropping it writes what was handed over.
pub struct SqliteStore {
    queue: Arc<Queue>,
    tickets: Arc<Tickets>,
    tail: Arc<Tail>,
    durable: Arc<watch::Sender<Pos>>,
    health: Arc<watch::Sender<Health>>,
    readers: Readers,
    background: Mutex<Option<Background>>,
}

/// The thread that tells how far the log goes: the writer, or where there is none the follower.
enum Background {
    Writer(JoinHandle<()>),
    Follower(JoinHandle<()>, mpsc::Sender<()>),
}

impl Background {
    fn join(self) -> std::thread::Result<()> {
        match self {
            Self::Writer(thread) => thread.join(),
            Self::Follower(thread, open) => {
                drop(open);
                thread.join()
            }
        }
    }
}

impl SqliteStore {
    /// Opens the log at `path`, and makes it if there is none.
    ///
    /// # Errors
    /// If it was made by a later version, is no log, or cannot be reached.
    pub fn open(path: &Path, options: Options) -> Result<Self, OpenError> {
        check_ahead(path)?;
        let mut db = schema::open_writer(path, options.durability, options.busy_timeout)?;
        let failed = |source| OpenError::sqlite(path, source);
        let rowless = orphans::numbers(&db).map_err(failed)?;
        if !rowless.is_empty() {
            let runs = rowless.iter().take(MOST_NAMED).map(|number| orphans::name(&db, *number));
            let runs = runs.collect::<Result<_, _>>().map_err(failed)?;
            return Err(OpenError::Rowless { path: path.to_owned(), runs });
        }
        mend::open_runs(&mut db).map_err(failed)?;
        Self::over(db, path, options)
    }

    fn over(db: rusqlite::Connection, path: &Path, options: Options) -> Result<Self, OpenError> {
        let health = Arc::new(watch::Sender::new(Health::Well));
        let told = Arc::clone(&health);
        Self::start(path, options, health, |queue, tickets, tail, durable| {
            let writer = Writer::new(db, queue, tickets, tail, durable, told)
                .map_err(|source| OpenError::sqlite(path, source))?;
            let thread = std::thread::Builder::new().name("log-writer".to_owned()).spawn(|| writer.run());
            Ok(Background::Writer(thread.map_err(OpenError::Thread)?))
        })
    }

    /// Opens the log at `path` to read it, beside whatever process writes to it, and notices what that one writes.
    /// Whatever is handed over is answered with [`StoreError::Closed`].
    ///
    /// # Errors
    /// If nothing was written yet, it was made by a later version, is no log, or cannot be reached.
    pub fn open_for_reading(path: &Path, options: Options) -> Result<Self, OpenError> {
        let db = schema::open_reader(path, options.busy_timeout)?;
        Self::start(path, options, Arc::default(), |queue, _, _, durable| {
            queue.close();
            let (open, thread) = follow::start(db, durable).map_err(OpenError::Thread)?;
            Ok(Background::Follower(thread, open))
        })
    }

    fn start(
        path: &Path,
        options: Options,
        health: Arc<watch::Sender<Health>>,
        background: impl FnOnce(
            Arc<Queue>,
            Arc<Tickets>,
            Arc<Tail>,
            Arc<watch::Sender<Pos>>,
        ) -> Result<Background, OpenError>,
    ) -> Result<Self, OpenError> {
        let readers = (0..READERS)
            .map(|_| schema::open_reader(path, options.busy_timeout))
            .collect::<Result<_, _>>()?;
        let readers = Readers::start(readers).map_err(OpenError::Thread)?;
        let (queue, tickets) = (Arc::new(Queue::default()), Arc::new(Tickets::default()));
        let durable = Arc::new(watch::Sender::new(Pos::START));
        let tail = Arc::new(Tail::default());
        let background =
            background(Arc::clone(&queue), Arc::clone(&tickets), Arc::clone(&tail), Arc::clone(&durable))?;
        let background = Mutex::new(Some(background));
        Ok(Self { queue, tickets, tail, durable, health, readers, background })
    }

    /// Writes what was handed over, folds the write-ahead log into the file and ends the threads. Blocks until then.
    /// What is asked of the store afterwards is answered with [`StoreError::Closed`].
    pub fn close(&self) {
        // Readers first: the last connection to close is then the writer's, which leaves the file alone and whole.
        self.readers.close();
        self.queue.close();
        let background = self.background.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Err(_)) = background.map(Background::join) {
            tracing::error!("log thread panicked");
        }
        self.tail.clear();
        // Whoever waits for more looks again, and is told.
        self.durable.send_modify(|_| {});
    }

    /// Waits until nothing becomes durable any more.
    async fn stuck(&self) {
        // The sender is here.
        let _ = self.health.subscribe().wait_for(|health| health.is_stuck()).await;
    }

    /// Reads once everything is decided that was handed over before.
    fn read_after_writes<T: Send + 'static>(
        &self,
        read: impl FnOnce(&rusqlite::Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> BoxFuture<'_, Result<T, StoreError>> {
        let last = self.queue.last();
        async move {
            tokio::select! {
                biased;
                // A failure is its own ticket's business.
                _ = self.tickets.outcome(last) => {}
                () = self.stuck() => {}
            }
            self.readers.ask(read).await
        }
        .boxed()
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.close();
    }
}

impl EventStore for SqliteStore {
    fn append(&self, run: RunId, expected: Seq, facts: &[Fact]) -> Result<Ticket, StoreError> {
        let append = Append::of(run, expected, facts);
        self.queue.hand_over(Request::Append(append.map_err(|error| StoreError::Encode(Arc::new(error)))?))
    }

    fn durable(&self, ticket: Ticket) -> BoxFuture<'_, Result<(), StoreError>> {
        self.tickets.outcome(ticket).boxed()
    }

    fn read(&self, run: RunId, after: Seq) -> BoxFuture<'_, Result<Vec<Envelope>, StoreError>> {
        self.read_after_writes(move |db| read::run(db, run, after, read::ALL))
    }

    fn read_some(
        &self,
        run: RunId,
        after: Seq,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<Envelope>, StoreError>> {
        self.read_after_writes(move |db| read::run(db, run, after, read::page(limit)))
    }

    fn read_all(&self, after: Pos, limit: usize) -> BoxFuture<'_, Result<Vec<Envelope>, StoreError>> {
        match self.tail.read(after, limit) {
            Some(facts) => std::future::ready(Ok(facts)).boxed(),
            None => self.readers.ask(move |db| read::all(db, after, read::page(limit))).boxed(),
        }
    }

    fn watch(&self) -> watch::Receiver<Pos> {
        self.durable.subscribe()
    }

    fn health(&self) -> watch::Receiver<Health> {
        self.health.subscribe()
    }

    fn runs(&self, filter: RunFilter) -> BoxFuture<'_, Result<Vec<RunRecord>, StoreError>> {
        self.read_after_writes(move |db| list::runs(db, &filter))
    }

    fn count(&self, filter: RunFilter) -> BoxFuture<'_, Result<RunCounts, StoreError>> {
        self.read_after_writes(move |db| list::count(db, &filter))
    }

    fn save_checkpoint(&self, run: RunId, through: Seq, state: Vec<u8>) -> Result<Ticket, StoreError> {
        self.queue.hand_over(Request::Checkpoint { run, through, state })
    }

    fn checkpoint(&self, run: RunId) -> BoxFuture<'_, Result<Option<Checkpoint>, StoreError>> {
        self.read_after_writes(move |db| read::checkpoint(db, run))
    }

    fn record_batch(&self, batch: BatchRecord, tasks: Vec<TaskRecord>) -> Result<Ticket, StoreError> {
        self.queue.hand_over(Request::Batch { batch, tasks })
    }

    fn batches(&self) -> BoxFuture<'_, Result<Vec<BatchRecord>, StoreError>> {
        self.read_after_writes(read::batches)
    }

    fn tasks(&self, batch: BatchId) -> BoxFuture<'_, Result<Vec<TaskRecord>, StoreError>> {
        self.read_after_writes(move |db| read::tasks(db, batch))
    }

    fn forget(&self, batches: Vec<BatchId>, runs: Vec<RunId>) -> Result<Ticket, StoreError> {
        self.queue.hand_over(Request::Forget { batches, runs })
    }

    fn save_setting(&self, name: &str, value: Option<String>) -> Result<Ticket, StoreError> {
        self.queue.hand_over(Request::Setting { name: name.to_owned(), value })
    }

    fn settings(&self) -> BoxFuture<'_, Result<BTreeMap<String, String>, StoreError>> {
        self.read_after_writes(read::settings)
    }

    fn record_audit(&self, record: AuditRecord) -> Result<Ticket, StoreError> {
        self.queue.hand_over(Request::Audit(record))
    }

    fn audit(&self, filter: AuditFilter) -> BoxFuture<'_, Result<Vec<AuditRecord>, StoreError>> {
        self.read_after_writes(move |db| list::audit(db, &filter))
    }
}
