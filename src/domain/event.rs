//! The facts of a run, as they are kept for ever.
//!
//! Kinds and field names are a public format: kinds and fields are added, never renamed, and what one version
//! wrote every later one reads.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use self::{
    approval::{ApprovalRequested, ApprovalResolved, Grant, Resolution},
    request::{Correction, ModelRetry, ModelSwitched, RequestLost, RequestSent},
    stored::{DecodeError, decode, encode},
};
use self::{request::is_zero, stored::read};
use super::{
    call::{Access, EffectClass, ToolResult},
    id::{CallId, Pos, RunId, Seq},
    message::Reply,
    outcome::Outcome,
    policy::Verdict,
    task::TaskSpec,
    time::Timestamp,
    usage::{Limits, Usage},
};

mod approval;
mod request;
mod stored;

/// The version of the event format that this program writes.
pub const FORMAT: u16 = 1;

/// One fact of one run, before it has its place in the store.
#[derive(Clone, Debug)]
pub struct Fact {
    /// When it was decided; never goes back within a run.
    pub at: Timestamp,
    /// The turn it belongs to; 0 before the first.
    pub turn: u32,
    /// What happened.
    pub event: Event,
}

/// A fact in its place: what a store gives back and what is shown.
#[derive(Clone, Debug)]
pub struct Envelope {
    /// The version of the format it was written in.
    pub v: u16,
    /// Its place in the store.
    pub pos: Pos,
    /// Its run.
    pub run: RunId,
    /// Its place in the run's log.
    pub seq: Seq,
    /// The fact.
    pub fact: Fact,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// The task was taken on. Always the first.
    Submitted(Arc<TaskSpec>),
    /// The run got its slot.
    RunStart(RunStart),
    /// A request to the model is due.
    TurnStart(TurnStart),
    /// The model answered.
    Message(Arc<Reply>),
    /// A call was judged.
    Decision(Arc<Decision>),
    /// A person is to decide about a call.
    ApprovalRequested(Arc<ApprovalRequested>),
    /// Somebody has, or nobody will.
    ApprovalResolved(Arc<ApprovalResolved>),
    /// A call got its locks and its permit and is about to take effect.
    CallStarted(CallStarted),
    /// A call runs these processes.
    CommandGroup(CommandGroup),
    /// A call ended.
    Result(Arc<ToolResult>),
    /// The turn's calls are all answered, or there were none.
    TurnEnd(TurnEnd),
    /// A person said something to the run.
    InputQueued(QueuedInput),
    /// The model is about to be shown it.
    InputClaimed(InputClaimed),
    /// A request failed and will be sent again.
    ModelRetry(ModelRetry),
    /// A request is about to go out that is counted, whatever becomes of it.
    RequestSent(RequestSent),
    /// A request was given up, or lost with its process, before its answer was heard.
    RequestLost(RequestLost),
    /// Another model goes on with the run.
    ModelSwitched(ModelSwitched),
    /// The harness asks the model to mend its answer.
    Correction(Correction),
    /// A person changed the run's limits.
    LimitsSet(Limits),
    /// Somebody asked for the run's end.
    CancelRequested(CancelRequested),
    /// A person wants the run to be held before its next request.
    Paused(Paused),
    /// A person wants it to go on.
    Resumed(Resumed),
    /// The run gave its slot up; it waits for something else than a model or a tool.
    Parked(Parked),
    /// It has a slot again and goes on.
    Unparked(Unparked),
    /// herder stopped before the run had ended; it goes on at the next start.
    Interrupted(Interrupted),
    /// The run goes on from its log.
    Restart(Restart),
    /// The run ended. Always the last.
    RunEnd(Box<RunEnd>),
}

impl Event {
    /// Whether somebody was at work on the run. What a person says is no sign of it, nor what is found out later.
    pub const fn is_sign_of_life(&self) -> bool {
        !matches!(
            self,
            Self::InputQueued(_)
                | Self::LimitsSet(_)
                | Self::Paused(_)
                | Self::Resumed(_)
                | Self::RequestLost(_)
                | Self::ApprovalResolved(_)
        )
    }
}

/// See [`Event::RunStart`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunStart {
    /// The model asked, as `provider:model`.
    pub model: Arc<str>,
    /// Tools the model is offered.
    pub tools: Vec<Arc<str>>,
}

/// See [`Event::TurnStart`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnStart {}

/// See [`Event::Decision`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// The call.
    pub call: CallId,
    /// What was decided.
    pub verdict: Verdict,
    /// The rule that decided, in words.
    pub rule: String,
    /// What the call does to the world at most.
    pub effect: EffectClass,
    /// What it touches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub access: Vec<Access>,
}

/// See [`Event::CallStarted`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallStarted {
    /// The call.
    pub call: CallId,
    /// For a change of one file: how to tell afterwards whether it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<FileChange>,
}

