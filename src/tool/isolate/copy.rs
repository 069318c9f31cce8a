//! Copies a folder, or single files of one, as they are: links as links, with modes and times.
//!
//! Where the file system can, a copy shares its blocks with the original until one of them changes. Pipes, sockets and
//! devices are left out. All of it blocks.

use std::{
    fs::{self, DirBuilder, File, FileTimes, Metadata, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use super::IsolateError;

/// A copy under way.
#[derive(Debug)]
pub(super) struct Copying<'a> {
    /// Files and folders that are not taken along, by their real paths.
    pub(super) skip: &'a [PathBuf],
    /// Bytes that may still come.
    pub(super) room: u64,
}

/// The copy would be larger than it may.
#[derive(Debug, thiserror::Error)]
#[error("too large")]
struct TooLarge;

impl Copying<'_> {
    /// Copies the folder `from` to `to`, which is made.
    pub(super) fn folder(mut self, from: &Path, to: &Path, max: u64) -> Result<(), IsolateError> {
        self.tree(from, to).map_err(|(path, error)| {
            if error.get_ref().is_some_and(|inner| inner.is::<TooLarge>()) {
                return IsolateError::TooLarge { path: from.to_owned(), mib: max >> 20 };
            }
            IsolateError::Io { action: "copy", path, source: error }
        })
    }

    fn tree(&mut self, from: &Path, to: &Path) -> Result<(), (PathBuf, io::Error)> {
        let at = |error| (from.to_owned(), error);
        let found = fs::symlink_metadata(from).map_err(at)?;
        // Its own mode comes last: it may forbid what is to be made in it.
        DirBuilder::new().mode(0o700).create(to).map_err(at)?;
        for entry in fs::read_dir(from).map_err(at)? {
            let entry = entry.map_err(at)?;
            let (path, place) = (entry.path(), to.join(entry.file_name()));
            if self.skip.contains(&path) {
                continue;
            }
            let copied = if entry.file_type().map_err(at)?.is_dir() {
                self.tree(&path, &place)
            } else {
                self.file(&path, &place).map_err(|error| (path, error))
            };
            match copied {
                // It went after it was listed, as locks of git do.
                Err((_, error)) if error.kind() == io::ErrorKind::NotFound => {}
                copied => copied?,
            }
        }
        fs::set_permissions(to, found.permissions()).map_err(at)?;
        set_times(&File::open(to).map_err(at)?, &found).map_err(at)
    }

    /// Copies a file or a link. Anything else is left out.
    pub(super) fn file(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let found = fs::symlink_metadata(from)?;
        if found.is_symlink() {
            return symlink(fs::read_link(from)?, to);
        }
        if !found.is_file() {
            return Ok(());
        }
        self.room = self.room.checked_sub(found.len()).ok_or_else(|| io::Error::other(TooLarge))?;
        let mut source = OpenOptions::new().read(true).open(from)?;
        let mut copy =
            OpenOptions::new().write(true).create_new(true).mode(found.mode() & 0o777 | 0o200).open(to)?;
        if rustix::fs::ioctl_ficlone(&copy, &source).is_err() {
            // A file that grows meanwhile has no more than it had.
            io::copy(&mut io::Read::take(&mut source, found.len()), &mut copy)?;
        }
        copy.set_permissions(fs::Permissions::from_mode(found.mode() & 0o777))?;
        set_times(&copy, &found)
    }
}

fn set_times(copy: &File, found: &Metadata) -> io::Result<()> {
    copy.set_times(FileTimes::new().set_modified(found.modified()?))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    fn copy(from: &Path, to: &Path, skip: &[PathBuf], max: u64) -> Result<(), IsolateError> {
        Copying { skip, room: max }.folder(from, to, max)
    }

    #[test]
    fn a_copy_has_links_modes_and_times_and_no_pipes() {
        let place = tempfile::tempdir().unwrap();
        let (from, to) = (place.path().join("from"), place.path().join("to"));
        fs::create_dir_all(from.join("sub/deep")).unwrap();
        fs::write(from.join("sub/run.sh"), "echo").unwrap();
        fs::set_permissions(from.join("sub/run.sh"), fs::Permissions::from_mode(0o751)).unwrap();
        fs::set_permissions(from.join("sub/deep"), fs::Permissions::from_mode(0o555)).unwrap();
        symlink("sub/run.sh", from.join("link")).unwrap();
        symlink("/nowhere", from.join("dangling")).unwrap();
        mknodat(CWD, from.join("pipe"), FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
        let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        File::open(from.join("sub/run.sh")).unwrap().set_modified(old).unwrap();
        copy(&from, &to, &[], 1_000).unwrap();
        let found = fs::metadata(to.join("sub/run.sh")).unwrap();
        assert_eq!((found.mode() & 0o777, found.modified().unwrap()), (0o751, old));
        assert_eq!(fs::metadata(to.join("sub/deep")).unwrap().mode() & 0o777, 0o555);
        assert_eq!(fs::read_link(to.join("link")).unwrap(), Path::new("sub/run.sh"));
        assert_eq!(fs::read_link(to.join("dangling")).unwrap(), Path::new("/nowhere"));
        assert!(!to.join("pipe").exists());
        fs::write(to.join("sub/run.sh"), "changed").unwrap();
        assert_eq!(fs::read_to_string(from.join("sub/run.sh")).unwrap(), "echo");
    }

    #[test]
    fn what_goes_while_it_is_copied_is_left_out() {
        let place = tempfile::tempdir().unwrap();
        let (from, is_over) = (place.path().join("from"), AtomicBool::new(false));
        fs::create_dir(&from).unwrap();
        fs::write(from.join("stays"), "x").unwrap();
        let copies = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let passing: Vec<_> = (0..50).map(|number| from.join(format!("{number}.lock"))).collect();
                    passing.iter().for_each(|file| fs::write(file, "x").unwrap());
                    passing.iter().for_each(|file| fs::remove_file(file).unwrap());
                }
            });
            let to = |number: usize| place.path().join(number.to_string());
            let copies: Vec<_> = (0..200).map(|number| copy(&from, &to(number), &[], 1_000)).collect();
            is_over.store(true, Ordering::Relaxed);
            copies
        });
        for (number, copied) in copies.into_iter().enumerate() {
            copied.unwrap();
            assert_eq!(fs::read_to_string(place.path().join(format!("{number}/stays"))).unwrap(), "x");
        }
    }

    #[test]
    fn a_copy_that_would_be_too_large_is_refused_and_some_folders_are_left_out() {
        let place = tempfile::tempdir().unwrap();
        let from = place.path().join("from");
        fs::create_dir_all(from.join("state")).unwrap();
        fs::write(from.join("state/log.db"), "x".repeat(100)).unwrap();
        fs::write(from.join("a"), "x".repeat(50)).unwrap();
        let skip = [from.join("state")];
        copy(&from, &place.path().join("fits"), &skip, 50).unwrap();
        assert!(!place.path().join("fits/state").exists());
        let error = copy(&from, &place.path().join("large"), &skip, 49).unwrap_err();
        assert!(matches!(error, IsolateError::TooLarge { .. }), "{error}");
    }
}
