//! Lock files of git's: which of them was in the way, and those that are left of what is one run's alone.
//!
//! Whose lock a file is, it does not say. What lies in a folder of the run's, or is of a branch that has the run in its
//! name, is herder's; all others are for people to judge.

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
};

use super::{IsolateError, blocking, meta::Meta};

const ENDING: &str = ".lock";

/// The lock that a command has met, by what it said.
pub(super) fn lock_in(said: &str) -> Option<PathBuf> {
    said.lines().find_map(|line| {
        let of_file = || {
            let (_, rest) = line.split_once("nable to create '")?;
            rest.split_once("': File exists").map(|(path, _)| PathBuf::from(path))
        };
        let of_config = || {
            let (_, rest) = line.split_once("could not lock config file ")?;
            rest.split_once(": File exists").map(|(path, _)| with_ending(Path::new(path)))
        };
        of_file().or_else(of_config)
    })
}

/// Removes the locks of a run's own index, worktree and branch. No git may be at work for the run.
pub(super) async fn remove_own(
    index: PathBuf,
    admin: Option<PathBuf>,
    meta: &Meta,
) -> Result<(), IsolateError> {
    let mut own = vec![with_ending(&index)];
    if let Some(origin) = meta.origin.as_ref().filter(|origin| origin.branch.contains(&meta.run.to_string()))
    {
        own.push(with_ending(&origin.common.join("refs/heads").join(&origin.branch)));
    }
    blocking(move || {
        let entries = admin.and_then(|admin| fs::read_dir(admin).ok()).into_iter().flatten().flatten();
        let of_worktree = entries
            .map(|entry| entry.path())
            .filter(|path| path.as_os_str().to_string_lossy().ends_with(ENDING));
        for lock in own.into_iter().chain(of_worktree) {
            match fs::remove_file(&lock) {
                Ok(()) => {
                    tracing::info!(lock = %lock.display(), "lock that an earlier process left is removed");
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(IsolateError::io("remove", lock)(error)),
            }
        }
        Ok(())
    })
    .await
}

fn with_ending(path: &Path) -> PathBuf {
    let mut name: OsString = path.into();
    name.push(ENDING);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_that_was_in_the_way_is_known_by_what_git_says() {
        let lock = |said: &str| lock_in(said).map(|path| path.display().to_string());
        let index = "fatal: Unable to create '/r/.git/index.lock': File exists.\n\nAnother git process";
        assert_eq!(lock(index).as_deref(), Some("/r/.git/index.lock"));
        let branch =
            "warning: x\nfatal: cannot lock ref 'refs/heads/b': Unable to create '/r/b.lock': File exists.";
        assert_eq!(lock(branch).as_deref(), Some("/r/b.lock"));
        let config = "error: could not lock config file /r/.git/config: File exists";
        assert_eq!(lock(config).as_deref(), Some("/r/.git/config.lock"));
        assert_eq!(lock("fatal: cannot lock ref 'refs/heads/b': is at 1 but expected 2"), None);
    }
}
