//! What lies in a state folder beside the log, who works there, and how much room there is.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::Line;
use crate::{
    app::state::{is_written, log_bytes},
    domain::id::{BatchId, RunId},
    store::{folder::StateFolder, sqlite::Survey},
};

/// With less room than this no batch gets far; herder waits when there is none.
const FLOOR: u64 = 64 << 20;

/// What herder puts into a folder under a name of its own.
const KNOWN: [&str; 13] = [
    SALVAGED,
    "format",
    "lock",
    "log.db",
    "log.db-wal",
    "log.db-shm",
    "spill",
    "batches",
    "answers",
    "patches",
    "work",
    "daemon.log",
    "token",
];

/// Beginnings of the names of what was set aside.
const SET_ASIDE: [&str; 2] = ["log.db.damaged-", "format.damaged-"];

/// Folders whose entries begin with the runs that they belong to, and what these are if nobody knows that run.
const OF_RUNS: [(&str, &str); 3] = [
    ("spill", "outputs of a run that is not of record"),
    ("work", "workspace of a run that is not of record"),
    ("patches", "changes of a run that is not of record"),
];

/// A salvaged log on its way to its place: the one that is there, if any, is damaged.
pub(super) const SALVAGED: &str = "log.db.salvaged";

/// A new log that was never finished, and what SQLite puts beside it.
pub(super) const UNFINISHED: &str = "log.db.new";

pub(super) fn holder(folder: &Path) -> Line {
    match StateFolder::holder(folder) {
        Ok(Some(holder)) => Line::ok(format!("in use by {holder}"), "lock"),
        Ok(None) => Line::ok("nobody writes to it", "lock"),
        Err(error) => Line::warn(
            format!("who writes to it is not known: {error}"),
            "lock",
            "check that you may read it",
        ),
    }
}

/// Whether a repair ended before what it had salvaged was in its place.
pub fn is_half_mended(folder: &Path) -> bool {
    folder.join(SALVAGED).exists()
}

/// Whether runs or batches left something behind that is not the log: in the folder, or as results beside it.
pub fn was_used(folder: &Path) -> bool {
    let left = |name: &&str| !entries(&folder.join(name)).is_empty();
    let of_the_log =
        |name: &String| name.starts_with(SET_ASIDE[0]) || name == "log.db-wal" || name == "log.db-shm";
    ["spill", "batches", "work", "patches", "answers"].iter().any(left)
        || entries(folder).iter().any(of_the_log)
        || results_of(folder).is_some_and(|results| has_content(&results))
}

/// The results that a batch makes of the journal in this folder, if it is named for them.
fn results_of(folder: &Path) -> Option<PathBuf> {
    let folder = folder.canonicalize().ok()?;
    let results = folder.file_name()?.to_str()?.strip_suffix(".state")?;
    Some(folder.with_file_name(results))
}

/// Runs that are named by what lies in the folder, and by the results beside it.
pub(super) fn named_runs(folder: &Path) -> Vec<RunId> {
    let run_of = |name: String| name.split('.').next().and_then(|id| id.parse().ok());
    let of_files = OF_RUNS.iter().flat_map(|(place, _)| entries(&folder.join(place))).filter_map(run_of);
    let results = results_of(folder).and_then(|results| fs::read(results).ok()).unwrap_or_default();
    let lines = results.split(|byte| *byte == b'\n');
    let of_results = lines.filter_map(|line| serde_json::from_slice::<Named>(line).ok());
    of_files.chain(of_results.map(|line| line.run)).collect()
}

/// What of a result tells which run it is of.
#[derive(Deserialize)]
struct Named {
    run: RunId,
}

fn has_content(file: &Path) -> bool {
    file.metadata().is_ok_and(|facts| facts.is_file() && facts.len() > 0)
}

