//! Chat Completions: the protocol that most servers speak, and all of them differently.
//!
//! Strict in what it sends (`encode`), tolerant in what it takes (`decode`). Knows nothing of retries, rates, or the
//! harness's verdict on a call.

pub(super) mod decode;
mod encode;
mod wire;

use std::collections::BTreeMap;

use futures_util::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use reqwest::{Client, header::AUTHORIZATION};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::{
    Delta, ModelError, ModelProvider, Request, Secret,
    exchange::exchange,
    http::{Endpoint, SetupError},
    secret::Secrets,
};
use crate::domain::outcome::FaultClass;

/// Where a server is, and what it wants of a client.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The address before `/chat/completions`.
    pub base_url: String,
    /// Sent as a bearer token; empty: no such header.
    pub api_key: Secret,
    /// Headers of every request; they replace herder's own.
    pub headers: BTreeMap<String, String>,
    /// Fields of every request; they replace herder's own, and a null takes a field away.
    pub extra_body: Map<String, Value>,
    /// How the server departs from the protocol.
    pub profile: Profile,
}

/// How a server departs from the protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// Whether it wants its reasoning back with the calls that came of it.
    pub reasoning: SendReasoning,
    /// What it calls the limit of an answer.
    pub token_limit: TokenLimit,
    /// Which ids of calls it takes.
    pub call_ids: CallIds,
}

/// Which ids of calls a server takes that are not its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CallIds {
    /// Up to 40 letters, digits, `_` and `-`.
    #[default]
    Usual,
    /// Nine letters and digits.
    Short,
}

/// Whether, and in which field, reasoning is sent back. Some servers refuse a request without it, others one with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SendReasoning {
    #[default]
    Never,
    /// In `reasoning_content`.
    AsReasoningContent,
    /// In `reasoning`.
    AsReasoning,
}

/// The field that limits an answer's tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TokenLimit {
    #[default]
    MaxTokens,
    MaxCompletionTokens,
}

/// A server that speaks Chat Completions.
#[derive(Clone, Debug)]
pub struct OpenAi {
    endpoint: Endpoint,
    secrets: Secrets,
    extra_body: Map<String, Value>,
    profile: Profile,
}

impl OpenAi {
    /// A provider that uses `client`, which [`super::http::client`] builds.
    ///
    /// # Errors
    /// The address, a header or the key is nothing that HTTP can carry.
    pub fn new(client: Client, settings: Settings) -> Result<Self, SetupError> {
        let Settings { base_url, api_key, headers, extra_body, profile } = settings;
        let endpoint = Endpoint::new(client, &base_url, &["chat", "completions"])?
            .key(AUTHORIZATION, "Bearer ", &api_key)?
            .headers(&headers)?;
        let secrets = Secrets::new(&api_key, &headers, &base_url);
        Ok(Self { endpoint, secrets, extra_body, profile })
    }
}

/// The body that a request is sent as, where the settings add nothing to it.
///
/// # Errors
/// Only if a value in it has no JSON form.
pub fn body(request: &Request, profile: Profile) -> Result<Vec<u8>, serde_json::Error> {
    encode::body(request, profile, &Map::new())
}

impl ModelProvider for OpenAi {
    fn stream(
        &self,
        request: Request,
        cancel: CancellationToken,
    ) -> BoxStream<'static, Result<Delta, ModelError>> {
        match encode::body(&request, self.profile, &self.extra_body) {
            Ok(body) => {
                exchange(self.endpoint.post(body), decode::Answer::default(), self.secrets.clone(), cancel)
            }
            Err(error) => {
                let error =
                    ModelError::new(FaultClass::Invalid, format!("the request can't be encoded: {error}"));
                stream::iter([Err(error)]).boxed()
            }
        }
    }
}
