//! Asks a server by way of the provider, and keeps all that came.

use std::sync::{Arc, OnceLock};

use futures_util::{StreamExt as _, stream::BoxStream};
use herder::{
    domain::{
        message::Message,
        outcome::{FaultClass, Stop},
        usage::Usage,
    },
    model::{
        Delta, ModelError, ModelProvider as _, RateLimits, Request, http,
        openai::{OpenAi, Settings},
    },
};
use serde_json::Value;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::support::server::{Answer, DEADLINE, Server, Step};

/// All that an answer was.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Said {
    /// Digests of what was sent.
    pub(crate) sent: Vec<String>,
    /// What was told of the account's limits.
    pub(crate) rates: Vec<RateLimits>,
    pub(crate) text: String,
    pub(crate) reasoning: String,
    /// Id, tool and arguments.
    pub(crate) calls: Vec<(String, String, String)>,
    pub(crate) usage: Vec<Usage>,
    pub(crate) stop: Option<Stop>,
    pub(crate) error: Option<ModelError>,
}

impl Said {
    pub(crate) fn class(&self) -> Option<FaultClass> {
        self.error.as_ref().map(|error| error.class)
    }

    /// What came of the answer's body alone.
    pub(crate) fn without_head(self) -> Self {
        Self { sent: Vec::new(), rates: Vec::new(), ..self }
    }

    pub(crate) fn message(&self) -> &str {
        self.error.as_ref().map_or("", |error| &error.message)
    }
}

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

/// Reads an answer to its end, which must come in good time.
pub(crate) async fn hear(mut stream: BoxStream<'static, Result<Delta, ModelError>>) -> Said {
    let mut said = Said::default();
    while let Some(delta) = timeout(DEADLINE, stream.next()).await.unwrap() {
        assert!(said.stop.is_none() && said.error.is_none(), "{delta:?} after the end of {said:?}");
        match delta {
            Ok(Delta::Text(text)) => said.text.push_str(&text),
            Ok(Delta::Reasoning(text)) => said.reasoning.push_str(&text),
            Ok(Delta::Sent(digest)) => said.sent.push(digest.to_string()),
            Ok(Delta::RateLimits(rates)) => said.rates.push(rates),
            Ok(Delta::Progress | Delta::Keep(_)) => {}
            Ok(Delta::Call(call)) => {
                let id = call.id.as_deref().unwrap_or_default().to_owned();
                said.calls.push((id, call.name.to_string(), call.arguments));
            }
            Ok(Delta::Usage(usage)) => said.usage.push(usage),
            Ok(Delta::Stop(stop)) => said.stop = Some(stop),
            Err(error) => said.error = Some(error),
        }
    }
    said
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
