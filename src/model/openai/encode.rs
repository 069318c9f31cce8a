//! A request as Chat Completions wants it, written straight from the conversation's own text.
//!
//! Arguments go out as a string that holds the object's text; reasoning only with calls, and only where the profile
//! asks for it; no message is empty, and no id that came from elsewhere one that the server
//! would refuse.

use std::borrow::Cow;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::{CallIds, Profile, SendReasoning, TokenLimit};
use crate::{
    domain::{
        call::ToolCall,
        id::CallId,
        message::{Message, Reply},
    },
    model::{
        Request, ToolSpec,
        body::{self, Fields, NO_OUTPUT, fitting_id, is_blank, short_id},
    },
};

/// Bytes that the strictest of servers takes for the id of a call.
const LONGEST_ID: usize = 40;

/// Encodes a request's body.
pub(super) fn body(
    request: &Request,
    profile: Profile,
    extra: &Map<String, Value>,
) -> Result<Vec<u8>, serde_json::Error> {
    let mut bytes = Vec::with_capacity(4096);
    serde_json::to_writer(&mut bytes, &Body { request, profile, extra })?;
    Ok(bytes)
}

struct Body<'a> {
    request: &'a Request,
    profile: Profile,
    extra: &'a Map<String, Value>,
}

impl Serialize for Body<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { request, profile, extra } = *self;
        let params = &request.params;
        let mut fields = Fields { map: serializer.serialize_map(None)?, extra };
        fields.put("model", Some(&request.model))?;
        fields.put("messages", Some(Messages { request, profile }))?;
        if !request.tools.is_empty() {
            fields.put("tools", Some(Tools(&request.tools)))?;
            fields.put("tool_choice", params.tool_choice.as_ref().map(ToolChoice))?;
        }
        let limit = match profile.token_limit {
            TokenLimit::MaxTokens => "max_tokens",
            TokenLimit::MaxCompletionTokens => "max_completion_tokens",
        };
        fields.put(limit, params.max_tokens)?;
        fields.put("temperature", params.temperature)?;
        fields.put("top_p", params.top_p)?;
        fields.put("seed", params.seed)?;
        fields.put("reasoning_effort", params.reasoning_effort.as_ref())?;
        fields.put("response_format", request.response_format.as_ref())?;
        fields.put("stream", Some(true))?;
        fields.put("stream_options", Some(StreamOptions { include_usage: true }))?;
        fields.end()
    }
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

struct Messages<'a> {
    request: &'a Request,
    profile: Profile,
}

impl Serialize for Messages<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { request, profile } = *self;
        let mut ids = Ids { own: None, taken: profile.call_ids };
        serializer.collect_seq(request.messages.iter().map(|message| {
            if let Message::Assistant(reply) = message {
                ids.own = is_by(reply, &request.model).then_some(&**reply);
            }
            WireMessage::new(message, ids, profile)
        }))
    }
}

fn is_by(reply: &Reply, model: &str) -> bool {
    reply.request.as_ref().is_some_and(|request| *request.model == *model)
}

/// The ids of an answer's calls.
#[derive(Clone, Copy, Debug)]
struct Ids<'a> {
    /// The answer, if it is the asked model's own. Its ids may hold more than a name: they go back as they came.
    own: Option<&'a Reply>,
    /// Which ids of others the server takes.
    taken: CallIds,
}

impl Ids<'_> {
    fn fitting<'i>(&self, id: &'i CallId) -> Cow<'i, str> {
        let is_long = id.as_str().len() > LONGEST_ID;
        match (self.taken, self.own) {
            (CallIds::Short, _) => short_id(id.as_str()),
            (CallIds::Usual, Some(own)) if !(is_long && is_renamed(own, id)) => Cow::Borrowed(id.as_str()),
            (CallIds::Usual, _) => fitting_id(id.as_str(), fits),
        }
    }
}

/// Whether the id is not the one that the server gave.
fn is_renamed(reply: &Reply, id: &CallId) -> bool {
    reply.calls.iter().any(|call| call.id == *id && call.provider_id.is_some())
}

fn fits(id: &str) -> bool {
    (1..=LONGEST_ID).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum WireMessage<'a> {
    System {
        content: &'a str,
    },
    User {
        content: &'a str,
    },
    Assistant {
        /// Null beside calls; a message without either is invalid and never gets here.
        content: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reasoning_content: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reasoning: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        tool_calls: Option<Calls<'a>>,
    },
    Tool {
        tool_call_id: Cow<'a, str>,
        content: &'a str,
    },
}

impl<'a> WireMessage<'a> {
    fn new(message: &'a Message, ids: Ids<'a>, profile: Profile) -> Self {
        match message {
            Message::System(content) => Self::System { content },
            Message::User(content) => Self::User { content },
            Message::Assistant(reply) => Self::assistant(reply, ids, profile),
            Message::Tool(result) => Self::Tool {
                tool_call_id: ids.fitting(&result.call),
                content: Some(&*result.output).filter(|text| !is_blank(text)).unwrap_or(NO_OUTPUT),
            },
        }
    }

    fn assistant(reply: &'a Reply, ids: Ids<'a>, profile: Profile) -> Self {
        let calls = Some(&*reply.calls).filter(|calls| !calls.is_empty());
        let thought = reply.reasoning.as_deref().filter(|_| calls.is_some());
        let (reasoning_content, reasoning) = match profile.reasoning {
            SendReasoning::Never => (None, None),
            SendReasoning::AsReasoningContent => (thought, None),
            SendReasoning::AsReasoning => (None, thought),
        };
        Self::Assistant {
            content: Some(&*reply.text).filter(|text| !is_blank(text)),
            reasoning_content,
            reasoning,
            tool_calls: calls.map(|calls| Calls { calls, ids }),
        }
    }
}

struct Calls<'a> {
    calls: &'a [ToolCall],
    ids: Ids<'a>,
}

impl Serialize for Calls<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.calls.iter().map(|call| WireCall {
            id: self.ids.fitting(&call.id),
            kind: "function",
            function: WireFunction { name: &call.name, arguments: call.arguments.as_str() },
        }))
    }
}

#[derive(Serialize)]
struct WireCall<'a> {
    id: Cow<'a, str>,
    #[serde(rename = "type")]
    kind: &'static str,
    function: WireFunction<'a>,
}

#[derive(Serialize)]
struct WireFunction<'a> {
    name: &'a str,
    arguments: &'a str,
}

/// The choice of tools, in the words of Chat Completions.
struct ToolChoice<'a>(&'a Value);

impl Serialize for ToolChoice<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match body::ToolChoice::new(self.0) {
            body::ToolChoice::Auto => "auto".serialize(serializer),
            body::ToolChoice::None => "none".serialize(serializer),
            body::ToolChoice::Required => "required".serialize(serializer),
            body::ToolChoice::Tool(name) => {
                Forced { kind: "function", function: Named { name } }.serialize(serializer)
            }
            body::ToolChoice::Other(said) => said.serialize(serializer),
        }
    }
}

#[derive(Serialize)]
struct Forced<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    function: Named<'a>,
}

#[derive(Serialize)]
struct Named<'a> {
    name: &'a str,
}

struct Tools<'a>(&'a [ToolSpec]);

impl Serialize for Tools<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|tool| WireTool {
            kind: "function",
            function: WireToolFunction {
                name: &tool.name,
                description: &tool.description,
                parameters: &tool.schema,
            },
        }))
    }
}

#[derive(Serialize)]
struct WireTool<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    function: WireToolFunction<'a>,
}

#[derive(Serialize)]
struct WireToolFunction<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
}

#[cfg(test)]
mod tests;
