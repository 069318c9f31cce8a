//! The daemon's desk: what is asked of it, done and answered, whatever way it came.
//!
//! A change is answered for once it is on disk, and says whether it changed anything: the same again is no mistake. Every
//! change is of record with who asked for it. Knows nothing of HTTP but the codes of refusals.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use serde::{Deserialize, Deserializer};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    hub::Hub,
    notify::Teller,
    process,
    wire::{ApiError, Changed, Code},
};
use crate::{
    app::{
        batches::Batches,
        herder::Herder,
        state::{FindError, find},
    },
    config::{Config, Effective, Files, Sources},
    domain::{
        id::{Pos, RunId, Seq},
        time::Timestamp,
    },
    store::{AuditRecord, EventStore, RunRecord, StoreError},
    telemetry::metric,
};

mod approvals;
mod audit;
mod batches;
mod change;
mod gates;
mod keys;
mod list;
mod models;
mod prune;
mod reload;
mod stats;
mod status;
mod submit;
mod take_up;
mod tell;
mod view;

pub use approvals::ApprovalQuery;
pub use audit::AuditQuery;
use keys::Keys;
pub use list::RunQuery;
pub use stats::StatsQuery;

/// What asks, for the record of changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct By {
    /// The user's number, where the system vouches for it.
    pub uid: Option<u32>,
    /// The user's name.
    pub user: Option<String>,
    /// What the client calls itself.
    pub client: Option<String>,
}

/// How far the daemon is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Runs of an earlier process are being taken up.
    Starting,
    /// It takes everything.
    Ready,
    /// It takes nothing new.
    Stopping,
}

impl Phase {
    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Stopping => "stopping",
        }
    }
}

/// Facts of the process that do not change.
#[derive(Clone, Debug)]
pub struct Place {
    /// Where it keeps its runs.
    pub state: PathBuf,
    /// Its socket.
    pub socket: PathBuf,
    /// Where else it listens.
    pub listen: Option<std::net::SocketAddr>,
    /// When it was started.
    pub started_at: Timestamp,
}

/// The desk.
pub struct Desk {
    herder: Herder,
    batches: Batches,
    hub: Hub,
    keys: Keys,
    /// Held while what is paused changes.
    gate_changes: tokio::sync::Mutex<()>,
    /// Held while old runs are removed.
    pruning: tokio::sync::Mutex<()>,
    place: Place,
    config: RwLock<(Arc<Config>, Arc<Effective>)>,
    /// What the configuration is read from again; what was changed live comes last.
    sources: Mutex<(Sources, Files)>,
    phase: tokio::sync::watch::Sender<Phase>,
    stop: Stop,
    metrics: Metrics,
    pub(super) teller: Teller,
    /// Changes under way, and news on their way: the log closes after them.
    work: TaskTracker,
    /// Fired when the daemon is over.
    over: CancellationToken,
    /// Open runs that could not be taken up.
    left: Mutex<BTreeMap<RunId, String>>,
}

/// Reads the metrics of this process as text.
pub type Metrics = Box<dyn Fn() -> String + Send + Sync>;

/// Tells the daemon to stop: fired once, it drains; twice, it does not wait.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    drain: CancellationToken,
    now: CancellationToken,
}

impl Stop {
    /// Asks for the end; says whether that changed anything.
    pub fn ask(&self, now: bool) -> bool {
        let fresh = !self.drain.is_cancelled() || now && !self.now.is_cancelled();
        self.drain.cancel();
        if now {
            self.now.cancel();
        }
        fresh
    }

    /// Whether it is asked for.
    pub fn is_asked(&self) -> bool {
        self.drain.is_cancelled()
    }

    /// Waits until it is asked for.
    pub async fn asked(&self) {
        self.drain.cancelled().await;
    }

    /// Waits until it is asked for without delay.
    pub async fn asked_now(&self) {
        self.now.cancelled().await;
    }
}

/// What a desk is made of.
pub struct Parts {
    pub herder: Herder,
    pub batches: Batches,
    pub hub: Hub,
    pub place: Place,
    pub config: Config,
    pub effective: Effective,
    pub sources: Sources,
    /// Their text.
    pub files: Files,
    pub stop: Stop,
    /// Reads the metrics.
    pub metrics: Metrics,
    pub(super) teller: Teller,
}

impl Desk {
    /// A desk that is not open yet.
    pub fn new(parts: Parts) -> Self {
        let Parts { herder, batches, hub, place, config, effective, sources, files, stop, metrics, teller } =
            parts;
        Self {
            herder,
            batches,
            hub,
            keys: Keys::default(),
            gate_changes: tokio::sync::Mutex::default(),
            pruning: tokio::sync::Mutex::default(),
            place,
            config: RwLock::new((Arc::new(config), Arc::new(effective))),
            sources: Mutex::new((sources, files)),
            phase: tokio::sync::watch::Sender::new(Phase::Starting),
            stop,
            metrics,
            work: teller.work().clone(),
            teller,
            over: CancellationToken::new(),
            left: Mutex::default(),
        }
    }

    /// herder at work.
    pub const fn herder(&self) -> &Herder {
        &self.herder
    }

    /// Its batches.
    pub const fn batches(&self) -> &Batches {
        &self.batches
    }

    /// Where events are followed.
    pub const fn hub(&self) -> &Hub {
        &self.hub
    }

    /// How it is told to stop.
    pub const fn stop(&self) -> &Stop {
        &self.stop
    }

