//! Runs, as they are submitted, listed and shown.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{ApprovalView, RequestView, number, schema};
use crate::{domain::usage::Usage, tool::isolate::Change};

/// That something was submitted, and what it is called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Submitted {
    /// The id of the run or batch.
    #[schema(format = "uuid")]
    pub id: String,
    /// False: it had been submitted with this key before.
    pub changed: bool,
    /// Tasks in it; 1 for a run.
    pub tasks: u64,
}

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// It waits for a slot.
    Queued,
    /// It has a slot.
    Running,
    /// It is held, by itself or by a pause of many, or waits for its account or for a time that is long to come; it has no
    /// slot, and nothing of it is under way.
    Paused,
    /// Nothing will change any more.
    Ended,
}

/// Tokens used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Tokens {
    /// Sent, cached ones included.
    pub input: u64,
    /// Answered, reasoning included.
    pub output: u64,
    /// The part of `input` that the provider had cached.
    pub cached: u64,
    /// Some of it is an estimate, since the provider did not say.
    pub estimated: bool,
}

impl From<Usage> for Tokens {
    fn from(Usage { input, output, cached, estimated, .. }: Usage) -> Self {
        Self { input, output, cached, estimated }
    }
}

/// A call of the running turn that has no result yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CallView {
    /// Its id.
    pub call: String,
    /// The tool.
    pub tool: String,
    /// Whether it waits for its locks or its permit; else it is at work.
    pub waits: bool,
    /// What it touches, as `exclusive file /w/a.txt`.
    #[serde(default)]
    pub access: Vec<String>,
}

/// A run, in short.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunView {
    /// Its id.
    #[schema(format = "uuid")]
    pub id: String,
    /// The batch that it belongs to.
    #[schema(format = "uuid")]
    pub batch: Option<String>,
    /// The id of its task.
    pub task_id: Option<String>,
    /// Which attempt at the task it is; the first is 1.
    pub attempt: u32,
    /// The run that was the attempt before.
    #[schema(format = "uuid")]
    pub predecessor: Option<String>,
    /// The beginning of the task.
    pub about: String,
    /// The model asked.
    pub model: String,
    /// Names and values to find it by.
    pub labels: BTreeMap<String, String>,
    /// Runs with a higher one start first.
    pub priority: i32,
    /// Where it stands.
    pub state: RunState,
    /// The same in words, as `thinking: waits for the model`.
    pub phase: String,
    /// How it ended.
    #[schema(schema_with = schema::outcome)]
    pub outcome: Option<String>,
    /// Which limit, class or fault it was.
    #[schema(schema_with = schema::detail)]
    pub detail: Option<String>,
    /// What went wrong, in words.
    pub error: Option<String>,
    /// The running turn, or turns taken.
    pub turns: u32,
    /// Calls answered.
    pub calls: u32,
    /// Calls of the running turn without a result.
    #[serde(default)]
    pub open_calls: Vec<CallView>,
    /// Tokens used up so far.
    pub usage: Tokens,
    /// What it cost so far, where the price is known.
    pub cost_usd: Option<f64>,
    /// When it was submitted.
    #[schema(format = DateTime)]
    pub submitted_at: String,
    /// When it got its slot first.
    #[schema(format = DateTime)]
    pub started_at: Option<String>,
    /// When it ended.
    #[schema(format = DateTime)]
    pub ended_at: Option<String>,
    /// Milliseconds from its start to its end, the time in which herder was down left out.
    pub duration_ms: Option<u64>,
    /// The beginning of what the model said last.
    pub said: String,
    /// The branch with what it changed, if it had a worktree of its own.
    #[serde(default)]
    pub branch: Option<String>,
    /// The commit that its worktree started from.
    #[serde(default)]
    pub base: Option<String>,
    /// Where the patch is with what it changed in a workspace of its own.
    #[serde(default)]
    pub patch_path: Option<String>,
    /// How many files it changed there.
    #[serde(default)]
    pub files_changed: Option<u64>,
}

