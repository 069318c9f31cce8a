//! A workspace of a run's own: a git worktree or a copy, and what the run changed in it.
//!
//! It is made before the run's first turn and found again after a restart; a run that has begun is never given a fresh
//! one. When the run has ended, what it changed becomes a patch, and if it is done also a commit on a branch of its own.
//! Both follow from the files alone, so they are made anew if herder dies in between. The user's own tree is not
//! touched: no checkout, no stash, no index; nor has a run to write anything of its repository. Knows nothing of the log:
//! who has ended, and how, it is told.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Mutex as AsyncMutex, Semaphore},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::process::{ProcessLimits, ProcessRunner, SpawnError};
use crate::domain::{
    id::RunId,
    outcome::Outcome,
    task::{Isolate, TaskSpec},
};

pub mod apply;
mod branch;
mod closing;
mod copy;
mod git;
mod locks;
mod making;
mod meta;
mod nested;
mod repository;
mod setup;
mod view;

use closing::Branch;
use git::Git;
use meta::Stage;
pub use meta::{Change, change_of, patch_of};
use repository::Repositories;

/// The name of the folders that workspaces lie in.
pub const WORK: &str = "work";

/// How long a workspace that cannot be made for a lock of another git's is tried again.
const LOCK_PATIENCE: Duration = Duration::from_secs(600);
const LOCK_PAUSE: Duration = Duration::from_millis(500);

/// Makings and endings at once, beyond which they only fight over the disk.
const AT_ONCE: usize = 8;

/// Of a run that ended while herder stopped.
const TO_COME: &str = "what the run changed is in no patch yet, which is made at the next start";

/// How workspaces are made, and what becomes of them.
#[derive(Clone, Debug)]
pub struct Options {
    /// What worktrees start from; absent: the commit that is checked out.
    pub base: Option<String>,
    /// The name of a run's branch, with `{task_id}`, `{run}` and `{attempt}` in it.
    pub branch: String,
    /// Run by `sh` in a workspace that was just made.
    pub setup: Option<String>,
    /// How long it may take.
    pub setup_timeout: Duration,
    /// Globs, relative to the task's folder, of files that git does not track and worktrees get nonetheless.
    pub copy: Vec<String>,
    /// Bytes that one copy may have.
    pub max_copy_bytes: u64,
    pub keep: Keep,
    /// Variables that the setup command sees, beyond those that all commands see.
    pub env_pass: Vec<String>,
    /// What the processes of the setup command may use up.
    pub limits: ProcessLimits,
    /// Time between asking it to end and killing it.
    pub grace: Duration,
}

/// Which workspaces stay once their run has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Those of runs that are not done.
    Failed,
    Always,
    Never,
}

/// Where things lie.
#[derive(Clone, Debug)]
pub struct Folders {
    /// Workspaces, and what is known of each.
    pub work: PathBuf,
    /// Workspaces that would else lie in what they are made from.
    pub elsewhere: PathBuf,
    /// Patches.
    pub patches: PathBuf,
    /// What no copy takes along: herder's own files and folders.
    pub own: Vec<PathBuf>,
}

/// Workspaces of runs' own.
#[derive(Debug)]
pub struct Isolation {
    options: Options,
    folders: Folders,
    git: Git,
    repositories: Repositories,
    room: Semaphore,
    /// What was said of locks, once each.
    told: Mutex<BTreeSet<String>>,
    /// Held while a run's workspace is made or put away.
    busy: Mutex<BTreeMap<RunId, Arc<Turn>>>,
    /// Runs whose workspaces an earlier process left, and nobody has touched since.
    inherited: Mutex<BTreeSet<RunId>>,
    /// Runs that may have something to put away.
    known: Mutex<BTreeSet<RunId>>,
}

/// See [`Isolation::busy`].
#[derive(Debug, Default)]
struct Turn {
    lock: AsyncMutex<()>,
    /// Cuts a setup command short whose run has ended.
    ended: CancellationToken,
}