    /// Where it is.
    pub const fn place(&self) -> &Place {
        &self.place
    }

    /// What is to be seen through before the log closes.
    pub const fn work(&self) -> &TaskTracker {
        &self.work
    }

    /// Waits for this, unless the daemon is over before.
    pub(super) async fn until_over<T>(&self, what: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            // What has happened by then is still heard.
            biased;
            happened = what => Some(happened),
            () = self.over.cancelled() => None,
        }
    }

    /// Ends what waits for things to happen, and waits for what is under way, though not for ever.
    pub async fn close(&self, patience: Duration) {
        self.over.cancel();
        self.work.close();
        if tokio::time::timeout(patience, self.work.wait()).await.is_err() {
            tracing::warn!(tasks = self.work.len(), "left behind at the end");
        }
    }

    /// How far it is.
    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Says how far it is.
    pub fn set_phase(&self, phase: Phase) {
        self.phase.send_replace(phase);
    }

    /// The configuration in force.
    pub fn config(&self) -> Arc<Config> {
        self.config.read().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    fn store(&self) -> &Arc<dyn EventStore> {
        &self.herder.state().store
    }

    fn now(&self) -> Timestamp {
        self.herder.supervisor.services().clock.now()
    }

    /// Whether it takes something new.
    fn open(&self) -> Result<(), ApiError> {
        match self.phase() {
            Phase::Ready => Ok(()),
            Phase::Starting => Err(ApiError::new(Code::Unavailable, "the daemon is starting; ask again")),
            Phase::Stopping => Err(ApiError::new(Code::Unavailable, "the daemon is stopping")),
        }
    }

    /// Asks the daemon to stop.
    pub fn ask_to_stop(&self, now: bool, by: &By) -> Changed {
        let changed = self.stop.ask(now);
        self.audit(by, "stop", "daemon", changed, now.then(|| "now".to_owned()));
        Changed { changed, seq: None }
    }

    /// The metrics as text.
    pub fn metrics(&self) -> String {
        if let Some(bytes) = process::facts(&self.place.state).log_bytes {
            #[expect(
                clippy::cast_precision_loss,
                reason = "a gauge takes a float, and no log is that large"
            )]
            metrics::gauge!(metric::STORE_BYTES).set(bytes as f64);
        }
        (self.metrics)()
    }

    /// The place of the last durable event.
    pub fn head(&self) -> Pos {
        *self.store().watch().borrow()
    }

    /// Whether a run's log has come as far as a client says.
    ///
    /// # Errors
    /// It has not, or cannot be read.
    pub async fn check_reached(&self, run: RunId, after: Seq) -> Result<(), ApiError> {
        let Some(before) = after.get().checked_sub(1).map(Seq::new) else { return Ok(()) };
        if self.store().read_some(run, before, 1).await?.is_empty() {
            let what =
                format!("run {run} has no event {after} yet; is this another state folder? Start at 0");
            return Err(ApiError::new(Code::Ahead, what));
        }
        Ok(())
    }

    /// A run by its name, as [`Self::show`] takes it.
    ///
    /// # Errors
    /// There is none, or there are several.
    pub async fn run_named(&self, name: &str) -> Result<RunId, ApiError> {
        Ok(self.find(name).await?.run)
    }

    /// A run by its id, a unique beginning of it, or its task's id.
    async fn find(&self, name: &str) -> Result<RunRecord, ApiError> {
        Ok(find(&**self.store(), name).await?)
    }

    /// Puts on record that somebody asked for a change. What they asked is answered for whether this reaches the disk or
    /// not: it is handed over after the change itself, so only a crash in between could lose it.
    fn audit(&self, by: &By, verb: &str, target: impl Into<String>, changed: bool, detail: Option<String>) {
        let record = AuditRecord {
            at: self.now(),
            uid: by.uid,
            user: by.user.clone(),
            client: by.client.clone(),
            verb: verb.to_owned(),
            target: target.into(),
            changed,
            detail,
        };
        if let Err(error) = self.store().record_audit(record) {
            tracing::warn!(%error, verb, "a change could not be put on record");
        }
    }

    /// Audits a change of one run and answers for it.
    fn changed(&self, by: &By, verb: &str, run: RunId, seq: Option<u64>) -> Changed {
        self.audit(by, verb, run.to_string(), seq.is_some(), None);
        Changed { changed: seq.is_some(), seq }
    }
}

impl From<FindError> for ApiError {
    fn from(error: FindError) -> Self {
        match error {
            FindError::None(_) => Self::new(Code::UnknownRun, error.to_string()),
            FindError::Many { .. } => Self::new(Code::Ambiguous, error.to_string()),
            FindError::Store(error) => error.into(),
        }
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        tracing::warn!(%error, "the log did not answer");
        match error {
            StoreError::Closed => Self::new(Code::Unavailable, "the daemon is stopping"),
            StoreError::Unavailable(ref source) => {
                Self::new(Code::StoreUnavailable, format!("{error}: {source}"))
            }
            StoreError::Malformed(_) => Self::new(Code::StoreUnavailable, error.to_string()),
            StoreError::Conflict { .. } | StoreError::Damaged { .. } | StoreError::Encode(_) => {
                Self::new(Code::Internal, error.to_string())
            }
        }
    }
}

/// A parameter that is a number if it is there at all: left empty it is none, and not as if it were absent.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}
