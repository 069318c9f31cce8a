//! Where runs are kept: a state folder, to write to or to read beside whoever writes.

use std::{
    fs::{OpenOptions, Permissions},
    io,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tempfile::TempDir;

use super::doctor;
use crate::{
    config::Durability,
    domain::{
        event::Envelope,
        id::{RunId, Seq},
        run::Run,
    },
    store::{
        EventStore, RunFilter, RunRecord, StoreError,
        folder::{FolderError, LOG, StateFolder},
        memory::MemoryStore,
        sqlite::{self, OpenError, SqliteStore},
    },
};

/// An open state.
pub struct State {
    /// The log.
    pub store: Arc<dyn EventStore>,
    /// The folder that it lies in; absent for one that is only in memory.
    pub folder: Option<StateFolder>,
    /// Where the results go that are derived from it, if they go to a file.
    pub results: Option<PathBuf>,
    /// The file whose tasks it is of, if there is one.
    pub input: Option<PathBuf>,
    sqlite: Option<Arc<SqliteStore>>,
    /// What `folder` lies in if it is to go with this.
    passing: Option<TempDir>,
    aside: PathBuf,
}

/// Why a state cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error(transparent)]
    Log(#[from] OpenError),
    #[error("{}: a folder for the time of the batch cannot be made", parent.display())]
    Passing { parent: PathBuf, source: io::Error },
}

impl StateError {
    /// Whether a later version of herder wrote what is to be opened.
    pub const fn is_newer(&self) -> bool {
        matches!(self, Self::Folder(FolderError::Newer { .. }) | Self::Log(OpenError::Newer { .. }))
    }
}

impl Drop for State {
    /// The log is closed before a folder goes that is to go: it would make files in it meanwhile.
    fn drop(&mut self) {
        if let (Some(store), Some(_)) = (&self.sqlite, &self.passing) {
            store.close();
        }
    }
}

/// The log's file, and what SQLite writes before it.
const LOG_AHEAD: &str = "log.db-wal";

/// How long a reader waits for a writer in its way.
const READER_PATIENCE: Duration = Duration::from_secs(5);

impl State {
    /// An empty state, for whoever only looks.
    pub fn in_memory() -> Self {
        Self {
            store: Arc::new(MemoryStore::default()),
            folder: None,
            results: None,
            input: None,
            sqlite: None,
            passing: None,
            aside: passing_aside(),
        }
    }

    /// Where that is kept which is no log: workspaces and patches of runs. It outlasts a state that goes.
    pub fn aside(&self) -> &Path {
        &self.aside
    }

    /// A state among the temporary files, which goes with this value. It is on disk because the facts of many runs
    /// are more than memory should hold.
    ///
    /// # Errors
    /// There is no place for it.
    pub fn passing() -> Result<Self, StateError> {
        let parent = std::env::temp_dir();
        let mut named = tempfile::Builder::new();
        named.prefix("herder-batch-").permissions(Permissions::from_mode(0o700));
        let passing = match named.tempdir_in(&parent) {
            Ok(folder) => folder,
            Err(source) => return Err(StateError::Passing { parent, source }),
        };
        let mut state = Self::to_write(passing.path(), Durability::Process)?;
        state.passing = Some(passing);
        state.aside = passing_aside();
        Ok(state)
    }

    /// Opens the folder to write to, and makes it if there is none.
    ///
    /// # Errors
    /// Another process writes to it, or it is no state folder.
    pub fn to_write(path: &Path, durability: Durability) -> Result<Self, StateError> {
        let folder = StateFolder::open_for_writing(path)?;
        let durability = match durability {
            Durability::Power => sqlite::Durability::Power,
            Durability::Process => sqlite::Durability::Process,
        };
        let options = sqlite::Options { durability, ..sqlite::Options::default() };
        check_not_emptied(folder.path())?;
        make_private(&folder.log())?;
        let store = Arc::new(SqliteStore::open(&folder.log(), options)?);
        Ok(Self::of(folder, store))
    }

    /// Opens the folder to read, also while another process writes to it.
    ///
    /// # Errors
    /// It is no state folder, or nothing was written to it yet.
    pub fn to_read(path: &Path) -> Result<Self, StateError> {
        let folder = StateFolder::open_for_reading(path)?;
        check_not_emptied(path)?;
        // Beside whoever writes to it, or has just begun to, a frame may be read that is half written.
        if !is_written(path)
            && let Err(damage) = sqlite::check_ahead(&folder.log())
            && !is_written(path)
        {
            return Err(damage.into());
        }
        let options = sqlite::Options { busy_timeout: READER_PATIENCE, ..sqlite::Options::default() };
        let store = Arc::new(SqliteStore::open_for_reading(&folder.log(), options)?);
        Ok(Self::of(folder, store))
    }

    fn of(folder: StateFolder, store: Arc<SqliteStore>) -> Self {
        Self {
            aside: folder.path().to_owned(),
            store: store.clone(),
            folder: Some(folder),
            results: None,
            input: None,
            sqlite: Some(store),
            passing: None,
        }
    }

    /// Whether a process is at work on the runs that are open; else they go on once one is again. Where that cannot be known,
    /// it is taken to be so.
    pub fn is_attended(&self) -> bool {
        self.folder.as_ref().is_none_or(|folder| is_written(folder.path()))
    }

    /// What the runs are known by of which there are events, but no row; no list of runs has them.
    ///
    /// # Errors
    /// The log cannot be read.
    pub async fn rowless(&self) -> Result<Vec<String>, StoreError> {
        match &self.sqlite {
            Some(log) => log.rowless().await,
            None => Ok(Vec::new()),
        }
    }

    /// Where outputs go that are too long for the log.
    pub fn spill_root(&self) -> Option<PathBuf> {
        // Its real path, since no link is followed on the way when it is written to.
        let folder = self.folder.as_ref()?.path();
        Some(folder.canonicalize().unwrap_or_else(|_| folder.to_owned()).join("spill"))
    }

    /// Writes what was handed over and closes the log.
    pub async fn close(&self) {
        if let Some(store) = self.sqlite.clone() {
            // Only a panic of the store's own thread could be lost here, and it has told of itself.
            let _ = tokio::task::spawn_blocking(move || store.close()).await;
        }
    }

    /// Closes the log and makes its file as small as what is in it; the folder is held until then.
    ///
    /// # Errors
    /// There is no room for a copy; then it stays as large as it is.
    pub async fn close_compact(self) -> Result<(), OpenError> {
        self.close().await;
        let Some(log) = self.folder.as_ref().map(StateFolder::log) else { return Ok(()) };
        let compacted = tokio::task::spawn_blocking(move || sqlite::compact(&log)).await;
        // A panic has told of itself.
        compacted.unwrap_or(Ok(()))
    }
}

/// Whether a process writes to the folder. Where that cannot be known, it is taken to be so.
pub(super) fn is_written(folder: &Path) -> bool {
    StateFolder::holder(folder).map_or(true, |holder| holder.is_some())
}

/// A folder that was worked in has a log: one that is empty or gone has lost it, and is not begun anew. Nor is one that a
/// repair is about to replace worked with.
pub(super) fn check_not_emptied(folder: &Path) -> Result<(), OpenError> {
    let path = folder.join(LOG);
    if doctor::is_half_mended(folder) {
        return Err(OpenError::Malformed { path, source: None });
    }
    let bytes = |name: &str| folder.join(name).metadata().map_or(0, |facts| facts.len());
    if path.is_dir() {
        return Err(OpenError::NoFile { path });
    }
    // Beside a write-ahead log it is not gone, but damaged. What is written first is looked at last, so that a log that is
    // begun meanwhile is not taken for one that is gone.
    if doctor::was_used(folder) && bytes(LOG_AHEAD) == 0 && bytes(LOG) == 0 {
        return Err(OpenError::Gone { path });
    }
    Ok(())
}

/// Whether there is a state folder without a log.
pub(super) fn is_emptied(folder: &Path) -> bool {
    folder.join("format").exists() && folder.join(LOG).metadata().map_or(true, |facts| facts.len() == 0)
}

/// Among the temporary files, for what is made only if somebody wants it.
fn passing_aside() -> PathBuf {
    std::env::temp_dir().join(format!("herder-isolated-{}", uuid::Uuid::now_v7().simple()))
}

/// Makes the log's file if there is none: SQLite would make it as the umask says. Its other files have the mode of this one.
fn make_private(log: &Path) -> Result<(), FolderError> {
    let made =
        OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW).open(log);
    let failed = |source| FolderError::Io { path: log.to_owned(), action: "write to it", source };
    made.map(drop).map_err(failed)
}

