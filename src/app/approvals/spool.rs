//! Answers on their way to a process that has a state folder to itself: files, one an answer, in a folder that both know.
//!
//! A file is there whole or not at all, and stays until what became of its answer is of record, so it outlives either process.
//! One that is no answer is set aside. Whoever may write to the folder is believed.

use std::{
    fmt::Write as _,
    fs::{DirBuilder, File, Permissions},
    io::{self, Read as _, Write as _},
    os::unix::{
        ffi::OsStrExt as _,
        fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::domain::{
    event::Grant,
    id::RunId,
    run::{Answer, Input},
};

/// No answer is longer.
const MAX_BYTES: u64 = 1 << 20;

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

/// What a look into the folder came to.
#[derive(Debug, Default)]
pub(super) struct Come {
    pub(super) answers: Vec<(PathBuf, Spooled)>,
    pub(super) unread: Vec<(PathBuf, io::Error)>,
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

    /// The approval's name.
    pub(super) fn name(&self) -> String {
        format!("{}.{}", self.run, self.approval)
    }

    /// The answer, and what it is called and who gives it.
    pub(super) fn into_answer(self) -> (Answer, (Arc<str>, Option<Arc<str>>)) {
        (self.answer.into(), (self.command, self.by))
    }

    pub(super) fn into_input(self) -> (RunId, Input) {
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

    /// The answers that have come, the oldest first, and what cannot be read and why. What is no answer is set aside. Blocks.
    pub(super) fn come(&self) -> Come {
        let mut come = Come::default();
        let paths = match self.waiting() {
            Ok(paths) => paths,
            Err(error) => {
                come.unread.push((self.0.clone(), error));
                return come;
            }
        };
        for path in paths {
            match read(&path) {
                Ok(Some(answer)) => come.answers.push((path, answer)),
                Ok(None) => {}
                Err(error) => come.unread.push((path, error)),
            }
        }
        come
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
    // Whatever else stands there is not waited for.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        file => File::from(file?),
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut text = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut text)?;
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
