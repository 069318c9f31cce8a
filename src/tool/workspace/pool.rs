//! Workspaces that are open, shared by the runs that work in them; and whether a recorded change of a file was made.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use super::{
    Intent, Workspace, WorkspaceError,
    claim::{Claim, Slot},
    hidden::Hidden,
    replace::hash_file,
    temp::sweep_beside,
};
use crate::{
    domain::{event::FileChange, id::RunId, task::TaskSpec},
    tool::isolate::Isolation,
};

/// The workspaces of a process. One is open for as long as a run holds it.
#[derive(Debug, Default)]
pub struct Workspaces {
    read_roots: Vec<PathBuf>,
    hidden: Hidden,
    apart: Hidden,
    isolation: Option<Arc<Isolation>>,
    /// Never held while the file system is asked: one mount that hangs would stop all runs.
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    /// By their real path, and by each path that was asked for.
    workspaces: BTreeMap<Arc<str>, Weak<Workspace>>,
    /// By real path. One outlives its workspace by as long as that takes to be dropped.
    slots: BTreeMap<Arc<str>, Arc<Slot>>,
    /// Where the runs work that have a workspace of their own.
    own: BTreeMap<RunId, Arc<str>>,
    /// How many paths there may be before those that nobody holds are let go.
    room: usize,
}

impl Workspaces {
    /// Workspaces that may all read in `read_roots`.
    pub fn new(read_roots: Vec<PathBuf>) -> Self {
        Self { read_roots, ..Self::default() }
    }

    /// Workspaces without these files.
    #[must_use]
    pub fn hiding(self, hidden: Hidden) -> Self {
        Self { hidden, ..self }
    }

    /// No workspace that holds any of these files, or lies among them.
    #[must_use]
    pub fn apart_from(self, apart: Hidden) -> Self {
        Self { apart, ..self }
    }

    /// Whether the folder at `path`, if there is one, is apart from what workspaces are to be apart from.
    ///
    /// # Errors
    /// It is not.
    pub fn check_apart(&self, path: &Path) -> Result<(), WorkspaceError> {
        let real = path.canonicalize().ok();
        match real.as_deref().and_then(|real| self.apart.around(real)) {
            Some(kept) => Err(WorkspaceError::Exposes { path: path.to_owned(), kept: kept.to_owned() }),
            None => Ok(()),
        }
    }

    /// Gives runs workspaces of their own where their tasks say so.
    #[must_use]
    pub fn isolating(self, isolation: Arc<Isolation>) -> Self {
        Self { isolation: Some(isolation), ..self }
    }

    /// What makes workspaces of runs' own, if that is set up.
    pub const fn isolation(&self) -> Option<&Arc<Isolation>> {
        self.isolation.as_ref()
    }

    /// The workspace of a run, if it is open. Does not block.
    pub fn held_by(&self, run: RunId, spec: &TaskSpec) -> Option<Arc<Workspace>> {
        if spec.isolate.is_none() {
            return self.held(&spec.workspace);
        }
        let open = self.open();
        open.held(open.own.get(&run)?)
    }

