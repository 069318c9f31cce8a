//! A daemon's batches: many over one supervisor and one log, next to single runs.
//!
//! A batch is taken on once its input, its tasks and its terms are on disk, and from then on it goes on until it has
//! ended, whatever happens to this process. What one batch lacks or breaks is no other's concern. Knows nothing of who
//! asks: a socket, a test.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use tokio::sync::{OwnedMutexGuard, Semaphore, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    actor::Supervisor,
    clock::Clock,
    config::Config,
    domain::{batch::Misfit, id::BatchId},
    store::{EventStore, StoreError},
};

use super::{herder::AddModel, input::InputError};

mod board;
mod control;
mod drive;
mod entry;
mod forget;
mod lines;
mod record;
mod recover;
mod results;
mod spool;
mod status;
mod submit;
#[cfg(test)]
mod tests;

pub use control::{RequeueError, Which};
pub use entry::Unread;
pub use forget::Held;
pub use recover::Recovered;
pub use results::{Reading, ResultsError};
pub use spool::SpoolError;
pub use status::{BatchState, Status};
pub use submit::{BatchOptions, SubmitBatch, Submitted};

use entry::{Entry, Work};

/// Inputs that are read and checked at once. A line may be long, and each of these has one in memory.
const READ_AT_ONCE: usize = 4;

/// What batches are worked on with.
pub struct Parts {
    pub supervisor: Supervisor,
    pub store: Arc<dyn EventStore>,
    /// Where inputs are kept: made with mode 0700 if it is not there.
    pub folder: PathBuf,
    /// Its defaults complete lines, its models are those that may be named.
    pub config: Arc<Config>,
    pub clock: Arc<dyn Clock>,
    /// Has the models at hand that lines name.
    pub add_model: AddModel,
}

/// The batches of a daemon. Cheap to clone.
#[derive(Clone)]
pub struct Batches(Arc<Inner>);

struct Inner {
    supervisor: Supervisor,
    store: Arc<dyn EventStore>,
    folder: PathBuf,
    config: RwLock<Arc<Config>>,
    clock: Arc<dyn Clock>,
    add_model: AddModel,
    entries: Mutex<BTreeMap<BatchId, Arc<Entry>>>,
    /// Batches that are known and not taken up yet: nobody changes them before.
    loaded: Mutex<Vec<(Arc<Entry>, OwnedMutexGuard<Work>)>>,
    /// The batch of each key. Submissions are taken on one at a time, so that a key has one batch.
    keys: tokio::sync::Mutex<BTreeMap<String, BatchId>>,
    reading: Arc<Semaphore>,
    closing: CancellationToken,
    drivers: TaskTracker,
}

