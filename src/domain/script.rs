//! What the scripted model says: a list of replies, as a task or a file gives it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::outcome::Stop;

/// The replies of a scripted model, in order. Which one is next follows from the run's log alone: it is the number of
/// answers and retries that the log already holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Script(pub Arc<[ScriptedReply]>);

/// One reply, or one failed request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScriptedReply {
    /// What the model says.
    #[serde(alias = "content", skip_serializing_if = "Option::is_none")]
    pub text: Option<Arc<str>>,
    /// What it thinks aloud.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Arc<str>>,
    /// What it asks for.
    #[serde(alias = "toolCalls", skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ScriptedCall>,
    /// Why it stops; by itself `tool_calls` with calls, else `end_turn`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop: Option<Stop>,
    /// What it says that it used up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<ScriptedUsage>,
    /// Milliseconds before the first delta.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// Into how many pieces the text is cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunks: Option<u32>,
    /// Instead of a reply: how the request fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
}

/// A call in a script.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedCall {
    /// The id; by itself one that is new in the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Arc<str>>,
    /// The tool.
    pub name: Arc<str>,
    /// What to do it with: an object; a string is passed on as a provider would send it.
    #[serde(default = "no_arguments")]
    pub arguments: Box<RawValue>,
}

fn no_arguments() -> Box<RawValue> {
    super::call::Arguments::empty().to_raw()
}

impl PartialEq for ScriptedCall {
    fn eq(&self, other: &Self) -> bool {
        (&self.id, &self.name, self.arguments.get()) == (&other.id, &other.name, other.arguments.get())
    }
}

/// Tokens in a script.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScriptedUsage {
    /// Tokens sent.
    pub input: u64,
    /// Tokens answered.
    pub output: u64,
}

/// How a scripted request fails.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a fault is \"stall\", \"drop\" or {\"status\": 503}")]
pub enum Fault {
    /// It never says another word, or the connection drops.
    Silent(Silence),
    /// It answers with an HTTP status.
    Status(StatusFault),
}

/// A failure without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Silence {
    /// The answer never comes.
    Stall,
    /// The connection drops.
    Drop,
}

/// A failure that the server tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatusFault {
    /// The HTTP status.
    pub status: u16,
    /// Seconds after which the server wants to be asked again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_s: Option<u64>,
    /// What the server says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
}
