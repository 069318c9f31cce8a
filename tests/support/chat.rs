//! Chat Completions as the strictest of servers sees it, and answers that are correct.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Value, json};

use super::server::{Answer, Rules};

const FIELDS: &[&str] = &[
    "model",
    "messages",
    "tools",
    "tool_choice",
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "top_p",
    "seed",
    "reasoning_effort",
    "response_format",
    "stream",
    "stream_options",
];

/// Checks a request as a server does that accepts nothing doubtful.
pub(crate) fn check(request: &Value, rules: &Rules) -> Result<(), String> {
    only(request, FIELDS)?;
    if request["model"].as_str().is_none_or(str::is_empty) {
        return Err("model: missing".to_owned());
    }
    tools(request)?;
    let messages = request["messages"].as_array().filter(|list| !list.is_empty()).ok_or("messages: none")?;
    let mut used = HashSet::new();
    let mut open: Vec<&str> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let wrong = |what: &str| format!("messages[{at}]: {what}");
        let role = message["role"].as_str().unwrap_or_default();
        if role == "tool" {
            only(message, &["role", "tool_call_id", "content"]).map_err(|what| wrong(&what))?;
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            let asked =
                open.iter().position(|open| *open == id).ok_or_else(|| wrong("answers no open call"))?;
            open.remove(asked);
            says(message).map_err(wrong)?;
            continue;
        }
        if !open.is_empty() {
            return Err(wrong("comes before every call is answered"));
        }
        match role {
            "system" if at > 0 && messages[at - 1]["role"] != "system" => {
                return Err(wrong("late system message"));
            }
            "system" | "user" => {
                only(message, &["role", "content"]).map_err(|what| wrong(&what))?;
                says(message).map_err(wrong)?;
            }
            "assistant" => {
                let reasoning: &[&str] =
                    if rules.reasoning { &["reasoning", "reasoning_content"] } else { &[] };
                only(message, &[&["role", "content", "tool_calls"], reasoning].concat())
                    .map_err(|what| wrong(&what))?;
                let calls =
                    message.get("tool_calls").map(|calls| calls.as_array().filter(|list| !list.is_empty()));
                let calls = calls
                    .map(|calls| calls.ok_or_else(|| wrong("tool_calls: not a list of calls")))
                    .transpose()?;
                if calls.is_none() || !message["content"].is_null() {
                    says(message).map_err(wrong)?;
                }
                for call in calls.into_iter().flatten() {
                    let id = call_id(call).map_err(|what| wrong(&what))?;
                    if !used.insert(id) {
                        return Err(wrong(&format!("call id {id} was used before")));
                    }
                    open.push(id);
                }
            }
            _ => return Err(wrong("unknown role")),
        }
    }
    if open.is_empty() { Ok(()) } else { Err("messages: the last calls are not answered".to_owned()) }
}

fn tools(request: &Value) -> Result<(), String> {
    let Some(tools) = request.get("tools") else {
        return if request.get("tool_choice").is_some() {
            Err("tool_choice without tools".to_owned())
        } else {
            Ok(())
        };
    };
    let tools = tools.as_array().filter(|tools| !tools.is_empty()).ok_or("tools: not a list of tools")?;
    let mut names = HashSet::new();
    for tool in tools {
        let name = tool["function"]["name"].as_str().unwrap_or_default();
        let fits =
            tool["type"] == "function" && is_name(name) && tool["function"]["parameters"]["type"] == "object";
        if !fits || !names.insert(name) {
            return Err(format!("tools: {name:?} is wrong or there twice"));
        }
    }
    Ok(())
}

fn call_id(call: &Value) -> Result<&str, String> {
    only(call, &["id", "type", "function"])?;
    only(&call["function"], &["name", "arguments"])?;
    let arguments = call["function"]["arguments"].as_str().ok_or("arguments: not a string")?;
    let arguments: Value = serde_json::from_str(arguments).map_err(|error| format!("arguments: {error}"))?;
    let named = call["type"] == "function" && call["function"]["name"].as_str().is_some_and(is_name);
    match call["id"].as_str() {
        Some(id) if (1..=40).contains(&id.len()) && named && arguments.is_object() => Ok(id),
        _ => Err(format!("not a call: {call}")),
    }
}

fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

fn says(message: &Value) -> Result<(), &'static str> {
    let text = message["content"].as_str().ok_or("content: not a text")?;
    if text.trim().is_empty() { Err("content: blank") } else { Ok(()) }
}

fn only(value: &Value, known: &[&str]) -> Result<(), String> {
    let fields = value.as_object().ok_or("not an object")?;
    fields
        .keys()
        .find(|key| !known.contains(&key.as_str()))
        .map_or(Ok(()), |key| Err(format!("unknown field {key}")))
}

/// One event of a stream.
pub(crate) fn chunk(delta: &Value, finish: Option<&str>) -> Value {
    json!({
        "id": "cmpl-1",
        "object": "chat.completion.chunk",
        "model": "fake-1",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    })
}

/// The usage event that ends a stream.
pub(crate) fn usage(input: u64, output: u64) -> Value {
    let usage = json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output});
    json!({"id": "cmpl-1", "choices": [], "usage": usage})
}

/// An answer in words.
pub(crate) fn text(words: &str) -> Answer {
    let spoken = words.split_inclusive(' ').map(|word| chunk(&json!({"content": word}), None));
    let end = [chunk(&json!({}), Some("stop")), usage(10, 5)];
    Answer::Stream(spoken.chain(end).collect())
}

/// An answer that asks for calls: id, tool, arguments.
pub(crate) fn calls(calls: &[(String, String, Value)]) -> Answer {
    let asked = calls.iter().enumerate().flat_map(|(index, (id, name, arguments))| {
        let head = json!({"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}});
        let tail = json!({"index": index, "function": {"arguments": arguments.to_string()}});
        [head, tail].map(|piece| chunk(&json!({"tool_calls": [piece]}), None))
    });
    let end = [chunk(&json!({}), Some("tool_calls")), usage(10, 5)];
    Answer::Stream(asked.chain(end).collect())
}

/// A model that follows plans: one for each task, found by the task's marker in the first user message that has one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Brain {
    plans: BTreeMap<String, Plan>,
}

/// What the model does about one task.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    /// The calls of each turn: tool and arguments.
    pub(crate) turns: Vec<Vec<(String, Value)>>,
    /// What it says at last.
    pub(crate) text: String,
}

impl Brain {
    /// What a task's text must hold for its plan to be followed.
    pub(crate) fn marker(task: &str) -> String {
        format!("[task:{task}]")
    }

    /// Adds a plan.
    pub(crate) fn plan(mut self, task: &str, plan: Plan) -> Self {
        self.plans.insert(task.to_owned(), plan);
        self
    }

    /// Answers a request by its plan: the turn is the number of answers that the conversation holds.
    pub(crate) fn answer(&self, request: &Value) -> Answer {
        let messages = request["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
        let said = |message: &Value| message["content"].as_str().unwrap_or_default().to_owned();
        let task = messages.iter().filter(|message| message["role"] == "user").find_map(|message| {
            let (_, rest) = said(message).split_once("[task:").map(|(a, b)| (a.to_owned(), b.to_owned()))?;
            rest.split_once(']').map(|(task, _)| task.to_owned())
        });
        let Some((task, plan)) = task.and_then(|task| self.plans.get_key_value(&task)) else {
            return Answer::Status {
                status: 400,
                headers: Vec::new(),
                body: "no plan for this task".to_owned(),
            };
        };
        let turn = messages.iter().filter(|message| message["role"] == "assistant").count();
        match plan.turns.get(turn) {
            Some(asked) => {
                let named = asked.iter().enumerate();
                let list: Vec<_> = named
                    .map(|(at, (tool, arguments))| {
                        (format!("{task}_{turn}_{at}"), tool.clone(), arguments.clone())
                    })
                    .collect();
                calls(&list)
            }
            None => text(&plan.text),
        }
    }
}
