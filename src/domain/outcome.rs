//! Why a provider stopped talking, and why a run ended: two closed sets that are never mixed up.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why the provider stopped talking: the provider's fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// It wants tools run.
    ToolCalls,
    /// It has said what it had to say.
    EndTurn,
    /// Its output limit cut it off.
    Length,
    /// It, or a filter behind it, declined.
    Refusal,
    /// Something went wrong while it spoke.
    Error,
}

/// Why the run ended: the harness's verdict, never the provider's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "outcome", content = "detail")]
pub enum Outcome {
    /// The model answered without asking for more.
    Done,
    /// A limit was reached.
    Budget(Limit),
    /// Somebody asked for the end.
    Cancelled,
    /// The harness would not go on.
    Blocked(Block),
    /// The provider failed, after retries.
    ProviderError(FaultClass),
    /// herder itself could not go on.
    Failed(Breakage),
}

/// Which limit ended a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    Turns,
    ToolCalls,
    InputTokens,
    OutputTokens,
    TotalTokens,
    Cost,
    WallTime,
    ActiveTime,
}

/// Why the harness would not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Block {
    /// The reply was cut at its length limit.
    Truncated,
    /// The provider declined to answer.
    Refusal,
    /// Policy forbids what the run needs.
    Policy,
    /// An approval was refused.
    Approval,
    /// A call failed or was denied, and the task is to stop at that.
    ToolError,
    /// The answer is not of the form that it was to have, corrections or not.
    Format,
}

/// What kind of failure a model request met; decides whether trying again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultClass {
    /// Too many requests or tokens: wait and ask again.
    RateLimit,
    /// The server has too much to do.
    Overloaded,
    /// A fault that may pass: a 5xx, a dropped connection, a reply cut short.
    Transient,
    /// No answer in time.
    Timeout,
    /// The answer stopped coming.
    Stall,
    /// The key is missing, wrong or not allowed.
    Auth,
    /// The account's money or quota is used up.
    Quota,
    /// The server will never accept this request.
    Invalid,
    /// The conversation is longer than the model's window.
    ContextOverflow,
    /// The request was cancelled from here.
    Cancelled,
}

/// Why herder could not go on with a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Breakage {
    /// The run's actor died and may not be restarted.
    Panic,
    /// The run's actor died too often.
    RestartLimit,
    /// The log did not take an event.
    Store,
    /// The run did not end when it was told to.
    Stuck,
    /// Its workspace or its model is not to be had any more.
    Setup,
}

macro_rules! names {
    ($type:ident { $($variant:ident => $name:literal),+ $(,)? }) => {
        impl $type {
            /// Every value, in order.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The public name: in logs, results, metrics and flags.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),+
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

names!(Stop { ToolCalls => "tool_calls", EndTurn => "end_turn", Length => "length", Refusal => "refusal", Error => "error" });
names!(Limit {
    Turns => "turns", ToolCalls => "tool_calls", InputTokens => "input_tokens", OutputTokens => "output_tokens",
    TotalTokens => "total_tokens", Cost => "cost", WallTime => "wall_time", ActiveTime => "active_time",
});
names!(Block {
    Truncated => "truncated", Refusal => "refusal", Policy => "policy", Approval => "approval",
    ToolError => "tool_error", Format => "format",
});
names!(FaultClass {
    RateLimit => "rate_limit", Overloaded => "overloaded", Transient => "transient", Timeout => "timeout",
    Stall => "stall", Auth => "auth", Quota => "quota", Invalid => "invalid",
    ContextOverflow => "context_overflow", Cancelled => "cancelled",
});
names!(Breakage { Panic => "panic", RestartLimit => "restart_limit", Store => "store", Stuck => "stuck", Setup => "setup" });

impl Outcome {
    /// The names of all outcomes, as results and metrics show them.
    pub const NAMES: &[&str] = &["done", "budget", "cancelled", "blocked", "provider_error", "failed"];

    /// The outcome's public name, without its detail.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Budget(_) => "budget",
            Self::Cancelled => "cancelled",
            Self::Blocked(_) => "blocked",
            Self::ProviderError(_) => "provider_error",
            Self::Failed(_) => "failed",
        }
    }

    /// The detail's public name, where the outcome has one.
    pub const fn detail(self) -> Option<&'static str> {
        match self {
            Self::Done | Self::Cancelled => None,
            Self::Budget(limit) => Some(limit.as_str()),
            Self::Blocked(block) => Some(block.as_str()),
            Self::ProviderError(class) => Some(class.as_str()),
            Self::Failed(breakage) => Some(breakage.as_str()),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())?;
        self.detail().map_or(Ok(()), |detail| write!(f, ": {detail}"))
    }
}
