//! The daemon's client, for the command line, the MCP server and whoever embeds herder.
//!
//! Both sides say which version of the API they speak with every request, so a client learns at its first one that it
//! does not fit. A question has a time-out; a stream has none, but the daemon is never silent in it for long.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use serde::{Serialize, de::DeserializeOwned};

mod follow;
mod lines;
mod route;

pub use follow::{Event, Follower};
pub use lines::Lines;
pub use route::Route;

use super::wire::{API_VERSION, ApiError, Code, KEY_HEADER, VERSION_HEADER};
use crate::model::http;

/// How long the daemon may take to answer a question.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a stream may be silent: the daemon says something each 15 s.
const SILENCE: Duration = Duration::from_secs(50);

/// How long it may take to reach the daemon.
const CONNECT: Duration = Duration::from_secs(5);

/// How long a connection is kept for the next question. The daemon closes one that nothing comes over for 10 s, and a
/// question that meets that is lost.
const IDLE: Duration = Duration::from_secs(5);

/// Where a daemon answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A Unix socket.
    Socket(PathBuf),
    /// A port of this machine, and the token that opens it.
    Port { address: std::net::SocketAddr, token: String },
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Socket(path) => path.display().fmt(f),
            Self::Port { address, .. } => address.fmt(f),
        }
    }
}

/// Asks a daemon.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    /// For what is sent for long: a limit of silence would begin when the sending does.
    sending: reqwest::Client,
    base: Url,
    place: Place,
}

/// Why the daemon did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("no daemon answers at {place}; `herder serve --detach` starts one")]
    NoDaemon {
        place: Place,
        #[source]
        source: reqwest::Error,
    },
    #[error(
        "the daemon at {place} speaks version {theirs} of the API and this herder {API_VERSION}; restart the daemon with this herder"
    )]
    Version { place: Place, theirs: String },
    #[error("{}{}", .0.message, .0.mistakes.iter().map(|mistake| format!("\n{mistake}")).collect::<String>())]
    Refused(ApiError),
    #[error("the daemon at {place} did not finish its answer")]
    Lost {
        place: Place,
        #[source]
        source: Option<reqwest::Error>,
    },
    #[error("what answers at {place} is no herder ({what})")]
    NotHerder { place: Place, what: String },
    #[error("a client cannot be set up")]
    Setup(#[source] reqwest::Error),
}

impl ClientError {
    /// The code of a refusal, if it is one.
    pub const fn code(&self) -> Option<Code> {
        match self {
            Self::Refused(error) => Some(error.code),
            Self::NoDaemon { .. }
            | Self::Version { .. }
            | Self::Lost { .. }
            | Self::NotHerder { .. }
            | Self::Setup(_) => None,
        }
    }

    /// Whether the daemon may be there again in a moment.
    pub const fn may_pass(&self) -> bool {
        match self {
            Self::NoDaemon { .. } | Self::Lost { .. } => true,
            Self::Refused(error) => matches!(error.code, Code::Unavailable | Code::TooManyConnections),
            Self::Version { .. } | Self::NotHerder { .. } | Self::Setup(_) => false,
        }
    }
}

impl Client {
    /// A client of the daemon at this socket. Nothing is sent yet.
    ///
    /// # Errors
    /// The system's certificates cannot be read.
    pub fn at_socket(socket: &Path) -> Result<Self, ClientError> {
        Self::new(Place::Socket(socket.to_owned()))
    }

    /// A client of the daemon at this place. Nothing is sent yet.
    ///
    /// # Errors
    /// The system's certificates cannot be read.
    pub fn new(place: Place) -> Result<Self, ClientError> {
        let builder = || {
            let builder = http::builder()
                .connect_timeout(CONNECT)
                .pool_idle_timeout(IDLE)
                .no_proxy()
                .user_agent(concat!(env!("CARGO_PKG_NAME"), "/", env!("CARGO_PKG_VERSION")));
            match &place {
                Place::Socket(path) => builder.unix_socket(path.clone()),
                Place::Port { .. } => builder,
            }
        };
        let base = match &place {
            Place::Socket(_) => "http://herder/".to_owned(),
            Place::Port { address, .. } => format!("http://{address}/"),
        };
        let http = builder().read_timeout(SILENCE).build().map_err(ClientError::Setup)?;
        let sending = builder().build().map_err(ClientError::Setup)?;
        let base = Url::parse(&base)
            .map_err(|error| ClientError::NotHerder { place: place.clone(), what: error.to_string() })?;
        Ok(Self { http, sending, base, place })
    }

    /// Where the daemon is.
    pub const fn place(&self) -> &Place {
        &self.place
    }

