//! Workspaces that are open, shared by the runs that work in them; and whether a recorded change of a file was made.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, Weak},
};

use rustix::fs::{FlockOperation, flock};

use super::{Workspace, WorkspaceError};
use crate::domain::event::FileChange;

/// The workspaces of a process. One is open for as long as a run holds it.
#[derive(Debug, Default)]
pub struct Workspaces {
    read_roots: Vec<PathBuf>,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    /// By the path that was asked for.
    keys: BTreeMap<Arc<str>, Arc<str>>,
    /// By their real path, each with what tells other processes that this one works there.
    workspaces: BTreeMap<Arc<str>, (Weak<Workspace>, Option<File>)>,
    /// How many there may be before those that nobody holds are let go.
    room: usize,
}

impl Workspaces {
    /// Workspaces that may all read in `read_roots`.
    pub fn new(read_roots: Vec<PathBuf>) -> Self {
        Self { read_roots, open: Mutex::default() }
    }

    /// Opens the folder at `path`, or shares it if it is open.
    ///
    /// # Errors
    /// Names the folder that cannot be used, and why.
    pub fn get(&self, path: &Arc<str>) -> Result<Arc<Workspace>, WorkspaceError> {
        // Nothing below can leave the maps half changed.
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(workspace) = open.keys.get(path).and_then(|key| open.held(key)) {
            return Ok(workspace);
        }
        let workspace = Arc::new(Workspace::open(Path::new(&**path), &self.read_roots)?);
        let key = workspace.key().clone();
        open.sweep();
        open.keys.insert(path.clone(), key.clone());
        if let Some(same) = open.held(&key) {
            return Ok(same);
        }
        // The old claim first: this process is no stranger to itself.
        open.workspaces.remove(&key);
        let claim = claim(&key);
        open.workspaces.insert(key, (Arc::downgrade(&workspace), claim));
        Ok(workspace)
    }
}

impl Open {
    fn held(&self, key: &str) -> Option<Arc<Workspace>> {
        self.workspaces.get(key).and_then(|(workspace, _)| workspace.upgrade())
    }

    fn sweep(&mut self) {
        if self.keys.len() < self.room {
            return;
        }
        self.workspaces.retain(|_, (workspace, _)| workspace.strong_count() > 0);
        let workspaces = &self.workspaces;
        self.keys.retain(|_, key| workspaces.contains_key(key));
        self.room = 2 * self.keys.len() + 16;
    }
}

/// Tells other processes that this one works in a folder. The mutation queue orders the calls of one process; if there
/// is another, a person is warned.
fn claim(folder: &str) -> Option<File> {
    let file = File::open(folder).ok()?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        tracing::warn!(
            folder,
            "another process works in this workspace: its changes and ours are not in one queue"
        );
        // Shared, so that a third process notices when the first has gone.
        flock(&file, FlockOperation::NonBlockingLockShared).ok()?;
    }
    Some(file)
}

/// Whether a change that the log announces was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeState {
    /// The file is as the change leaves it.
    Made,
    /// The file is as it was before.
    NotMade,
    /// It is neither.
    Unknown,
}

/// Compares the file with the change.
pub async fn change_state(change: &FileChange) -> ChangeState {
    let path = PathBuf::from(&*change.path);
    let hashed = tokio::task::spawn_blocking(move || match File::open(&path) {
        Ok(mut file) => super::replace::digest(&mut file).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    });
    match hashed.await {
        Ok(Ok(now)) if now.as_ref() == Some(&change.after) => ChangeState::Made,
        Ok(Ok(now)) if now == change.before => ChangeState::NotMade,
        Ok(Ok(_) | Err(_)) | Err(_) => ChangeState::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workspace_is_shared_by_any_spelling_and_claimed_as_long_as_it_is_open() {
        let folder = tempfile::tempdir().unwrap();
        let path: Arc<str> = folder.path().canonicalize().unwrap().to_str().unwrap().into();
        let workspaces = Workspaces::default();
        let first = workspaces.get(&path).unwrap();
        assert!(Arc::ptr_eq(&first, &workspaces.get(&path).unwrap()));
        let spelling = format!("{path}/.").into();
        assert!(Arc::ptr_eq(&first, &workspaces.get(&spelling).unwrap()));
        let other = File::open(folder.path()).unwrap();
        assert!(flock(&other, FlockOperation::NonBlockingLockExclusive).is_err());
        drop(workspaces);
        assert!(flock(&other, FlockOperation::NonBlockingLockExclusive).is_ok());
    }

    #[tokio::test]
    async fn a_change_is_told_by_the_content_of_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.txt");
        let hash = |text: &str| super::super::replace::digest(&mut text.as_bytes()).unwrap();
        let path: Arc<str> = file.to_str().unwrap().into();
        let change = FileChange { path, before: Some(hash("before")), after: hash("after") };
        let created = FileChange { before: None, ..change.clone() };
        assert_eq!(change_state(&change).await, ChangeState::Unknown);
        assert_eq!(change_state(&created).await, ChangeState::NotMade);
        for (text, state) in [
            ("before", ChangeState::NotMade),
            ("after", ChangeState::Made),
            ("something else", ChangeState::Unknown),
        ] {
            std::fs::write(&file, text).unwrap();
            assert_eq!(change_state(&change).await, state, "{text}");
        }
    }
}
