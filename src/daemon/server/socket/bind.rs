//! Binds the socket: private from the first moment, in the place of one that nobody listens on any more.
//!
//! Who starts, and who cleans up, holds a lock beside the socket while at it; so of two that start at once one wins, and
//! neither removes the other's socket. Never removes anything but a socket that refuses connections.

use std::{
    ffi::OsString,
    fs,
    os::{
        fd::OwnedFd,
        unix::{
            fs::{FileTypeExt, MetadataExt},
            net::UnixListener,
        },
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FlockOperation, Gid, Mode, OFlags, chmod, chown, fchmod, flock, fstat, open},
    io::Errno,
    net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind as bind_to, connect, listen,
        socket_with, sockopt::socket_peercred,
    },
    process::geteuid,
};

use super::{
    SocketError, SocketPath,
    folder::{prepare, standing},
};

/// Connections that the system completes ahead of us: a burst of clients, and no more than the system allows anyway.
const BACKLOG: i32 = 1024;

/// A socket that is listened on. Dropped, the file goes first, so that nobody connects to what is about to close.
#[derive(Debug)]
pub struct Bound {
    pub file: SocketFile,
    pub listener: UnixListener,
}

/// The socket's file. Removed when this is dropped, if it is still the one that was made.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Whoever cannot lock or look leaves the file: the next to start replaces it.
        let Ok(_held) = lock(&self.path) else { return };
        if let Ok(Some(facts)) = standing(&self.path)
            && (facts.dev(), facts.ino()) == self.identity
        {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Binds and listens, for this user alone or also for the members of a group. Blocks for as long as another process needs
/// to do the same.
pub fn bind(place: &SocketPath, group: Option<u32>) -> Result<Bound, SocketError> {
    let path = place.path();
    refuse_other_things(path)?;
    prepare(place, group)?;
    let _held = lock(path)?;
    make_way(path)?;
    let listener = listening(path).map_err(|error| SocketError::io("listen on", path)(error.into()))?;
    if let Some(group) = group
        && let Err(error) = open_to(path, group)
    {
        // Not by dropping a `SocketFile`, which waits for the lock that is held here.
        let _ = fs::remove_file(path);
        return Err(SocketError::io("open to the group", path)(error.into()));
    }
    let facts = fs::symlink_metadata(path).map_err(SocketError::io("look at", path))?;
    let file = SocketFile { path: path.to_owned(), identity: (facts.dev(), facts.ino()) };
    Ok(Bound { file, listener: UnixListener::from(listener) })
}

/// Last, so that the socket is never open to a group other than the one that is meant.
fn open_to(path: &Path, group: u32) -> rustix::io::Result<()> {
    chown(path, None, Some(Gid::from_raw(group)))?;
    chmod(path, Mode::from_raw_mode(0o660))
}

fn listening(path: &Path) -> rustix::io::Result<OwnedFd> {
    let socket = unix_socket()?;
    // The file gets the mode of the socket, less the umask: there is no moment at which it is open to others.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind_to(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

fn unix_socket() -> rustix::io::Result<OwnedFd> {
    socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
}

/// Removes a socket that nobody listens on. Called with the lock held.
fn make_way(path: &Path) -> Result<(), SocketError> {
    if !refuse_other_things(path)? {
        return Ok(());
    }
    match probe(path) {
        // A full queue of connections is somebody's who listens.
        Ok(pid) => Err(SocketError::AlreadyRunning { path: path.to_owned(), pid }),
        Err(Errno::AGAIN) => Err(SocketError::AlreadyRunning { path: path.to_owned(), pid: None }),
        Err(Errno::CONNREFUSED) => {
            fs::remove_file(path).map_err(SocketError::io("remove the stale socket", path))
        }
        Err(error) => Err(SocketError::io("find out who listens on", path)(error.into())),
    }
}

/// Whether there is a socket at `path`. Something else is not touched.
fn refuse_other_things(path: &Path) -> Result<bool, SocketError> {
    let Some(facts) = standing(path)? else { return Ok(false) };
    let kind = facts.file_type();
    if kind.is_socket() {
        return Ok(true);
    }
    let what = if kind.is_dir() {
        "a folder"
    } else if kind.is_file() {
        "a regular file"
    } else if kind.is_symlink() {
        "a symbolic link"
    } else {
        "a device or a pipe"
    };
    Err(SocketError::NotASocket { path: path.to_owned(), what })
}

/// The process that listens, where the system tells.
fn probe(path: &Path) -> rustix::io::Result<Option<i32>> {
    let socket = unix_socket()?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket_peercred(&socket).ok().map(|peer| peer.pid.as_raw_nonzero().get()))
}

/// Held until it is dropped. The file stays: were it removed, two could hold locks on two files of one name.
fn lock(path: &Path) -> Result<OwnedFd, SocketError> {
    let mut name = OsString::from(path);
    name.push(".lock");
    let name = PathBuf::from(name);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = open(&name, flags, Mode::RUSR | Mode::WUSR)
        .map_err(|error| SocketError::io("open", &name)(error.into()))?;
    // In a folder that others may write to, somebody could have put it there and never let go of it.
    let owner = fstat(&file).map_err(|error| SocketError::io("look at", &name)(error.into()))?.st_uid;
    if owner != geteuid().as_raw() {
        return Err(SocketError::ForeignLock { path: name });
    }
    loop {
        match flock(&file, FlockOperation::LockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::INTR) => {}
            Err(error) => return Err(SocketError::io("lock", &name)(error.into())),
        }
    }
}
