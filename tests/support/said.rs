//! All that came of one request, whatever the provider.

use futures_util::{StreamExt as _, stream::BoxStream};
use herder::{
    domain::{
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
    /// Digests of what was sent.
    pub(crate) sent: Vec<String>,
    /// What was told of the account's limits.
    pub(crate) rates: Vec<RateLimits>,
    pub(crate) text: String,
    pub(crate) reasoning: String,
    /// Id, tool and arguments.
    pub(crate) calls: Vec<(String, String, String)>,
    /// Blocks that are wanted back.
    pub(crate) kept: Vec<String>,
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
            Ok(Delta::Keep(block)) => said.kept.push(block.get().to_owned()),
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
    said
}
