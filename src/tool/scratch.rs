//! Temporary folders, one a run, that nobody else can look into.
//!
//! They last as long as their run, so that what one command leaves there the next one finds. Whoever ends the run
//! removes them. All of it blocks.

use std::{
    collections::BTreeSet,
    fs::{self, DirBuilder, File, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rustix::{
    fs::{FlockOperation, flock},
    process::{Pid, geteuid, getpid, test_kill_process},
};

use crate::domain::id::RunId;

const PRIVATE: u32 = 0o700;
const PREFIX: &str = "herder-";
/// Of the part of a root's name that nobody can guess.
const RANDOM_DIGITS: usize = 12;

/// The folder that holds the temporary folders; it is there while one of them is.
#[derive(Clone, Debug)]
pub struct Scratch {
    root: PathBuf,
    /// Held while folders are made or removed, so that the root is not removed under one that is being made. While the
    /// root is there it is locked, by which other processes know that it is in use.
    busy: Arc<Mutex<Option<File>>>,
    /// Runs that have a folder.
    made: Arc<Mutex<BTreeSet<RunId>>>,
}

impl Scratch {
    /// The folder at `root` is made when it is needed.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        Self { root: std::path::absolute(&root).unwrap_or(root), busy: Arc::default(), made: Arc::default() }
    }

    /// A root of this process's own in `place`, where others may make files too: nobody can be there first.
    pub fn of_process(place: &Path) -> Self {
        let random = uuid::Uuid::now_v7().simple().to_string();
        let random = &random[random.len() - RANDOM_DIGITS..];
        Self::new(place.join(format!("{PREFIX}{}-{random}", getpid())))
    }

    /// The run's folder, which there is from now on.
    ///
    /// # Errors
    /// It cannot be made, something else is in its place, or others may look into the root.
    pub fn for_run(&self, run: RunId) -> io::Result<PathBuf> {
        let mut lock = locked(&self.busy);
        DirBuilder::new().recursive(true).mode(PRIVATE).create(&self.root)?;
        check_private(&self.root)?;
        if lock.is_none() {
            let root = File::open(&self.root)?;
            // Without locks it is still told by its process.
            let _ = flock(&root, FlockOperation::NonBlockingLockShared);
            *lock = Some(root);
        }
        let folder = self.folder(run);
        let folder = match DirBuilder::new().mode(PRIVATE).create(&folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let is_folder = fs::symlink_metadata(&folder)?.is_dir();
                if is_folder { Ok(folder) } else { Err(error) }
            }
            Err(error) => Err(error),
            Ok(()) => Ok(folder),
        }?;
        locked(&self.made).insert(run);
        Ok(folder)
    }

    /// Whether the run has a folder. Does not block.
    pub fn has(&self, run: RunId) -> bool {
        locked(&self.made).contains(&run)
    }

    /// Removes the run's folder, if there is one, and all that is in it.
    ///
    /// # Errors
    /// Something in it cannot be removed.
    pub fn remove(&self, run: RunId) -> io::Result<()> {
        let mut lock = locked(&self.busy);
        locked(&self.made).remove(&run);
        let removed = remove_all(&self.folder(run));
        // Only if it is empty; it is made again when it is needed.
        if fs::remove_dir(&self.root).is_ok() {
            *lock = None;
        }
        match removed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    fn folder(&self, run: RunId) -> PathBuf {
        self.root.join(run.to_string())
    }
}

/// Nothing that is done under these locks can leave what they guard half changed.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes what processes that were killed left in `place`, as [`Scratch::of_process`] names it. What cannot be removed
/// stays for another time.
pub fn remove_left_behind(place: &Path) {
    let Ok(entries) = fs::read_dir(place) else { return };
    for entry in entries.flatten() {
        let process = entry.file_name().to_str().and_then(process_of);
        if process.is_some_and(has_ended) {
            let _ = remove_if_abandoned(&entry.path());
        }
    }
}

/// The process that made a root of this name.
fn process_of(name: &str) -> Option<Pid> {
    let (pid, random) = name.strip_prefix(PREFIX)?.split_once('-')?;
    let is_random = random.len() == RANDOM_DIGITS && random.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_random { pid.parse().ok().and_then(Pid::from_raw) } else { None }
}

fn has_ended(process: Pid) -> bool {
    test_kill_process(process) == Err(rustix::io::Errno::SRCH)
}

/// A process that cannot be seen from here, in another container, still has its lock.
fn remove_if_abandoned(root: &Path) -> io::Result<()> {
    check_private(root)?;
    let file = File::open(root)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    remove_all(root)
}

/// Refuses a folder that is not ours alone. In one that is, and lies where only owners may rename, nobody else can put
/// anything.
fn check_private(folder: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(folder)?;
    let why = if !found.is_dir() {
        "is not a folder"
    } else if found.uid() != geteuid().as_raw() {
        "belongs to another user"
    } else if found.mode() & 0o077 != 0 {
        "may be used by other users"
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("{} {why}", folder.display())))
}

