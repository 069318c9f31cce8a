//! Which files a search leaves out, as `.gitignore`, `.ignore` and a repository's own exclusions say.
//!
//! Read below the root and without following a link, as everything else is: a pipe or a device of such a name would
//! hold the search up for ever, and a link would lead out. Of such a file no more than its beginning counts.

use std::{
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
};

use ignore::{
    DirEntry, Match,
    gitignore::{Gitignore, GitignoreBuilder},
};
use rustix::fs::OFlags;

use super::super::{
    Root,
    open::{beneath, open_regular},
};

const MAX_BYTES: u64 = 1 << 20;

/// The rules of the folders from where a walk began to where it is.
pub(super) struct Ignored {
    root: Arc<Root>,
    folders: Vec<Folder>,
}

struct Folder {
    path: PathBuf,
    rules: Gitignore,
    /// Nothing above a repository has rules for what is in it.
    is_repository: bool,
}

impl Ignored {
    pub(super) fn new(root: Arc<Root>) -> Self {
        Self { root, folders: Vec::new() }
    }

    /// Whether an entry is left out. The walk must go folder by folder, and the entry is not where it began.
    pub(super) fn covers(&mut self, entry: &DirEntry) -> bool {
        let Some(parent) = entry.path().parent() else { return false };
        self.folders.truncate(self.folders.partition_point(|folder| parent.starts_with(&folder.path)));
        if self.folders.last().is_none_or(|folder| folder.path != parent) {
            self.folders.push(Folder::read(&self.root, parent));
        }
        let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
        for folder in self.folders.iter().rev() {
            match folder.rules.matched(entry.path(), is_folder) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None if folder.is_repository => return false,
                Match::None => {}
            }
        }
        false
    }
}

impl Folder {
    fn read(root: &Root, path: &Path) -> Self {
        let below = path.strip_prefix(&*root.real).unwrap_or(Path::new(""));
        let is_repository = beneath(&root.folder, below.join(".git"), OFlags::PATH).is_ok();
        let mut rules = GitignoreBuilder::new(path);
        // What comes later goes before.
        let names = [".git/info/exclude", ".gitignore", ".ignore"];
        for name in names.into_iter().skip(usize::from(!is_repository)) {
            for line in read(root, &below.join(name)).trim_start_matches('\u{feff}').lines() {
                // A line that is no pattern excludes nothing.
                let _ = rules.add_line(None, line);
            }
        }
        let rules = rules.build().unwrap_or_else(|_| Gitignore::empty());
        Self { path: path.to_owned(), rules, is_repository }
    }
}

/// The text of a file, or none if it cannot be read.
fn read(root: &Root, relative: &Path) -> String {
    let mut bytes = Vec::new();
    if let Ok(opened) = open_regular(root, relative) {
        let _ = opened.file.take(MAX_BYTES).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
