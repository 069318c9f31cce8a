//! What the tools take. The comments are what a model reads of them.

use std::collections::BTreeMap;

use rmcp::schemars::{self, JsonSchema};
use serde::Deserialize;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Submit {
    /// What the agent is to do, in full: it sees nothing else of this conversation.
    pub(super) task: String,
    /// The absolute path of the folder that its tools work in.
    pub(super) workspace: String,
    /// Which model to ask, as `provider:model` or a name of the configuration. Left out: the daemon's default.
    pub(super) model: Option<String>,
    /// Rules for the agent, beside herder's own.
    pub(super) system: Option<String>,
    /// The tools that it may use: read, list, grep, edit, write, bash. Left out: the daemon's default.
    pub(super) tools: Option<Vec<String>>,
    /// Names and values to find the run by.
    #[serde(default)]
    pub(super) labels: BTreeMap<String, String>,
    /// Makes the submission safe to repeat: the same key and task again give the same run. Choose one of your own.
    pub(super) key: Option<String>,
    /// Seconds to wait for its end, at most 50. Left out: do not wait; use herder_wait later.
    #[schemars(range(max = 50))]
    pub(super) wait_s: Option<u64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Run {
    /// The run: its id, a unique beginning of one, or the id of its task.
    pub(super) run: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Status {
    /// A run: its id, a unique beginning of one, or the id of its task. Left out: the daemon as a whole.
    pub(super) run: Option<String>,
}

/// Where a run stands.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Standing {
    Queued,
    Running,
    Paused,
    Ended,
}

impl Standing {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Ended => "ended",
        }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct List {
    /// Only runs that stand like this. Left out: all.
    #[serde(default)]
    pub(super) state: Vec<Standing>,
    /// Only runs that ended like this: done, budget, cancelled, blocked, provider_error, failed, or a detail of one.
    pub(super) outcome: Option<String>,
    /// Only runs of this batch: its id or name.
    pub(super) batch: Option<String>,
    /// Only runs that ask this model.
    pub(super) model: Option<String>,
    /// Only runs of this task.
    pub(super) task_id: Option<String>,
    /// Only runs with all of these labels.
    #[serde(default)]
    pub(super) labels: BTreeMap<String, String>,
    /// Runs at most, the newest; 20 if it is left out.
    #[schemars(range(min = 1, max = 100))]
    pub(super) limit: Option<u32>,
    /// The page before: the `next` of an earlier answer.
    pub(super) before: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Events {
    /// The run: its id, a unique beginning of one, or the id of its task.
    pub(super) run: String,
    /// Only events after this number. Left out: the newest.
    pub(super) after: Option<u64>,
    /// Events at most; 50 if it is left out.
    #[schemars(range(min = 1, max = 200))]
    pub(super) limit: Option<u32>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Wait {
    /// The runs to wait for, each by its id, a unique beginning of one, or the id of its task.
    #[schemars(length(min = 1, max = 100))]
    pub(super) runs: Vec<String>,
    /// Seconds to wait, at most 50; 30 if it is left out. If some have not ended by then, call again.
    #[schemars(range(max = 50))]
    pub(super) timeout_s: Option<u64>,
    /// Come back when any of them has ended, not all.
    #[serde(default)]
    pub(super) any: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Say {
    /// The run: its id, a unique beginning of one, or the id of its task.
    pub(super) run: String,
    /// What to say to it.
    pub(super) text: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Cancel {
    /// The run: its id, a unique beginning of one, or the id of its task.
    pub(super) run: Option<String>,
    /// Or a batch with all its runs: its id or name.
    pub(super) batch: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Hold {
    /// A run: its id, a unique beginning of one, or the id of its task.
    pub(super) run: Option<String>,
    /// Or a batch: its id or name.
    pub(super) batch: Option<String>,
    /// Or every run that asks this model.
    pub(super) model: Option<String>,
    /// Or, if true, everything.
    #[serde(default)]
    pub(super) all: bool,
}