/// Bytes of the log in a state folder; nothing if there is none.
pub fn log_bytes(folder: &Path) -> Option<u64> {
    let sizes = [LOG, LOG_AHEAD].iter().filter_map(|name| folder.join(name).metadata().ok());
    let sizes: Vec<u64> = sizes.map(|facts| facts.len()).collect();
    (!sizes.is_empty()).then(|| sizes.iter().sum())
}

/// Where `run` keeps its runs if nobody says otherwise: `$XDG_STATE_HOME/herder`, or what is customary in its place.
pub fn default_folder() -> Option<PathBuf> {
    let dirs = directories::ProjectDirs::from("", "", "herder")?;
    Some(dirs.state_dir().unwrap_or_else(|| dirs.data_dir()).to_path_buf())
}

/// Why a name stands for no single run.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    #[error("no run or task is called {0:?}; `herder ls` shows what there is")]
    None(String),
    #[error("{name:?} is the beginning of {count} run ids; give more of it")]
    Many { name: String, count: usize },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A run as its log says, and the log.
///
/// # Errors
/// The log cannot be read.
pub async fn read_run(store: &dyn EventStore, run: RunId) -> Result<(Run, Vec<Envelope>), StoreError> {
    let log = store.read(run, Seq::START).await?;
    Ok((Run::replay(run, log.iter().map(|envelope| &envelope.fact)), log))
}