/// The names in a folder, in order; none if it cannot be read.
fn entries(folder: &Path) -> Vec<String> {
    let read = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = read.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Files that herder began to write and did not finish. They hold nothing of record.
pub(super) fn unfinished(folder: &Path) -> Vec<PathBuf> {
    let arriving = entries(&folder.join("batches")).into_iter().filter(|name| name.starts_with(".arriving-"));
    let arriving = arriving.map(|name| folder.join("batches").join(name));
    let fresh = entries(folder).into_iter().filter(|name| name.starts_with(UNFINISHED));
    arriving.chain(fresh.map(|name| folder.join(name))).collect()
}

/// What belongs to nothing of record. Without a look at the log that is not known of runs and batches.
pub(super) fn leftovers(folder: &Path, survey: Option<&Survey>) -> Vec<Line> {
    let mut lines = Vec::new();
    let unfinished = unfinished(folder);
    // Whoever writes them would still be there.
    if !is_written(folder) {
        for path in unfinished {
            let place = path.strip_prefix(folder).unwrap_or(&path).display().to_string();
            lines.push(Line::warn("a file that was never finished", place, super::repair_command(folder)));
        }
    }
    for name in entries(folder) {
        if SET_ASIDE.iter().any(|start| name.starts_with(start)) {
            lines.push(Line::ok("set aside by an earlier repair; delete it when you need it no more", name));
        } else if !KNOWN.contains(&name.as_str()) && !name.starts_with(UNFINISHED) && !name.ends_with(".sock")
        {
            lines.push(Line::warn("herder did not put this here", name, "move it elsewhere"));
        }
    }
    let Some(survey) = survey else { return lines };
    let unknown_run = |name: &String| {
        let run = name.split('.').next().and_then(|id| id.parse::<RunId>().ok());
        !run.is_some_and(|run| survey.runs.contains(&run))
    };
    for (place, what) in OF_RUNS {
        let mut names = entries(&folder.join(place));
        names.retain(unknown_run);
        names.dedup_by(|name, before| name.split('.').next() == before.split('.').next());
        for name in names {
            let remedy = "delete it if you do not need it";
            lines.push(Line::warn(what, format!("{place}/{name}"), remedy));
        }
    }
    let unknown_batch = |name: &String| {
        let batch = name.split('.').next().and_then(|id| id.parse::<BatchId>().ok());
        !name.starts_with('.') && !batch.is_some_and(|batch| survey.batches.contains(&batch))
    };
    for name in entries(&folder.join("batches")).into_iter().filter(unknown_batch) {
        let remedy = "delete it if you do not need it";
        lines.push(Line::warn("input of a batch that is not of record", format!("batches/{name}"), remedy));
    }
    lines
}

/// What is to be said of the room on the disk, which is no fault of the folder's.
pub(super) fn space(folder: &Path) -> Line {
    match free_bytes(folder) {
        Some(free) => room(free, log_bytes(folder).unwrap_or_default()),
        None => Line::advice("how much room there is on the disk is not known", "look with df"),
    }
}

/// What it takes to go on, and to write the log anew as `prune` and a repair do.
fn room(free: u64, log: u64) -> Line {
    let (what, wanted) = (format!("{} MiB free on its disk", free >> 20), FLOOR.saturating_add(log));
    if free >= wanted {
        return Line::ok(what, "");
    }
    let what = format!("{what}, {} are wanted", wanted >> 20);
    Line::advice(what, "make room: herder waits when there is none; `herder prune` removes old runs")
}

/// Bytes that whoever is no administrator may still use where this is.
pub fn free_bytes(path: &Path) -> Option<u64> {
    let facts = rustix::fs::statvfs(path).ok()?;
    Some(facts.f_bavail.saturating_mul(facts.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::doctor::Grade;

    #[test]
    fn room_is_little_by_what_the_log_takes_and_never_a_fault() {
        let told = |free: u64, log: u64| {
            let line = room(free << 20, log << 20);
            assert!(!line.is_fault);
            (line.grade, line.what)
        };
        assert_eq!(told(100, 10), (Grade::Ok, "100 MiB free on its disk".to_owned()));
        assert_eq!(told(100, 90), (Grade::Warn, "100 MiB free on its disk, 154 are wanted".to_owned()));
        assert_eq!(told(1, 0), (Grade::Warn, "1 MiB free on its disk, 64 are wanted".to_owned()));
    }
}
