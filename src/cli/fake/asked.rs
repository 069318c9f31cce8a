//! A daemon that gives the answers that a test has for it, over a real socket.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::Bytes,
    http::{HeaderMap, Method, Uri},
    response::{IntoResponse, Response},
};
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use tokio::net::UnixListener;
use tokio_util::task::AbortOnDropHandle;

use crate::daemon::{
    client::Client,
    wire::{API_VERSION, ApiError, Code, KEY_HEADER, VERSION_HEADER},
};

/// What was asked, as `GET /v1/status` or `POST /v1/pause {}`, and how often before.
pub(in crate::cli) type Answers = fn(&str, usize) -> Result<String, ApiError>;

pub(in crate::cli) struct Fake {
    folder: tempfile::TempDir,
    asked: Arc<Mutex<Vec<String>>>,
    _serving: AbortOnDropHandle<()>,
}

impl Fake {
    pub(in crate::cli) fn start(answers: Answers) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let asked = Arc::new(Mutex::new(Vec::new()));
        let listener = UnixListener::bind(folder.path().join("s")).expect("a socket");
        let seen = asked.clone();
        let routes =
            Router::new().fallback(move |method: Method, uri: Uri, headers: HeaderMap, body: Bytes| {
                let seen = seen.clone();
                async move { answer(answers, &seen, &method, &uri, &headers, &body) }
            });
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let service = TowerToHyperService::new(routes.clone());
                let connection = hyper::server::conn::http1::Builder::new();
                // A client that goes away is no matter.
                tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { folder, asked, _serving: AbortOnDropHandle::new(serving) }
    }

    pub(in crate::cli) fn client(&self) -> Client {
        Client::at_socket(&self.socket()).expect("a client")
    }

    pub(in crate::cli) fn socket(&self) -> PathBuf {
        self.folder.path().join("s")
    }

    /// Everything that was asked so far.
    pub(in crate::cli) fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("a list").clone()
    }
}

fn answer(
    answers: Answers,
    seen: &Mutex<Vec<String>>,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    body: &Bytes,
) -> Response {
    let mut asked = format!("{method} {uri}");
    if !body.is_empty() {
        asked.push_str(&format!(" {}", String::from_utf8_lossy(body)));
    }
    if let Some(key) = headers.get(KEY_HEADER) {
        asked.push_str(&format!(" key {}", key.to_str().expect("text")));
    }
    if let Some(after) = headers.get("last-event-id") {
        asked.push_str(&format!(" after {}", after.to_str().expect("text")));
    }
    let before = {
        let mut seen = seen.lock().expect("a list");
        seen.push(asked.clone());
        seen.iter().filter(|other| **other == asked).count() - 1
    };
    let version = [(VERSION_HEADER, API_VERSION.to_string())];
    match answers(&asked, before) {
        Ok(body) => (version, body).into_response(),
        Err(error) => {
            let status = axum::http::StatusCode::from_u16(error.code.status()).expect("a status");
            (status, version, axum::Json(error)).into_response()
        }
    }
}

/// There is nothing like this.
pub(in crate::cli) fn unknown(asked: &str) -> Result<String, ApiError> {
    Err(ApiError::new(Code::UnknownRun, format!("there is no run for {asked}")))
}
