//! Mends a state folder that nobody works in. What is damaged is set aside, never deleted.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use super::files;
use crate::{
    clock::{Clock, SystemClock, rfc3339},
    store::{
        folder::{FolderError, StateFolder},
        sqlite::{self, Finding, OpenError, Repaired, Salvaged, Survey},
    },
};

/// Why a folder was not mended, or not wholly.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error(transparent)]
    Log(#[from] OpenError),
    #[error("{}: cannot be put in its place", path.display())]
    File { path: PathBuf, source: io::Error },
}

/// Mends a folder and tells what was done, a sentence each.
///
/// # Errors
/// Somebody works in it, it is no state folder, or it cannot be written.
pub fn repair(path: &Path) -> Result<Vec<String>, RepairError> {
    let aside = format!("damaged-{}", now());
    let (folder, wrote_format) = StateFolder::open_to_mend(path, &aside)?;
    let mut done = Vec::new();
    if wrote_format {
        done.push(format!("format: written anew; what stood there is format.{aside}, if anything did"));
    }
    for file in files::unfinished(path) {
        fs::remove_file(&file).map_err(|source| RepairError::File { path: file.clone(), source })?;
        done.push(format!("{}: removed, it was never finished", file.display()));
    }
    let log = folder.log();
    let needs_salvage = match sqlite::survey(&log) {
        Ok(Survey { findings, .. }) => findings.iter().any(Finding::needs_salvage),
        Err(OpenError::Malformed { .. }) => true,
        Err(OpenError::Empty { .. }) => files::was_used(path),
        Err(error) => return Err(error.into()),
    };
    if needs_salvage {
        done.push(salvage(&log, &aside)?);
    }
    if log.exists() {
        let Repaired { cut, rows, orphans } = sqlite::repair(&log)?;
        let told = [
            (cut, "runs ended where their logs are torn; the rest is in the table `damaged`"),
            (rows, "runs brought in line with their logs"),
            (orphans, "appends of no known run set aside in the table `damaged`"),
        ];
        done.extend(
            told.iter()
                .filter(|(count, _)| *count > 0)
                .map(|(count, what)| format!("log.db: {count} {what}")),
        );
    }
    Ok(done)
}

/// A point in time that may be part of a name.
fn now() -> String {
    rfc3339(SystemClock.now()).chars().take(19).filter(|char| *char != ':').collect()
}

/// Puts a log in the damaged one's place that has what could be read of it.
///
/// At every point in between there is a log there, and the next repair finishes. The write-ahead log goes first: it must
/// never lie beside a log that it does not belong to.
fn salvage(log: &Path, aside: &str) -> Result<String, RepairError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| RepairError::File { path, source }
    };
    let named = |suffix: &str| {
        let mut name = log.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    let fresh = named(".new");
    let Salvaged { rows, lost, ended } = sqlite::salvage(log, &fresh)?;
    File::open(&fresh).and_then(|file| file.sync_all()).map_err(failed(&fresh))?;
    let (wal, old) = (named("-wal"), named(&format!(".{aside}")));
    if wal.metadata().is_ok_and(|facts| facts.len() == 0) {
        fs::remove_file(&wal).map_err(failed(&wal))?;
    } else if wal.exists() {
        fs::rename(&wal, named(&format!(".{aside}-wal"))).map_err(failed(&wal))?;
    }
    if log.exists() {
        fs::hard_link(log, &old).map_err(failed(&old))?;
    }
    fs::rename(&fresh, log).map_err(failed(log))?;
    // It belongs to no log any more, and SQLite makes its own.
    let _ = fs::remove_file(named("-shm"));
    if let Some(folder) = log.parent() {
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed(folder))?;
    }
    Ok(format!(
        "log.db: {rows} rows salvaged, {lost} places could not be read; {ended} open runs ended, since what came last may \
         be lost; the damaged file is log.db.{aside}"
    ))
}
