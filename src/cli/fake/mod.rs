//! A daemon for tests of the commands: it answers on a Unix socket what it was told to answer.

use std::path::PathBuf;

use axum::{Router, body::Body, middleware::map_response, response::Response};
use hyper::server::conn::http1;
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio_util::task::AbortOnDropHandle;

use crate::daemon::{
    client::Client,
    wire::{API_VERSION, VERSION_HEADER},
};

pub(super) mod asked;

/// Answers for as long as it lives.
pub(super) struct Fake {
    folder: TempDir,
    serving: AbortOnDropHandle<()>,
}

impl Fake {
    pub(super) fn start(router: Router) -> Self {
        Self::start_in(TempDir::new().expect("a folder"), router)
    }

    /// Ends, and starts anew in the same place with other answers.
    pub(super) fn restarted(self, router: Router) -> Self {
        drop(self.serving);
        std::fs::remove_file(self.folder.path().join("herder.sock")).expect("removed");
        Self::start_in(self.folder, router)
    }

    fn start_in(folder: TempDir, router: Router) -> Self {
        let listener = UnixListener::bind(folder.path().join("herder.sock")).expect("a socket");
        let router = router.layer(map_response(|mut response: Response| async {
            response.headers_mut().insert(VERSION_HEADER, API_VERSION.into());
            response
        }));
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let service = TowerToHyperService::new(router.clone());
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { folder, serving: AbortOnDropHandle::new(serving) }
    }

    pub(super) fn client(&self) -> Client {
        Client::at_socket(&self.path("herder.sock")).expect("a client")
    }

    /// A path in its folder.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// A body of these parts. It breaks off at the end if `breaks`.
pub(super) fn parts(parts: Vec<String>, breaks: bool) -> Body {
    let broken = breaks.then(|| Err(std::io::Error::other("broken")));
    Body::from_stream(futures_util::stream::iter(parts.into_iter().map(Ok).chain(broken)))
}
