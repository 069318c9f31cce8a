//! Confined paths, replacement and the reading tools, on a real file system.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use super::*;
use crate::tool::output::Limits;

mod changing;
mod finding;
mod hidden;
mod killed;
mod paths;
mod reading;
mod swap;

/// A workspace `ws` and, beside it, what must not be touched: `outside`.
pub(super) struct Place {
    folder: TempDir,
    pub(super) workspace: Workspace,
}

impl Place {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("ws")).unwrap();
        fs::create_dir(folder.path().join("outside")).unwrap();
        let workspace = Workspace::open(&folder.path().join("ws"), &[]).unwrap();
        Self { folder, workspace }
    }

    pub(super) fn inside(&self, path: &str) -> PathBuf {
        self.folder.path().join("ws").join(path)
    }

    pub(super) fn outside(&self, path: &str) -> PathBuf {
        self.folder.path().join("outside").join(path)
    }

    /// Writes a file in the workspace, with its folders.
    pub(super) fn file(&self, path: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.inside(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    pub(super) fn link(&self, path: &str, target: impl AsRef<Path>) {
        symlink(target, self.inside(path)).unwrap();
    }

    pub(super) fn to_read(&self, path: &str) -> Resolved {
        self.workspace.resolve(path, Intent::Read).unwrap()
    }

    pub(super) fn to_write(&self, path: &str) -> Resolved {
        self.workspace.resolve(path, Intent::Write).unwrap()
    }
}

/// Makes a named pipe, a socket and, if we may, a device; returns the paths of those it made.
pub(super) fn special_files(place: &Place, folder: &str) -> Vec<(String, FileKind)> {
    let path = |name: &str| if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
    fs::create_dir_all(place.inside(folder)).unwrap();
    let make = |name: &str, kind, device| {
        let mode = rustix::fs::Mode::from_raw_mode(0o644);
        rustix::fs::mknodat(rustix::fs::CWD, place.inside(&path(name)), kind, mode, device)
    };
    make("live.pipe", rustix::fs::FileType::Fifo, 0).unwrap();
    make("a.sock", rustix::fs::FileType::Socket, 0).unwrap();
    let mut made = vec![(path("live.pipe"), FileKind::Pipe), (path("a.sock"), FileKind::Socket)];
    if make("zero", rustix::fs::FileType::CharacterDevice, rustix::fs::makedev(1, 5)).is_ok() {
        made.push((path("zero"), FileKind::Device));
    }
    made
}

/// Runs `work` as a thread that may not ignore permissions, also where the tests run as root.
pub(super) fn unprivileged<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let run = move || {
            let none = rustix::thread::CapabilitySet::empty();
            let sets = rustix::thread::CapabilitySets { effective: none, permitted: none, inheritable: none };
            rustix::thread::set_capabilities(None, sets).unwrap();
            work()
        };
        scope.spawn(run).join().unwrap()
    })
}

/// Names in a folder, sorted.
pub(super) fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}
