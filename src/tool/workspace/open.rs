//! Opens what a resolved path names, below its root and without following a link.
//!
//! The kind of a file is looked at before it is opened, so that a pipe, socket or device is refused at once and
//! without side effects.

use std::{fmt, fs::File, io, os::fd::OwnedFd, path::Path};

use rustix::{
    fs::{FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat2},
    io::Errno,
};

use super::{PathError, Resolved, Root};

/// A regular file, open for reading.
#[derive(Debug)]
pub struct OpenFile {
    /// Positioned at its start.
    pub file: File,
    pub(super) stat: Stat,
}

impl OpenFile {
    /// Size in bytes when it was opened.
    pub fn size(&self) -> u64 {
        u64::try_from(self.stat.st_size).unwrap_or(0)
    }
}

/// What is at a path instead of a regular file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    Folder,
    Pipe,
    Socket,
    Device,
    Other,
}

impl FileKind {
    /// None for a regular file.
    fn other_than_regular(stat: &Stat) -> Option<Self> {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => None,
            FileType::Directory => Some(Self::Folder),
            FileType::Fifo => Some(Self::Pipe),
            FileType::Socket => Some(Self::Socket),
            FileType::CharacterDevice | FileType::BlockDevice => Some(Self::Device),
            FileType::Symlink | FileType::Unknown => Some(Self::Other),
        }
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Folder => "a folder",
            Self::Pipe => "a named pipe",
            Self::Socket => "a socket",
            Self::Device => "a device",
            Self::Other => "a special file",
        })
    }
}

impl Resolved {
    /// Opens the regular file at this path for reading.
    ///
    /// # Errors
    /// Refuses every other kind of file by name, and a path that no longer is what was resolved.
    pub fn open_file(&self) -> Result<OpenFile, PathError> {
        open_regular(&self.root, Path::new(self.relative())).map_err(|error| error.of(self.shown()))
    }

    /// Opens the folder at this path.
    ///
    /// # Errors
    /// Says that it is none, or that the path no longer is what was resolved.
    pub fn open_folder(&self) -> Result<OwnedFd, PathError> {
        self.open_folder_at(self.relative())
    }

    pub(super) fn open_folder_at(&self, relative: &str) -> Result<OwnedFd, PathError> {
        beneath(&self.root.folder, relative, OFlags::RDONLY | OFlags::DIRECTORY)
            .map_err(|error| NotOpened::Failed(error).of(self.shown()))
    }
}

/// Why there is no open file.
#[derive(Debug)]
pub(super) enum NotOpened {
    Kind(FileKind),
    Failed(Errno),
}

impl NotOpened {
    pub(super) fn of(self, path: &str) -> PathError {
        let path = path.to_owned();
        match self {
            Self::Kind(kind) => PathError::NotAFile { path, kind },
            Self::Failed(Errno::NOENT) => PathError::NotFound { path },
            Self::Failed(Errno::LOOP | Errno::XDEV | Errno::AGAIN) => PathError::Moved { path },
            Self::Failed(Errno::NOTDIR) => PathError::NotAFolder { path },
            Self::Failed(error) => PathError::Unusable { path, source: io::Error::from(error) },
        }
    }
}

/// Opens a regular file below `root`; refuses all else without opening it.
pub(super) fn open_regular(root: &Root, relative: &Path) -> Result<OpenFile, NotOpened> {
    let looked_at = beneath(&root.folder, relative, OFlags::PATH).and_then(fstat);
    if let Some(kind) = FileKind::other_than_regular(&looked_at.map_err(NotOpened::Failed)?) {
        return Err(NotOpened::Kind(kind));
    }
    // Another file may stand there by now: the open must not wait for a pipe's writer, and is checked again.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = beneath(&root.folder, relative, flags).map_err(NotOpened::Failed)?;
    let stat = fstat(&file).map_err(NotOpened::Failed)?;
    match FileKind::other_than_regular(&stat) {
        Some(kind) => Err(NotOpened::Kind(kind)),
        None => Ok(OpenFile { file: file.into(), stat }),
    }
}

/// Opens a path below `folder` whose every part is what it seems: no link, no way out.
pub(super) fn beneath<P: rustix::path::Arg>(
    folder: &OwnedFd,
    path: P,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    let confined = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
    openat2(folder, path, flags | OFlags::CLOEXEC, Mode::empty(), confined)
}

/// Opens a path below `folder` through links that do not lead out of it.
pub(super) fn following(folder: &OwnedFd, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let confined = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    openat2(folder, path, flags | OFlags::CLOEXEC, Mode::empty(), confined)
}
