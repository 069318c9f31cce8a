//! The facts of a call that a person decides about.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::FileChange;
use crate::domain::{call::Access, id::CallId, time::Timestamp};

/// See [`super::Event::ApprovalRequested`]. What it says is what is approved, and nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalRequested {
    /// Names it; the first of a run is 1.
    pub approval: u32,
    /// The call.
    pub call: CallId,
    /// The rule that wants a person to decide, in words.
    pub rule: String,
    /// What the call touches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub access: Vec<Access>,
    /// For a change of one file: the content that it starts from and the one that it leads to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<FileChange>,
    /// What a person is shown: the change as a unified diff, or the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<Arc<str>>,
    /// When it is denied by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

/// See [`super::Event::ApprovalResolved`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalResolved {
    /// Which one.
    pub approval: u32,
    /// The call.
    pub call: CallId,
    /// What became of it.
    pub resolution: Resolution,
    /// What whoever answered calls the answer: given again by the same name it is the same answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Arc<str>>,
    /// Who answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Arc<str>>,
    /// What they said about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Arc<str>>,
    /// What is approved with it, for as long as the run goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<Grant>,
}

/// What became of an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resolution {
    /// The call runs, once.
    Approved,
    /// It does not run.
    Rejected,
    /// It is something else by now, and was asked about again.
    Superseded,
    /// Nobody answered in time: it does not run.
    Expired,
    /// The call was cancelled, or its run was ended, before anybody answered.
    Withdrawn,
}

impl Resolution {
    /// The public name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::Rejected => "rejected",
            Self::Superseded => "superseded",
            Self::Expired => "expired",
            Self::Withdrawn => "withdrawn",
        }
    }
}

/// Further calls that are approved beforehand: of this tool, as this pattern describes them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Grant {
    /// The tool.
    pub tool: Arc<str>,
    /// A pattern of commands, or of paths where the tool takes no command, as policies have them; or `=` and a whole command
    /// line, which stands for itself alone.
    pub pattern: Arc<str>,
}

impl Grant {
    /// The pattern that stands for this command line alone.
    pub fn exactly(command: &str) -> String {
        format!("={command}")
    }

    /// Whether it is for this command line alone.
    pub fn is_exactly(&self, command: &str) -> bool {
        self.whole_line() == Some(command)
    }

    /// The command line that it is for, if it is for one alone.
    pub fn whole_line(&self) -> Option<&str> {
        self.pattern.strip_prefix('=')
    }
}