/// Why there is no workspace of a run's own. Each is a sentence for whoever submitted the task.
#[derive(Debug, thiserror::Error)]
pub enum IsolateError {
    #[error("{} is in no git repository, which isolate = \"worktree\" needs; \"copy\" takes any folder", path.display())]
    NotARepository { path: PathBuf },
    #[error("{} is in a bare repository or a .git folder; name a folder of a work tree", path.display())]
    NoWorkTree { path: PathBuf },
    #[error("the repository {} has no commit yet, which a worktree starts from; make one", path.display())]
    NoCommit { path: PathBuf },
    #[error("the repository {} has no commit {base:?} (isolate.base)", path.display())]
    NoBase { path: PathBuf, base: String },
    #[error("the repository {} has submodules, which a worktree comes without; use isolate = \"copy\"", path.display())]
    Submodules { path: PathBuf },
    #[error("the folder {} is not in the commit that its worktree starts from", path.display())]
    NotInBase { path: PathBuf },
    #[error("{} is a worktree of another repository, which its copy would change; use isolate = \"worktree\"", path.display())]
    Linked { path: PathBuf },
    #[error("the copy of {} would have more than {mib} MiB (isolate.max_copy_mib)", path.display())]
    TooLarge { path: PathBuf, mib: u64 },
    #[error("the branch {branch} is there already; put {{run}} into isolate.branch")]
    BranchTaken { branch: String },
    #[error("the workspace that the run began in is gone: {}", path.display())]
    Gone { path: PathBuf },
    #[error(
        "run {before}, which this one goes on from, has left no workspace and no patch with what it changed"
    )]
    NothingLeft { before: RunId },
    #[error("the setup command {how}{}{tail}", if tail.is_empty() { "" } else { ":\n" })]
    Setup { how: String, tail: String },
    #[error("git's lock {} is in the way; if no git is at work there, remove that file", lock.display())]
    Locked { lock: PathBuf },
    #[error("git {verb} failed: {said}")]
    Git { verb: String, said: String },
    #[error("git cannot be run, which isolate needs")]
    NoGit(#[source] SpawnError),
    #[error("cannot {action} {}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
}

impl IsolateError {
    fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }
}

/// Whether a run's workspace was there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// It may be made.
    No,
    /// It has to be there.
    Yes,
}

impl Isolation {
    /// Workspaces in these folders. Looks at what an earlier process left there, and changes nothing.
    pub fn new(options: Options, folders: Folders, runner: ProcessRunner) -> Self {
        // Git is started in other folders than herder is.
        let whole = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
        let folders = Folders {
            work: whole(folders.work),
            elsewhere: whole(folders.elsewhere),
            patches: whole(folders.patches),
            own: folders.own.into_iter().map(whole).collect(),
        };
        let git = Git::of(runner, &folders.work);
        let known: BTreeSet<RunId> = meta::runs_in(&folders.work).collect();
        Self {
            options,
            folders,
            git,
            repositories: Repositories::default(),
            room: Semaphore::new(AT_ONCE),
            told: Mutex::default(),
            busy: Mutex::default(),
            inherited: Mutex::new(known.clone()),
            known: Mutex::new(known),
        }
    }

    /// Whether tasks can be isolated so in this folder, as far as that can be told beforehand. Changes nothing.
    ///
    /// # Errors
    /// They cannot.
    pub async fn check(&self, isolate: Isolate, workspace: &Path) -> Result<(), IsolateError> {
        match isolate {
            Isolate::None => Ok(()),
            Isolate::Copy => making::check_copy(&self.git, workspace).await,
            Isolate::Worktree => {
                let repository = self.repositories.of(&self.git, workspace).await?;
                repository.resolve(&self.git, self.options.base.as_deref()).await.map(drop)
            }
        }
    }

    /// Where the run works: its workspace, made if there is none and the run has not begun.
    ///
    /// # Errors
    /// It cannot be made, or is gone.
    pub async fn open(&self, run: RunId, spec: &TaskSpec, begun: Begun) -> Result<PathBuf, IsolateError> {
        let turn = self.turn_of(run);
        let _busy = turn.lock.lock().await;
        locked(&self.known).insert(run);
        let meta = meta::read(&self.folders.work, run).await;
        if let Some(meta) = &meta {
            self.unlock(meta).await?;
        }
        match (meta, begun) {
            (Some(meta), _) if meta.stage != Stage::Making && meta.stage != Stage::SettingUp => {
                match meta.site() {
                    Some(site) => Ok(site),
                    None => Err(IsolateError::Gone { path: meta.root }),
                }
            }
            (None, Begun::Yes) => Err(IsolateError::Gone { path: self.folders.work.join(run.to_string()) }),
            (Some(meta), Begun::Yes) => Err(IsolateError::Gone { path: meta.root }),
            (None | Some(_), Begun::No) => self.make_once_free(run, spec, &turn.ended).await,
        }
    }

