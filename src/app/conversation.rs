//! A conversation in the form of Chat Completions, as other programs read it.

use serde_json::{Value, json};

use crate::domain::{
    context::{Projection, project},
    message::Message,
    task::TaskSpec,
};

/// The messages of a run as a model with room for all of them is shown them: rules, facts, then all that was said.
pub fn shown(spec: &TaskSpec, history: &[Message]) -> Vec<Message> {
    let bytes = history.iter().map(Message::bytes).sum();
    let Projection { messages, .. } = project(spec, history, bytes, None);
    messages
}

/// The same in the form of Chat Completions.
pub fn chat_completions(spec: &TaskSpec, history: &[Message]) -> Vec<Value> {
    shown(spec, history).iter().map(message).collect()
}

fn message(message: &Message) -> Value {
    match message {
        Message::System(text) => json!({"role": "system", "content": text}),
        Message::User(text) => json!({"role": "user", "content": text}),
        Message::Tool(result) => {
            json!({"role": "tool", "tool_call_id": result.call.as_str(), "content": result.output})
        }
        Message::Assistant(reply) => {
            let content = if reply.text.is_empty() { Value::Null } else { json!(reply.text) };
            let mut value = json!({"role": "assistant", "content": content});
            if let Some(reasoning) = &reply.reasoning {
                value["reasoning_content"] = json!(reasoning);
            }
            if !reply.calls.is_empty() {
                let call = |call: &crate::domain::call::ToolCall| {
                    let function = json!({"name": call.name, "arguments": call.arguments.as_str()});
                    json!({"id": call.id.as_str(), "type": "function", "function": function})
                };
                value["tool_calls"] = reply.calls.iter().map(call).collect();
            }
            value
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::domain::call::ToolResult;

    #[test]
    fn rules_and_facts_come_first_and_calls_and_their_results_keep_their_ids() {
        let spec = r#"{"task": "t", "attempt": 1, "model": "m", "workspace": "/w", "system": "s",
            "facts": {"os": "linux"}}"#;
        let spec: TaskSpec = serde_json::from_str(spec).expect("a spec");
        let reply = r#"{"calls": [{"id": "c1", "name": "read", "arguments": {"path":"a"}}], "stop": "tool_calls",
            "usage": {"input": 1, "output": 1}}"#;
        let result: ToolResult =
            serde_json::from_str(r#"{"call": "c1", "ok": true, "output": "text"}"#).expect("a result");
        let history = [
            Message::User("t".into()),
            Message::Assistant(Arc::new(serde_json::from_str(reply).expect("a reply"))),
            Message::Tool(Arc::new(result)),
        ];
        assert_eq!(
            Value::from(chat_completions(&spec, &history)),
            json!([
                {"role": "system", "content": "s"},
                {"role": "system", "content": "Known facts:\n- os: linux"},
                {"role": "user", "content": "t"},
                {"role": "assistant", "content": null, "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{\"path\":\"a\"}"}}
                ]},
                {"role": "tool", "tool_call_id": "c1", "content": "text"},
            ])
        );
    }
}
