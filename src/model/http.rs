//! The HTTP client of every provider, and where their requests go.
//!
//! One client serves the process. It has no time-out over a whole request, since an answer may take as long as it
//! keeps coming; whoever reads it watches. Redirects are not followed: a request carries a key.

use std::{sync::Arc, time::Duration};

use reqwest::{
    Client, ClientBuilder, RequestBuilder, Url,
    header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
    redirect,
};
use sha2::{Digest as _, Sha256};

use super::Secret;
use crate::domain::text::bare_url;

/// Time to reach a server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Idle connections kept to one server: as many as there may be requests at once, since a new one costs a handshake.
const IDLE_CONNECTIONS: usize = 4096;

/// Why a provider can't be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    #[error("base_url {url:?} is not an http or https URL")]
    Url { url: String },
    #[error("header {name:?} has a name or a value that HTTP can't carry")]
    Header { name: String },
    #[error("the API key holds characters that a header can't carry")]
    Key,
    #[error("the HTTP client can't be built")]
    Client(#[source] reqwest::Error),
}

/// A client builder for which TLS is ready. Building a client without it panics.
pub fn builder() -> ClientBuilder {
    // Fails if a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder()
}

/// The client that providers share.
///
/// # Errors
/// The system's certificates can't be used.
pub fn client() -> Result<Client, SetupError> {
    builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_max_idle_per_host(IDLE_CONNECTIONS)
        .tcp_nodelay(true)
        .redirect(redirect::Policy::none())
        .user_agent(concat!(env!("CARGO_PKG_NAME"), "/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(SetupError::Client)
}

/// One address of a server, and what every request to it carries.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    client: Client,
    url: Url,
    headers: HeaderMap,
}

impl Endpoint {
    /// The endpoint at `path` below `base_url`; a query of the base stays.
    pub(crate) fn new(client: Client, base_url: &str, path: &[&str]) -> Result<Self, SetupError> {
        // Who asks may stand anywhere in what is no address.
        let shown = bare_url(base_url.rsplit('@').next().unwrap_or_default());
        let wrong = || SetupError::Url { url: shown.clone().into_owned() };
        let mut url = Url::parse(base_url).map_err(|_| wrong())?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(wrong());
        }
        url.path_segments_mut().map_err(|()| wrong())?.pop_if_empty().extend(path);
        let headers = HeaderMap::from_iter([
            (CONTENT_TYPE, HeaderValue::from_static("application/json")),
            (ACCEPT, HeaderValue::from_static("text/event-stream, application/json")),
        ]);
        Ok(Self { client, url, headers })
    }

    /// Sends `secret`, with `prefix` before it, in the header `name`; nothing without a secret.
    pub(crate) fn key(mut self, name: HeaderName, prefix: &str, secret: &Secret) -> Result<Self, SetupError> {
        if !secret.is_empty() {
            let mut value = HeaderValue::from_str(&format!("{prefix}{}", secret.reveal()))
                .map_err(|_| SetupError::Key)?;
            value.set_sensitive(true);
            self.headers.insert(name, value);
        }
        Ok(self)
    }

    /// Sends these too; they replace what is there.
    pub(crate) fn headers<'a>(
        mut self,
        headers: impl IntoIterator<Item = (&'a String, &'a String)>,
    ) -> Result<Self, SetupError> {
        for (name, value) in headers {
            let wrong = || SetupError::Header { name: name.clone() };
            let header = name.parse::<HeaderName>().map_err(|_| wrong())?;
            let mut value = value.parse::<HeaderValue>().map_err(|_| wrong())?;
            value.set_sensitive(true);
            self.headers.insert(header, value);
        }
        Ok(self)
    }

    /// A request with this JSON body.
    pub(crate) fn post(&self, body: Vec<u8>) -> Post {
        let digest: String = Sha256::digest(&body).iter().map(|byte| format!("{byte:02x}")).collect();
        let request = self.client.post(self.url.clone()).headers(self.headers.clone()).body(body);
        Post { request, digest: digest.into() }
    }
}

/// A request that is ready to be sent.
#[derive(Debug)]
pub(crate) struct Post {
    pub(crate) request: RequestBuilder,
    /// SHA-256 of its body, in hex.
    pub(crate) digest: Arc<str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(base_url: &str) -> Result<String, SetupError> {
        Endpoint::new(client()?, base_url, &["chat", "completions"]).map(|endpoint| endpoint.url.into())
    }

    #[test]
    fn the_path_is_added_to_the_base_and_its_query_kept() {
        assert_eq!(url("http://h/v1").unwrap(), "http://h/v1/chat/completions");
        assert_eq!(url("https://h:8/v1/?v=2").unwrap(), "https://h:8/v1/chat/completions?v=2");
        for wrong in ["h/v1", "file:///v1", "mailto:x", ""] {
            assert!(matches!(url(wrong), Err(SetupError::Url { .. })), "{wrong}");
        }
    }

    #[test]
    fn an_address_that_is_refused_is_shown_without_its_password() {
        for wrong in ["ftp://me:pw@h/v1?key=pw", "me:pw@h/v1", "http://me:p/pw@h:x/v1"] {
            let error = url(wrong).unwrap_err().to_string();
            assert!(error.contains("h") && !error.contains("pw"), "{error}");
        }
    }

    #[test]
    fn keys_and_headers_do_not_show_in_debug_output() {
        let endpoint = Endpoint::new(client().unwrap(), "http://h", &["x"]).unwrap();
        let endpoint = endpoint.key(reqwest::header::AUTHORIZATION, "Bearer ", &Secret::new("sk-1")).unwrap();
        let endpoint = endpoint.headers([(&"x-key".to_owned(), &"k-2".to_owned())]).unwrap();
        let shown = format!("{endpoint:?}");
        assert!(!shown.contains("sk-1") && !shown.contains("k-2"), "{shown}");
        let wrong = endpoint.key(reqwest::header::AUTHORIZATION, "", &Secret::new("a\nb"));
        assert!(matches!(wrong, Err(SetupError::Key)));
    }
}