impl RunView {
    /// Adds what it changed in a workspace of its own.
    #[must_use]
    pub fn with_change(self, change: Option<&Change>) -> Self {
        let Some(change) = change else { return self };
        let error = change.with_error(self.error.map(Into::into)).map(Into::into);
        let files_changed = change.files();
        let Change { branch, base, patch_path, .. } = change.clone();
        Self { branch, base, patch_path, files_changed, error, ..self }
    }
}

/// A run with everything that is asked for it alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunDetail {
    #[serde(flatten)]
    pub run: RunView,
    /// The whole task.
    pub task: String,
    /// The folder that its task names.
    pub workspace: String,
    /// The run that it goes on from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = "uuid")]
    pub parent: Option<String>,
    /// Whether it works in a folder of its own that is made from that one.
    #[serde(default)]
    #[schema(pattern = "^(none|copy|worktree)$")]
    pub isolate: Option<String>,
    /// Where its own workspace is, if that was kept.
    #[serde(default)]
    pub kept: Option<String>,
    /// Turns that it may take.
    pub max_turns: u32,
    /// Events in its log.
    pub events: u64,
    /// What the model said last, whole, once the run has ended.
    pub text: Option<String>,
    /// Requests to models that are over, the first ones first.
    #[serde(default)]
    pub requests: Vec<RequestView>,
    /// What people were asked about its calls, the first ones first.
    #[serde(default)]
    pub approvals: Vec<ApprovalView>,
    /// The conversation in the form of Chat Completions, if it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    pub messages: Option<Vec<Value>>,
}

/// How many runs match, whatever part of them is listed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Counts {
    /// All.
    pub total: u64,
    /// Those that have not ended.
    pub open: u64,
    /// Those that have, by outcome.
    pub ended: BTreeMap<String, u64>,
}

/// A page of runs, the newest last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunList {
    /// The page.
    pub runs: Vec<RunView>,
    /// Where the page before this one begins: give it as `before`. `null`: there is none.
    #[schema(format = "uuid")]
    pub next: Option<String>,
    /// All that match.
    pub counts: Counts,
}

/// Something to say to a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"text": "Leave the tests as they are.", "expected_turn": 3}))]
#[serde(deny_unknown_fields)]
pub struct Say {
    /// What is said.
    #[schema(min_length = 1, pattern = r"\S")]
    pub text: String,
    /// Refuse if the run is in another turn than this.
    #[serde(default, deserialize_with = "number::whole", skip_serializing_if = "Option::is_none")]
    pub expected_turn: Option<u32>,
}

/// What is said after a run has ended: a new run goes on from it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"text": "Now the tests, please.", "max_turns": 10}))]
#[serde(deny_unknown_fields)]
pub struct Continue {
    /// What is said.
    #[schema(min_length = 1, pattern = r"\S")]
    pub text: String,
    /// Turns that the new run may take. Without it: as many as the one before.
    #[serde(default, deserialize_with = "number::whole", skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub max_turns: Option<u32>,
    /// The model to ask. Without one: the one that was asked last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What the scripted model says. Without it: what is left of the run's script.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<Value>,
}

/// That a task has another attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Requeued {
    /// The run that is the new attempt.
    #[schema(format = "uuid")]
    pub id: String,
    /// False: there was one already.
    pub changed: bool,
}

/// What is changed of a live run. What is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"max_turns": 80}))]
#[serde(deny_unknown_fields)]
pub struct RunPatch {
    /// Turns that it may take.
    #[serde(default, deserialize_with = "number::whole", skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub max_turns: Option<u32>,
    /// Calls that it may make.
    #[serde(default, deserialize_with = "number::whole", skip_serializing_if = "Option::is_none")]
    pub max_tool_calls: Option<u32>,
    /// Tokens that it may use up.
    #[serde(default, deserialize_with = "number::whole", skip_serializing_if = "Option::is_none")]
    pub max_total_tokens: Option<u64>,
    /// Seconds that it may take.
    #[serde(default, deserialize_with = "number::whole", skip_serializing_if = "Option::is_none")]
    pub wall_time_s: Option<u64>,
    /// US dollars that it may cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub max_cost_usd: Option<f64>,
}
