//! What a command may change and reach, kept by the kernel.
//!
//! A command takes the bounds on itself just before it becomes what it is to be, and everything that it starts has them
//! too; none of them can be taken off again. It always loses the right to gain rights (`sudo` does not work), may write
//! only where it is told to, and may be left without network. Bounds that the kernel cannot keep are an error and never
//! silently missing. Not kept off: reading, changing modes, owners and times of files elsewhere, and Unix sockets that
//! have a path. Knows nothing of workspaces.

mod files;
mod network;
mod rights;

use std::{error::Error, io, path::PathBuf};

use serde::{Deserialize, Serialize};

pub use files::Files;

/// What a command may change and reach.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// The files and folders that it may write to, beside `/dev/null` and the like; if left out, all that its user may.
    /// What does not exist when the command starts is not among them.
    pub write: Option<Vec<PathBuf>>,
    pub network: Network,
}

/// Whether a command may use the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Network {
    #[default]
    Allow,
    /// No socket but Unix sockets.
    Deny,
}

/// What the running kernel can keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Support {
    pub files: Files,
    /// Whether commands can be left without network.
    pub network: bool,
}

/// Asks the kernel; changes nothing.
pub fn support() -> Support {
    Support { files: files::strongest(), network: network::is_supported() }
}

/// The folders that every command may write to, wherever else it may: where programs share memory and semaphores.
pub const SHARED_FOLDERS: [&str; 1] = ["/dev/shm"];

/// Takes the bounds on, for good.
pub(super) fn apply(confinement: &Confinement) -> io::Result<()> {
    rustix::thread::set_no_new_privs(true)?;
    if let Some(write) = &confinement.write {
        rights::give_up()?;
        files::apply(write)?;
    }
    match confinement.network {
        Network::Allow => Ok(()),
        Network::Deny => network::deny(),
    }
}

/// The system's error at the bottom of another, or that the kernel lacks what is wanted.
fn system_error(error: &(dyn Error + 'static)) -> io::Error {
    let mut errno = None;
    let mut cause = Some(error);
    while let Some(error) = cause {
        errno = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error).or(errno);
        cause = error.source();
    }
    errno.map_or_else(|| rustix::io::Errno::NOSYS.into(), io::Error::from_raw_os_error)
}
