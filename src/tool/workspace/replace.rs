//! Replaces a file as a whole, or not at all.
//!
//! In two phases, so that the hashes before and after can be of record before anything happens:
//! [`Original::read`] and [`Original::replace_with`] only look; [`Prepared::commit`] acts. It refuses a file that
//! is no longer the one that was read, keeps mode and owner, never replaces a file that appeared meanwhile, and
//! has everything on disk when it returns. Knows nothing of what the new content means.

use std::{
    io::{self, Read, Write},
    os::fd::OwnedFd,
    path::Path,
};

use rustix::{
    fs::{Access, AtFlags, Gid, Mode, OFlags, Stat, Uid, fchmod, fchown, fstat, fsync, mkdirat, statat},
    io::Errno,
};
use sha2::{Digest, Sha256};

use super::{
    PathError, Resolved,
    open::beneath,
    temp::{Temp, sweep_once},
};

use crate::{
    crash::{self, Point},
    tool::digest::hex,
};

/// The largest file that is replaced; it is held in memory before and after.
const MAX_BYTES: u64 = 32 << 20;

/// Why a file was not replaced.
#[derive(Debug, thiserror::Error)]
pub enum ReplaceError {
    #[error(transparent)]
    Path(#[from] PathError),
    #[error("{path} was changed by something else meanwhile; nothing was written")]
    Changed { path: String },
    #[error("{path} has {size} bytes; files over {MAX_BYTES} bytes are not changed in one piece")]
    TooLarge { path: String, size: u64 },
    #[error("cannot read {path}")]
    Unreadable { path: String, source: io::Error },
    #[error("cannot write {path}")]
    Unwritable { path: String, source: io::Error },
    /// The new content is there, but may be gone after a loss of power.
    #[error("{path} was written, but could not be made durable")]
    NotDurable { path: String, source: io::Error },
}

/// What a path holds before it is changed.
#[derive(Debug)]
pub struct Original {
    target: Resolved,
    existing: Option<Existing>,
}

#[derive(Debug)]
struct Existing {
    bytes: Vec<u8>,
    stat: Stat,
}

impl Original {
    /// Reads the file at `target`; that there is none is an answer too.
    ///
    /// # Errors
    /// Refuses what is not a regular file, is too large, write-protected, or changes while it is read.
    pub fn read(target: &Resolved) -> Result<Self, ReplaceError> {
        let mut opened = match target.open_file() {
            Ok(opened) => opened,
            Err(PathError::NotFound { .. }) => return Ok(Self { target: target.clone(), existing: None }),
            Err(error) => return Err(error.into()),
        };
        let path = || target.shown().to_owned();
        let too_large = |size| ReplaceError::TooLarge { path: path(), size };
        check_writable(target)?;
        if opened.size() > MAX_BYTES {
            return Err(too_large(opened.size()));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(opened.size()).unwrap_or(0));
        (&mut opened.file)
            .take(MAX_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(|source| ReplaceError::Unreadable { path: path(), source })?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(too_large(bytes.len() as u64));
        }
        let after = fstat(&opened.file)
            .map_err(|error| ReplaceError::Unreadable { path: path(), source: error.into() })?;
        if same_state(&opened.stat, &after) {
            Ok(Self { target: target.clone(), existing: Some(Existing { bytes, stat: opened.stat }) })
        } else {
            Err(ReplaceError::Changed { path: path() })
        }
    }

    /// The content, if there is a file.
    pub fn bytes(&self) -> Option<&[u8]> {
        self.existing.as_ref().map(|existing| existing.bytes.as_slice())
    }

    /// SHA-256 of the content, in hex, if there is a file.
    pub fn hash(&self) -> Option<String> {
        self.bytes().map(hash)
    }

    /// Fixes the new content; nothing is written yet.
    pub fn replace_with(self, bytes: Vec<u8>) -> Prepared {
        Prepared {
            hash_before: self.hash(),
            hash_after: hash(&bytes),
            before: self.existing.map(|existing| existing.stat),
            target: self.target,
            bytes,
        }
    }
}

/// A replacement that is ready to happen.
#[derive(Debug)]
pub struct Prepared {
    /// SHA-256 of the content that is replaced, in hex; none for a new file.
    pub hash_before: Option<String>,
    /// SHA-256 of the new content, in hex.
    pub hash_after: String,
    target: Resolved,
    before: Option<Stat>,
    bytes: Vec<u8>,
}

impl Prepared {
    /// The new content.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The file that is replaced.
    pub fn target(&self) -> &Resolved {
        &self.target
    }

