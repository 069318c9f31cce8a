//! `herder doctor`: looks a state folder over, and mends it.

use std::path::PathBuf;

use clap::Args;

use super::{Context, Exit, start::say, stdout::Output};
use crate::app::doctor::{Grade, Line, examine, repair};

pub(super) const ABOUT: &str = "Look a state folder over, and mend it

Checks the format, who works in it, every run's log, what is known of runs and batches without their logs, files that belong to \
nothing, and the room on the disk. It says a line each: ok, warn or bad, what, where, and what to do.

Looking changes nothing and may be done while herder works. With --repair nobody else may work in the folder: a run whose log \
is damaged keeps what is before the damage and ends, and of a damaged file what can be read is put into a new one. What is \
damaged is set aside, never deleted.";

pub(super) const AFTER: &str = "EXAMPLES
  herder doctor
  herder doctor out.jsonl.state
  herder doctor out.jsonl.state --repair
  herder doctor --json | jq -r 'select(.grade == \"bad\") | .where'

EXIT CODES
  0  it is sound, or is now; little room on the disk is warned of all the same
  1  something is not
  2  it is no state folder, or with --repair somebody works in it
  6  a later version of herder wrote it";

/// Flags of `herder doctor`.
#[derive(Clone, Debug, Args)]
pub struct DoctorArgs {
    /// The folder [default: the one of --state, or that `herder run` uses]
    #[arg(value_name = "STATE")]
    pub folder: Option<PathBuf>,
    /// Mend what is damaged
    #[arg(long)]
    pub repair: bool,
    /// Print JSON, one line each: grade, what, where, remedy
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub(crate) fn main(args: &DoctorArgs, context: &Context) -> anyhow::Result<Exit> {
    let folder = args.folder.clone().map_or_else(|| context.state_folder(), Ok)?;
    if args.repair {
        // What is no state folder is told of as that.
        examine(&folder)?;
        for done in repair(&folder)? {
            say(&format!("repaired: {done}"));
        }
    }
    let lines = examine(&folder)?;
    let mut out = Output::stdout();
    for line in &lines {
        let told = if args.json { out.json(line)? } else { out.line(&shown(line))? };
        if told.is_break() {
            break;
        }
    }
    let count = |grade| lines.iter().filter(|line| line.grade == grade).count();
    let (warnings, bad) = (count(Grade::Warn), count(Grade::Bad));
    let is_sound = !lines.iter().any(|line| line.is_fault);
    if !args.json {
        let summary = match (is_sound, warnings) {
            (true, 0) => "sound".to_owned(),
            (true, _) => format!("sound, warn {warnings}"),
            (false, _) => format!("bad {bad}, warn {warnings}"),
        };
        let _open = out.line(&summary)?;
    }
    let _open = out.flush()?;
    Ok(if is_sound { Exit::Done } else { Exit::NotDone })
}

fn shown(line: &Line) -> String {
    let Line { grade, what, place, remedy, .. } = line;
    let place = if place.is_empty() { String::new() } else { format!("{place}: ") };
    let remedy = if remedy.is_empty() { String::new() } else { format!("; {remedy}") };
    format!("{:4}  {place}{what}{remedy}", grade.as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_says_how_it_stands_where_what_and_what_to_do() {
        let line = |place: &str, remedy: &str| Line {
            grade: Grade::Bad,
            what: "is damaged".to_owned(),
            place: place.to_owned(),
            remedy: remedy.to_owned(),
            is_fault: true,
        };
        assert_eq!(shown(&line("log.db", "mend it")), "bad   log.db: is damaged; mend it");
        assert_eq!(shown(&line("", "")), "bad   is damaged");
        let json = serde_json::to_value(line("log.db", "")).expect("JSON");
        assert_eq!(json, json!({"grade": "bad", "what": "is damaged", "where": "log.db"}));
    }
}
