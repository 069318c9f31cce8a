//! Temporary folders, one a run, that nobody else can look into.
//!
//! They last as long as their run, so that what one command leaves there the next one finds. Whoever ends the run
//! removes them. All of it blocks.

use std::{
    collections::BTreeSet,
    fs::{self, DirBuilder, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::domain::id::RunId;

const PRIVATE: u32 = 0o700;

/// The folder that holds the temporary folders; it is there while one of them is.
#[derive(Clone, Debug)]
pub struct Scratch {
    root: PathBuf,
    /// Held while folders are made or removed, so that the root is not removed under one that is being made.
    busy: Arc<Mutex<()>>,
    /// Runs that have a folder.
    made: Arc<Mutex<BTreeSet<RunId>>>,
}

impl Scratch {
    /// The folder at `root` is made when it is needed.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        Self { root: std::path::absolute(&root).unwrap_or(root), busy: Arc::default(), made: Arc::default() }
    }

    /// The run's folder, which there is from now on.
    ///
    /// # Errors
    /// It cannot be made, or something else is in its place.
    pub fn for_run(&self, run: RunId) -> io::Result<PathBuf> {
        let _alone = locked(&self.busy);
        DirBuilder::new().recursive(true).mode(PRIVATE).create(&self.root)?;
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
        let _alone = locked(&self.busy);
        locked(&self.made).remove(&run);
        let folder = self.folder(run);
        let removed = match fs::remove_dir_all(&folder) {
            // Package managers write-protect the folders of their caches.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                unprotect(&folder)?;
                fs::remove_dir_all(&folder)
            }
            removed => removed,
        };
        // Only if it is empty; it is made again when it is needed.
        let _kept = fs::remove_dir(&self.root);
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
        let scratch = Scratch::new(place.path());
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
        fs::create_dir(place.path().join("tmp")).unwrap();
        std::os::unix::fs::symlink(place.path(), place.path().join("tmp").join(RUN.to_string())).unwrap();
        assert!(scratch.for_run(RUN).is_err());
    }
}
