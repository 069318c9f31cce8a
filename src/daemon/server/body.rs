//! A request's body that may not stop coming, and what becomes of what a route leaves of it.
//!
//! Only time in which somebody waits for it counts. Knows nothing of how large a body may be: each route says so.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::body::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Sleep, sleep, timeout};

/// Whether a body was given up. Shared with whoever answers for it.
#[derive(Clone, Debug, Default)]
pub(super) struct Stalled(Arc<AtomicBool>);

impl Stalled {
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a route has left of a body. Shared with whoever answers for it.
#[derive(Clone, Debug, Default)]
pub(super) struct Rest(Arc<Mutex<Option<Incoming>>>);

/// Bytes of a refused body that are heard out. Most clients read no answer before they have sent everything.
const HEARD_OUT: usize = 128 << 20;

impl Rest {
    /// Takes in what is left, for no longer than this and within bounds, and forgets it.
    pub(super) async fn hear_out(&self, patience: Duration) {
        let body = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut body) = body.filter(|body| !body.is_end_stream()) else { return };
        let hear = async {
            let mut heard = 0;
            while heard <= HEARD_OUT
                && let Some(Ok(frame)) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await
            {
                heard += frame.data_ref().map_or(0, Bytes::len);
            }
        };
        // Whoever is slower than that may miss the answer.
        let _ = timeout(patience, hear).await;
    }
}

/// A body that ends in an error once nothing of it has come for so long.
pub(super) struct Watched {
    /// Here until this is dropped.
    body: Option<Incoming>,
    patience: Duration,
    waiting: Option<Pin<Box<Sleep>>>,
    stalled: Stalled,
    rest: Rest,
}

impl Watched {
    pub(super) fn new(body: Incoming, patience: Duration, stalled: Stalled, rest: Rest) -> Self {
        Self { body: Some(body), patience, waiting: None, stalled, rest }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        *self.rest.0.lock().unwrap_or_else(PoisonError::into_inner) = self.body.take();
    }
}

impl Body for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        if let Poll::Ready(frame) = Pin::new(body).poll_frame(context) {
            this.waiting = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(axum::Error::new)));
        }
        let patience = this.patience;
        let waiting = this.waiting.get_or_insert_with(|| Box::pin(sleep(patience)));
        std::task::ready!(waiting.as_mut().poll(context));
        this.stalled.0.store(true, Ordering::Relaxed);
        let error = io::Error::new(io::ErrorKind::TimedOut, "the request's body stopped coming");
        Poll::Ready(Some(Err(axum::Error::new(error))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(Incoming::size_hint).unwrap_or_default()
    }
}