    /// Puts the new content in place, creating parent folders for a new file.
    ///
    /// # Errors
    /// Nothing is written, but for [`ReplaceError::NotDurable`].
    pub fn commit(self) -> Result<(), ReplaceError> {
        let path = || self.target.shown().to_owned();
        let unwritable = |error: Errno| ReplaceError::Unwritable { path: path(), source: error.into() };
        let Some((parent, name)) = self.target.parent_and_name() else {
            return Err(PathError::Invalid { what: "names the workspace itself" }.into());
        };
        let folder = match self.before {
            Some(_) => self.target.open_folder_at(parent)?,
            None => self.create_folders(parent)?,
        };
        sweep_once(&self.target, parent, &folder);
        // Nobody else may read a replaced file's new content before it has the old one's mode.
        let mode = Mode::from_raw_mode(if self.before.is_some() { 0o600 } else { 0o666 });
        let mut temp = Temp::create(&folder, mode).map_err(unwritable)?;
        temp.file
            .write_all(&self.bytes)
            .map_err(|source| ReplaceError::Unwritable { path: path(), source })?;
        if let Some(before) = &self.before {
            keep_owner_and_mode(&temp.file, before).map_err(unwritable)?;
        }
        crash::point(Point::TempWritten);
        fsync(&temp.file).map_err(unwritable)?;
        crash::point(Point::BeforeRename);
        let renamed = match &self.before {
            Some(before) => match statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(now) if same_state(before, &now) => temp.replace(name),
                Ok(_) | Err(Errno::NOENT) => return Err(ReplaceError::Changed { path: path() }),
                Err(error) => Err(error),
            },
            None => temp.appear(name),
        };
        crash::point(Point::AfterRename);
        match renamed {
            Ok(()) => fsync(&folder)
                .map_err(|error| ReplaceError::NotDurable { path: path(), source: error.into() }),
            Err(Errno::EXIST) => Err(ReplaceError::Changed { path: path() }),
            Err(error) => Err(unwritable(error)),
        }
    }

    /// Opens the folder at `relative`, creating what is missing on the way, one confined step at a time.
    fn create_folders(&self, relative: &str) -> Result<OwnedFd, ReplaceError> {
        match self.target.open_folder_at(relative) {
            Err(PathError::NotFound { .. }) => {}
            opened => return Ok(opened?),
        }
        let unwritable = |error: Errno| ReplaceError::Unwritable {
            path: self.target.shown().to_owned(),
            source: error.into(),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let mut folder = self.target.open_folder_at(".")?;
        for part in relative.split('/') {
            folder = match beneath(&folder, part, flags) {
                Err(Errno::NOENT) => {
                    match mkdirat(&folder, part, Mode::from_raw_mode(0o777)) {
                        Ok(()) => fsync(&folder).map_err(unwritable)?,
                        Err(Errno::EXIST) => {}
                        Err(error) => return Err(unwritable(error)),
                    }
                    beneath(&folder, part, flags)
                }
                opened => opened,
            }
            .map_err(|error| super::open::NotOpened::Failed(error).of(self.target.shown()))?;
        }
        Ok(folder)
    }
}

/// SHA-256 of the file at `target` as it is now, in hex; none if there is no file.
///
/// # Errors
/// Refuses what is not a regular file or cannot be read.
pub fn hash_file(target: &Resolved) -> Result<Option<String>, ReplaceError> {
    let mut opened = match target.open_file() {
        Ok(opened) => opened,
        Err(PathError::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let path = || target.shown().to_owned();
    digest(&mut opened.file).map(Some).map_err(|source| ReplaceError::Unreadable { path: path(), source })
}

/// SHA-256 of all that `file` holds, in hex.
pub(super) fn digest(file: &mut impl Read) -> io::Result<String> {
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(hex(&digest.finalize())),
            Ok(count) => digest.update(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn hash(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// A rename needs no right to the file itself, so a file's write protection has to be asked for.
fn check_writable(target: &Resolved) -> Result<(), ReplaceError> {
    let Some((parent, name)) = target.parent_and_name() else { return Ok(()) };
    let folder = target.open_folder_at(parent)?;
    rustix::fs::accessat(&folder, Path::new(name), Access::WRITE_OK, AtFlags::empty())
        .map_err(|error| ReplaceError::Unwritable { path: target.shown().to_owned(), source: error.into() })
}

/// Whether two looks at a file saw the same file with the same content.
fn same_state(a: &Stat, b: &Stat) -> bool {
    let state =
        |s: &Stat| (s.st_dev, s.st_ino, s.st_size, s.st_mtime, s.st_mtime_nsec, s.st_ctime, s.st_ctime_nsec);
    state(a) == state(b)
}

/// Gives a new file the owner of the old one, as far as we may, and its mode.
fn keep_owner_and_mode(file: &std::fs::File, old: &Stat) -> Result<(), Errno> {
    const SET_ID: u32 = 0o6000;
    let new = fstat(file)?;
    let owner = (new.st_uid != old.st_uid).then(|| Uid::from_raw(old.st_uid));
    let group = (new.st_gid != old.st_gid).then(|| Gid::from_raw(old.st_gid));
    let kept = fchown(file, owner, group).or_else(|_| match owner {
        // Only root gives a file away, but its group may well be one of ours.
        Some(_) => fchown(file, None, group).and(Err(Errno::PERM)),
        None => Err(Errno::PERM),
    });
    // A program that runs as its owner must not come to run as another.
    let mode = if kept.is_ok() { old.st_mode } else { old.st_mode & !SET_ID };
    fchmod(file, Mode::from_raw_mode(mode & 0o7777))
}
