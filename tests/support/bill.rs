//! A server that charges for what it answers, and keeps its own account.

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use serde_json::{Value, json};

use super::{
    chat,
    server::{Answer, Step},
};

/// Nano-dollars for a token that is sent, and for one that is answered.
pub(crate) const INPUT: u64 = 1_000;
pub(crate) const OUTPUT: u64 = 10_000;

/// What the server charges, and how.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bill {
    charged: Arc<AtomicU64>,
    requests: Arc<AtomicUsize>,
}

/// How an answer comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// It says how many tokens it was.
    Told,
    /// It does not.
    Untold,
    /// It breaks off, and is charged as if the model had talked on to the limit.
    BreaksOff,
    /// It is refused, and costs nothing.
    Refused,
}

impl Bill {
    /// Nano-dollars charged so far.
    pub(crate) fn charged(&self) -> u64 {
        self.charged.load(Ordering::SeqCst)
    }

    /// Which request it is, from 0 on.
    pub(crate) fn next(&self) -> usize {
        self.requests.fetch_add(1, Ordering::SeqCst)
    }

    /// Answers in this manner, as the rest of an answer says: what it says, or which call it asks for.
    pub(crate) fn answer(&self, request: &Value, manner: Manner, says: Vec<Value>, finish: &str) -> Answer {
        let limit = request["max_tokens"].as_u64().or(request["max_completion_tokens"].as_u64());
        let Some(limit) = limit else { panic!("a limit is always sent") };
        let input = tokens(&request["messages"]) + tokens(&request["tools"]);
        let output = match manner {
            // What was said, and thoughts that nobody is shown, where they are told of.
            Manner::Told => limit.min(tokens(&json!(says)) + limit / 8),
            Manner::Untold => limit.min(says.iter().map(words).sum()),
            Manner::BreaksOff => limit,
            Manner::Refused => {
                let body = json!({"error": {"message": "not now"}}).to_string();
                let headers = vec![("retry-after-ms", "5".to_owned())];
                return Answer::Status { status: 503, headers, body };
            }
        };
        self.charged.fetch_add(input * INPUT + output * OUTPUT, Ordering::SeqCst);
        if manner == Manner::BreaksOff {
            let first = chat::chunk(&json!({"content": "well "}), None);
            return Answer::Raw(vec![Step::Bytes(format!("data: {first}\n\n").into_bytes()), Step::Drop]);
        }
        let mut events: Vec<Value> = says.iter().map(|delta| chat::chunk(delta, None)).collect();
        events.push(chat::chunk(&json!({}), Some(finish)));
        if manner == Manner::Told {
            events.push(chat::usage(input, output));
        }
        Answer::Stream(events)
    }
}

/// Four bytes a token.
fn tokens(value: &Value) -> u64 {
    match value {
        Value::Array(items) => items.iter().map(|item| tokens(item) + 4).sum(),
        Value::Object(fields) => fields.values().map(tokens).sum(),
        Value::String(text) => text.len() as u64 / 4,
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

/// Of the words of a piece alone.
fn words(delta: &Value) -> u64 {
    delta["content"].as_str().map_or_else(
        || delta["tool_calls"][0]["function"]["arguments"].as_str().unwrap_or_default().len() as u64 / 4,
        |text| text.len() as u64 / 4,
    )
}
