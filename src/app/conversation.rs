//! The conversation of a run in the form of Chat Completions, rebuilt from its log.

use serde_json::{Value, json};

use crate::domain::{context, event::Envelope, id::RunId, message::Message, run::Run};

/// Everything that was said, the rules first.
pub fn of(run: RunId, log: &[Envelope]) -> Value {
    let run = Run::replay(run, log.iter().map(|envelope| &envelope.fact));
    let Some(spec) = run.spec() else { return Value::Array(Vec::new()) };
    let shown = context::project(spec, run.history(), run.history_bytes(), None);
    shown.messages.iter().map(message).collect()
}

fn message(message: &Message) -> Value {
    match message {
        Message::System(text) => json!({ "role": "system", "content": text }),
        Message::User(text) => json!({ "role": "user", "content": text }),
        Message::Tool(result) => {
            json!({ "role": "tool", "tool_call_id": result.call, "content": result.output })
        }
        Message::Assistant(reply) => {
            let calls: Vec<Value> = reply
                .calls
                .iter()
                .map(|call| {
                    let function = json!({ "name": call.name, "arguments": call.arguments.as_str() });
                    json!({ "id": call.id, "type": "function", "function": function })
                })
                .collect();
            let mut message = json!({ "role": "assistant", "content": reply.text });
            if let Some(reasoning) = &reply.reasoning {
                message["reasoning_content"] = json!(reasoning);
            }
            if !calls.is_empty() {
                message["tool_calls"] = Value::Array(calls);
            }
            message
        }
    }
}