/// Removes a folder and all that is in it, write-protected or not.
pub(super) fn remove_all(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        // Package managers write-protect the folders of their caches.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            unprotect(folder)?;
            fs::remove_dir_all(folder)
        }
        removed => removed,
    }
}

fn unprotect(folder: &Path) -> io::Result<()> {
    fs::set_permissions(folder, Permissions::from_mode(PRIVATE))?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            unprotect(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use uuid::Uuid;

    use super::*;

    const RUN: RunId = RunId::new(Uuid::nil());

    #[test]
    fn a_folder_is_private_and_keeps_what_is_in_it_until_it_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(place.path().join("tmp"));
        let folder = scratch.for_run(RUN).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        fs::write(folder.join("kept"), "1").unwrap();
        assert_eq!(scratch.for_run(RUN).unwrap(), folder);
        assert_eq!(fs::read_to_string(folder.join("kept")).unwrap(), "1");
        assert!(scratch.has(RUN));
        scratch.remove(RUN).unwrap();
        assert!(!scratch.has(RUN) && !place.path().join("tmp").exists());
        scratch.remove(RUN).unwrap();
    }

    #[test]
    fn write_protected_folders_are_removed_too() {
        let place = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(place.path().join("tmp"));
        let folder = scratch.for_run(RUN).unwrap();
        fs::create_dir_all(folder.join("cache/deep")).unwrap();
        fs::write(folder.join("cache/deep/file"), "1").unwrap();
        for protected in ["cache/deep", "cache"] {
            fs::set_permissions(folder.join(protected), Permissions::from_mode(0o555)).unwrap();
        }
        let without_rights = move || {
            let none = rustix::thread::CapabilitySet::empty();
            let sets = rustix::thread::CapabilitySets { effective: none, permitted: none, inheritable: none };
            rustix::thread::set_capabilities(None, sets).unwrap();
            scratch.remove(RUN).unwrap();
        };
        std::thread::spawn(without_rights).join().unwrap();
        assert!(!folder.exists());
    }

    #[test]
    fn a_link_in_the_place_of_a_folder_is_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(place.path().join("tmp"));
        DirBuilder::new().mode(PRIVATE).create(place.path().join("tmp")).unwrap();
        symlink(place.path(), place.path().join("tmp").join(RUN.to_string())).unwrap();
        assert_eq!(scratch.for_run(RUN).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn a_root_that_others_may_use_or_that_is_a_link_is_refused_by_name() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("open")).unwrap();
        fs::set_permissions(place.path().join("open"), Permissions::from_mode(0o770)).unwrap();
        symlink(place.path(), place.path().join("link")).unwrap();
        for (name, why) in [("open", "may be used by other users"), ("link", "is not a folder")] {
            let root = place.path().join(name);
            let error = Scratch::new(&root).for_run(RUN).unwrap_err();
            assert_eq!(error.to_string(), format!("{} {why}", root.display()));
            assert!(!root.join(RUN.to_string()).exists());
        }
    }

    #[test]
    fn only_what_ended_processes_left_behind_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let own = Scratch::of_process(place.path());
        let own_folder = own.for_run(RUN).unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let dead = child.id();
        child.wait().unwrap();
        let root = |name: String| {
            let root = place.path().join(name);
            DirBuilder::new().mode(PRIVATE).recursive(true).create(root.join("run")).unwrap();
            root
        };
        let left = root(format!("herder-{dead}-0123456789ab"));
        let elsewhere = root(format!("herder-{dead}-ba9876543210"));
        let held = Scratch::new(&elsewhere);
        held.for_run(RUN).unwrap();
        let others = root(format!("herder-{dead}-notes"));
        let shared = root(format!("herder-{dead}-aaaaaaaaaaaa"));
        fs::set_permissions(&shared, Permissions::from_mode(0o755)).unwrap();

        remove_left_behind(place.path());
        assert!(!left.exists());
        for kept in [&own_folder, &elsewhere, &others, &shared] {
            assert!(kept.exists(), "{}", kept.display());
        }
        drop(held);
        remove_left_behind(place.path());
        assert!(!elsewhere.exists());
    }
}