    /// Opens the folder at `path` as the run's own. Blocks while its file system does.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn get_own(&self, run: RunId, path: &Arc<str>) -> Result<Arc<Workspace>, WorkspaceError> {
        let workspace = self.get(path)?;
        self.open().own.insert(run, path.clone());
        Ok(workspace)
    }

    /// The run has no workspace of its own any more.
    pub fn disown(&self, run: RunId) {
        self.open().own.remove(&run);
    }

    /// The folder at `path`, if it is open. Does not block.
    pub fn held(&self, path: &str) -> Option<Arc<Workspace>> {
        self.open().held(path)
    }

    /// Opens the folder at `path`, or shares it if it is open. Blocks while its file system does.
    ///
    /// # Errors
    /// Names the folder that cannot be used, and why.
    pub fn get(&self, path: &Arc<str>) -> Result<Arc<Workspace>, WorkspaceError> {
        if let Some(workspace) = self.held(path) {
            return Ok(workspace);
        }
        let mut workspace = Workspace::open_without(&self.hidden, Path::new(&**path), &self.read_roots)?;
        self.check_apart(Path::new(&**workspace.key()))?;
        let key = workspace.key().clone();
        let slot = self.open().slots.entry(key.clone()).or_default().clone();
        workspace.claim = Some(Claim::take(&slot, &key));
        // Should it not be the first, it is let go once the lock has been.
        let opened = Arc::new(workspace);
        let shared = self.open().share(path, &opened);
        Ok(shared)
    }

    /// Nothing that is done under it can leave it half changed.
    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn held(&self, path: &str) -> Option<Arc<Workspace>> {
        self.workspaces.get(path).and_then(Weak::upgrade)
    }

    /// The first that was opened wins; `opened` too is found from now on if it is the first.
    fn share(&mut self, path: &Arc<str>, opened: &Arc<Workspace>) -> Arc<Workspace> {
        self.sweep();
        let key = opened.key().clone();
        let shared = self.held(&key).unwrap_or_else(|| opened.clone());
        self.workspaces.insert(key, Arc::downgrade(&shared));
        self.workspaces.insert(path.clone(), Arc::downgrade(&shared));
        shared
    }

    fn sweep(&mut self) {
        if self.workspaces.len() < self.room {
            return;
        }
        self.workspaces.retain(|_, workspace| workspace.strong_count() > 0);
        self.slots.retain(|_, slot| Arc::strong_count(slot) > 1);
        self.room = 2 * self.workspaces.len() + 16;
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

/// Compares the file with the change. What is not a regular file of the workspace any more is unknown. What a killed
/// process left beside the file is removed.
pub async fn change_state(workspace: &Arc<Workspace>, change: &FileChange) -> ChangeState {
    let (workspace, path) = (workspace.clone(), change.path.clone());
    let look = move || {
        let target = workspace.resolve(&path, Intent::Write).ok()?;
        // A real path that leads elsewhere goes through a link that was not there.
        if *target.key() != path {
            return None;
        }
        // A folder that cannot be read has no bearing on the file.
        let _ = sweep_beside(&target);
        hash_file(&target).ok()
    };
    match tokio::task::spawn_blocking(look).await {
        Ok(Some(now)) if now.as_ref() == Some(&change.after) => ChangeState::Made,
        Ok(Some(now)) if now == change.before => ChangeState::NotMade,
        Ok(Some(_) | None) | Err(_) => ChangeState::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use rustix::fs::{CWD, FileType, FlockOperation, Mode, flock, mknodat};
    use tempfile::TempDir;

    use super::*;

    fn place() -> (TempDir, Arc<str>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap().to_str().unwrap().into();
        (folder, path)
    }

    /// As another process would see it.
    fn is_claimed(path: &str) -> bool {
        flock(File::open(path).unwrap(), FlockOperation::NonBlockingLockExclusive).is_err()
    }

    #[test]
    fn a_workspace_is_shared_by_any_spelling_and_claimed_as_long_as_it_is_open() {
        let (_folder, path) = place();
        let workspaces = Workspaces::default();
        let first = workspaces.get(&path).unwrap();
        assert!(Arc::ptr_eq(&first, &workspaces.get(&path).unwrap()));
        let spelling = format!("{path}/.").into();
        assert!(Arc::ptr_eq(&first, &workspaces.get(&spelling).unwrap()));
        assert!(is_claimed(&path));
        drop(first);
        assert!(!is_claimed(&path));
        let again = workspaces.get(&spelling).unwrap();
        assert!(is_claimed(&path));
        drop(again);
        assert!(!is_claimed(&path));
    }

    #[test]
    fn a_claim_is_held_by_the_last_of_those_who_share_it() {
        let (_folder, path) = place();
        let slot = Arc::default();
        let dying = Claim::take(&slot, &path);
        let next = Claim::take(&slot, &path);
        drop(dying);
        assert!(is_claimed(&path));
        drop(next);
        assert!(!is_claimed(&path));
    }

    #[test]
    fn those_who_open_a_folder_at_once_share_one_workspace() {
        let (_folder, path) = place();
        let workspaces = Workspaces::default();
        let together = std::sync::Barrier::new(8);
        let open = || {
            together.wait();
            workspaces.get(&path).unwrap()
        };
        let opened: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(opened.iter().all(|one| Arc::ptr_eq(one, &opened[0])));
        assert!(is_claimed(&path));
        drop(opened);
        assert!(!is_claimed(&path));
    }

    #[test]
    fn workspaces_that_nobody_holds_are_forgotten() {
        let (folder, path) = place();
        let workspaces = Workspaces::default();
        for n in 0..100 {
            let path: Arc<str> = format!("{path}/{n}").into();
            fs::create_dir(&*path).unwrap();
            workspaces.get(&path).unwrap();
        }
        let open = workspaces.open();
        assert!(open.workspaces.len() < 20 && open.slots.len() < 20, "{open:?}");
        drop(folder);
    }

    fn changes(path: &str) -> (FileChange, FileChange) {
        let hash = |text: &str| super::super::replace::digest(&mut text.as_bytes()).unwrap();
        let change = FileChange { path: path.into(), before: Some(hash("before")), after: hash("after") };
        let created = FileChange { before: None, ..change.clone() };
        (change, created)
    }

    #[tokio::test]
    async fn a_change_is_told_by_the_content_of_its_file() {
        let (folder, path) = place();
        let workspace = Workspaces::default().get(&path).unwrap();
        let (change, created) = changes(&format!("{path}/a.txt"));
        assert_eq!(change_state(&workspace, &change).await, ChangeState::Unknown);
        assert_eq!(change_state(&workspace, &created).await, ChangeState::NotMade);
        for (text, state) in [
            ("before", ChangeState::NotMade),
            ("after", ChangeState::Made),
            ("something else", ChangeState::Unknown),
        ] {
            fs::write(folder.path().join("a.txt"), text).unwrap();
            assert_eq!(change_state(&workspace, &change).await, state, "{text}");
        }
    }

    #[tokio::test]
    async fn what_stands_in_the_place_of_a_changed_file_is_not_opened() {
        let (folder, path) = place();
        let (outside, _) = place();
        fs::write(outside.path().join("a.txt"), "after").unwrap();
        fs::write(folder.path().join("other.txt"), "after").unwrap();
        let workspace = Workspaces::default().get(&path).unwrap();
        let at = |name: &str| folder.path().join(name);
        mknodat(CWD, at("pipe"), FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
        std::os::unix::fs::symlink(outside.path().join("a.txt"), at("out")).unwrap();
        std::os::unix::fs::symlink("other.txt", at("in")).unwrap();
        std::os::unix::fs::symlink("nothing", at("dangling")).unwrap();
        fs::create_dir(at("folder")).unwrap();
        for name in ["pipe", "out", "in", "dangling", "folder"] {
            let (change, created) = changes(&format!("{path}/{name}"));
            assert_eq!(change_state(&workspace, &change).await, ChangeState::Unknown, "{name}");
            assert_eq!(change_state(&workspace, &created).await, ChangeState::Unknown, "{name}");
        }
        let (elsewhere, _) = changes(outside.path().join("a.txt").to_str().unwrap());
        assert_eq!(change_state(&workspace, &elsewhere).await, ChangeState::Unknown);
    }
}