/// A change of one file, by the content before and after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChange {
    /// The file's real path.
    pub path: Arc<str>,
    /// SHA-256 of the content before, in hex; absent if there was no file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// SHA-256 of the content after, in hex.
    pub after: String,
}

/// See [`Event::CommandGroup`]. Together these name the processes for as long as they live, and never any others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandGroup {
    /// The call.
    pub call: CallId,
    /// The process that leads them: their session and their group.
    pub pid: u32,
    /// When it started, in ticks of the machine's clock since it came up.
    pub started: u64,
    /// What the machine's kernel calls the time since it came up.
    pub boot: Arc<str>,
}

/// See [`Event::TurnEnd`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnEnd {
    /// Calls answered in this turn.
    pub calls: u32,
}

/// When a person's words are taken up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputKind {
    /// After the running turn's tools, before the next request.
    Steer,
    /// When the run would otherwise be done.
    FollowUp,
}

/// See [`Event::InputQueued`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuedInput {
    /// Names it; the first input of a run is 1.
    pub input: u32,
    /// When it is taken up.
    pub when: InputKind,
    /// What was said.
    pub text: Arc<str>,
    /// What whoever said it calls it: said again by the same name, it is not heard again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Arc<str>>,
}

/// See [`Event::InputClaimed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputClaimed {
    pub input: u32,
}

/// See [`Event::CancelRequested`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelRequested {
    /// How the run will end.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// See [`Event::Paused`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paused {}

/// See [`Event::Resumed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resumed {}

/// What a parked run waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParkReason {
    /// A person who resumes it, or what it belongs to.
    Paused,
    /// The time at which the provider wants to be asked again.
    RateLimit,
    /// Money or quota at the provider.
    Quota,
    /// A key that the provider accepts.
    Auth,
    /// A larger budget for what it belongs to.
    Budget,
    /// A person who decides about its calls.
    Approval,
}

/// See [`Event::Parked`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parked {
    /// What it waits for.
    pub reason: ParkReason,
}

/// See [`Event::Unparked`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unparked {}

/// See [`Event::Interrupted`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interrupted {
    /// Microseconds that its open request waited for its place.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub waited_us: u64,
}

/// Why a run goes on from its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RestartCause {
    /// The process had ended.
    Process,
    /// The run's actor had died.
    Actor,
    /// It was taken here from a file, whose word that calls were allowed is not taken for it.
    Import,
}

/// See [`Event::Restart`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restart {
    pub cause: RestartCause,
    /// What the dead actor said last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// See [`Event::RunEnd`]: the run in short, so that nobody has to read the log for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnd {
    /// How it ended.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// What the model said last.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub text: Arc<str>,
    /// What went wrong, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Turns taken.
    pub turns: u32,
    /// Calls answered.
    pub calls: u32,
    /// What it used up in all.
    pub usage: Usage,
    /// Microseconds from submission to start.
    pub queued_us: u64,
    /// Microseconds from start to end; the time in which herder was down is left out.
    pub duration_us: u64,
    /// Microseconds in which a request or a tool of it was at work.
    pub active_us: u64,
}

macro_rules! kinds {
    ($($variant:ident => $kind:literal),+ $(,)?) => {
        impl Event {
            /// Every kind, by its public name.
            pub const KINDS: &[&str] = &[$($kind),+];

            /// The kind's public name.
            pub const fn kind(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $kind),+
                }
            }

            /// Encodes the part that `kind` does not tell.
            ///
            /// # Errors
            /// Only if a value in it has no JSON form.
            pub fn serialize_data<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self {
                    $(Self::$variant(data) => data.serialize(serializer)),+
                }
            }

            /// Reads back what [`Self::kind`] and [`Self::serialize_data`] gave.
            ///
            /// # Errors
            /// A kind that this version does not know, or data that does not fit its kind.
            pub fn from_parts(kind: &str, data: &str) -> Result<Self, DecodeError> {
                match kind {
                    $($kind => read(kind, data).map(Self::$variant),)+
                    unknown => Err(DecodeError::Kind(unknown.to_owned())),
                }
            }
        }
    };
}

kinds! {
    Submitted => "submitted",
    RunStart => "run_start",
    TurnStart => "turn_start",
    Message => "message",
    Decision => "decision",
    ApprovalRequested => "approval_requested",
    ApprovalResolved => "approval_resolved",
    CallStarted => "call_started",
    CommandGroup => "command_group",
    Result => "result",
    TurnEnd => "turn_end",
    InputQueued => "input_queued",
    InputClaimed => "input_claimed",
    ModelRetry => "model_retry",
    RequestSent => "request_sent",
    RequestLost => "request_lost",
    ModelSwitched => "model_switched",
    Correction => "correction",
    LimitsSet => "limits_set",
    CancelRequested => "cancel_requested",
    Paused => "paused",
    Resumed => "resumed",
    Parked => "parked",
    Unparked => "unparked",
    Interrupted => "interrupted",
    Restart => "restart",
    RunEnd => "run_end",
}
