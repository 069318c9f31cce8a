//! Asks a server by way of the provider, and keeps all that came.

use std::sync::{Arc, OnceLock};

use herder::{
    domain::message::Message,
    model::{
        ModelProvider as _, Request, http,
        openai::{OpenAi, Settings},
    },
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

pub(crate) use crate::support::hear::{Said, hear};
use crate::support::server::{Answer, Server, Step};

/// A provider for the server. Each test has its own client, since a client belongs to one runtime.
pub(crate) fn provider(server: &Server, settings: Settings) -> OpenAi {
    let settings = Settings { base_url: server.base_url(), ..settings };
    OpenAi::new(http::client().unwrap(), settings).unwrap()
}

/// A request that says only this.
pub(crate) fn request(text: &str) -> Request {
    static NAME: OnceLock<Arc<str>> = OnceLock::new();
    Request::new(Arc::clone(NAME.get_or_init(|| "fake-1".into())), vec![Message::User(text.into())])
}

/// Asks a server that always gives this answer.
pub(crate) async fn ask(answer: Answer) -> Said {
    let server = Server::start(move |_| answer.clone()).await;
    hear(provider(&server, Settings::default()).stream(request("go"), CancellationToken::new())).await
}

/// Asks a server that sends this body as its stream.
pub(crate) async fn ask_raw(body: &str) -> Said {
    ask(Answer::Raw(vec![Step::Bytes(body.as_bytes().to_vec())])).await
}

/// The body of a stream of these events, without an end.
pub(crate) fn events(events: &[Value]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}
