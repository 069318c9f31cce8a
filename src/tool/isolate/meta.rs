//! What is known of a run's workspace, and of what the run changed: small files that are written as a whole.
//!
//! `WORK/RUN.json` is there from before the workspace is made until it is put away; `PATCHES/RUN.json`, beside the patch
//! itself, from then on.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{IsolateError, blocking};
use crate::domain::{id::RunId, task::Isolate};

/// A run's workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Meta {
    /// Says that the folder is herder's to remove.
    pub(super) made_by: MadeBy,
    pub(super) run: RunId,
    pub(super) isolate: Isolate,
    /// The folder that the task names.
    pub(super) workspace: PathBuf,
    /// The worktree or the copy.
    pub(super) root: PathBuf,
    /// Where in it the run works.
    pub(super) below: PathBuf,
    /// The commit or the tree that it started as; empty while that is not known.
    pub(super) base: String,
    /// Of a worktree: where it comes from.
    pub(super) origin: Option<Origin>,
    /// Files that were brought along though the base does not have them: no changes of the run's.
    #[serde(default)]
    pub(super) brought: Vec<String>,
    /// Repositories below its top that it began with, and what they were like.
    #[serde(default)]
    pub(super) nested: BTreeMap<String, u64>,
    pub(super) stage: Stage,
}

/// See [`Meta::made_by`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum MadeBy {
    Herder,
}

/// Where a worktree comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Origin {
    /// The repository's own work tree.
    pub(super) top: PathBuf,
    /// The git folder that all its worktrees share.
    pub(super) common: PathBuf,
    pub(super) branch: String,
}

/// How far a workspace is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Stage {
    Making,
    SettingUp,
    Made,
    /// Its run has ended, and it stays.
    Kept,
}

impl Meta {
    /// Where the run works.
    pub(super) fn place(&self) -> PathBuf {
        if self.below.as_os_str().is_empty() { self.root.clone() } else { self.root.join(&self.below) }
    }

    /// Where the run works, if that is there.
    pub(super) fn site(&self) -> Option<PathBuf> {
        match self.stage {
            Stage::Making | Stage::SettingUp => None,
            Stage::Made | Stage::Kept => Some(self.place()).filter(|path| path.is_dir()),
        }
    }
}

/// What a run changed in a workspace of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The branch that has it, or that its worktree is on.
    pub branch: Option<String>,
    /// The commit that the worktree started from.
    pub base: Option<String>,
    /// Where the patch lies; absent: nothing was changed.
    pub patch_path: Option<String>,
    pub files_changed: u64,
    /// Where the workspace is, if it was kept.
    pub kept: Option<String>,
    /// Why the rest is not known yet, as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What is not in the patch though it was changed, as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
}

impl Change {
    /// One that is not known yet.
    pub(super) fn unknown(error: String) -> Self {
        Self { error: Some(error), ..Self::default() }
    }

    /// What went wrong with the run, and with knowing what it changed.
    pub fn with_error<'a>(&self, run: Option<Cow<'a, str>>) -> Option<Cow<'a, str>> {
        match (run, self.error.as_ref().or(self.left_out.as_ref())) {
            (Some(run), Some(own)) => Some(format!("{run}; {own}").into()),
            (None, Some(own)) => Some(own.clone().into()),
            (run, None) => run,
        }
    }

    /// How many files are different, if that is known.
    pub fn files(&self) -> Option<u64> {
        self.error.is_none().then_some(self.files_changed)
    }
}

/// What a run changed, if it had a workspace of its own and has ended. Blocks.
pub fn change_of(patches: &Path, run: RunId) -> Option<Change> {
    read_json(&patches.join(format!("{run}.json")))
}

/// Where a run's patch lies, or will.
pub fn patch_of(patches: &Path, run: RunId) -> PathBuf {
    patches.join(format!("{run}.patch"))
}

pub(super) async fn read(work: &Path, run: RunId) -> Option<Meta> {
    let path = path(work, run);
    blocking(move || Ok(read_json(&path))).await.ok().flatten()
}

pub(super) async fn write(work: &Path, meta: &Meta) -> Result<(), IsolateError> {
    let (path, meta) = (path(work, meta.run), meta.clone());
    blocking(move || write_json(&path, &meta)).await
}

pub(super) async fn write_change(patches: &Path, run: RunId, change: &Change) -> Result<(), IsolateError> {
    let (path, change) = (patches.join(format!("{run}.json")), change.clone());
    blocking(move || write_json(&path, &change)).await
}

pub(super) async fn forget(work: &Path, run: RunId) -> Result<(), IsolateError> {
    let path = path(work, run);
    blocking(move || match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(IsolateError::io("remove", path)(error)),
        Ok(()) | Err(_) => Ok(()),
    })
    .await
}

/// The runs of which something is known in a folder, but for those whose workspaces are there to stay.
pub(super) fn runs_in(work: &Path) -> impl Iterator<Item = RunId> + use<> {
    let entries = fs::read_dir(work).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let path = entry.path();
        let run: RunId = path.file_name()?.to_str()?.strip_suffix(".json")?.parse().ok()?;
        read_json::<Meta>(&path).filter(|meta| meta.stage != Stage::Kept).map(|_| run)
    })
}

fn path(work: &Path, run: RunId) -> PathBuf {
    work.join(format!("{run}.json"))
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<(), IsolateError> {
    let bytes = serde_json::to_vec(value).map_err(|error| IsolateError::io("write", path)(error.into()))?;
    write_whole(path, &bytes).map_err(IsolateError::io("write", path))
}

/// Puts a file in its place as a whole, and on disk.
fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let fresh = path.with_extension("new");
    remove_if_there(&fresh)?;
    // What a command could have put there in the meantime, a link perhaps, is not written to.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
    file.write_all(bytes)?;
    publish(&file, &fresh, path)
}

pub(super) fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Puts a file that was written beside its place there, for good.
pub(super) fn publish(file: &File, fresh: &Path, path: &Path) -> io::Result<()> {
    file.sync_all()?;
    fs::rename(fresh, path)?;
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_written_is_found_again_and_strangers_files_are_not_taken_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunId::from_bytes([3; 16]);
        let meta = Meta {
            made_by: MadeBy::Herder,
            run,
            isolate: Isolate::Copy,
            workspace: "/w".into(),
            root: folder.path().join("tree"),
            below: PathBuf::new(),
            base: String::new(),
            origin: None,
            brought: vec![".env.test".to_owned()],
            nested: BTreeMap::from([("sub".to_owned(), 7)]),
            stage: Stage::Made,
        };
        write(folder.path(), &meta).await.unwrap();
        assert_eq!(read(folder.path(), run).await, Some(meta.clone()));
        let other = RunId::from_bytes([4; 16]);
        fs::write(path(folder.path(), other), r#"{"run": "x"}"#).unwrap();
        fs::write(folder.path().join("notes.json"), "{}").unwrap();
        assert_eq!(runs_in(folder.path()).collect::<Vec<_>>(), [run]);
        write(folder.path(), &Meta { stage: Stage::Kept, ..meta }).await.unwrap();
        assert_eq!(runs_in(folder.path()).count(), 0);
        forget(folder.path(), run).await.unwrap();
        assert_eq!(read(folder.path(), run).await, None);
    }
}
