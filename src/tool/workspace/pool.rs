//! Workspaces that are open, shared by the runs that work in them; and whether a recorded change of a file was made.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, Weak},
};

use super::{Workspace, WorkspaceError};
use crate::domain::event::FileChange;

/// The workspaces of a process. One is open for as long as a run holds it.
#[derive(Debug, Default)]
pub struct Workspaces {
    read_roots: Vec<PathBuf>,
    open: Mutex<BTreeMap<Arc<str>, Weak<Workspace>>>,
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
        // Nothing below can leave the map half changed.
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(workspace) = open.get(path).and_then(Weak::upgrade) {
            return Ok(workspace);
        }
        let workspace = Arc::new(Workspace::open(Path::new(&**path), &self.read_roots)?);
        open.retain(|_, workspace| workspace.strong_count() > 0);
        open.insert(path.clone(), Arc::downgrade(&workspace));
        Ok(workspace)
    }
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
    let hashed = tokio::task::spawn_blocking(move || match std::fs::File::open(&path) {
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
