//! Asks a server by way of the provider.

use std::sync::Arc;

use herder::{
    domain::{
        call::{Arguments, ToolCall, ToolResult},
        id::CallId,
        message::{Kept, Message, Reply},
    },
    model::{
        ModelProvider as _, Request,
        anthropic::{Anthropic, Settings},
        http,
    },
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::support::{
    hear::{Said, hear},
    server::{Answer, Protocol, Rules, Server, Step},
};

/// The model that every request names.
pub(crate) const MODEL: &str = "fake-1";

/// A server that speaks Messages.
pub(crate) async fn serve(answer: impl Fn(&Value) -> Answer + Send + Sync + 'static) -> Server {
    Server::strict(Rules { protocol: Protocol::Messages, ..Rules::default() }, answer).await
}

/// A provider for the server. Each test has its own client, since a client belongs to one runtime.
pub(crate) fn provider(server: &Server, settings: Settings) -> Anthropic {
    let settings = Settings { base_url: server.base_url(), ..settings };
    Anthropic::new(http::client().unwrap(), settings).unwrap()
}

/// A request that says only this.
pub(crate) fn request(text: &str) -> Request {
    Request::new(MODEL.into(), vec![Message::User(text.into())])
}

/// Asks a server once.
pub(crate) async fn ask_of(server: &Server, settings: Settings) -> Said {
    hear(provider(server, settings).stream(request("go"), CancellationToken::new())).await
}

/// Asks a server that always gives this answer.
pub(crate) async fn ask(answer: Answer) -> Said {
    let server = serve(move |_| answer.clone()).await;
    ask_of(&server, Settings::default()).await
}

/// Asks a server that sends this body as its stream.
pub(crate) async fn ask_raw(body: &str) -> Said {
    ask(Answer::Raw(vec![Step::Bytes(body.as_bytes().to_vec())])).await
}

/// What was said, as the conversation keeps it.
pub(crate) fn reply(said: &Said) -> Reply {
    let call = |(id, name, arguments): &(String, String, String)| ToolCall {
        id: CallId::new(id.as_str()),
        provider_id: None,
        name: name.as_str().into(),
        arguments: if arguments.is_empty() {
            Arguments::empty()
        } else {
            Arguments::parse(arguments).unwrap()
        },
    };
    let kept = Kept { model: MODEL.into(), blocks: said.kept.clone() };
    Reply {
        text: said.text.as_str().into(),
        kept: Some(kept).filter(|kept| !kept.blocks.is_empty()),
        calls: said.calls.iter().map(call).collect(),
        ..Reply::new(said.stop.unwrap())
    }
}

/// What came of a call.
pub(crate) fn result(call: &CallId, ok: bool, output: &str) -> Message {
    Message::Tool(Arc::new(ToolResult {
        call: call.clone(),
        ok,
        output: output.into(),
        failure: None,
        terminate: false,
        timing: None,
    }))
}
