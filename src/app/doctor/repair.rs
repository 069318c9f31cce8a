//! Mends a state folder that nobody works in. What is damaged is set aside, never deleted.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use super::files;
use crate::{
    clock::{Clock, SystemClock, rfc3339},
    domain::id::RunId,
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
    if put_in_place(&folder.log())? {
        done.push("log.db: what an earlier repair had salvaged is in its place".to_owned());
    }
    for file in files::unfinished(path) {
        fs::remove_file(&file).map_err(|source| RepairError::File { path: file.clone(), source })?;
        done.push(format!("{}: removed, it was never finished", file.display()));
    }
    let log = folder.log();
    let needs_salvage = match sqlite::survey(&log, || false) {
        Ok(Survey { findings, .. }) => findings.iter().any(Finding::needs_salvage),
        Err(OpenError::Malformed { .. }) => true,
        Err(OpenError::Empty { .. }) => files::was_used(path),
        Err(error) => return Err(error.into()),
    };
    let known = files::named_runs(path);
    if needs_salvage {
        done.push(salvage(&log, &aside, &known)?);
    }
    if log.exists() {
        let Repaired { cut, rows, restored, orphans } = sqlite::repair(&log, &known)?;
        let told = [
            (restored, "runs put back that were not known; those that had not ended have now"),
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
/// Once the new one is whole and has its name, whoever mends the folder next puts it in its place; until then nothing of the
/// old one has changed. In between nobody works with either.
fn salvage(log: &Path, aside: &str, known: &[RunId]) -> Result<String, RepairError> {
    let named = |suffix: &str| with_suffix(log, suffix);
    let fresh = named(".new");
    let salvaged = sqlite::salvage(log, &fresh, known)?;
    File::open(&fresh).and_then(|file| file.sync_all()).map_err(failed(&fresh))?;
    let (wal, old) = (named("-wal"), named(&format!(".{aside}")));
    if wal.metadata().is_ok_and(|facts| facts.len() > 0) {
        let old = named(&format!(".{aside}-wal"));
        fs::hard_link(&wal, &old).map_err(failed(&old))?;
    }
    let was_there = log.exists();
    if was_there {
        fs::hard_link(log, &old).map_err(failed(&old))?;
    }
    let whole = log.with_file_name(files::SALVAGED);
    fs::rename(&fresh, &whole).map_err(failed(&whole))?;
    sync_folder(log)?;
    put_in_place(log)?;
    let old = if was_there {
        format!("the damaged file is log.db.{aside}")
    } else {
        "no file was there".to_owned()
    };
    Ok(format!("log.db: {}; {old}", told(salvaged)))
}

/// Puts a salvaged log in its place, if there is one. The write-ahead log goes first: it must never lie beside a log that it
/// does not belong to.
fn put_in_place(log: &Path) -> Result<bool, RepairError> {
    let whole = log.with_file_name(files::SALVAGED);
    if !whole.exists() {
        return Ok(false);
    }
    for of_the_old in ["-wal", "-shm"].map(|suffix| with_suffix(log, suffix)) {
        match fs::remove_file(&of_the_old) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(&of_the_old)(error)),
            Ok(()) | Err(_) => {}
        }
    }
    fs::rename(&whole, log).map_err(failed(log))?;
    sync_folder(log)?;
    Ok(true)
}

fn sync_folder(log: &Path) -> Result<(), RepairError> {
    let Some(folder) = log.parent() else { return Ok(()) };
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed(folder))
}

fn with_suffix(log: &Path, suffix: &str) -> PathBuf {
    let mut name = log.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> RepairError {
    let path = path.to_owned();
    move |source| RepairError::File { path, source }
}

fn told(salvaged: Salvaged) -> String {
    let Salvaged { whole, cut, ends, pieces, without_run } = salvaged;
    if whole + cut + pieces == 0 {
        return "no run could be salvaged, it is begun anew".to_owned();
    }
    let only_ends = match ends {
        0 => String::new(),
        ends => format!(", and of {ends} of them only the end is left"),
    };
    let mut told = format!(
        "runs salvaged whole {whole}, in part {cut} (their last events may be lost{only_ends}; they have ended), in pieces {pieces} \
         (it is not known what was asked)"
    );
    if without_run > 0 {
        told.push_str(&format!(
            "; tasks without a run {without_run}: they had not started or their runs are lost, and they start anew"
        ));
    }
    told
}