    /// Makes a workspace; one that is half made, anew. Where a lock of another git's is in the way it is tried again, for
    /// a while: whose that is only people can say.
    async fn make_once_free(
        &self,
        run: RunId,
        spec: &TaskSpec,
        ended: &CancellationToken,
    ) -> Result<PathBuf, IsolateError> {
        let make = async || {
            let _room = self.room.acquire().await;
            if let Some(half_made) = meta::read(&self.folders.work, run).await {
                self.remove(&half_made, Branch::GoesIfEmpty).await?;
            }
            self.make(run, spec, ended).await
        };
        let since = Instant::now();
        loop {
            let made = make().await;
            let Err(error @ IsolateError::Locked { .. }) = &made else { return made };
            if since.elapsed() > LOCK_PATIENCE || ended.is_cancelled() {
                return made;
            }
            if locked(&self.told).insert(error.to_string()) {
                tracing::warn!("{error}; until then runs wait for their workspaces");
            }
            let _ = ended.run_until_cancelled(tokio::time::sleep(LOCK_PAUSE)).await;
        }
    }

    /// Where the run works, if that is there.
    pub async fn find(&self, run: RunId) -> Option<PathBuf> {
        meta::read(&self.folders.work, run).await?.site()
    }

    /// Puts what a run that has ended changed into its patch, and its workspace away, as the rule is. Doing it twice does
    /// nothing more; what cannot be done now is done at the next start.
    pub async fn close(&self, run: RunId, outcome: Outcome, task: &str) {
        if !locked(&self.known).contains(&run) {
            return;
        }
        let turn = self.turn_of(run);
        turn.ended.cancel();
        let _busy = turn.lock.lock().await;
        let _room = self.room.acquire().await;
        match self.put_away(run, outcome, task).await {
            Ok(()) => {
                locked(&self.known).remove(&run);
                locked(&self.busy).remove(&run);
            }
            Err(error) => {
                let error = super::workspace::Told(&error).to_string();
                tracing::warn!(run.id = %run, error, "changes of a run could not be put away; tried again at the next start");
                let told = format!(
                    "what the run changed could not be put into a patch, which is tried again at the next start: {error}"
                );
                let patches = self.folders.patches.clone();
                let change = blocking(move || Ok(change_of(&patches, run))).await.ok().flatten();
                // Where only the removal is to be done, the patch is there.
                if change.is_none_or(|change| change.error.is_some()) {
                    // Without that it is at least in herder's own log.
                    let _ = meta::write_change(&self.folders.patches, run, &Change::unknown(told)).await;
                }
            }
        }
    }

    /// Where patches lie.
    pub fn patches(&self) -> &Path {
        &self.folders.patches
    }

    /// Whether the run may have a workspace here. Does not block.
    pub fn knows(&self, run: RunId) -> bool {
        locked(&self.known).contains(&run)
    }

    /// Runs that an earlier process made workspaces for and did not put away. What git was doing there has come to its end.
    pub async fn left_behind(&self) -> Vec<RunId> {
        let known: Vec<RunId> = locked(&self.known).iter().copied().collect();
        if !known.is_empty() {
            Git::outwait(&self.folders.work).await;
        }
        known
    }

    /// What a run changed, if it had a workspace of its own and has ended.
    pub async fn change(&self, run: RunId) -> Option<Change> {
        let patches = self.folders.patches.clone();
        let change = blocking(move || Ok(change_of(&patches, run))).await.ok().flatten();
        let is_to_come = || self.knows(run).then(|| Change::unknown(TO_COME.to_owned()));
        change.or_else(is_to_come)
    }

    /// Removes what was begun of the workspace of a run that nobody knows. One that was made stays: there may be work in it.
    pub async fn discard_unfinished(&self, run: RunId) {
        let Some(meta) = meta::read(&self.folders.work, run).await else { return };
        match meta.stage {
            Stage::Making | Stage::SettingUp => self.discard(run).await,
            Stage::Made | Stage::Kept => {
                let workspace = meta.root.display();
                tracing::warn!(run.id = %run, %workspace, "the log does not know the run of this workspace; it stays as it is");
            }
        }
    }

    /// Removes the workspace of a run that is no longer of record.
    pub async fn discard(&self, run: RunId) {
        let Some(meta) = meta::read(&self.folders.work, run).await else { return };
        match self.remove(&meta, Branch::GoesIfEmpty).await {
            Ok(()) => drop(locked(&self.known).remove(&run)),
            Err(error) => tracing::warn!(run.id = %run, %error, "leftover workspace could not be removed"),
        }
    }

    fn turn_of(&self, run: RunId) -> Arc<Turn> {
        locked(&self.busy).entry(run).or_default().clone()
    }
}

/// Nothing that is done under these locks can leave what they guard half changed.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does something that blocks.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, IsolateError> + Send + 'static,
) -> Result<T, IsolateError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        Err(IsolateError::Io { action: "work in", path: PathBuf::from("."), source: io::Error::other(error) })
    })
}
