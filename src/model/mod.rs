//! Asking a model: one method, a stream of deltas back, and failures that say what kind they are.

pub mod anthropic;
mod body;
mod calls;
pub mod decode;
mod exchange;
mod fault;
pub mod governor;
pub mod http;
pub mod openai;
pub mod responses;
pub mod scripted;
mod secret;
pub(crate) mod sse;

use std::{sync::Arc, time::Duration};

use futures_util::stream::BoxStream;
use tokio_util::sync::CancellationToken;

mod registry;

pub use governor::RateLimits;
pub use registry::{Model, Models};

use crate::domain::{
    call::ToolSpec,
    json::RawJson,
    message::Message,
    outcome::{FaultClass, Stop},
    script::Script,
    task::{Params, ResponseFormat},
    usage::Usage,
};

pub use secret::Secret;

/// Answers requests. One provider serves every run of the process that uses its account.
pub trait ModelProvider: Send + Sync + 'static {
    /// Sends one request and streams the answer. [`Delta::Stop`] comes last; a stream that ends without it, or with
    /// an error, gave no answer. Soon after `cancel` fires, at any await, the stream ends with
    /// [`FaultClass::Cancelled`].
    fn stream(
        &self,
        request: Request,
        cancel: CancellationToken,
    ) -> BoxStream<'static, Result<Delta, ModelError>>;
}

/// One request, complete: nothing of it is kept at the provider.
#[derive(Clone, Debug)]
pub struct Request {
    /// The model's name as the server knows it.
    pub model: Arc<str>,
    /// The conversation; valid by [`crate::domain::message::validate`].
    pub messages: Vec<Message>,
    /// Tools on offer; empty: none.
    pub tools: Arc<[ToolSpec]>,
    /// How to sample.
    pub params: Params,
    /// The form that an answer without calls is to have.
    pub response_format: Option<ResponseFormat>,
    /// For the scripted model: what it says.
    pub script: Option<Script>,
    /// For the scripted model: which reply of the script is next; counts answers and failures of the run so far.
    pub reply: usize,
}

impl Request {
    /// A request that says this, without tools.
    pub fn new(model: Arc<str>, messages: Vec<Message>) -> Self {
        Self {
            model,
            messages,
            tools: Arc::new([]),
            params: Params::default(),
            response_format: None,
            script: None,
            reply: 0,
        }
    }
}

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Delta {
    /// The body that is about to be sent, by the SHA-256 of its bytes in hex.
    Sent(Arc<str>),
    /// What the head of the answer says of the account's limits. Comes before an error too.
    RateLimits(RateLimits),
    /// More text.
    Text(String),
    /// More of what it thinks aloud.
    Reasoning(String),
    /// A block that the server wants back with the calls of this answer, exactly as it is, or the place among such blocks
    /// of a text or a call.
    Keep(RawJson),
    /// The model is at work on something that is not whole yet: no silence, though nothing to show.
    Progress,
    /// One whole call, put together from however many pieces the server sent.
    Call(ProposedCall),
    /// What the request used up; a later one replaces an earlier.
    Usage(Usage),
    /// The end, and why.
    Stop(Stop),
}

/// A call as the server sent it, not yet judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProposedCall {
    /// The provider's id, if it gave one.
    pub id: Option<Arc<str>>,
    /// The tool's name.
    pub name: Arc<str>,
    /// The arguments' text: whatever came.
    pub arguments: String,
}

/// Why a request gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// What kind of failure it is.
    pub class: FaultClass,
    /// What was said about it, with the HTTP status if there was one; bounded.
    pub message: String,
    /// How long the server wants to be left alone.
    pub retry_after: Option<Duration>,
    /// The server turned the request away, or was never reached: nothing was used up.
    pub refused: bool,
    /// The key itself was turned away, and not only for what was asked with it.
    pub key_refused: bool,
}

impl ModelError {
    /// A failure without a wait.
    pub fn new(class: FaultClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), retry_after: None, refused: false, key_refused: false }
    }

    /// The request was cancelled from here.
    pub fn cancelled() -> Self {
        Self::new(FaultClass::Cancelled, "the request was cancelled")
    }
}