    /// Asks for something.
    ///
    /// # Errors
    /// There is no daemon, it refuses, or its answer is none.
    pub async fn get<T: DeserializeOwned>(&self, route: &Route) -> Result<T, ClientError> {
        self.json(self.request(Method::GET, route).timeout(PATIENCE)).await
    }

    /// Has something done.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn post<T: DeserializeOwned>(
        &self,
        route: &Route,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.json(self.request(Method::POST, route).json(body).timeout(PATIENCE)).await
    }

    /// Has something done that the daemon does once for each key, however often it is asked.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn post_once<T: DeserializeOwned>(
        &self,
        route: &Route,
        body: &impl Serialize,
        key: &str,
    ) -> Result<T, ClientError> {
        let request = self.request(Method::POST, route).header(KEY_HEADER, key).json(body);
        self.json(request.timeout(PATIENCE)).await
    }

    /// Has something changed.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn patch<T: DeserializeOwned>(
        &self,
        route: &Route,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.json(self.request(Method::PATCH, route).json(body).timeout(PATIENCE)).await
    }

    /// Submits a run or a batch. With a key it may be repeated, and is taken on once. The body may be of any size, and so
    /// there is no time-out here: the daemon ends one that brings nothing for a while.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn submit<T: DeserializeOwned>(
        &self,
        route: &Route,
        media_type: &str,
        body: impl Into<reqwest::Body>,
        key: Option<&str>,
    ) -> Result<T, ClientError> {
        let mut request = self
            .request_by(&self.sending, Method::POST, route)
            .header(reqwest::header::CONTENT_TYPE, media_type)
            .body(body);
        if let Some(key) = key {
            request = request.header(KEY_HEADER, key);
        }
        self.json(request).await
    }

    /// Reads an answer line by line, as it comes.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn lines(&self, route: &Route) -> Result<Lines, ClientError> {
        Ok(Lines::new(self.send(self.request(Method::GET, route)).await?, self.place.clone()))
    }

    /// Follows events at `route` after the one with the id `after`. Asks nothing yet.
    pub fn follow(&self, route: Route, after: Option<u64>) -> Follower {
        Follower::new(self.clone(), route, after)
    }

    /// An answer as text, as `/metrics` gives.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn text(&self, route: &Route) -> Result<String, ClientError> {
        let response = self.send(self.request(Method::GET, route).timeout(PATIENCE)).await?;
        response.text().await.map_err(|source| self.lost(source))
    }

    /// An answer as it is, as a patch comes.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn bytes(&self, route: &Route) -> Result<Vec<u8>, ClientError> {
        let response = self.send(self.request(Method::GET, route).timeout(PATIENCE)).await?;
        response.bytes().await.map(Into::into).map_err(|source| self.lost(source))
    }

    fn request(&self, method: Method, route: &Route) -> RequestBuilder {
        self.request_by(&self.http, method, route)
    }

    fn request_by(&self, http: &reqwest::Client, method: Method, route: &Route) -> RequestBuilder {
        let request = http.request(method, route.url(&self.base)).header(VERSION_HEADER, API_VERSION);
        match &self.place {
            Place::Socket(_) => request,
            Place::Port { token, .. } => request.bearer_auth(token),
        }
    }

    async fn json<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, ClientError> {
        let response = self.send(request).await?;
        let body = response.bytes().await.map_err(|source| self.lost(source))?;
        serde_json::from_slice(&body)
            .map_err(|error| ClientError::NotHerder { place: self.place.clone(), what: error.to_string() })
    }

    /// Sends a request and sees to it that a daemon of this version took it.
    async fn send(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        let response = request.send().await.map_err(|source| {
            if source.is_connect() {
                ClientError::NoDaemon { place: self.place.clone(), source }
            } else {
                self.lost(source)
            }
        })?;
        let place = || self.place.clone();
        match response.headers().get(VERSION_HEADER).map(|theirs| theirs.to_str().unwrap_or("?").to_owned()) {
            Some(theirs) if theirs == API_VERSION.to_string() => {}
            Some(theirs) => return Err(ClientError::Version { place: place(), theirs }),
            None => {
                let what = format!("it says no version; HTTP {}", response.status());
                return Err(ClientError::NotHerder { place: place(), what });
            }
        }
        let status = response.status();
        if status.is_success() { Ok(response) } else { Err(self.refusal(status, response).await) }
    }

    async fn refusal(&self, status: StatusCode, response: Response) -> ClientError {
        let Ok(body) = response.bytes().await else {
            return ClientError::Lost { place: self.place.clone(), source: None };
        };
        match serde_json::from_slice(&body) {
            Ok(error) => ClientError::Refused(error),
            Err(_) => ClientError::NotHerder { place: self.place.clone(), what: format!("HTTP {status}") },
        }
    }

    fn lost(&self, source: reqwest::Error) -> ClientError {
        ClientError::Lost { place: self.place.clone(), source: Some(source) }
    }
}
