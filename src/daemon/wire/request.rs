//! Requests to models, as a run's log has them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Tokens;
use crate::{
    clock::rfc3339,
    domain::{
        event::{Envelope, Event, ModelRetry, ModelSwitched},
        message::Reply,
        usage::Usage,
    },
};

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RequestEnd {
    /// The model answered.
    Answered,
    /// It failed, and is sent again.
    Retried,
    /// It failed, and another model goes on.
    Switched,
    /// It was given up before its answer was heard.
    Lost,
}

/// A request to a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RequestView {
    /// Its turn.
    pub turn: u32,
    /// When it was over.
    #[schema(format = DateTime)]
    pub at: String,
    pub end: RequestEnd,
    /// The model that was asked, by its name at the server; of one that was switched from, what runs call it.
    pub model: Option<String>,
    /// The model that goes on, if it is another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// SHA-256 of the body that was sent, in hex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// SHA-256 of the tools on offer, in hex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<String>,
    /// Messages of the conversation that the model was shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub included: Option<u64>,
    /// Messages of it that were left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub omitted: Option<u64>,
    /// Tokens that the answer might have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// What kind of failure it was, and what was said about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// When it is sent again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub not_before: Option<String>,
    /// Milliseconds that it waited for its place before it went out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited_ms: Option<u64>,
    /// Milliseconds from then to the end of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// What it used up, as far as that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Tokens>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
}

/// The requests that are over by a run's log.
pub fn requests(log: &[Envelope]) -> Vec<RequestView> {
    log.iter().filter_map(request).collect()
}

fn request(Envelope { fact, .. }: &Envelope) -> Option<RequestView> {
    let over = |end, usage: Option<Usage>| RequestView {
        turn: fact.turn,
        at: rfc3339(fact.at),
        end,
        model: None,
        to: None,
        digest: None,
        tools: None,
        included: None,
        omitted: None,
        max_tokens: None,
        class: None,
        error: None,
        not_before: None,
        waited_ms: None,
        duration_ms: None,
        usage: usage.map(Tokens::from),
        cost_usd: usage.and_then(|usage| usage.cost).map(|cost| cost.usd()),
    };
    match &fact.event {
        Event::Message(reply) => Some(answered(reply, over(RequestEnd::Answered, Some(reply.usage)))),
        Event::ModelRetry(retry) => {
            let ModelRetry { class, error, not_before, waited_us, usage, .. } = retry;
            Some(RequestView {
                class: Some(class.to_string()),
                error: Some(error.clone()),
                not_before: Some(rfc3339(*not_before)),
                waited_ms: Some(waited_us / 1_000),
                ..over(RequestEnd::Retried, *usage)
            })
        }
        Event::ModelSwitched(ModelSwitched { from, to, class, error, usage, waited_us: _ }) => {
            Some(RequestView {
                model: Some(from.to_string()),
                to: Some(to.to_string()),
                class: Some(class.to_string()),
                error: Some(error.clone()),
                ..over(RequestEnd::Switched, *usage)
            })
        }
        Event::RequestLost(lost) => Some(over(RequestEnd::Lost, Some(lost.usage))),
        Event::RequestSent(_)
        | Event::Submitted(_)
        | Event::RunStart(_)
        | Event::TurnStart(_)
        | Event::Decision(_)
        | Event::ApprovalRequested(_)
        | Event::ApprovalResolved(_)
        | Event::CommandGroup(_)
        | Event::CallStarted(_)
        | Event::Result(_)
        | Event::TurnEnd(_)
        | Event::InputQueued(_)
        | Event::InputClaimed(_)
        | Event::Correction(_)
        | Event::LimitsSet(_)
        | Event::CancelRequested(_)
        | Event::Paused(_)
        | Event::Resumed(_)
        | Event::Parked(_)
        | Event::Unparked(_)
        | Event::Interrupted(_)
        | Event::Restart(_)
        | Event::RunEnd(_) => None,
    }
}

fn answered(reply: &Reply, over: RequestView) -> RequestView {
    let sent = reply.request.as_deref();
    RequestView {
        model: sent.map(|sent| sent.model.to_string()),
        digest: sent.and_then(|sent| sent.digest.as_deref()).map(str::to_owned),
        tools: sent.and_then(|sent| sent.tools.as_deref()).map(str::to_owned),
        included: sent.map(|sent| sent.included),
        omitted: sent.map(|sent| sent.omitted),
        max_tokens: sent.and_then(|sent| sent.max_tokens),
        waited_ms: Some(reply.waited_us / 1_000),
        duration_ms: Some(reply.duration_us / 1_000),
        ..over
    }
}
