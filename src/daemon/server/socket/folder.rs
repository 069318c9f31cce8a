//! The folder that the socket is in: who could put another socket in its place?
//!
//! A folder of herder's own is made private and must be this user's alone to write to. One that a person named is theirs:
//! it is never changed, and refused only if somebody else could replace what is in it.

use std::{
    fs::{self, DirBuilder, Metadata},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::Path,
};

use rustix::{
    fs::{Gid, Mode, chmod, chown},
    process::geteuid,
};

use super::{SocketError, SocketPath};

const STICKY: u32 = 0o1000;
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Makes the folder if there is none, and refuses one that is not safe. With a group, its members may pass through a
/// folder of herder's own.
pub(super) fn prepare(place: &SocketPath, group: Option<u32>) -> Result<(), SocketError> {
    let folder = place.folder();
    match DirBuilder::new().mode(0o700).create(folder) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(SocketError::io("make the socket's folder", folder)(error)),
    }
    check_folder(place)?;
    if let Some(group) = group.filter(|_| !place.named) {
        let open = chown(folder, None, Some(Gid::from_raw(group)))
            .and_then(|()| chmod(folder, Mode::from_raw_mode(0o710)));
        open.map_err(|error| SocketError::io("open to the group", folder)(error.into()))?;
    }
    Ok(())
}

/// Refuses a folder in which somebody else could have put, or could put, a socket of their own. A client that is about to
/// trust what it finds there checks so too.
pub fn check_folder(place: &SocketPath) -> Result<(), SocketError> {
    let folder = place.folder();
    let facts = if place.named { fs::metadata(folder) } else { fs::symlink_metadata(folder) };
    let facts = facts.map_err(SocketError::io("look at the socket's folder", folder))?;
    let why = if place.named { wrong_with_named(&facts) } else { wrong_with_own(&facts) };
    match why {
        Some(why) => Err(SocketError::UnsafeFolder { path: folder.to_owned(), why }),
        None => Ok(()),
    }
}

fn wrong_with_own(facts: &Metadata) -> Option<&'static str> {
    if facts.is_symlink() {
        return Some("is a symbolic link");
    }
    wrong_with_any(facts, &[geteuid().as_raw()]).or_else(|| {
        (facts.permissions().mode() & WRITABLE_BY_OTHERS != 0).then_some("can be written to by other users")
    })
}

fn wrong_with_named(facts: &Metadata) -> Option<&'static str> {
    let mode = facts.permissions().mode();
    wrong_with_any(facts, &[geteuid().as_raw(), 0]).or_else(|| {
        (mode & WRITABLE_BY_OTHERS != 0 && mode & STICKY == 0)
            .then_some("can be written to by other users, and has no sticky bit")
    })
}

fn wrong_with_any(facts: &Metadata, owners: &[u32]) -> Option<&'static str> {
    if !facts.is_dir() {
        return Some("is not a folder");
    }
    (!owners.contains(&facts.uid())).then_some("belongs to another user")
}

/// Looks at what stands at a path, a link not followed. `None` where nothing does.
pub(super) fn standing(path: &Path) -> Result<Option<Metadata>, SocketError> {
    match fs::symlink_metadata(path) {
        Ok(facts) => Ok(Some(facts)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(SocketError::io("look at", path)(error)),
    }
}
