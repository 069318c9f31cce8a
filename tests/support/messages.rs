//! Messages as the strictest of servers sees it, and answers that are correct.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::server::Answer;

const FIELDS: &[&str] = &[
    "model",
    "max_tokens",
    "messages",
    "system",
    "tools",
    "tool_choice",
    "thinking",
    "output_config",
    "temperature",
    "top_p",
    "stream",
];

/// Marks of what is to be cached that one request may carry.
const MARKS: usize = 4;

/// Checks a request as a server does that accepts nothing doubtful.
pub(crate) fn check(request: &Value) -> Result<(), String> {
    only(request, FIELDS)?;
    if request["model"].as_str().is_none_or(str::is_empty) {
        return Err("model: missing".to_owned());
    }
    if request["max_tokens"].as_u64().is_none_or(|limit| limit == 0) {
        return Err("max_tokens: missing".to_owned());
    }
    let mut marks = tools(request)?;
    for block in list(request, "system")? {
        marks += text(block).map_err(|what| format!("system: {what}"))?;
    }
    let messages = list(request, "messages")?;
    if messages.is_empty() {
        return Err("messages: none".to_owned());
    }
    marks += conversation(messages)?;
    if marks > MARKS {
        return Err(format!("cache_control: {marks} marks"));
    }
    thinking(request, messages)
}

fn tools(request: &Value) -> Result<usize, String> {
    let tools = list(request, "tools")?;
    let mut names = HashSet::new();
    let mut marks = 0;
    for tool in tools {
        only(tool, &["name", "description", "input_schema", "cache_control"])?;
        let name = tool["name"].as_str().unwrap_or_default();
        if !is_name(name) || tool["input_schema"]["type"] != "object" || !names.insert(name) {
            return Err(format!("tools: {name:?} is wrong or there twice"));
        }
        marks += mark(tool)?;
    }
    let choice = &request["tool_choice"];
    let known = match choice["type"].as_str() {
        Some("auto" | "any" | "none") => true,
        Some("tool") => choice["name"].as_str().is_some_and(|name| names.contains(name)),
        _ => choice.is_null(),
    };
    if !known || tools.is_empty() && !choice.is_null() {
        return Err(format!("tool_choice: {choice}"));
    }
    Ok(marks)
}

/// Roles in turn, and every call answered at once.
fn conversation(messages: &[Value]) -> Result<usize, String> {
    let mut used = HashSet::new();
    let mut open: Vec<&str> = Vec::new();
    let mut marks = 0;
    for (at, message) in messages.iter().enumerate() {
        let wrong = |what: &str| format!("messages.{at}: {what}");
        only(message, &["role", "content"]).map_err(|what| wrong(&what))?;
        let role = if at.is_multiple_of(2) { "user" } else { "assistant" };
        if message["role"] != role {
            return Err(wrong(&format!("not of the {role}")));
        }
        let blocks = list(message, "content")?;
        if blocks.is_empty() {
            return Err(wrong("empty"));
        }
        let mut talks = false;
        for block in blocks {
            let kind = block["type"].as_str().unwrap_or_default();
            match (role, kind) {
                (_, "text") => {
                    marks += text(block).map_err(|what| wrong(&what))?;
                    talks = true;
                }
                ("user", "tool_result") if !talks => {
                    marks += result(block, &mut open).map_err(|what| wrong(&what))?;
                }
                ("assistant", "thinking" | "redacted_thinking") => {
                    thought(block).map_err(|what| wrong(&what))?;
                }
                ("assistant", "tool_use") => {
                    let id = call(block).map_err(|what| wrong(&what))?;
                    if !used.insert(id) {
                        return Err(wrong(&format!("tool_use ids must be unique: {id}")));
                    }
                    open.push(id);
                }
                _ => return Err(wrong(&format!("no place for {kind:?}"))),
            }
        }
        if role == "user" && !open.is_empty() {
            return Err(wrong("tool_use ids without tool_result blocks immediately after"));
        }
        if role == "assistant" && thinks_last(blocks) {
            return Err(wrong("the final block in an assistant message cannot be thinking"));
        }
        let last = blocks.last().and_then(|block| block["text"].as_str()).unwrap_or_default();
        if role == "assistant" && at + 1 == messages.len() && last != last.trim_end() {
            return Err(wrong("final assistant content cannot end with trailing whitespace"));
        }
    }
    if open.is_empty() { Ok(marks) } else { Err("messages: the last calls are not answered".to_owned()) }
}

