//! The state folder: `format`, `lock`, `log.db` and `spill/RUN/`.
//!
//! One process at a time writes to a folder; any number may read it meanwhile. A folder of a later version, or one
//! that holds somebody's files, is left as it is. Knows nothing of what is in the log.

use std::{
    fs::{DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use super::lock;
pub use super::lock::Holder;
use crate::domain::id::RunId;

/// The version of the layout that this program writes.
const FORMAT: u32 = 1;
const FORMAT_PREFIX: &str = "herder state ";

/// The log's name in its folder.
pub const LOG: &str = "log.db";

/// What is locked for as long as somebody writes to the folder.
const LOCK: &str = "lock";

/// Why a state folder could not be opened. Each is a sentence for whoever named the folder.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Another process writes to it, or this one already does.
    #[error("{path}: in use by {holder}; wait for it to end, stop it, or name another state folder")]
    InUse { path: PathBuf, holder: Holder },
    /// A later version made it.
    #[error("{path}: state format {found} is newer than this version's {known}; use a newer herder", known = FORMAT)]
    Newer { path: PathBuf, found: u32 },
    /// It holds something else.
    #[error("{path}: not a herder state folder and not empty; name an empty or a new folder")]
    Foreign { path: PathBuf },
    /// There is nothing to read.
    #[error("{path}: no herder state here; check the path given by --state")]
    Missing { path: PathBuf },
    /// Its format file says something that no version wrote.
    #[error("{path}: the file `format` is damaged; `herder doctor {path} --repair` writes it anew")]
    Damaged { path: PathBuf },
    /// Something in it leads elsewhere, or is not what it should be: what is written there would go to somebody else's files.
    #[error(
        "{path}: its {name:?} is {what}, which herder does not write to; look where it leads, and remove it"
    )]
    Odd { path: PathBuf, name: &'static str, what: &'static str },
    /// The file system refused.
    #[error("{path}: cannot {action}; check that the folder exists and is yours")]
    Io {
        path: PathBuf,
        action: &'static str,
        #[source]
        source: io::Error,
    },
}

/// An open state folder. One that is open for writing is held until this is dropped.
#[derive(Debug)]
pub struct StateFolder {
    path: PathBuf,
    _lock: Option<File>,
}

impl StateFolder {
    /// Opens a folder to write to, makes it if there is none, and keeps other writers out.
    ///
    /// # Errors
    /// If another process writes to it, a later version made it, it holds something else, or it cannot be written.
    pub fn open_for_writing(path: &Path) -> Result<Self, FolderError> {
        let failed = |action| move |source| FolderError::Io { path: path.to_owned(), action, source };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed("make the folder"))?;
        // In this order: whoever makes the folder meanwhile writes its format before anything else.
        let is_foreign = holds_foreign(path).map_err(failed("read the folder"))?;
        if format(path)?.is_none() && is_foreign {
            return Err(FolderError::Foreign { path: path.to_owned() });
        }
        check_own(path)?;
        let lock = hold(path)?;
        if format(path)?.is_none() {
            write_format(path).map_err(failed("write to the folder"))?;
        }
        Ok(Self { path: path.to_owned(), _lock: Some(lock) })
    }

    /// Opens a folder to read, beside whoever writes to it. Takes no lock and writes nothing.
    ///
    /// # Errors
    /// If it is no state folder, or a later version made it.
    pub fn open_for_reading(path: &Path) -> Result<Self, FolderError> {
        match format(path)? {
            Some(()) => Ok(Self { path: path.to_owned(), _lock: None }),
            None => Err(FolderError::Missing { path: path.to_owned() }),
        }
    }

    /// Opens a folder to mend it: as for writing, but a damaged or a missing format beside a log is written anew.
    /// What stood there is set aside. Tells whether it was.
    ///
    /// # Errors
    /// As [`Self::open_for_writing`]; and if there is no log, since then nothing says that it is a state folder.
    pub fn open_to_mend(path: &Path, aside: &str) -> Result<(Self, bool), FolderError> {
        let failed = |action| move |source| FolderError::Io { path: path.to_owned(), action, source };
        let is_damaged = match format(path) {
            Ok(Some(())) => false,
            Ok(None) | Err(FolderError::Damaged { .. }) => true,
            Err(error) => return Err(error),
        };
        if is_damaged && !path.join(LOG).exists() {
            return Err(FolderError::Missing { path: path.to_owned() });
        }
        check_own(path)?;
        let lock = hold(path)?;
        if is_damaged {
            match std::fs::rename(path.join("format"), path.join(format!("format.{aside}"))) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(failed("set its file `format` aside")(error));
                }
                Ok(()) | Err(_) => write_format(path).map_err(failed("write to the folder"))?,
            }
        }
        Ok((Self { path: path.to_owned(), _lock: Some(lock) }, is_damaged))
    }

    /// Who writes to the folder, if anybody does. Takes no lock, so it is in nobody's way.
    ///
    /// # Errors
    /// The system does not tell.
    pub fn holder(path: &Path) -> io::Result<Option<Holder>> {
        lock::holder(&path.join(LOCK))
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the log is.
    pub fn log(&self) -> PathBuf {
        self.path.join(LOG)
    }

    /// Where a run's outputs are that are too long for the log.
    pub fn spill(&self, run: RunId) -> PathBuf {
        self.path.join("spill").join(run.to_string())
    }
}

