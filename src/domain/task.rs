//! What is asked of a run: the task and everything that shapes how it is worked on.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    id::{BatchId, RunId},
    json::RawJson,
    message::Message,
    script::Script,
    usage::Limits,
};

/// A task as a run takes it on, every default filled in: of record in the run's first event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskSpec {
    /// What to do, in a person's words.
    pub task: Arc<str>,
    /// The task's own name, unique in its batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<Arc<str>>,
    /// The batch that the task belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchId>,
    /// Which attempt at the task this is; the first is 1.
    pub attempt: u32,
    /// The run that was the attempt before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predecessor: Option<RunId>,
    /// The run that this one goes on from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<RunId>,
    /// All that was said in it: what is said here comes after that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<Message>,
    /// Rules for the model, beside herder's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<Arc<str>>,
    /// Facts that the model is told, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<String, String>,
    /// The model's name.
    pub model: Arc<str>,
    /// The folder that tools work in: an absolute path.
    pub workspace: Arc<str>,
    /// Whether the run works in that folder itself.
    #[serde(default, skip_serializing_if = "Isolate::is_none")]
    pub isolate: Isolate,
    /// The tools that the model may use; absent: all that policy lets it use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<Arc<str>>>,
    /// How much it may use up.
    #[serde(default)]
    pub limits: Limits,
    /// Runs with a higher one start first.
    #[serde(default)]
    pub priority: i32,
    /// Names and values to find it by.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// How to tell that it was asked for before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submission: Option<Submission>,
    /// The user who submitted it, by the system's word, not by theirs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Arc<str>>,
    /// Anything the submitter wants back with the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<RawJson>,
    /// How the model samples.
    #[serde(default, skip_serializing_if = "Params::is_default")]
    pub params: Params,
    /// The form that its last answer must have; absent: words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_format: Option<ResponseFormat>,
    /// What is done about an answer that asks for calls and was cut at its length limit.
    #[serde(default, skip_serializing_if = "OnTruncated::is_default")]
    pub on_truncated: OnTruncated,
    /// Whether a call that fails ends the run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stop_on_tool_error: bool,
    /// What the scripted model says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<Script>,
}

/// Whether a run works in the folder that its task names, or in one of its own that is made from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolate {
    /// In the folder itself, with whoever else works there.
    #[default]
    None,
    /// In a copy of it.
    Copy,
    /// In a git worktree of the repository that it is in.
    Worktree,
}

impl Isolate {
    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Copy => "copy",
            Self::Worktree => "worktree",
        }
    }

    /// Whether the run has no workspace of its own.
    pub const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }
}

/// Names one wish of a submitter, so that asking for it twice gives one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submission {
    /// The submitter's own name for it.
    pub key: Arc<str>,
    /// A digest of what was asked: the same key with another one asks for something else.
    pub digest: Arc<str>,
}

/// How a model samples its answer. What is absent is left to the server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
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

impl Params {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The form of an answer, spelt as Chat Completions does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ResponseFormat {
    /// A JSON object, whatever is in it.
    JsonObject,
    /// JSON that a schema describes.
    JsonSchema {
        /// The schema and its name.
        json_schema: AnswerSchema,
    },
}

/// See [`ResponseFormat::JsonSchema`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnswerSchema {
    /// What the server calls it.
    #[serde(default = "answer")]
    pub name: String,
    /// A JSON Schema.
    pub schema: Arc<Value>,
    /// Whether the server is to hold the model to it, where it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strict: Option<bool>,
}

impl ResponseFormat {
    /// JSON that this schema describes.
    pub fn of_schema(schema: Value) -> Self {
        let schema = Arc::new(schema);
        Self::JsonSchema { json_schema: AnswerSchema { name: answer(), schema, strict: None } }
    }
}

fn answer() -> String {
    "answer".to_owned()
}

/// What is done about an answer that asks for calls and was cut at its length limit. None of its calls is run either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnTruncated {
    /// The run ends as blocked.
    #[default]
    Block,
    /// Each call gets a result that says so, and the model goes on; twice in a row at most.
    Retry,
}

impl OnTruncated {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
