//! What there is to say of the log.

use std::path::Path;

use super::{Line, files, repair_command};
use crate::store::{
    folder::LOG,
    sqlite::{AheadDamage, Finding, OpenError, Survey},
};

pub(super) fn lines(folder: &Path, survey: &Survey) -> Vec<Line> {
    let mut lines: Vec<Line> = survey.findings.iter().map(|finding| line(folder, finding)).collect();
    if !survey.findings.iter().any(Finding::needs_salvage) {
        let Survey { runs, open, events, batches, .. } = survey;
        let (runs, batches) = (runs.len(), batches.len());
        let counts = format!("runs {runs}, open {open}, events {events}, batches {batches}");
        let what = if lines.is_empty() { counts } else { format!("{counts}; the rest is sound") };
        lines.insert(0, Line::ok(what, LOG));
    }
    if survey.set_aside > 0 {
        let what =
            format!("{} damaged appends were set aside earlier, in its table `damaged`", survey.set_aside);
        lines.push(Line::ok(what, LOG));
    }
    lines
}

fn line(folder: &Path, finding: &Finding) -> Line {
    let repair = || repair_command(folder);
    match finding {
        Finding::File(what) => Line::bad(format!("the file is damaged: {what}"), LOG, repair()),
        Finding::Ahead(AheadDamage { at, commits }) => {
            let what = format!(
                "the write-ahead log is damaged {at} bytes in; {commits} commits behind that are lost"
            );
            Line::bad(what, LOG, format!("{}; it salvages what can be read of them", repair()))
        }
        Finding::Torn { run, pos, seq, why } => {
            let what = format!("its log cannot be read from event {seq} on, at position {pos}: {why}");
            Line::bad(what, format!("run {run}"), format!("{}; it keeps what is before", repair()))
        }
        Finding::Row { run, what } => Line::bad(*what, format!("run {run}"), repair()),
        Finding::Newer(run) => {
            let what = "its log has events of a later version of herder";
            Line::warn(what, format!("run {run}"), "use that version")
        }
        Finding::Rowless { run, appends } => {
            let what = format!("{run} is not known, and {appends} appends of it are there");
            Line::bad(what, LOG, format!("{}; it puts the run back", repair()))
        }
        Finding::UnknownBatch(batch) => Line::warn(
            "it has runs, and is not of record itself",
            format!("batch {batch}"),
            "its runs are there; start what is missing as a new batch",
        ),
    }
}

pub(super) fn empty(folder: &Path) -> Line {
    if files::was_used(folder) {
        let remedy = format!(
            "put it back from a copy; `{}` begins an empty one that knows of nothing that was done",
            repair_command(folder)
        );
        return Line::bad("the log is empty or gone, though the folder was used", LOG, remedy);
    }
    Line::ok("nothing was written yet", LOG)
}

pub(super) fn unreadable(folder: &Path, error: &OpenError) -> Line {
    match error {
        OpenError::Malformed { .. } => Line::bad("the file is damaged", LOG, repair_command(folder)),
        OpenError::Newer { .. } => Line::bad(error.to_string(), LOG, "use a newer herder"),
        OpenError::NoFile { .. } => {
            Line::bad("a folder is where the log should be", LOG, "move it away and put the log back")
        }
        OpenError::Empty { .. }
        | OpenError::Gone { .. }
        | OpenError::Rowless { .. }
        | OpenError::Unwritable { .. }
        | OpenError::Sqlite { .. }
        | OpenError::Thread(_) => {
            Line::bad(format!("{error}"), LOG, "check that the folder and what is in it are yours to read")
        }
    }
}
