//! Answers on their way to a process that has a state folder to itself: files, one an answer, in a folder that both know.
//!
//! A file is there whole or not at all, and stays until what became of its answer is of record, so it outlives either process.
//! One that is no answer is set aside. Whoever may write to the folder is believed.

use std::{
    fmt::Write as _,
    fs::{DirBuilder, File, Permissions},
    io::{self, Write as _},
    os::unix::{
        ffi::OsStrExt as _,
        fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::AnswerError;
use crate::{
    actor::{Supervisor, supervisor::AskError},
    clock::Clock,
    domain::{
        event::Grant,
        id::{RunId, Seq},
        run::{Answer, Input},
    },
    store::{EventStore, RunFilter, StoreError},
};

/// Between two looks at whether answers have come.
const PAUSE: Duration = Duration::from_millis(500);

/// Where the answers to runs of a state folder lie.
#[derive(Clone, Debug)]
pub struct Spool(PathBuf);

/// An answer on its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spooled {
    /// The run.
    pub run: RunId,
    /// Its approval.
    pub approval: u32,
    answer: Kept,
    /// What whoever answers calls the answer.
    pub command: Arc<str>,
    /// Who answers.
    #[serde(default)]
    pub by: Option<Arc<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kept {
    Approve(Option<Grant>),
    Reject(Option<Arc<str>>),
}

impl Spooled {
    /// Puts an answer up for its way.
    pub fn new(
        (run, approval): (RunId, u32),
        answer: Answer,
        (command, by): (Arc<str>, Option<Arc<str>>),
    ) -> Self {
        let answer = match answer {
            Answer::Approve(grant) => Kept::Approve(grant),
            Answer::Reject(reason) => Kept::Reject(reason),
        };
        Self { run, approval, answer, command, by }
    }

    fn into_input(self) -> (RunId, Input) {
        let Self { run, approval, answer, command, by } = self;
        (run, Input::Resolve { approval, answer: answer.into(), command, by })
    }
}

impl From<Kept> for Answer {
    fn from(kept: Kept) -> Self {
        match kept {
            Kept::Approve(grant) => Self::Approve(grant),
            Kept::Reject(reason) => Self::Reject(reason),
        }
    }
}

/// What became of an answer that had come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is of record, or never will be.
    Settled,
    /// Its run is not there yet, or the log takes nothing.
    Waits,
}

impl Spool {
    /// The answers to runs of this state folder: where no command may write, as it may in the state folder if that lies in a
    /// workspace. Whoever has no such place, has none but that folder.
    pub fn of(state: &Path) -> Self {
        Self::below(runtime_folder().as_deref(), state)
    }

    pub(super) fn below(runtime: Option<&Path>, state: &Path) -> Self {
        let Some(runtime) = runtime else { return Self(state.join("answers")) };
        let real = state.canonicalize().unwrap_or_else(|_| state.to_owned());
        let digest = Sha256::digest(real.as_os_str().as_bytes());
        let name = digest.iter().take(16).fold("answers-".to_owned(), |mut name, byte| {
            let _ = write!(name, "{byte:02x}");
            name
        });
        Self(runtime.join(name))
    }

    /// Puts an answer there; returns once it is on disk, with its place.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub fn put(&self, answer: &Spooled) -> io::Result<PathBuf> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.0)?;
        let mut named = tempfile::Builder::new();
        named.prefix(".").permissions(Permissions::from_mode(0o600));
        let mut file = named.tempfile_in(&self.0)?;
        file.write_all(&serde_json::to_vec(answer)?)?;
        file.as_file().sync_all()?;
        // Names sort by age.
        let path = self.0.join(format!("{}.json", uuid::Uuid::now_v7()));
        file.persist(&path)?;
        File::open(&self.0)?.sync_all()?;
        Ok(path)
    }

    /// The answers that have come, the oldest first.
    fn waiting(&self) -> io::Result<Vec<PathBuf>> {
        let entries = match std::fs::read_dir(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()?;
        let is_answer = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "json");
        let mut paths: Vec<_> = paths.into_iter().filter(is_answer).collect();
        paths.sort_unstable();
        Ok(paths)
    }

    /// Puts answers on record that have come while nobody was at work here; before anybody is. What is wrong with one concerns
    /// no other.
    pub async fn settle(&self, store: &dyn EventStore, clock: &dyn Clock) {
        for (path, answer) in self.come() {
            let Spooled { run, approval, answer, command, by } = answer;
            let found = super::find(store, &format!("{run}.{approval}")).await;
            let settled = match found {
                Ok(found) => found.resolve_unattended(store, clock, answer.into(), (command, by)).await,
                Err(_) => Ok(Seq::START),
            };
            // Whoever answered sees in the log why it came to nothing.
            if !matches!(settled, Err(AnswerError::Store(_))) {
                self.warn_of(remove(&path));
            }
        }
    }

    /// Hands answers to their runs as they come, for as long as it is waited for.
    pub async fn serve(self, supervisor: Supervisor) {
        loop {
            for (path, answer) in self.come() {
                if told(&supervisor, answer).await == Fate::Settled {
                    self.warn_of(remove(&path));
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn come(&self) -> Vec<(PathBuf, Spooled)> {
        let read = self.waiting().map(|paths| {
            let answers = paths.into_iter().filter_map(|path| {
                let answer = read(&path).unwrap_or_else(|error| {
                    self.warn_of(Err(error));
                    None
                })?;
                Some((path, answer))
            });
            answers.collect()
        });
        read.unwrap_or_else(|error| {
            self.warn_of(Err(error));
            Vec::new()
        })
    }

    fn warn_of(&self, done: io::Result<()>) {
        if let Err(error) = done {
            tracing::warn!(%error, place = %self.0.display(), "answers to approvals cannot be taken in");
        }
    }
}

/// Where this user's things of the session are, for herder; nothing if there is no such place.
pub fn runtime_folder() -> Option<PathBuf> {
    let named = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| folder.is_absolute());
    let usual = || PathBuf::from(format!("/run/user/{}", rustix::process::geteuid().as_raw()));
    let is_ours = |folder: &PathBuf| {
        let facts = folder.metadata();
        facts.is_ok_and(|facts| facts.is_dir() && facts.uid() == rustix::process::geteuid().as_raw())
    };
    Some(named.unwrap_or_else(usual)).filter(is_ours).map(|folder| folder.join("herder"))
}

/// Reads an answer, if it is still there and is one; else it is set aside.
fn read(path: &Path) -> io::Result<Option<Spooled>> {
    let text = match std::fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text?,
    };
    match serde_json::from_slice(&text) {
        Ok(answer) => Ok(Some(answer)),
        Err(error) => {
            tracing::warn!(%error, place = %path.display(), "no answer to an approval; set aside");
            std::fs::rename(path, path.with_extension("bad"))?;
            Ok(None)
        }
    }
}

/// Takes an answer back, unless it was taken in.
///
/// # Errors
/// The folder cannot be written to.
pub fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

async fn told(supervisor: &Supervisor, answer: Spooled) -> Fate {
    let (run, input) = answer.into_input();
    match supervisor.ask(run, input).await {
        // Whoever answered sees in the log why it came to nothing.
        Ok(_) | Err(AskError::Refused(_)) => Fate::Settled,
        Err(AskError::NoSuchRun) => match is_open(&*supervisor.services().store, run).await {
            Ok(false) => Fate::Settled,
            Ok(true) | Err(_) => Fate::Waits,
        },
        Err(AskError::NotLive | AskError::Store(_)) => Fate::Waits,
    }
}

async fn is_open(store: &dyn EventStore, run: RunId) -> Result<bool, StoreError> {
    let this = RunFilter { among: Some(vec![run]), ended: Some(false), ..RunFilter::default() };
    Ok(!store.runs(this).await?.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_lie_apart_from_the_state_and_are_found_by_any_path_to_it() {
        let place = tempfile::tempdir().unwrap();
        let (state, link) = (place.path().join("state"), place.path().join("link"));
        std::fs::create_dir(&state).unwrap();
        std::os::unix::fs::symlink(&state, &link).unwrap();
        let at = |state: &Path| Spool::below(Some(Path::new("/run/herder")), state).0;
        assert!(at(&state).starts_with("/run/herder"));
        assert_eq!(at(&state), at(&link));
        assert_ne!(at(&state), at(place.path()));
        assert_eq!(Spool::below(None, &state).0, state.join("answers"));
    }
}
