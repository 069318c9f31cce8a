//! One task, as it is submitted: the keys of a line of a batch, for the description and for clients.
//!
//! What is sent is read by the rules for lines, which name every mistake; this says which keys there are.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// One task. Unknown keys are refused; `null` is as if the key were absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "id": "ticket-7",
    "task": "Fix ticket 7.",
    "model": "openai:gpt-5",
    "workspace": "/home/me/project",
    "limits": {"max_turns": 40},
    "labels": {"team": "search"},
}))]
#[serde(deny_unknown_fields)]
pub struct TaskBody {
    /// A name of its own, to find it by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 200)]
    pub id: Option<String>,
    /// What to do.
    #[schema(min_length = 1, pattern = r"\S")]
    pub task: String,
    /// The model to ask. Without one: that of the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Rules for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// The folder that tools work in: an absolute path. Without one: that of the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^/")]
    pub workspace: Option<String>,
    /// Whether the run works in that folder itself (`none`), in a `copy` of it, or in a git `worktree` of its repository.
    /// Without it: as the configuration says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^(none|copy|worktree)$")]
    pub isolate: Option<String>,
    /// The tools that the model may use. Without it: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// How much it may use up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<TaskLimits>,
    /// Facts that the model is told.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<String, String>,
    /// Runs with a higher one start first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Names and values to find it by.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Anything, given back with the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Value>,
    /// How the model samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params: Option<TaskParams>,
    /// The form that the last answer must have, as `{"type": "json_schema", "json_schema": {"schema": {...}}}` or
    /// `{"type": "json_object"}`. An answer of another form is to be mended twice at most. Without it: words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub response_format: Option<Value>,
    /// What is done about an answer that asks for calls and was cut at its length limit: `block` ends the run, `retry` has
    /// the model try again, twice in a row at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^(block|retry)$")]
    pub on_truncated: Option<String>,
    /// Whether a call that fails or is denied ends the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_on_tool_error: Option<bool>,
    /// What the scripted model says, as `[{"text": "Done."}]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    pub script: Option<Value>,
}

/// How much a run may use up. What is absent is not limited, but for turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TaskLimits {
    /// Model turns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<u32>,
    /// Tool calls, refused ones included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tool_calls: Option<u32>,
    /// Tokens sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_input_tokens: Option<u64>,
    /// Tokens answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u64>,
    /// Tokens sent and answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_total_tokens: Option<u64>,
    /// US dollars that it may cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub max_cost_usd: Option<f64>,
    /// Tool calls of one answer that are run; those beyond it are refused one by one. Without it: 64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_calls_per_turn: Option<u32>,
    /// How often in a row one and the same call may fail before it is refused. Without it: 3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_repeats: Option<u32>,
    /// Seconds from the run's start to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall_time_s: Option<u64>,
    /// Seconds in which a model request or a tool of the run was at work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_time_s: Option<u64>,
}

/// How a model samples its answer. What is absent is left to the server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TaskParams {
    /// Randomness, 0 and up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The share of probable tokens to draw from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Tokens that one answer may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// A seed, where the server takes one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// How hard to think, in the server's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_effort: Option<String>,
    /// Whether and which tool to call, in the server's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<Value>,
}
