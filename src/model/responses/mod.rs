//! `OpenAI` Responses: one list of items in, one list of items out.
//!
//! Strict in what it sends (`encode`), tolerant in what it takes (`decode`, with `items` for what came of each item).
//! Nothing is stored at the server: encrypted reasoning is kept here and sent back with the calls that came of it.
//! Knows nothing of retries, rates, or the harness's verdict on a call.

pub(super) mod decode;
mod encode;
mod items;
#[cfg(test)]
mod tests;
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
    /// The address before `/responses`.
    pub base_url: String,
    /// Sent as a bearer token; empty: no such header.
    pub api_key: Secret,
    /// Headers of every request; they replace herder's own.
    pub headers: BTreeMap<String, String>,
    /// Fields of every request; they replace herder's own, and a null takes a field away. A model that does not reason
    /// may refuse `include`, and wants it empty.
    pub extra_body: Map<String, Value>,
}

/// A server that speaks Responses.
#[derive(Clone, Debug)]
pub struct Responses {
    endpoint: Endpoint,
    secrets: Secrets,
    extra_body: Map<String, Value>,
}

impl Responses {
    /// A provider that uses `client`, which [`super::http::client`] builds.
    ///
    /// # Errors
    /// The address, a header or the key is nothing that HTTP can carry.
    pub fn new(client: Client, settings: Settings) -> Result<Self, SetupError> {
        let Settings { base_url, api_key, headers, extra_body } = settings;
        let endpoint = Endpoint::new(client, &base_url, &["responses"])?
            .key(AUTHORIZATION, "Bearer ", &api_key)?
            .headers(&headers)?;
        let secrets = Secrets::new(&api_key, &headers, &base_url);
        Ok(Self { endpoint, secrets, extra_body })
    }
}

/// The body that a request is sent as, where the settings add nothing to it.
///
/// # Errors
/// Only if a value in it has no JSON form.
pub fn body(request: &Request) -> Result<Vec<u8>, serde_json::Error> {
    encode::body(request, &Map::new())
}

/// Adds what to do about it where a server refuses to hand out what the model reasoned.
fn advised(mut error: ModelError) -> ModelError {
    let says = |words| error.message.to_ascii_lowercase().contains(words);
    if error.refused && ["encrypted_content", "encrypted content", "'include'"].into_iter().any(says) {
        error.message.push_str(" (if the model does not reason, set extra_body = { include = [] })");
    }
    error
}

impl ModelProvider for Responses {
    fn stream(
        &self,
        request: Request,
        cancel: CancellationToken,
    ) -> BoxStream<'static, Result<Delta, ModelError>> {
        match encode::body(&request, &self.extra_body) {
            Ok(body) => {
                let post = self.endpoint.post(body);
                exchange(post, decode::Answer::default(), self.secrets.clone(), cancel)
                    .map(|delta| delta.map_err(advised))
                    .boxed()
            }
            Err(error) => {
                let error =
                    ModelError::new(FaultClass::Invalid, format!("the request can't be encoded: {error}"));
                stream::iter([Err(error)]).boxed()
            }
        }
    }
}
