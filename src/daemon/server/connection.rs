//! One connection, from its first byte to its last.
//!
//! Whatever a client does or leaves undone, its connection ends in bounded time and memory, and no other one notices. A
//! request reaches a route with its [`Caller`] and the server's [`Ending`] attached.

use std::{convert::Infallible, panic::AssertUnwindSafe, pin::pin, sync::Arc};

use axum::{
    Router,
    body::Body,
    http::Request,
    response::{IntoResponse, Response},
};
use futures_util::FutureExt;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::{
    Ending, Limits,
    body::{Rest, Stalled, Watched},
    caller::{Caller, Role, Via},
    loopback::admit,
    refusal::Refusal,
    token::Token,
};

/// The least that the HTTP library works with.
const MIN_BUFFER: usize = 8 * 1024;

/// How a client came in, and so how its requests are judged.
pub(super) enum Door {
    /// A user whom the system vouches for; `None` is a stranger.
    Unix(Option<Caller>),
    /// Whoever shows this token has this role.
    Tcp(Token, Role),
    /// One too many.
    Full,
}

impl Door {
    fn judge(&self, request: &Request<Incoming>) -> Result<Caller, Refusal> {
        match self {
            Self::Unix(caller) => caller.ok_or(Refusal::Stranger),
            Self::Tcp(token, role) => {
                admit(token, request.uri(), request.headers())?;
                Ok(Caller { via: Via::Tcp, role: *role })
            }
            Self::Full => Err(Refusal::TooManyConnections),
        }
    }
}

/// What the connections of a server share.
pub(super) struct Shared {
    pub(super) router: Router,
    pub(super) limits: Limits,
    pub(super) ending: Ending,
    /// Once the time for an orderly end has passed.
    pub(super) dead: CancellationToken,
}

/// Serves a connection until either side ends it, or `hung_up` does.
pub(super) async fn serve<S: AsyncRead + AsyncWrite>(
    stream: S,
    door: Door,
    shared: Arc<Shared>,
    hung_up: impl Future<Output = ()>,
) {
    let limits = &shared.limits;
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(limits.write_stall));
    let door = Arc::new(door);
    let service = service_fn(|request| {
        let (door, shared) = (door.clone(), shared.clone());
        async move { Ok::<_, Infallible>(answer(&door, &shared, request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .half_close(true)
        .header_read_timeout(limits.header_time)
        .max_header_size(limits.header_bytes)
        .max_buf_size(limits.header_bytes.max(MIN_BUFFER))
        .serve_connection(TokioIo::new(Box::pin(stream)), service);
    let (mut connection, mut hung_up) = (pin!(connection), pin!(hung_up));
    let mut told = false;
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "connection failed");
                }
                return;
            }
            () = hung_up.as_mut() => return,
            () = shared.dead.cancelled() => return,
            () = shared.ending.token().cancelled(), if !told => {
                told = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

async fn answer(door: &Door, shared: &Shared, request: Request<Incoming>) -> Response {
    let caller = match door.judge(&request) {
        Ok(caller) => caller,
        Err(refusal) => return refusal.into_response(),
    };
    let (stalled, rest, patience) = (Stalled::default(), Rest::default(), shared.limits.body_stall);
    let mut request =
        request.map(|body| Body::new(Watched::new(body, patience, stalled.clone(), rest.clone())));
    request.extensions_mut().insert(caller);
    request.extensions_mut().insert(shared.ending.clone());
    // Nothing is left half done that a later request would see: routes own no state, they ask those who do.
    let answered = AssertUnwindSafe(shared.router.clone().oneshot(request)).catch_unwind().await;
    match answered {
        Ok(_) if stalled.is_set() => Refusal::BodyStalled.into_response(),
        Ok(Ok(response)) => {
            if !response.status().is_success() {
                rest.hear_out(patience).await;
            }
            response
        }
        Ok(Err(never)) => match never {},
        Err(_) => {
            tracing::error!("a route panicked");
            Refusal::Panicked.into_response()
        }
    }
}
