//! Repositories below the top of a workspace. Git takes what is in them for another's, and so does no patch have it.
//!
//! Each is told from what it was by names, sizes and times of its files and by where its branches are. Nothing of git is run
//! in them: their configuration is whoever's. All of it blocks.

use std::{
    collections::BTreeMap,
    fs::{self, DirEntry, Metadata},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

const GIT: &str = ".git";
/// What of a git folder tells where its branches are.
const BRANCHES: [&str; 3] = ["HEAD", "packed-refs", "refs"];

/// Those in a folder, by their paths in it, and what each of them is like.
pub(super) fn nested_in(root: &Path) -> BTreeMap<PathBuf, u64> {
    let mut found = BTreeMap::new();
    look(root, Path::new(""), &mut found);
    found
}

fn look(root: &Path, below: &Path, found: &mut BTreeMap<PathBuf, u64>) {
    for entry in entries(&root.join(below)) {
        let path = below.join(entry.file_name());
        if entry.file_name() == GIT || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if fs::symlink_metadata(root.join(&path).join(GIT)).is_ok() {
            let mut hasher = DefaultHasher::new();
            liken(&root.join(&path), &mut hasher);
            found.insert(path, hasher.finish());
        } else {
            look(root, &path, found);
        }
    }
}

fn liken(folder: &Path, hasher: &mut DefaultHasher) {
    for entry in entries(folder) {
        let (name, path) = (entry.file_name(), entry.path());
        let Ok(found) = fs::symlink_metadata(&path) else { continue };
        name.hash(hasher);
        if !found.is_dir() {
            liken_file(&path, &found, hasher);
        } else if name == GIT {
            for part in BRANCHES.map(|part| path.join(part)) {
                match fs::symlink_metadata(&part) {
                    Ok(found) if found.is_dir() => liken(&part, hasher),
                    Ok(found) => liken_file(&part, &found, hasher),
                    Err(_) => {}
                }
            }
        } else {
            liken(&path, hasher);
        }
        // The end of a folder is one too.
        0_u8.hash(hasher);
    }
}

fn liken_file(path: &Path, found: &Metadata, hasher: &mut DefaultHasher) {
    found.mode().hash(hasher);
    if found.is_symlink() {
        // When it was made says nothing: a copy makes it anew.
        return fs::read_link(path).ok().hash(hasher);
    }
    (found.len(), found.mtime(), found.mtime_nsec()).hash(hasher);
}

/// In one order. What cannot be read is as good as empty.
fn entries(folder: &Path) -> Vec<DirEntry> {
    let mut entries: Vec<_> = fs::read_dir(folder).into_iter().flatten().flatten().collect();
    entries.sort_by_key(DirEntry::file_name);
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_is_found_at_any_depth_and_is_another_once_a_file_or_a_branch_of_it_is() {
        let place = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = place.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(".git/HEAD", "its own");
        write("plain/a", "a");
        write("deep/in/it/.git/HEAD", "ref: refs/heads/main");
        write("deep/in/it/.git/refs/heads/main", "1");
        write("deep/in/it/sub/a", "a");
        write("linked/.git", "gitdir: elsewhere");
        let names = |found: &BTreeMap<PathBuf, u64>| found.keys().cloned().collect::<Vec<_>>();
        let first = nested_in(place.path());
        assert_eq!(names(&first), [PathBuf::from("deep/in/it"), PathBuf::from("linked")]);
        write("deep/in/it/.git/index", "what git status writes");
        assert_eq!(nested_in(place.path()), first);
        let mut last = first;
        for (path, text) in
            [("deep/in/it/sub/a", "changed"), ("deep/in/it/.git/refs/heads/main", "2 and more")]
        {
            write(path, text);
            let next = nested_in(place.path());
            assert_ne!(next, last, "{path}");
            last = next;
        }
    }
}