fn thinks_last(blocks: &[Value]) -> bool {
    let last = blocks.last().and_then(|block| block["type"].as_str());
    last.is_some_and(|kind| kind.ends_with("thinking"))
}

/// The rules of thinking: its room, what it forbids, and that a turn which it is to go on with began with it.
fn thinking(request: &Value, messages: &[Value]) -> Result<(), String> {
    let thinking = &request["thinking"];
    if thinking.is_null() {
        return Ok(());
    }
    let adaptive = *thinking == json!({"type": "adaptive"});
    if !adaptive {
        only(thinking, &["type", "budget_tokens"])?;
        let budget = thinking["budget_tokens"].as_u64().filter(|budget| *budget >= 1024);
        if thinking["type"] != "enabled" || budget.is_none() || budget >= request["max_tokens"].as_u64() {
            return Err(format!("thinking: {thinking}"));
        }
    }
    if !request["temperature"].is_null() || !request["top_p"].is_null() {
        return Err("thinking: not with temperature or top_p".to_owned());
    }
    if matches!(request["tool_choice"]["type"].as_str(), Some("any" | "tool")) {
        return Err("thinking: not with a forced call".to_owned());
    }
    if adaptive {
        return Ok(());
    }
    let kind = |message: &Value| message["content"][0]["type"].as_str().unwrap_or_default().to_owned();
    let asked = messages.iter().rposition(|message| message["role"] == "user" && kind(message) == "text");
    let begun = asked.and_then(|at| messages.get(at + 1)).map(kind);
    if begun.is_some_and(|kind| !kind.ends_with("thinking")) || messages.len().is_multiple_of(2) {
        return Err("thinking: the last turn must begin with a thinking block".to_owned());
    }
    Ok(())
}

fn text(block: &Value) -> Result<usize, String> {
    only(block, &["type", "text", "cache_control"])?;
    let blank = block["text"].as_str().is_none_or(|text| text.trim().is_empty());
    if block["type"] != "text" || blank {
        return Err("text content blocks must contain non-whitespace text".to_owned());
    }
    mark(block)
}

fn result(block: &Value, open: &mut Vec<&str>) -> Result<usize, String> {
    only(block, &["type", "tool_use_id", "content", "is_error", "cache_control"])?;
    let id = block["tool_use_id"].as_str().unwrap_or_default();
    let asked = open.iter().position(|open| *open == id).ok_or_else(|| format!("{id} answers no call"))?;
    open.remove(asked);
    if block["content"].as_str().is_none_or(|text| text.trim().is_empty()) {
        return Err("tool_result: blank".to_owned());
    }
    if !(block["is_error"].is_null() || block["is_error"].is_boolean()) {
        return Err("is_error: not true or false".to_owned());
    }
    mark(block)
}

fn thought(block: &Value) -> Result<(), String> {
    let own = if block["type"] == "thinking" {
        only(block, &["type", "thinking", "signature"])?;
        block["thinking"].as_str().is_some_and(|thought| block["signature"] == signature(thought))
    } else {
        only(block, &["type", "data"])?;
        block["data"] == REDACTED
    };
    if own { Ok(()) } else { Err(format!("thinking blocks cannot be modified: {block}")) }
}

fn call(block: &Value) -> Result<&str, String> {
    only(block, &["type", "id", "name", "input"])?;
    let named = block["name"].as_str().is_some_and(is_name);
    match block["id"].as_str() {
        Some(id) if is_name(id) && named && block["input"].is_object() => Ok(id),
        _ => Err(format!("not a call: {block}")),
    }
}