/// What there is to say of a run of whose log only the end is left.
pub fn rest_lost(record: &RunRecord) -> String {
    let task = record.task_id.as_ref().map_or_else(String::new, |task| format!(" of task {task}"));
    let stands = match &record.end {
        Some(end) => {
            let error = end.error.as_ref().map_or_else(String::new, |error| format!(" ({error})"));
            format!("has ended: {}{error}", end.outcome)
        }
        None => "has not ended".to_owned(),
    };
    format!(
        "run {}{task} {stands}; the rest of its log is lost, and what was left of it lies in the table `damaged` of log.db",
        record.run
    )
}

/// Finds a run by its id, its task's id (then the latest attempt), or a unique beginning of its id.
///
/// # Errors
/// There is none, or there are several.
pub async fn find(store: &dyn EventStore, name: &str) -> Result<RunRecord, FindError> {
    let by_prefix = |prefix| RunFilter { id_prefix: Some(prefix), ..RunFilter::default() };
    if let Ok(run) = name.parse::<RunId>()
        && let Some(record) = store.runs(by_prefix(run.to_string())).await?.pop()
    {
        return Ok(record);
    }
    let by_task = RunFilter { task_id: Some(name.to_owned()), ..RunFilter::default() };
    if let Some(latest) =
        store.runs(by_task).await?.into_iter().max_by_key(|record| (record.attempt, record.run))
    {
        return Ok(latest);
    }
    if name.is_empty() {
        return Err(FindError::None(name.to_owned()));
    }
    let mut found = store.runs(by_prefix(name.to_ascii_lowercase())).await?;
    match (found.len(), found.pop()) {
        (1, Some(record)) => Ok(record),
        (0, _) | (_, None) => Err(FindError::None(name.to_owned())),
        (count, Some(_)) => Err(FindError::Many { name: name.to_owned(), count }),
    }
}

/// A new name for a run: a UUID v7, so that names sort by age.
pub fn new_run() -> RunId {
    RunId::new(uuid::Uuid::now_v7())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{
        id::Seq,
        run::{Input, Run},
        task::TaskSpec,
        time::Timestamp,
    };

    #[tokio::test]
    async fn a_whole_id_is_a_runs_before_it_is_a_tasks() {
        let store = MemoryStore::default();
        let (shadowed, other) = (RunId::from_bytes([1; 16]), RunId::from_bytes([2; 16]));
        for (run, task) in [(shadowed, "a".to_owned()), (other, shadowed.to_string())] {
            let spec = serde_json::json!({
                "task": "t", "task_id": task, "attempt": 1, "model": "m", "workspace": "/"
            });
            let spec: TaskSpec = serde_json::from_value(spec).expect("a spec");
            let now = Timestamp::from_micros(0);
            let facts = Run::new(run).decide(Input::Submit(Arc::new(spec)), now).expect("facts");
            store.durable(store.append(run, Seq::START, &facts).expect("taken")).await.expect("durable");
        }
        let found = async |name: &str| find(&store, name).await.map(|record| record.run).ok();
        assert_eq!(found(&shadowed.to_string()).await, Some(shadowed));
        assert_eq!(found(&shadowed.to_string().to_uppercase()).await, Some(shadowed));
        assert_eq!((found("a").await, found("02").await), (Some(shadowed), Some(other)));
        assert_eq!(found(&RunId::from_bytes([3; 16]).to_string()).await, None);
    }
}
