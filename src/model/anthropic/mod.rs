//! Messages: the protocol of Anthropic's servers, and of others that have taken it over.
//!
//! Strict in what it sends (`encode`, `turns`), tolerant in what it takes (`decode`). Knows nothing of retries, rates,
//! or the harness's verdict on a call.

pub(super) mod decode;
mod encode;
mod sampling;
mod turns;
mod wire;

use std::collections::BTreeMap;

use futures_util::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use reqwest::{Client, Url, header::HeaderName};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::{
    Delta, ModelError, ModelProvider, Request, Secret,
    exchange::exchange,
    http::{Endpoint, SetupError},
    secret::Secrets,
};
use crate::domain::outcome::FaultClass;

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The version of the protocol that is spoken here.
const VERSION: (&str, &str) = ("anthropic-version", "2023-06-01");

/// Where a server is, and what it wants of a client.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The address before `/v1/messages`, or before `/messages` if it ends in `/v1`.
    pub base_url: String,
    /// Sent in `x-api-key`; empty: no such header.
    pub api_key: Secret,
    /// Headers of every request; they replace herder's own.
    pub headers: BTreeMap<String, String>,
    /// Fields of every request; they replace herder's own, and a null takes a field away. Models that take no budget
    /// for thinking want `{"thinking": {"type": "adaptive"}}`.
    pub extra_body: Map<String, Value>,
    /// Whether the server is asked to cache what the next request will repeat.
    pub prompt_cache: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            base_url: String::new(),
            api_key: Secret::default(),
            headers: BTreeMap::new(),
            extra_body: Map::new(),
            prompt_cache: true,
        }
    }
}

/// A server that speaks Messages.
#[derive(Clone, Debug)]
pub struct Anthropic {
    endpoint: Endpoint,
    secrets: Secrets,
    extra_body: Map<String, Value>,
    prompt_cache: bool,
}

impl Anthropic {
    /// A provider that uses `client`, which [`super::http::client`] builds.
    ///
    /// # Errors
    /// The address, a header or the key is nothing that HTTP can carry.
    pub fn new(client: Client, settings: Settings) -> Result<Self, SetupError> {
        let Settings { base_url, api_key, headers, extra_body, prompt_cache } = settings;
        let (name, version) = VERSION;
        let endpoint = Endpoint::new(client, &base_url, path(&base_url))?
            .key(API_KEY, "", &api_key)?
            .headers([(&name.to_owned(), &version.to_owned())])?
            .headers(&headers)?;
        let secrets = Secrets::new(&api_key, &headers, &base_url);
        Ok(Self { endpoint, secrets, extra_body, prompt_cache })
    }
}

/// The path below the base. Some people write the version with the address, others don't.
fn path(base_url: &str) -> &'static [&'static str] {
    let versioned = Url::parse(base_url).is_ok_and(|url| url.path().trim_end_matches('/').ends_with("/v1"));
    if versioned { &["messages"] } else { &["v1", "messages"] }
}

/// The body that a request is sent as, where the settings are the usual ones.
///
/// # Errors
/// Its parameters can't be put in the words of Messages.
pub fn body(request: &Request) -> Result<Vec<u8>, ModelError> {
    encode::body(request, true, &Map::new()).map_err(|error| unfit(&error))
}

fn unfit(error: &impl std::fmt::Display) -> ModelError {
    ModelError::new(FaultClass::Invalid, format!("the request can't be encoded: {error}"))
}

impl ModelProvider for Anthropic {
    fn stream(
        &self,
        request: Request,
        cancel: CancellationToken,
    ) -> BoxStream<'static, Result<Delta, ModelError>> {
        match encode::body(&request, self.prompt_cache, &self.extra_body) {
            Ok(body) => {
                exchange(self.endpoint.post(body), decode::Answer::default(), self.secrets.clone(), cancel)
            }
            Err(error) => stream::iter([Err(unfit(&error))]).boxed(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_in_the_path_once_whether_the_address_has_it_or_not() {
        for base in ["https://h", "https://h/", "https://h/anthropic", "https://h/v10"] {
            assert_eq!(path(base), ["v1", "messages"], "{base}");
        }
        for base in ["https://h/v1", "https://h/v1/", "https://h/anthropic/v1?beta=true"] {
            assert_eq!(path(base), ["messages"], "{base}");
        }
    }
}
