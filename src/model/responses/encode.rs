//! A request as Responses wants it, written straight from the conversation's own text.
//!
//! Arguments go out as a string that holds the object's text. Kept reasoning goes out exactly as it came, only to the
//! model that it came from, and only right before what it led to. No text is empty. A seed is left out: there is none.

use std::borrow::Cow;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::items::Stub;
use crate::{
    domain::{
        call::{ToolCall, ToolSpec},
        id::CallId,
        json::RawJson,
        message::{Message, Reply},
        task::{AnswerSchema, ResponseFormat},
    },
    model::{
        Request,
        body::{self, Fields, NO_OUTPUT, fitting_id, is_blank, kind},
    },
};

/// Bytes that the id of a call may have.
const LONGEST_ID: usize = 64;

/// Encodes a request's body.
pub(super) fn body(request: &Request, extra: &Map<String, Value>) -> Result<Vec<u8>, serde_json::Error> {
    let mut bytes = Vec::with_capacity(4096);
    serde_json::to_writer(&mut bytes, &Body { request, extra })?;
    Ok(bytes)
}

struct Body<'a> {
    request: &'a Request,
    extra: &'a Map<String, Value>,
}

impl Serialize for Body<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { request, extra } = *self;
        let params = &request.params;
        let mut fields = Fields { map: serializer.serialize_map(None)?, extra };
        fields.put("model", Some(&request.model))?;
        fields.put("instructions", instructions(&request.messages))?;
        fields.put("input", Some(input(&request.messages, &request.model)))?;
        if !request.tools.is_empty() {
            fields.put("tools", Some(request.tools.iter().map(WireTool::new).collect::<Vec<_>>()))?;
            fields.put("tool_choice", params.tool_choice.as_ref().map(ToolChoice))?;
        }
        fields.put("max_output_tokens", params.max_tokens)?;
        fields.put("temperature", params.temperature)?;
        fields.put("top_p", params.top_p)?;
        let reasoning = params.reasoning_effort.as_deref().map(|effort| Reasoning { effort });
        fields.put("reasoning", reasoning)?;
        let text = request.response_format.as_ref().map(|format| Text { format: Format::new(format) });
        fields.put("text", text)?;
        fields.put("store", Some(false))?;
        fields.put("include", Some(["reasoning.encrypted_content"]))?;
        fields.put("stream", Some(true))?;
        fields.end()
    }
}

#[derive(Serialize)]
struct Reasoning<'a> {
    effort: &'a str,
}

#[derive(Serialize)]
struct Text<'a> {
    format: Format<'a>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Format<'a> {
    JsonObject,
    /// What Chat Completions nests lies flat here.
    JsonSchema(&'a AnswerSchema),
}

impl<'a> Format<'a> {
    const fn new(format: &'a ResponseFormat) -> Self {
        match format {
            ResponseFormat::JsonObject => Self::JsonObject,
            ResponseFormat::JsonSchema { json_schema } => Self::JsonSchema(json_schema),
        }
    }
}

/// All system messages as one text; they come first in every conversation.
fn instructions(messages: &[Message]) -> Option<String> {
    let system = messages.iter().filter_map(|message| match message {
        Message::System(text) => Some(&**text),
        Message::User(_) | Message::Assistant(_) | Message::Tool(_) => None,
    });
    Some(system.collect::<Vec<_>>().join("\n\n")).filter(|text| !text.is_empty())
}

#[derive(Serialize)]
#[serde(untagged)]
enum Input<'a> {
    Kept(&'a RawJson),
    Item(Item<'a>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Item<'a> {
    Message { role: &'static str, content: &'a str },
    FunctionCall { call_id: Cow<'a, str>, name: &'a str, arguments: &'a str },
    FunctionCallOutput { call_id: Cow<'a, str>, output: &'a str },
}

fn input<'a>(messages: &'a [Message], model: &str) -> Vec<Input<'a>> {
    let mut input = Vec::with_capacity(messages.len());
    for message in messages {
        match message {
            Message::System(_) => {}
            Message::User(content) => input.push(Input::Item(Item::Message { role: "user", content })),
            Message::Assistant(reply) => assistant(reply, model, &mut input),
            Message::Tool(result) => input.push(Input::Item(Item::FunctionCallOutput {
                call_id: call_id(&result.call),
                output: Some(&*result.output).filter(|text| !is_blank(text)).unwrap_or(NO_OUTPUT),
            })),
        }
    }
    input
}

/// The items of a reply, each piece of reasoning before the item that it came before.
fn assistant<'a>(reply: &'a Reply, model: &str, input: &mut Vec<Input<'a>>) {
    let mut text = Some(&*reply.text)
        .filter(|text| !is_blank(text))
        .map(|content| Item::Message { role: "assistant", content });
    let mut calls = reply.calls.iter().map(call);
    // Without calls nothing comes of it any more.
    let kept = reply.kept.as_ref().filter(|kept| *kept.model == *model && !reply.calls.is_empty());
    let mut waiting = Vec::new();
    for block in kept.iter().flat_map(|kept| &kept.blocks) {
        let kind = kind(block);
        let item = match kind.as_deref().and_then(Stub::named) {
            Some(Stub::Message) => text.take(),
            Some(Stub::FunctionCall) => calls.next(),
            None => {
                // Blocks of other protocols, whose server may call a model by the same name, mean nothing here.
                waiting.extend((kind.as_deref() == Some("reasoning")).then_some(Input::Kept(block)));
                continue;
            }
        };
        if let Some(item) = item {
            input.append(&mut waiting);
            input.push(Input::Item(item));
        }
    }
    let mut rest = text.into_iter().chain(calls).map(Input::Item).peekable();
    if rest.peek().is_some() {
        input.append(&mut waiting);
    }
    input.extend(rest);
}

fn call(call: &ToolCall) -> Item<'_> {
    Item::FunctionCall { call_id: call_id(&call.id), name: &call.name, arguments: call.arguments.as_str() }
}

fn call_id(id: &CallId) -> Cow<'_, str> {
    fitting_id(id.as_str(), |id| id.len() <= LONGEST_ID)
}

/// The choice of tools, in the words of Responses.
struct ToolChoice<'a>(&'a Value);

impl Serialize for ToolChoice<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match body::ToolChoice::new(self.0) {
            body::ToolChoice::Auto => "auto".serialize(serializer),
            body::ToolChoice::None => "none".serialize(serializer),
            body::ToolChoice::Required => "required".serialize(serializer),
            body::ToolChoice::Tool(name) => Forced { kind: "function", name }.serialize(serializer),
            body::ToolChoice::Other(said) => said.serialize(serializer),
        }
    }
}

#[derive(Serialize)]
struct Forced<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    name: &'a str,
}

#[derive(Serialize)]
struct WireTool<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
    /// Absent, it would be true, and no schema with an optional property be taken.
    strict: bool,
}

impl<'a> WireTool<'a> {
    fn new(tool: &'a ToolSpec) -> Self {
        Self {
            kind: "function",
            name: &tool.name,
            description: &tool.description,
            parameters: &tool.schema,
            strict: false,
        }
    }
}
