//! A conversation with one tool, by way of any provider.

use std::sync::Arc;

use herder::{
    domain::{
        call::{Arguments, ToolCall, ToolResult, ToolSpec},
        id::CallId,
        message::{Kept, Message, Reply},
    },
    model::{ModelProvider, Request},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

pub(crate) use crate::support::hear::{Said, hear};

/// A request with the tool `get_weather` on offer.
pub(crate) fn request(model: &str, text: &str) -> Request {
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    let tool = ToolSpec {
        name: "get_weather".into(),
        description: "Tells the weather in a city.".into(),
        schema: Arc::new(schema),
    };
    let messages = vec![Message::System("Answer in few words.".into()), Message::User(text.into())];
    let mut request = Request::new(model.into(), messages);
    request.params.max_tokens = Some(1000);
    request.tools = [tool].into();
    request
}

/// Asks, and reads the answer to its end.
pub(crate) async fn ask(provider: &dyn ModelProvider, request: &Request) -> Said {
    hear(provider.stream(request.clone(), CancellationToken::new())).await
}

/// Adds what was said, and this output for each call.
pub(crate) fn go_on(request: &mut Request, said: &Said, output: &str) {
    let call = |(id, name, arguments): &(String, String, String)| ToolCall {
        id: CallId::new(id.as_str()),
        provider_id: None,
        name: name.as_str().into(),
        arguments: Arguments::parse(arguments).unwrap(),
    };
    let calls: Vec<_> = said.calls.iter().map(call).collect();
    let results: Vec<_> = calls
        .iter()
        .map(|call| ToolResult {
            call: call.id.clone(),
            ok: true,
            output: output.into(),
            failure: None,
            terminate: false,
            timing: None,
        })
        .collect();
    let blocks = said.kept.clone();
    let reply = Reply {
        text: said.text.as_str().into(),
        reasoning: Some(said.reasoning.as_str().into()).filter(|_| !said.reasoning.is_empty()),
        kept: Some(Kept { model: request.model.clone(), blocks }).filter(|kept| !kept.blocks.is_empty()),
        calls,
        ..Reply::new(said.stop.unwrap())
    };
    request.messages.push(Message::Assistant(Arc::new(reply)));
    request.messages.extend(results.into_iter().map(|result| Message::Tool(Arc::new(result))));
}