fn mark(block: &Value) -> Result<usize, String> {
    match block.get("cache_control") {
        None => Ok(0),
        Some(mark) if *mark == json!({"type": "ephemeral"}) => Ok(1),
        Some(mark) => Err(format!("cache_control: {mark}")),
    }
}

fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

/// A field that is a list, if it is there.
fn list<'a>(value: &'a Value, field: &str) -> Result<&'a [Value], String> {
    match value.get(field) {
        None => Ok(&[]),
        Some(Value::Array(list)) if !list.is_empty() => Ok(list),
        Some(other) => Err(format!("{field}: {other}")),
    }
}

fn only(value: &Value, known: &[&str]) -> Result<(), String> {
    let fields = value.as_object().ok_or("not an object")?;
    let unknown = fields.keys().find(|key| !known.contains(&key.as_str()));
    unknown.map_or(Ok(()), |key| Err(format!("{key}: extra inputs are not permitted")))
}

/// What the server signs a thought with; any other signature is a forgery.
pub(crate) fn signature(thought: &str) -> String {
    format!("signed:{thought}")
}

const REDACTED: &str = "sealed";

/// A thought, as the server wants it back.
pub(crate) fn thinks(thought: &str) -> Value {
    json!({"type": "thinking", "thinking": thought, "signature": signature(thought)})
}

/// A thought that nobody may read.
pub(crate) fn redacted() -> Value {
    json!({"type": "redacted_thinking", "data": REDACTED})
}

/// A block of words.
pub(crate) fn words(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// A block that asks for a call.
pub(crate) fn uses(id: &str, name: &str, input: &Value) -> Value {
    json!({"type": "tool_use", "id": id, "name": name, "input": input})
}

/// An answer of these blocks.
pub(crate) fn answer(blocks: &[Value], stop_reason: &str) -> Answer {
    Answer::Stream(events(blocks, stop_reason))
}

/// The events of an answer of these blocks.
pub(crate) fn events(blocks: &[Value], stop_reason: &str) -> Vec<Value> {
    let usage = json!({"input_tokens": 10, "output_tokens": 1});
    let mut events = vec![
        json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "usage": usage}}),
        json!({"type": "ping"}),
    ];
    for (index, block) in blocks.iter().enumerate() {
        let mut begun = block.clone();
        let text = |field: &str| block[field].as_str().unwrap_or_default().to_owned();
        let deltas = match block["type"].as_str() {
            Some("text") => {
                begun["text"] = "".into();
                vec![json!({"type": "text_delta", "text": text("text")})]
            }
            Some("thinking") => {
                (begun["thinking"], begun["signature"]) = ("".into(), "".into());
                vec![
                    json!({"type": "thinking_delta", "thinking": text("thinking")}),
                    json!({"type": "signature_delta", "signature": text("signature")}),
                ]
            }
            Some("tool_use") => {
                begun["input"] = json!({});
                let input = block["input"].to_string();
                let (head, tail) = input.split_at(1);
                ["", head, tail]
                    .map(|json| json!({"type": "input_json_delta", "partial_json": json}))
                    .to_vec()
            }
            _ => Vec::new(),
        };
        events.push(json!({"type": "content_block_start", "index": index, "content_block": begun}));
        let deltas = deltas.into_iter();
        events.extend(
            deltas.map(|delta| json!({"type": "content_block_delta", "index": index, "delta": delta})),
        );
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    events.push(json!({"type": "message_delta", "delta": {"stop_reason": stop_reason, "stop_sequence": null}, "usage": {"output_tokens": 5}}));
    events.push(json!({"type": "message_stop"}));
    events
}

/// Events as they go over the wire.
pub(crate) fn framed(events: &[Value]) -> String {
    let name = |event: &Value| event["type"].as_str().unwrap_or_default().to_owned();
    events.iter().map(|event| format!("event: {}\ndata: {event}\n\n", name(event))).collect()
}