/// Whether the folder has a format that this version knows.
fn format(folder: &Path) -> Result<Option<()>, FolderError> {
    let text = match std::fs::read(folder.join("format")) {
        Ok(text) => text,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(source) => {
            return Err(FolderError::Io {
                path: folder.to_owned(),
                action: "read its file `format`",
                source,
            });
        }
    };
    // Empty: whoever was about to write it did not get to it.
    if text.is_empty() {
        return Ok(None);
    }
    let version =
        std::str::from_utf8(&text).ok().and_then(|text| text.trim_end().strip_prefix(FORMAT_PREFIX));
    match version.and_then(|version| version.parse::<u32>().ok()) {
        Some(FORMAT) => Ok(Some(())),
        Some(found) if found > FORMAT => Err(FolderError::Newer { path: folder.to_owned(), found }),
        Some(_) | None => Err(FolderError::Damaged { path: folder.to_owned() }),
    }
}

/// Files that are written to by their names, and folders in which files are made.
const FILES: [&str; 8] =
    ["format", LOCK, LOG, "log.db-wal", "log.db-shm", "log.db-journal", "token", "daemon.log"];
const FOLDERS: [&str; 5] = ["spill", "batches", "answers", "patches", "work"];

/// Whether what herder writes to in the folder is there itself: commands may be able to write to the folder, and a link that one
/// of them put there would have herder write where they may not.
fn check_own(path: &Path) -> Result<(), FolderError> {
    let files = FILES.map(|name| (name, true));
    for (name, is_file) in files.into_iter().chain(FOLDERS.map(|name| (name, false))) {
        let facts = match std::fs::symlink_metadata(path.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(source) => {
                return Err(FolderError::Io {
                    path: path.to_owned(),
                    action: "look at what is in it",
                    source,
                });
            }
            Ok(facts) => facts,
        };
        let what = match (facts.is_symlink(), is_file) {
            (true, _) => "a link",
            // Nothing is written there, and whoever opens the log says what to do.
            (false, true) if facts.is_dir() && name == LOG => continue,
            (false, true) if !facts.is_file() => "no regular file",
            (false, false) if !facts.is_dir() => "no folder",
            (false, true | false) => continue,
        };
        return Err(FolderError::Odd { path: path.to_owned(), name, what });
    }
    Ok(())
}