/// Why a batch was not taken on. Nothing was run, and nothing is left of it.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    #[error(transparent)]
    Spool(#[from] SpoolError),
    #[error(transparent)]
    Input(#[from] InputError),
    #[error("the input has no tasks; want one JSON object a line")]
    Empty,
    #[error("the batch of this key, {id}, does not fit the input")]
    Misfit { id: BatchId, source: Misfit },
    #[error(
        "the batch of this key, {id}, is under way with another input; wait for its end, or use another key"
    )]
    Busy { id: BatchId },
    #[error("no task of the input has the id {0:?}")]
    NoSuchTask(String),
    #[error(transparent)]
    Unread(#[from] Unread),
    #[error("herder is stopping")]
    Stopping,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// There is no batch of this id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no batch {0}")]
pub struct NoSuchBatch(pub BatchId);

/// Why something asked of a batch did not happen.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error(transparent)]
    NoSuchBatch(#[from] NoSuchBatch),
    #[error(transparent)]
    Unread(#[from] Unread),
    /// The cost of some of its tasks cannot be limited.
    #[error(transparent)]
    Unpriced(InputError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a name stands for no single batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FindError {
    #[error("there is no batch {0:?}")]
    None(String),
    #[error("{name:?} is the beginning of {count} batch ids; give more of it")]
    Many { name: String, count: usize },
}

impl Batches {
    /// No batches yet; those of record come with [`Self::load`].
    ///
    /// # Errors
    /// The folder for inputs cannot be made.
    pub fn new(parts: Parts) -> Result<Self, SpoolError> {
        let Parts { supervisor, store, folder, config, clock, add_model } = parts;
        spool::make(&folder)?;
        Ok(Self(Arc::new(Inner {
            supervisor,
            store,
            folder,
            config: RwLock::new(config),
            clock,
            add_model,
            entries: Mutex::default(),
            loaded: Mutex::default(),
            keys: tokio::sync::Mutex::default(),
            reading: Arc::new(Semaphore::new(READ_AT_ONCE)),
            closing: CancellationToken::new(),
            drivers: TaskTracker::new(),
        })))
    }

    /// Has batches that are submitted from now on go by another configuration.
    pub fn reconfigure(&self, config: Arc<Config>) {
        *self.0.config.write().unwrap_or_else(PoisonError::into_inner) = config;
    }

    /// Every batch, oldest first.
    pub async fn list(&self) -> Vec<Status> {
        let entries = self.entries();
        let load = self.0.supervisor.load().await;
        entries.iter().map(|entry| entry.status(&load)).collect()
    }

    /// Batches that are being worked on.
    pub fn open(&self) -> usize {
        self.entries().iter().filter(|entry| entry.status.borrow().state == BatchState::Open).count()
    }

    /// How far a batch is.
    ///
    /// # Errors
    /// There is none of this id.
    pub async fn get(&self, id: BatchId) -> Result<Status, NoSuchBatch> {
        let entry = self.entry(id)?;
        let load = self.0.supervisor.load().await;
        Ok(entry.status(&load))
    }

    /// Finds a batch by its id, its name (then the latest), or a unique beginning of its id.
    ///
    /// # Errors
    /// There is none, or there are several.
    pub fn find(&self, name: &str) -> Result<BatchId, FindError> {
        let entries = self.0.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(id) = name.parse().ok().filter(|id| entries.contains_key(id)) {
            return Ok(id);
        }
        if let Some(named) = entries.values().rev().find(|entry| entry.status.borrow().name == name) {
            return Ok(named.id);
        }
        let none = || FindError::None(name.to_owned());
        if name.is_empty() {
            return Err(none());
        }
        let prefix = name.to_ascii_lowercase();
        let mut found = entries.keys().filter(|id| id.to_string().starts_with(&prefix));
        match (found.next(), found.count()) {
            (None, _) => Err(none()),
            (Some(id), 0) => Ok(*id),
            (Some(_), more) => Err(FindError::Many { name: name.to_owned(), count: more + 1 }),
        }
    }

    /// As [`Self::watch`], for whoever tells of its ends: given once, so that nobody is told twice.
    pub fn watch_ends(&self, id: BatchId) -> Option<watch::Receiver<Status>> {
        let entry = self.entry(id).ok()?;
        entry.is_to_be_told_of().then(|| entry.status.subscribe())
    }

    /// How far a batch is, told anew whenever that changes. Which of its runs have a slot is not told.
    ///
    /// # Errors
    /// There is none of this id.
    pub fn watch(&self, id: BatchId) -> Result<watch::Receiver<Status>, NoSuchBatch> {
        Ok(self.entry(id)?.status.subscribe())
    }

    /// Starts no more tasks and takes no more batches. The supervisor is to be drained next.
    pub fn close(&self) {
        self.0.closing.cancel();
        self.0.drivers.close();
        self.0.loaded.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Waits, after [`Self::close`], until nothing of a batch is under way. What has not ended stays open on record.
    pub async fn closed(&self) {
        self.0.drivers.wait().await;
    }

    fn config(&self) -> Arc<Config> {
        self.0.config.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn entry(&self, id: BatchId) -> Result<Arc<Entry>, NoSuchBatch> {
        let entries = self.0.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.get(&id).cloned().ok_or(NoSuchBatch(id))
    }

    fn entries(&self) -> Vec<Arc<Entry>> {
        self.0.entries.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    fn remove(&self, id: BatchId) {
        self.0.entries.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }

    fn insert(&self, entry: &Arc<Entry>) {
        self.0.entries.lock().unwrap_or_else(PoisonError::into_inner).insert(entry.id, entry.clone());
    }
}

/// Sees a change through, though whoever asked for it may hang up half-way.
async fn undisturbed<T: Send + 'static>(change: impl Future<Output = T> + Send + 'static) -> T {
    match tokio::spawn(change).await {
        Ok(changed) => changed,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is going down, and this with it.
            Err(_) => std::future::pending().await,
        },
    }
}
