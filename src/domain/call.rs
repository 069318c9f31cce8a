//! A tool call: what the model asked for, what it touches, what came of it.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, value::RawValue};

use super::id::CallId;

/// The arguments of a call: the text of one JSON object, never anything else.
///
/// Kept as text, so that what is replayed to a provider is byte for byte what was judged and run.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct Arguments(Arc<RawValue>);

/// Whatever a log holds: what is no object is read as one that says so.
impl<'de> Deserialize<'de> for Arguments {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Ok(if raw.get().starts_with('{') { Self(raw.into()) } else { Self::spoiled(raw.get()) })
    }
}

impl Arguments {
    /// Accepts the text of a JSON object.
    ///
    /// # Errors
    /// Says what the text is instead, in words meant for the model.
    pub fn parse(text: &str) -> Result<Self, String> {
        let raw: Box<RawValue> =
            serde_json::from_str(text).map_err(|error| format!("arguments are not valid JSON: {error}"))?;
        match raw.get().as_bytes().first() {
            Some(b'{') => Ok(Self(raw.into())),
            Some(b'[') => Err("arguments must be a JSON object, not an array".to_owned()),
            Some(b'"') => Err("arguments must be a JSON object, not a string".to_owned()),
            _ => Err("arguments must be a JSON object".to_owned()),
        }
    }

    /// Encodes an object built in code.
    pub fn from_map(map: &Map<String, Value>) -> Self {
        // A map with text keys always encodes; the fallback only keeps this total.
        Self(serde_json::value::to_raw_value(map).unwrap_or_else(|_| RawValue::NULL.to_owned()).into())
    }

    /// `{}`.
    pub fn empty() -> Self {
        Self::from_map(&Map::new())
    }

    /// An object that stands for what is none: a provider would refuse the whole conversation for it.
    pub fn spoiled(text: &str) -> Self {
        let shown: String = text.chars().take(200).collect();
        Self::from_map(&Map::from_iter([("invalid_arguments".to_owned(), Value::String(shown))]))
    }

    /// The object as raw JSON.
    pub fn to_raw(&self) -> Box<RawValue> {
        (*self.0).to_owned()
    }

    /// The object's text.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }
}

impl PartialEq for Arguments {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Arguments {}

/// What a model asked to have done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Unique in the run.
    pub id: CallId,
    /// The provider's own id, where it had to be renamed to be unique.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<Arc<str>>,
    /// The tool's name as the model wrote it; it may name no tool at all.
    pub name: Arc<str>,
    /// What to do it with.
    pub arguments: Arguments,
}

/// A tool as a model is told of it.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    /// What the model calls it by.
    pub name: Arc<str>,
    /// What it does, for the model.
    pub description: Arc<str>,
    /// The JSON Schema of its arguments: an object's.
    pub schema: Arc<Value>,
}

/// What a tool does to the world, at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectClass {
    /// Changes nothing; may be run again at will.
    Read,
    /// Changes one file in a way that can be checked afterwards by its content.
    Write,
    /// Anything else: run at most once.
    Outside,
}

impl EffectClass {
    /// The name used in logs, metrics and policies.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Outside => "outside",
        }
    }
}

/// How a call uses what it touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Beside others that share it.
    Shared,
    /// Alone.
    Exclusive,
}

/// How much of the file system a path stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// The file at the path.
    File,
    /// The folder at the path and everything below it.
    Tree,
}

/// One thing that a call touches, and how.
///
/// The path is the identity of the thing: absolute, real (no symlinks, no `.` or `..`), so that two
/// spellings of one file are one key over all runs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Access {
    /// File or tree.
    pub scope: Scope,
    /// The real path.
    pub path: Arc<str>,
    /// Shared or exclusive.
    pub mode: Mode,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = match self.mode {
            Mode::Shared => "shared",
            Mode::Exclusive => "exclusive",
        };
        let scope = match self.scope {
            Scope::File => "file",
            Scope::Tree => "tree",
        };
        write!(f, "{mode} {scope} {}", self.path)
    }
}

/// What came of a call: always something that the model can read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The call that this answers.
    pub call: CallId,
    /// Whether the tool did what was asked.
    pub ok: bool,
    /// What the model is shown.
    pub output: Arc<str>,
    /// Why it is not `ok`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// Asks the run to end without another request; it does if every result of the batch asks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub terminate: bool,
    /// When the work held its locks; absent for a call that never started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timing: Option<Timing>,
}

/// Why a call has a result that is not `ok`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// No tool of that name is registered for the run.
    UnknownTool,
    /// The arguments are no JSON object or don't fit the schema.
    InvalidArguments,
    /// Policy said no.
    Denied,
    /// The reply was cut at its length limit, so nothing of it runs.
    Truncated,
    /// The reply asked for more calls than one reply may.
    OverLimit,
    /// The same call has failed too often in a row.
    Repeated,
    /// The tool ran and says that it failed.
    Failed,
    /// The tool's time was up.
    TimedOut,
    /// The call, or its whole run, was cancelled while it ran.
    Cancelled,
    /// The call, or its whole run, was cancelled before it started.
    AbortedBeforeStart,
    /// The process died while the call ran; whether it took effect is not known.
    OutcomeUnknown,
}

impl Failure {
    /// Whether the call itself failed, or may not be; the others say that something kept it from running or from its end.
    pub const fn is_of_the_call(self) -> bool {
        match self {
            Self::UnknownTool
            | Self::InvalidArguments
            | Self::Denied
            | Self::Repeated
            | Self::Failed
            | Self::TimedOut => true,
            Self::Truncated
            | Self::OverLimit
            | Self::Cancelled
            | Self::AbortedBeforeStart
            | Self::OutcomeUnknown => false,
        }
    }

    /// The name used in logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UnknownTool => "unknown_tool",
            Self::InvalidArguments => "invalid_arguments",
            Self::Denied => "denied",
            Self::Truncated => "truncated",
            Self::OverLimit => "over_limit",
            Self::Repeated => "repeated",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::AbortedBeforeStart => "aborted_before_start",
            Self::OutcomeUnknown => "outcome_unknown",
        }
    }
}

/// How long a call waited for its locks and permit, and when it held them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    /// Microseconds from submission to the grant.
    pub waited_us: u64,
    /// When the locks were granted, in microseconds of the Unix epoch.
    pub granted_at: super::time::Timestamp,
    /// Microseconds from the grant to the end of the work.
    pub held_us: u64,
}
