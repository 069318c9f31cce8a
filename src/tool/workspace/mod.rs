//! Paths confined to a workspace, and the identity of what they name.
//!
//! A path is first resolved to a real path, which is the file's identity and its key in the mutation queue, and
//! then opened below the workspace by that real path without following a link. A link slipped in between the
//! two is noticed by the kernel and reported as [`PathError::Moved`]. Knows nothing of queues, policies or
//! tools; all of it blocks.

use std::{
    collections::BTreeSet,
    fmt, io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use rustix::fs::{CWD, Mode, OFlags};

mod claim;
pub mod grep;
pub mod hidden;
pub mod list;
mod medium;
pub mod mutate;
mod open;
mod pool;
pub mod read;
pub mod replace;
mod resolve;
pub mod sensitive;
mod temp;
mod text;

use hidden::Hidden;
use medium::Medium;
pub use open::{FileKind, OpenFile};
pub use pool::{ChangeState, Workspaces, change_state};
pub use resolve::Resolved;

/// A folder that a run works in, with the folders outside it that it may read.
#[derive(Debug)]
pub struct Workspace {
    root: Arc<Root>,
    read_roots: Vec<Arc<Root>>,
    may_hang: bool,
    claim: Option<claim::Claim>,
}

impl Workspace {
    /// Opens the folder at `root`, which must exist, and those at `read_roots`.
    ///
    /// # Errors
    /// Names the folder that cannot be used, and why.
    pub fn open(root: &Path, read_roots: &[PathBuf]) -> Result<Self, WorkspaceError> {
        Self::open_without(&Hidden::default(), root, read_roots)
    }

    /// The same without what is hidden in them.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_without(
        hidden: &Hidden,
        root: &Path,
        read_roots: &[PathBuf],
    ) -> Result<Self, WorkspaceError> {
        let root = Arc::new(Root::open(root, RootKind::Workspace, hidden)?);
        let read_roots =
            read_roots.iter().map(|path| Root::open(path, RootKind::ReadOnly, hidden).map(Arc::new));
        let read_roots: Vec<_> = read_roots.collect::<Result<_, _>>()?;
        let mut roots = std::iter::once(&root).chain(&read_roots);
        let may_hang = roots.any(|root| Medium::of(&root.folder) == Medium::Other);
        Ok(Self { root, read_roots, may_hang, claim: None })
    }

    /// Whether a look at a path may take any time: some folder is not on a disk of this machine. What is mounted further
    /// down is not known.
    pub const fn may_hang(&self) -> bool {
        self.may_hang
    }

    /// The workspace's own real path: its key in the mutation queue.
    pub fn key(&self) -> &Arc<str> {
        &self.root.real
    }
}

/// What a path is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// Admits the workspace and its read roots.
    Read,
    /// Admits the workspace alone.
    Write,
}

/// A folder that confines paths.
#[derive(Debug)]
struct Root {
    folder: OwnedFd,
    real: Arc<str>,
    kind: RootKind,
    /// Real paths that are not of it, with what is below them.
    hidden: Vec<PathBuf>,
    /// Real paths of files that may be read, but not changed.
    fixed: Vec<PathBuf>,
    /// The folders below it in which nothing is left of killed processes.
    swept: Mutex<BTreeSet<Box<str>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RootKind {
    Workspace,
    ReadOnly,
}

impl Root {
    fn open(path: &Path, kind: RootKind, hidden: &Hidden) -> Result<Self, WorkspaceError> {
        let unusable = |source| WorkspaceError::Unusable { path: path.to_owned(), source };
        let real = path.canonicalize().map_err(unusable)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(CWD, &real, flags, Mode::empty()).map_err(|error| match error {
            rustix::io::Errno::NOTDIR => WorkspaceError::NotAFolder { path: path.to_owned() },
            _ => unusable(error.into()),
        })?;
        let real = real.to_str().ok_or_else(|| WorkspaceError::NotUtf8 { path: path.to_owned() })?;
        let (hidden, fixed) = (hidden.from(Path::new(real)), hidden.fixed_in(Path::new(real)));
        Ok(Self { folder, real: real.into(), kind, hidden, fixed, swept: Mutex::default() })
    }

    /// Whether what has this real path is not of it, wherever it lies.
    fn hides(&self, real: &Path) -> bool {
        self.hidden.iter().any(|tree| real.starts_with(tree))
    }

    /// Where the part of `real` that lies below this root starts, if it lies there.
    fn start_of_relative(&self, real: &str) -> Option<usize> {
        let below = real.strip_prefix(self.real.trim_end_matches('/'))?;
        match below.as_bytes().first() {
            None => Some(real.len()),
            Some(b'/') => Some(real.len() - below.len() + 1),
            Some(_) => None,
        }
    }
}

/// Why a workspace cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    #[error("{} is not a folder", path.display())]
    NotAFolder { path: PathBuf },
    #[error("the real path of {} is not valid UTF-8", path.display())]
    NotUtf8 { path: PathBuf },
    #[error("cannot open the folder {}", path.display())]
    Unusable { path: PathBuf, source: io::Error },
    #[error(
        "{}: commands that the policy allows could write to {} from there, and so answer for the people who are asked; use \
         another workspace, or keep that elsewhere",
        path.display(), kept.display()
    )]
    Exposes { path: PathBuf, kept: PathBuf },
}

/// Why a path is refused; `path` is as the model may see it.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    #[error("the path {what}")]
    Invalid { what: &'static str },
    #[error("{path} is outside the workspace")]
    Outside { path: String },
    #[error("{path} is one of herder's own files, which tools may neither read nor change")]
    Hidden { path: String },
    #[error("{path} is what herder is started with, which tools may read but not change")]
    Fixed { path: String },
    #[error("{path} is in a folder that may only be read")]
    ReadOnly { path: String },
    #[error("{path} does not exist")]
    NotFound { path: String },
    #[error("{path} is {kind}, not a regular file")]
    NotAFile { path: String, kind: FileKind },
    #[error("{path} is not a folder, or a part of it is a file")]
    NotAFolder { path: String },
    #[error("{path} goes through too many symbolic links")]
    TooManyLinks { path: String },
    #[error("the real path of {path} is not valid UTF-8")]
    NotUtf8 { path: String },
    /// Something on the way was replaced after the path was resolved: resolve it again.
    #[error("{path} was moved or replaced while it was being opened")]
    Moved { path: String },
    #[error("cannot open {path}")]
    Unusable { path: String, source: io::Error },
}

/// An error with its causes, as one sentence for the model.
pub struct Told<'a>(pub &'a (dyn std::error::Error + 'static));

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
