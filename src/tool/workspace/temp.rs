//! Temporary files that can be told from all others, and that a killed process leaves behind harmlessly.
//!
//! A temporary file is locked while it is written. What can be locked has no writer left and may be removed,
//! whichever process made it. Names are never used twice.

use std::{fs::File, os::fd::OwnedFd, sync::PoisonError};

use rustix::{
    fs::{AtFlags, Dir, FlockOperation, Mode, OFlags, RenameFlags, flock, fstat, openat, unlinkat},
    io::Errno,
};

use super::{PathError, Resolved};

const PREFIX: &str = ".herder-";
const SUFFIX: &str = ".tmp";

/// Whether a file of this name is one of ours.
pub(super) fn is_temporary(name: &[u8]) -> bool {
    let id = name.strip_prefix(PREFIX.as_bytes()).and_then(|rest| rest.strip_suffix(SUFFIX.as_bytes()));
    id.is_some_and(|id| id.len() == 32 && id.iter().all(u8::is_ascii_hexdigit))
}

/// A temporary file in a folder, removed when dropped unless it was renamed.
#[derive(Debug)]
pub(super) struct Temp<'a> {
    folder: &'a OwnedFd,
    name: String,
    pub(super) file: File,
    renamed: bool,
}

impl<'a> Temp<'a> {
    pub(super) fn create(folder: &'a OwnedFd, mode: Mode) -> Result<Self, Errno> {
        loop {
            let name = format!("{PREFIX}{}{SUFFIX}", uuid::Uuid::now_v7().simple());
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = match openat(folder, &name, flags, mode) {
                Ok(file) => file,
                Err(Errno::EXIST) => continue,
                Err(error) => return Err(error),
            };
            let temp = Self { folder, name, file: file.into(), renamed: false };
            // A sweep can come between creation and lock: then it holds the lock, or the name is gone.
            match flock(&temp.file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => {}
                // Where there are no locks, no sweep gets one either.
                Ok(()) | Err(_) if fstat(&temp.file)?.st_nlink > 0 => return Ok(temp),
                Ok(()) | Err(_) => {}
            }
        }
    }

    /// Renames over the file at `name`.
    pub(super) fn replace(mut self, name: &str) -> Result<(), Errno> {
        rustix::fs::renameat(self.folder, &self.name, self.folder, name)?;
        self.renamed = true;
        Ok(())
    }

    /// Renames to `name`, unless there is something.
    pub(super) fn appear(mut self, name: &str) -> Result<(), Errno> {
        match rustix::fs::renameat_with(self.folder, &self.name, self.folder, name, RenameFlags::NOREPLACE) {
            Ok(()) => self.renamed = true,
            // The file system doesn't know the flag; a hard link does the same, and drop removes the other name.
            Err(Errno::INVAL | Errno::NOSYS) => {
                rustix::fs::linkat(self.folder, &self.name, self.folder, name, AtFlags::empty())?;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

impl Drop for Temp<'_> {
    fn drop(&mut self) {
        if !self.renamed {
            // A name that stays is swept later.
            let _ = unlinkat(self.folder, &self.name, AtFlags::empty());
        }
    }
}

/// Removes what killed processes left in the folder that holds `target`, whether or not `target` exists.
///
/// # Errors
/// Says why the folder cannot be read; a folder that doesn't exist holds nothing.
pub(super) fn sweep_beside(target: &Resolved) -> Result<(), PathError> {
    let Some((parent, _)) = target.parent_and_name() else { return Ok(()) };
    match target.open_folder_at(parent) {
        Ok(folder) => {
            sweep(&folder);
            Ok(())
        }
        Err(PathError::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Removes what killed processes left in `folder`, which is at `relative` below the root of `target`. It reads the whole
/// folder, so it does so only the first time as long as the workspace is open.
pub(super) fn sweep_once(target: &Resolved, relative: &str, folder: &OwnedFd) {
    let mut swept = target.root.swept.lock().unwrap_or_else(PoisonError::into_inner);
    let is_first = !swept.contains(relative) && swept.insert(relative.into());
    drop(swept);
    if is_first {
        sweep(folder);
    }
}

/// Removes left-over temporary files; those that are locked or can't be removed stay for another time.
fn sweep(folder: &OwnedFd) {
    let Ok(entries) = Dir::read_from(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if is_temporary(name.to_bytes()) {
            let _ = remove_if_abandoned(folder, name);
        }
    }
}

fn remove_if_abandoned(folder: &OwnedFd, name: &std::ffi::CStr) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(folder, name, flags, Mode::empty())?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    unlinkat(folder, name, AtFlags::empty())
}
