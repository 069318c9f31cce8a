//! Asks a server by way of the provider; events as servers send them.

use herder::{
    domain::message::Message,
    model::{
        ModelProvider as _, Request, http,
        responses::{Responses, Settings},
    },
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

pub(crate) use crate::support::hear::{Said, hear};
use crate::support::server::{Answer, Protocol, Rules, Server, Step};

/// What a server that speaks Responses insists on.
pub(crate) fn rules() -> Rules {
    Rules { protocol: Protocol::Responses, ..Rules::default() }
}

/// A server that answers valid requests so.
pub(crate) async fn server(answer: impl Fn(&Value) -> Answer + Send + Sync + 'static) -> Server {
    Server::strict(rules(), answer).await
}

/// A provider for the server. Each test has its own client, since a client belongs to one runtime.
pub(crate) fn provider(server: &Server, settings: Settings) -> Responses {
    Responses::new(http::client().unwrap(), Settings { base_url: server.base_url(), ..settings }).unwrap()
}

/// A request that says only this.
pub(crate) fn request(text: &str) -> Request {
    Request::new("fake-1".into(), vec![Message::User(text.into())])
}

/// Asks a server that always gives this answer.
pub(crate) async fn ask(answer: Answer) -> Said {
    let server = server(move |_| answer.clone()).await;
    let stream = provider(&server, Settings::default()).stream(request("go"), CancellationToken::new());
    hear(stream).await
}

/// Asks a server that sends this body as its stream.
pub(crate) async fn ask_raw(body: &str) -> Said {
    ask(Answer::Raw(vec![Step::Bytes(body.as_bytes().to_vec())])).await
}

/// A stream of these events, each under its name, and nothing after them.
pub(crate) fn stream(events: &[Value]) -> String {
    let named = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
    events.iter().map(named).collect()
}

/// Asks a server that streams these events.
pub(crate) async fn ask_events(events: &[Value]) -> Said {
    ask_raw(&stream(events)).await
}

/// An event about the item at `index`.
pub(crate) fn event(kind: &str, index: u64, fields: Value) -> Value {
    let mut event =
        json!({"type": format!("response.{kind}"), "output_index": index, "item_id": format!("i_{index}")});
    let Value::Object(fields) = fields else { panic!("not an object") };
    event.as_object_mut().unwrap().extend(fields);
    event
}

/// The beginning or the end of an item.
pub(crate) fn item(stage: &str, index: u64, item: &Value) -> Value {
    json!({"type": format!("response.output_item.{stage}"), "output_index": index, "item": item})
}

/// A message item.
pub(crate) fn message(index: u64, text: &str) -> Value {
    let content = json!([{"type": "output_text", "text": text, "annotations": []}]);
    json!({"type": "message", "id": format!("i_{index}"), "role": "assistant", "content": content})
}

/// A call item.
pub(crate) fn call(index: u64, call_id: &str, name: &str, arguments: &str) -> Value {
    json!({"type": "function_call", "id": format!("i_{index}"), "call_id": call_id, "name": name, "arguments": arguments})
}

/// A reasoning item.
pub(crate) fn reasoning(index: u64, summary: &str, secret: &str) -> Value {
    let summary = json!([{"type": "summary_text", "text": summary}]);
    json!({"type": "reasoning", "id": format!("i_{index}"), "summary": summary, "encrypted_content": secret})
}

/// The event that ends an answer with this output.
pub(crate) fn completed(output: &[Value]) -> Value {
    let usage = json!({
        "input_tokens": 21,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 9,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 30,
    });
    json!({"type": "response.completed", "response": {"status": "completed", "output": output, "usage": usage}})
}

/// A whole answer of these items, as the protocol has it: each item begun, ended and repeated at the end.
pub(crate) fn answer(items: &[Value]) -> Answer {
    let mut events =
        vec![json!({"type": "response.created", "response": {"status": "in_progress", "output": []}})];
    for (index, whole) in (0..).zip(items) {
        events.extend([item("added", index, whole), item("done", index, whole)]);
    }
    events.push(completed(items));
    Answer::Raw(vec![Step::Bytes(stream(&events).into_bytes())])
}
