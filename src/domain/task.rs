//! What is asked of a run: the task and everything that shapes how it is worked on.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{
    id::{BatchId, RunId},
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
    /// Anything the submitter wants back with the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
    /// How the model samples.
    #[serde(default, skip_serializing_if = "Params::is_default")]
    pub params: Params,
    /// What the scripted model says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<Script>,
}

/// Names one wish of a submitter, so that asking for it twice gives one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submission {
    /// The submitter's own name for it.
    pub key: Arc<str>,
    /// A digest of what was asked: the same key with another one asks for something else.
    pub digest: Arc<str>,
}

/// JSON of the submitter's own, kept as it came.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Meta(pub Arc<RawValue>);

impl PartialEq for Meta {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
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
    pub tool_choice: Option<serde_json::Value>,
}

impl Params {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
