//! Responses as the strictest of servers sees it.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

const FIELDS: &[&str] = &[
    "model",
    "instructions",
    "input",
    "tools",
    "tool_choice",
    "max_output_tokens",
    "temperature",
    "top_p",
    "reasoning",
    "text",
    "store",
    "include",
    "stream",
];

/// Checks a request as a server does that accepts nothing doubtful.
pub(crate) fn check(request: &Value) -> Result<(), String> {
    only(request, FIELDS)?;
    if request["model"].as_str().is_none_or(str::is_empty) {
        return Err("model: missing".to_owned());
    }
    if request["stream"] != true || request["store"] != false {
        return Err("stored, or not streamed".to_owned());
    }
    if request.get("instructions").is_some() {
        says(&request["instructions"])?;
    }
    tools(request)?;
    let input = request["input"].as_array().filter(|list| !list.is_empty()).ok_or("input: nothing")?;
    let mut seen = Seen::default();
    for (at, item) in input.iter().enumerate() {
        seen.item(item, input.get(at + 1)).map_err(|what| format!("input[{at}]: {what}"))?;
    }
    match seen.calls.iter().find(|(_, answered)| !**answered) {
        Some((id, _)) => Err(format!("input: no output for call {id}")),
        None => Ok(()),
    }
}

/// What came so far.
#[derive(Default)]
struct Seen<'a> {
    /// Calls, and whether each is answered.
    calls: HashMap<&'a str, bool>,
}

impl<'a> Seen<'a> {
    fn item(&mut self, item: &'a Value, next: Option<&Value>) -> Result<(), String> {
        match item["type"].as_str().unwrap_or_default() {
            "message" => {
                only(item, &["type", "role", "content"])?;
                if !["user", "assistant"].contains(&item["role"].as_str().unwrap_or_default()) {
                    return Err("unknown role".to_owned());
                }
                if item["role"] == "user" && self.calls.values().any(|answered| !answered) {
                    return Err("comes before every call is answered".to_owned());
                }
                says(&item["content"])
            }
            "function_call" => {
                only(item, &["type", "call_id", "name", "arguments"])?;
                let arguments = item["arguments"].as_str().ok_or("arguments: not a string")?;
                let arguments: Value =
                    serde_json::from_str(arguments).map_err(|error| format!("arguments: {error}"))?;
                if !arguments.is_object() || !item["name"].as_str().is_some_and(is_name) {
                    return Err("not a call".to_owned());
                }
                match self.calls.insert(call_id(item)?, false) {
                    Some(_) => Err("call_id was used before".to_owned()),
                    None => Ok(()),
                }
            }
            "function_call_output" => {
                only(item, &["type", "call_id", "output"])?;
                let answered = self.calls.get_mut(call_id(item)?).ok_or("answers no call")?;
                if std::mem::replace(answered, true) {
                    return Err("the call is answered".to_owned());
                }
                says(&item["output"])
            }
            "reasoning" => {
                if item["encrypted_content"].as_str().is_none_or(str::is_empty) {
                    return Err("holds nothing to go on from".to_owned());
                }
                let follows = next.is_some_and(|next| {
                    next["type"] == "function_call"
                        || next["type"] == "reasoning"
                        || (next["type"] == "message" && next["role"] == "assistant")
                });
                if follows { Ok(()) } else { Err("comes without the item that follows it".to_owned()) }
            }
            other => Err(format!("unknown type {other:?}")),
        }
    }
}

fn call_id(item: &Value) -> Result<&str, String> {
    let id = item["call_id"].as_str().unwrap_or_default();
    if (1..=64).contains(&id.len()) { Ok(id) } else { Err(format!("call_id: {id:?}")) }
}

fn tools(request: &Value) -> Result<(), String> {
    let Some(tools) = request.get("tools") else {
        return match request.get("tool_choice") {
            Some(_) => Err("tool_choice without tools".to_owned()),
            None => Ok(()),
        };
    };
    let tools = tools.as_array().filter(|tools| !tools.is_empty()).ok_or("tools: not a list of tools")?;
    let mut names = HashSet::new();
    for tool in tools {
        only(tool, &["type", "name", "description", "parameters", "strict"])?;
        let name = tool["name"].as_str().unwrap_or_default();
        let fits = tool["type"] == "function" && is_name(name) && tool["parameters"]["type"] == "object";
        if !fits || !names.insert(name) {
            return Err(format!("tools: {name:?} is wrong or there twice"));
        }
    }
    Ok(())
}

fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

fn says(text: &Value) -> Result<(), String> {
    match text.as_str() {
        Some(text) if !text.trim().is_empty() => Ok(()),
        Some(_) => Err("blank".to_owned()),
        None => Err("not a text".to_owned()),
    }
}

fn only(value: &Value, known: &[&str]) -> Result<(), String> {
    let fields = value.as_object().ok_or("not an object")?;
    match fields.keys().find(|key| !known.contains(&key.as_str())) {
        Some(key) => Err(format!("unknown field {key}")),
        None => Ok(()),
    }
}