/// Whether anything lies in the folder but what is there before its format is written.
fn holds_foreign(folder: &Path) -> io::Result<bool> {
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name();
        if name != LOCK && name != "format" {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Keeps other writers out, for as long as the file is open.
fn hold(folder: &Path) -> Result<File, FolderError> {
    let path = folder.to_owned();
    match lock::acquire(&folder.join(LOCK)) {
        Ok(Ok(held)) => Ok(held),
        Ok(Err(holder)) => Err(FolderError::InUse { path, holder }),
        Err(source) => Err(FolderError::Io { path, action: "lock it", source }),
    }
}

/// Writes the format file to disk before anything else is put beside it.
fn write_format(folder: &Path) -> io::Result<()> {
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(folder.join("format"))?;
    // At once: whoever reads it meanwhile finds nothing, or all of it.
    file.write_all(format!("{FORMAT_PREFIX}{FORMAT}\n").as_bytes())?;
    file.sync_all()?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn temp() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[test]
    fn a_new_folder_is_made_for_its_owner_alone_and_says_what_it_is() {
        let parent = temp();
        let path = parent.path().join("new/state");
        let folder = StateFolder::open_for_writing(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(std::fs::read_to_string(path.join("format")).unwrap(), "herder state 1\n");
        assert_eq!(std::fs::read_to_string(path.join("lock")).unwrap(), format!("{}\n", std::process::id()));
        assert_eq!(folder.log(), path.join("log.db"));
    }

    #[test]
    fn a_second_writer_is_refused_by_the_pid_of_the_first_and_readers_are_not() {
        let dir = temp();
        let first = StateFolder::open_for_writing(dir.path()).unwrap();
        let refused = StateFolder::open_for_writing(dir.path()).unwrap_err();
        let message = format!(
            "{}: in use by process {}; wait for it to end, stop it, or name another state folder",
            dir.path().display(),
            std::process::id()
        );
        assert_eq!(refused.to_string(), message);
        assert!(StateFolder::open_for_reading(dir.path()).is_ok());
        drop(first);
        assert!(StateFolder::open_for_writing(dir.path()).is_ok());
    }

    #[test]
    fn a_newer_format_is_refused_for_reading_and_writing_and_left_as_it_is() {
        let dir = temp();
        std::fs::write(dir.path().join("format"), "herder state 2\n").unwrap();
        for opened in [StateFolder::open_for_writing(dir.path()), StateFolder::open_for_reading(dir.path())] {
            assert!(matches!(opened, Err(FolderError::Newer { found: 2, .. })));
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn somebody_elses_folder_is_refused_and_left_as_it_is() {
        let dir = temp();
        std::fs::write(dir.path().join("notes.txt"), "mine").unwrap();
        let opened = StateFolder::open_for_writing(dir.path());
        assert!(matches!(opened, Err(FolderError::Foreign { .. })));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn reading_what_is_not_there_says_so_and_makes_nothing() {
        let dir = temp();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        for path in [dir.path().join("nowhere"), file, dir.path().to_owned()] {
            let opened = StateFolder::open_for_reading(&path);
            assert!(matches!(opened, Err(FolderError::Missing { .. })), "{}", path.display());
        }
        assert!(!dir.path().join("nowhere").exists());
    }

    #[test]
    fn a_folder_whose_first_opening_was_cut_short_opens() {
        let dir = temp();
        std::fs::write(dir.path().join("lock"), "1\n").unwrap();
        std::fs::write(dir.path().join("format"), "").unwrap();
        assert!(StateFolder::open_for_writing(dir.path()).is_ok());
    }

    #[test]
    fn a_format_that_no_version_wrote_is_refused_and_beside_a_log_it_is_mended() {
        let dir = temp();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("format"), "herder st\u{fffd}").unwrap();
        assert!(matches!(StateFolder::open_for_writing(dir.path()), Err(FolderError::Damaged { .. })));
        let mended = StateFolder::open_to_mend(dir.path(), "old");
        assert!(matches!(mended.map(drop), Err(FolderError::Missing { .. })));
        std::fs::write(at("log.db"), "").unwrap();
        assert!(StateFolder::open_to_mend(dir.path(), "old").unwrap().1);
        assert_eq!(std::fs::read_to_string(at("format.old")).unwrap(), "herder st\u{fffd}");
        assert!(!StateFolder::open_to_mend(dir.path(), "old").unwrap().1);
        assert!(StateFolder::open_for_writing(dir.path()).is_ok());
    }

    #[test]
    fn a_folder_in_which_something_leads_elsewhere_is_not_written_to() {
        for name in ["lock", "log.db-wal", "spill"] {
            let (dir, outside) = (temp(), temp());
            drop(StateFolder::open_for_writing(dir.path()).unwrap());
            let _ = std::fs::remove_file(dir.path().join(name));
            std::os::unix::fs::symlink(outside.path().join("file"), dir.path().join(name)).unwrap();
            let told = StateFolder::open_for_writing(dir.path()).unwrap_err().to_string();
            assert!(told.contains(&format!("its {name:?} is a link")), "{told}");
            assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
        }
    }
}
