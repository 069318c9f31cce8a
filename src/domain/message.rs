//! The conversation: what was said, by whom, in a vocabulary that is closed.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    call::{ToolCall, ToolResult},
    json::RawJson,
    outcome::Stop,
    usage::Usage,
};

mod validate;

pub use validate::{Invalid, validate};

/// One entry of a conversation. Payloads are shared, so a conversation is cheap to hand on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// Rules for the model.
    System(Arc<str>),
    /// What a person, or the task, says.
    User(Arc<str>),
    /// What the model said, and the calls it asks for.
    Assistant(Arc<Reply>),
    /// What came of one call.
    Tool(Arc<ToolResult>),
}

impl Message {
    /// Text bytes that the model is shown of it.
    pub fn bytes(&self) -> usize {
        match self {
            Self::System(text) | Self::User(text) => text.len(),
            Self::Assistant(reply) => reply.bytes(),
            Self::Tool(result) => result.output.len(),
        }
    }
}

/// One whole answer of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// What it said.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub text: Arc<str>,
    /// What it thought aloud; kept apart from the text, sent back only where a server needs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Arc<str>>,
    /// What its server wants back with it, exactly as it came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Kept>,
    /// What it wants done, in its order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ToolCall>,
    /// Why it stopped talking.
    pub stop: Stop,
    /// What the request used up, as the provider said or as estimated.
    pub usage: Usage,
    /// Microseconds from the request to the end of the answer.
    #[serde(default)]
    pub duration_us: u64,
    /// Microseconds that the request waited for its place before.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub waited_us: u64,
    /// What was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Arc<RequestRecord>>,
}

/// Signed or encrypted thoughts, which a server needs again with the calls that came of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The server's name of the model; to any other they mean nothing.
    pub model: Arc<str>,
    /// In their order. Each says by its type which protocol it is of; among them stand, as that protocol's codec wrote
    /// them, the places of texts and calls that the reply itself holds.
    pub blocks: Vec<RawJson>,
}

/// What was sent, in short: enough to tell whether two requests were the same, and what the model was shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestRecord {
    /// The model that was asked, by its name at the server.
    pub model: Arc<str>,
    /// SHA-256 of the body, in hex; absent where nothing was sent, as by the scripted model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Arc<str>>,
    /// Messages of the conversation that the model was shown.
    pub included: u64,
    /// Messages of it that were left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted: u64,
    /// Tokens that the answer might have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// SHA-256 of the tools on offer, in hex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Arc<str>>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Reply {
    /// An answer that says nothing and stopped for this reason.
    pub fn new(stop: Stop) -> Self {
        Self {
            text: "".into(),
            reasoning: None,
            kept: None,
            calls: Vec::new(),
            stop,
            usage: Usage::default(),
            duration_us: 0,
            waited_us: 0,
            request: None,
        }
    }

    /// Text bytes that the model is shown of it later.
    pub fn bytes(&self) -> usize {
        let calls = self.calls.iter().map(|call| call.name.len() + call.arguments.as_str().len());
        let kept = self.kept.iter().flat_map(|kept| &kept.blocks).map(|block| block.get().len());
        let reasoning = self.reasoning.as_ref().map_or(0, |text| text.len());
        self.text.len() + reasoning + kept.sum::<usize>() + calls.sum::<usize>()
    }
}
