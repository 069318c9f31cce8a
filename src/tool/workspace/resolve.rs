//! Turns a path as a model spells it into a confined real path.
//!
//! Every spelling of one file (`./a`, `sub/../a`, absolute, through links) gives one key. A file that doesn't
//! exist yet has the real path of its nearest existing ancestor plus the rest, so a dangling link has the path
//! that it leads to. The answer is only a name: what it names is checked again when it is opened.

use std::{path::Path, sync::Arc};

use rustix::{
    fs::{FileType, lstat, readlink},
    io::Errno,
};

use super::{Intent, PathError, Root, RootKind, Workspace};

/// As many as the kernel follows.
const MAX_LINKS: usize = 40;
const MAX_PATH_BYTES: usize = 4096;

/// A real path inside a workspace or one of its read roots.
#[derive(Clone, Debug)]
pub struct Resolved {
    pub(super) root: Arc<Root>,
    key: Arc<str>,
    relative_from: usize,
}

impl Workspace {
    /// Resolves a workspace-relative or absolute path.
    ///
    /// # Errors
    /// Refuses what does not end inside the workspace or, for reading, inside a read root.
    pub fn resolve(&self, path: &str, intent: Intent) -> Result<Resolved, PathError> {
        check_spelling(path, intent)?;
        let (real, ended) = real_path(self.root.real.trim_end_matches('/'), path);
        let found = std::iter::once(&self.root)
            .chain(&self.read_roots)
            .find_map(|root| root.start_of_relative(&real).map(|from| (root, from)));
        // What is outside is refused as such before anything else is told about it.
        let Some((root, relative_from)) = found else {
            return Err(PathError::Outside { path: path.to_owned() });
        };
        if root.hides(Path::new(&real)) {
            return Err(PathError::Hidden { path: path.to_owned() });
        }
        if intent == Intent::Write && root.fixed.iter().any(|file| *file == Path::new(&real)) {
            return Err(PathError::Fixed { path: path.to_owned() });
        }
        ended.map_err(|stopped| stopped.of(path))?;
        match (intent, root.kind) {
            (Intent::Write, RootKind::ReadOnly) => Err(PathError::ReadOnly { path: path.to_owned() }),
            (Intent::Read | Intent::Write, RootKind::Workspace) | (Intent::Read, RootKind::ReadOnly) => {
                Ok(Resolved { root: Arc::clone(root), key: real.into(), relative_from })
            }
        }
    }
}

impl Resolved {
    /// The file's identity: its absolute real path.
    pub fn key(&self) -> &Arc<str> {
        &self.key
    }

    /// The real path below the root that holds it; `.` for the root itself.
    pub fn relative(&self) -> &str {
        match &self.key[self.relative_from..] {
            "" => ".",
            relative => relative,
        }
    }

    /// The path to show a model: relative in the workspace, absolute in a read root.
    pub fn shown(&self) -> &str {
        match self.root.kind {
            RootKind::Workspace => self.relative(),
            RootKind::ReadOnly => &self.key,
        }
    }

    /// The folder that holds it, below the root, and its name there; none for the root itself.
    pub(super) fn parent_and_name(&self) -> Option<(&str, &str)> {
        match self.relative().rsplit_once('/') {
            Some(split) => Some(split),
            None if self.relative() == "." => None,
            None => Some((".", self.relative())),
        }
    }
}

fn check_spelling(path: &str, intent: Intent) -> Result<(), PathError> {
    if path.is_empty() {
        return Err(PathError::Invalid { what: "is empty" });
    }
    if path.contains('\0') {
        return Err(PathError::Invalid { what: "contains a NUL character" });
    }
    if path.len() > MAX_PATH_BYTES {
        return Err(PathError::Invalid { what: "is longer than 4,096 bytes" });
    }
    if intent == Intent::Write && path.ends_with('/') {
        return Err(PathError::Invalid { what: "ends with a slash, so it names a folder, not a file" });
    }
    Ok(())
}

/// Why the walk along a path went no further.
enum Stopped {
    TooManyLinks,
    NotUtf8,
    NotAFolder,
    Moved,
    Failed(Errno),
}

impl Stopped {
    fn of(self, path: &str) -> PathError {
        let path = path.to_owned();
        match self {
            Self::TooManyLinks => PathError::TooManyLinks { path },
            Self::NotUtf8 => PathError::NotUtf8 { path },
            Self::NotAFolder => PathError::NotAFolder { path },
            Self::Moved => PathError::Moved { path },
            Self::Failed(error) => PathError::Unusable { path, source: error.into() },
        }
    }
}

/// Follows `path` from the folder `start` and returns how far that led, and why no further.
fn real_path(start: &str, path: &str) -> (String, Result<(), Stopped>) {
    let mut real = if path.starts_with('/') { String::new() } else { start.to_owned() };
    let ended = walk(&mut real, path);
    if real.is_empty() {
        real.push('/');
    }
    (real, ended)
}

fn walk(real: &mut String, path: &str) -> Result<(), Stopped> {
    let mut pending: Vec<String> = path.rsplit('/').map(str::to_owned).collect();
    let mut links = 0;
    while let Some(part) = pending.pop() {
        match part.as_str() {
            "" | "." => continue,
            ".." => {
                real.truncate(real.rfind('/').unwrap_or(0));
                continue;
            }
            _ => {}
        }
        let parent = real.len();
        real.push('/');
        real.push_str(&part);
        match lstat(real.as_str()) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(Stopped::TooManyLinks);
                }
                // The link can only have gone since the call before.
                let target = readlink(real.as_str(), Vec::new()).map_err(|_| Stopped::Moved)?;
                let target = target.into_string().map_err(|_| Stopped::NotUtf8)?;
                real.truncate(if target.starts_with('/') { 0 } else { parent });
                pending.extend(target.rsplit('/').map(str::to_owned));
            }
            Ok(_) | Err(Errno::NOENT) => {}
            Err(Errno::NOTDIR) => return Err(Stopped::NotAFolder),
            Err(error) => return Err(Stopped::Failed(error)),
        }
    }
    Ok(())
}
