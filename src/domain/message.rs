//! The conversation: what was said, by whom, in a vocabulary that is closed.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    call::{ToolCall, ToolResult},
    json::RawJson,
    outcome::Stop,
    usage::Usage,
};

/// One entry of a conversation. Payloads are shared, so a conversation is cheap to hand on.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// In their order.
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

/// Why a conversation is not one that a provider accepts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    #[error("message {at}: call {id} is answered by nothing before the next message")]
    Unanswered { at: usize, id: String },
    #[error("message {at}: the result for {id} answers no open call")]
    Orphan { at: usize, id: String },
    #[error("message {at}: call id {id} was used before")]
    DuplicateId { at: usize, id: String },
    #[error("message {at} is empty")]
    Empty { at: usize },
    #[error("message {at}: a system message after the conversation began")]
    LateSystem { at: usize },
}

/// Checks the rules that every provider has in common: each call answered once, right after the message that
/// asked; ids unique over the whole history; nothing empty.
///
/// # Errors
/// The first rule that is broken, and where.
pub fn validate(messages: &[Message]) -> Result<(), Invalid> {
    let mut used = std::collections::BTreeSet::new();
    let mut open: Vec<&str> = Vec::new();
    let mut begun = false;
    for (at, message) in messages.iter().enumerate() {
        if let Message::Tool(result) = message {
            let id = result.call.as_str();
            let Some(index) = open.iter().position(|asked| *asked == id) else {
                return Err(Invalid::Orphan { at, id: id.to_owned() });
            };
            open.swap_remove(index);
            continue;
        }
        if let Some(id) = open.first() {
            return Err(Invalid::Unanswered { at, id: (*id).to_owned() });
        }
        match message {
            Message::System(_) if begun => return Err(Invalid::LateSystem { at }),
            Message::System(text) | Message::User(text) if text.trim().is_empty() => {
                return Err(Invalid::Empty { at });
            }
            Message::System(_) => {}
            Message::User(_) | Message::Tool(_) => begun = true,
            Message::Assistant(reply) => {
                begun = true;
                if reply.text.trim().is_empty() && reply.calls.is_empty() {
                    return Err(Invalid::Empty { at });
                }
                for call in &reply.calls {
                    if !used.insert(call.id.as_str()) {
                        return Err(Invalid::DuplicateId { at, id: call.id.as_str().to_owned() });
                    }
                    open.push(call.id.as_str());
                }
            }
        }
    }
    open.first().map_or(Ok(()), |id| Err(Invalid::Unanswered { at: messages.len(), id: (*id).to_owned() }))
}
