//! The facts of a model request that gave no answer, or none that will do.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::domain::{outcome::FaultClass, time::Timestamp, usage::Usage};

/// See [`super::Event::ModelRetry`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelRetry {
    /// Which request of the turn failed; the first is 1.
    pub attempt: u32,
    /// What kind of failure it was.
    pub class: FaultClass,
    /// What was said about it.
    pub error: String,
    /// When the next request goes out.
    pub not_before: Timestamp,
    /// Microseconds that the failed one waited for its place before it went out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub waited_us: u64,
    /// Bytes of the conversation that the model is shown at most from now on, since it was too long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown_at_most: Option<u64>,
    /// Tokens that the answer may have at most from now on, since there was no room for more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// What it may have used up all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub(super) const fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// See [`super::Event::RequestSent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestSent {
    /// Which request of the turn; the first is 1.
    pub attempt: u32,
    /// What it may use up at most.
    pub usage: Usage,
}

/// See [`super::Event::RequestLost`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestLost {
    /// What it may have used up at most.
    pub usage: Usage,
}

/// See [`super::Event::ModelSwitched`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelSwitched {
    /// The model that was asked so far.
    pub from: Arc<str>,
    /// The one that is asked from now on.
    pub to: Arc<str>,
    /// What kind of failure it was.
    pub class: FaultClass,
    /// What was said about it.
    pub error: String,
    /// What the failed request may have used up all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Microseconds that the failed request waited for its place before it went out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub waited_us: u64,
}

/// See [`super::Event::Correction`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Correction {
    /// What the model is told.
    pub text: Arc<str>,
}
