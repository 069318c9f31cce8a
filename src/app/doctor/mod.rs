//! Looks a state folder over: what is sound, what is not, and what to do about it. Mending it is a separate step.
//!
//! Looking changes nothing, takes no lock, and may be done while a daemon works in the folder.

mod files;
mod log;
mod repair;
#[cfg(test)]
mod tests;

use std::path::Path;

use serde::Serialize;

pub use self::{
    files::{free_bytes, is_half_mended, was_used},
    repair::{RepairError, repair},
};
use super::state::is_written;
use crate::store::{
    folder::{FolderError, LOG, StateFolder},
    sqlite::{self, Finding, OpenError, Survey},
};

/// How something stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    /// It is as it should be.
    Ok,
    /// Nothing is lost, and somebody should look.
    Warn,
    /// It is damaged, or keeps herder from working.
    Bad,
}

impl Grade {
    /// The grade's public name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Bad => "bad",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// How it stands.
    pub grade: Grade,
    /// What there is to say.
    pub what: String,
    /// Where it is: a file or a run; empty where it is the whole folder.
    #[serde(rename = "where", skip_serializing_if = "String::is_empty")]
    pub place: String,
    /// What to do about it; empty if nothing is to be done.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub remedy: String,
    /// Whether the folder is not as it should be.
    #[serde(skip)]
    pub is_fault: bool,
}

impl Line {
    fn ok(what: impl Into<String>, place: impl Into<String>) -> Self {
        Self {
            grade: Grade::Ok,
            what: what.into(),
            place: place.into(),
            remedy: String::new(),
            is_fault: false,
        }
    }

    /// What somebody should know of where the folder is, which is as it should be itself.
    fn advice(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { is_fault: false, ..Self::warn(what, "", remedy) }
    }

    fn warn(what: impl Into<String>, place: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            grade: Grade::Warn,
            what: what.into(),
            place: place.into(),
            remedy: remedy.into(),
            is_fault: true,
        }
    }

    fn bad(what: impl Into<String>, place: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { grade: Grade::Bad, ..Self::warn(what, place, remedy) }
    }
}

/// Looks a folder over.
///
/// # Errors
/// It is no state folder, or one of a later version.
pub fn examine(folder: &Path) -> Result<Vec<Line>, FolderError> {
    let mut lines = Vec::new();
    match StateFolder::open_for_reading(folder) {
        Ok(_) => lines.push(Line::ok("state folder, format 1", folder.display().to_string())),
        Err(FolderError::Damaged { .. } | FolderError::Missing { .. }) if folder.join(LOG).exists() => {
            lines.push(Line::bad(
                "the file that says what the folder is, is damaged or missing",
                "format",
                repair_command(folder),
            ));
        }
        Err(error) => return Err(error),
    }
    lines.push(files::holder(folder));
    if is_half_mended(folder) {
        lines.push(Line::bad("a repair was cut short", LOG, repair_command(folder)));
    }
    let survey = match sqlite::survey(&folder.join(LOG), || is_written(folder)) {
        Ok(survey) => {
            lines.extend(log::lines(folder, &survey));
            // Else nothing is known of what it holds.
            Some(survey).filter(|survey| !survey.findings.iter().any(Finding::needs_salvage))
        }
        Err(OpenError::Empty { .. }) => {
            lines.push(log::empty(folder));
            Some(Survey::default())
        }
        Err(error) => {
            lines.push(log::unreadable(folder, &error));
            None
        }
    };
    lines.extend(files::leftovers(folder, survey.as_ref()));
    lines.push(files::space(folder));
    lines.extend(system());
    Ok(lines)
}

/// What the system can do for herder.
fn system() -> Vec<Line> {
    let release = rustix::system::uname();
    vec![Line::ok(format!("kernel {}", release.release().to_string_lossy()), "")]
}

/// The command that mends a folder.
fn repair_command(folder: &Path) -> String {
    format!("herder doctor {} --repair", folder.display())
}
