//! An answer, heard to its end.

use futures_util::{StreamExt as _, stream::BoxStream};
use herder::{
    domain::{
        json::RawJson,
        outcome::{FaultClass, Stop},
        usage::Usage,
    },
    model::{Delta, ModelError, RateLimits},
};
use tokio::time::timeout;

use super::server::DEADLINE;

/// All that an answer was.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Said {
    pub(crate) text: String,
    pub(crate) reasoning: String,
    pub(crate) kept: Vec<RawJson>,
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

    pub(crate) fn message(&self) -> &str {
        self.error.as_ref().map_or("", |error| &error.message)
    }
}

/// What is told before the answer.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Head {
    /// Digests of what was sent.
    pub(crate) sent: Vec<String>,
    pub(crate) rates: Vec<RateLimits>,
}

/// Reads an answer to its end, which must come in good time.
pub(crate) async fn hear(stream: BoxStream<'static, Result<Delta, ModelError>>) -> Said {
    hear_all(stream).await.1
}

/// The same, with what is told before the answer.
pub(crate) async fn hear_all(mut stream: BoxStream<'static, Result<Delta, ModelError>>) -> (Head, Said) {
    let (mut head, mut said) = (Head::default(), Said::default());
    while let Some(delta) = timeout(DEADLINE, stream.next()).await.unwrap() {
        assert!(said.stop.is_none() && said.error.is_none(), "{delta:?} after the end of {said:?}");
        match delta {
            Ok(Delta::Sent(digest)) => head.sent.push(digest.to_string()),
            Ok(Delta::RateLimits(rates)) => head.rates.push(rates),
            Ok(Delta::Text(text)) => said.text.push_str(&text),
            Ok(Delta::Reasoning(text)) => said.reasoning.push_str(&text),
            Ok(Delta::Keep(block)) => said.kept.push(block),
            Ok(Delta::Progress) => {}
            Ok(Delta::Call(call)) => {
                let id = call.id.as_deref().unwrap_or_default().to_owned();
                said.calls.push((id, call.name.to_string(), call.arguments));
            }
            Ok(Delta::Usage(usage)) => said.usage.push(usage),
            Ok(Delta::Stop(stop)) => said.stop = Some(stop),
            Err(error) => said.error = Some(error),
        }
    }
    (head, said)
}
