//! One request and its answer over HTTP: what every provider's protocol has in common.
//!
//! Status, content type, chunks, events, cancellation and the end of the body are handled here; a [`Codec`] knows what
//! the events mean. The digest of what is sent is told first, then what the head of the answer says of limits. Every
//! wait ends when the request is cancelled, and a dropped stream closes its connection. Knows nothing of retries, nor
//! of how long silence may last.

use std::{collections::VecDeque, ops::Add, time::Duration};

use futures_util::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use jiff::Timestamp;
use reqwest::{
    RequestBuilder, Response,
    header::{CONTENT_TYPE, LOCATION},
};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{
    Delta, ModelError, RateLimits, fault,
    http::Post,
    secret::Secrets,
    sse::{Decoder, Event, Flow, MAX_EVENT, TooLong},
};
use crate::domain::outcome::FaultClass;

/// Bytes of an error's body that are read.
const ERROR_BODY: usize = 64 * 1024;

/// Bytes that an answer in one piece may have: as many as one event.
const WHOLE_BODY: usize = MAX_EVENT;

/// Bytes that a codec may hold back until they are whole.
const MOST_BYTES: usize = MAX_EVENT;

/// Calls, blocks and the like that a codec may keep apart: far more than a model makes.
const MOST_PARTS: usize = 10_000;

/// How long the rest of an error's body may take: the status is known, and enough.
const ERROR_BODY_TIME: Duration = Duration::from_secs(5);

/// How long the body's end may take once the answer is whole. A body read to its end leaves its connection in use.
const LAST_BYTES_TIME: Duration = Duration::from_millis(50);

/// Deltas that wait to be read.
pub(crate) type Deltas = VecDeque<Delta>;

/// What a provider's answers mean. One codec reads one answer.
pub(crate) trait Codec: Send + 'static {
    /// Takes one event of a stream. Done: the answer is whole, the codec has put out its last delta.
    fn event(&mut self, event: Event<'_>, out: &mut Deltas) -> Result<Flow, ModelError>;

    /// Takes the end of the stream, where no event was the last: puts out the last delta, or says what is missing.
    fn end(&mut self, out: &mut Deltas) -> Result<(), ModelError>;

    /// Takes an answer that came in one piece, from a server that does not stream.
    fn whole(&mut self, body: &str, out: &mut Deltas) -> Result<(), ModelError>;

    /// How much it holds back until it is whole. What it puts out is for others to bound.
    fn held(&self) -> Held;
}

/// What is held of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) bytes: usize,
    pub(crate) parts: usize,
}

impl Held {
    fn check(self) -> Result<(), TooMuch> {
        if self.bytes > MOST_BYTES {
            Err(TooMuch::Bytes)
        } else if self.parts > MOST_PARTS {
            Err(TooMuch::Parts)
        } else {
            Ok(())
        }
    }
}

impl Add for Held {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { bytes: self.bytes + other.bytes, parts: self.parts + other.parts }
    }
}

/// An answer holds more than any model says.
#[derive(Debug, thiserror::Error)]
enum TooMuch {
    #[error("the calls of the answer are longer than {MOST_BYTES} bytes")]
    Bytes,
    #[error("the answer has more than {MOST_PARTS} parts")]
    Parts,
    #[error("the answer is longer than {WHOLE_BODY} bytes")]
    Whole,
}

/// Sends the request and reads its answer. `secrets` are kept out of messages, should the server repeat them.
pub(crate) fn exchange(
    post: Post,
    codec: impl Codec,
    secrets: Secrets,
    cancel: CancellationToken,
) -> BoxStream<'static, Result<Delta, ModelError>> {
    let Post { request, digest } = post;
    let mut reading = Reading::new(codec);
    reading.out.push_back(Delta::Sent(digest));
    // Boxed, since it is handed on with every delta.
    let exchange = Box::new(Exchange {
        phase: Phase::Asking(Box::new(request)),
        reading,
        failure: None,
        secrets,
        cancel,
    });
    stream::unfold(exchange, Exchange::next).fuse().boxed()
}

struct Exchange<C> {
    phase: Phase,
    reading: Reading<C>,
    /// Told once everything that came before it is read.
    failure: Option<ModelError>,
    secrets: Secrets,
    cancel: CancellationToken,
}

/// Boxed, since a phase is taken up and put back with every chunk.
enum Phase {
    Asking(Box<RequestBuilder>),
    Answering(Box<Response>),
    /// The answer is whole; the body may not be.
    Ending(Box<Response>),
    Over,
}

/// What has become of the body so far.
pub(crate) struct Reading<C> {
    codec: C,
    decoder: Decoder,
    pub(crate) out: Deltas,
}

impl<C: Codec> Exchange<C> {
    async fn next(mut self: Box<Self>) -> Option<(Result<Delta, ModelError>, Box<Self>)> {
        loop {
            if let Some(delta) = self.reading.out.pop_front() {
                return Some((Ok(delta), self));
            }
            if let Some(failure) = self.failure.take() {
                return Some((Err(failure), self));
            }
            let step = match std::mem::replace(&mut self.phase, Phase::Over) {
                Phase::Asking(request) => self.cancel.run_until_cancelled(self.reading.ask(*request)).await,
                Phase::Answering(response) => {
                    self.cancel.run_until_cancelled(self.reading.read(response)).await
                }
                Phase::Ending(mut response) => {
                    let rest = async { while let Ok(Some(_)) = response.chunk().await {} };
                    // However it goes, the answer stands.
                    let _ = self.cancel.run_until_cancelled(timeout(LAST_BYTES_TIME, rest)).await;
                    return None;
                }
                Phase::Over => return None,
            };
            match step {
                Some(Ok(phase)) => self.phase = phase,
                Some(Err(error)) => {
                    self.failure = Some(ModelError { message: self.secrets.redact(error.message), ..error });
                }
                None => self.failure = Some(ModelError::cancelled()),
            }
        }
    }
}

impl<C: Codec> Reading<C> {
    /// Sends the request and judges the head of its answer.
    async fn ask(&mut self, request: RequestBuilder) -> Result<Phase, ModelError> {
        let mut response = request.send().await.map_err(fault::from_transport)?;
        let (status, now) = (response.status(), Timestamp::now());
        self.out.extend(RateLimits::from_headers(response.headers(), now).map(Delta::RateLimits));
        if status.is_redirection()
            && let Some(place) = response.headers().get(LOCATION).and_then(|value| value.to_str().ok())
        {
            let place = fault::quote(place.split(['?', '#']).next().unwrap_or_default());
            let message = format!(
                "HTTP {}: the server redirects to {place}, which is not followed, since a request carries a key",
                status.as_u16()
            );
            return Err(ModelError { refused: true, ..ModelError::new(FaultClass::Invalid, message) });
        }
        if !status.is_success() {
            let retry_after = fault::retry_after(response.headers(), now);
            let mut body = Vec::new();
            // A body that does not come, or not whole, takes nothing from the status.
            let _ = timeout(ERROR_BODY_TIME, read(&mut response, &mut body, ERROR_BODY)).await;
            return Err(fault::from_status(status.as_u16(), &String::from_utf8_lossy(&body), retry_after));
        }
        let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let media_type = content_type.unwrap_or_default().split(';').next().unwrap_or_default().trim();
        match media_type.to_ascii_lowercase().as_str() {
            // Some servers leave it out.
            "text/event-stream" | "" => Ok(Phase::Answering(Box::new(response))),
            "application/json" => {
                let mut body = Vec::new();
                read(&mut response, &mut body, WHOLE_BODY + 1).await?;
                if body.len() > WHOLE_BODY {
                    return Err(TooMuch::Whole.into());
                }
                self.codec.whole(&String::from_utf8_lossy(&body), &mut self.out)?;
                Ok(Phase::Over)
            }
            _ => {
                let message = format!(
                    "HTTP {} with content type {}, not an event stream",
                    status.as_u16(),
                    fault::quote(media_type)
                );
                Err(ModelError::new(FaultClass::Transient, message))
            }
        }
    }

    /// Reads one chunk of the answer, or its end.
    async fn read(&mut self, mut response: Box<Response>) -> Result<Phase, ModelError> {
        let flow = match response.chunk().await {
            Ok(Some(bytes)) => self.take(&bytes)?,
            Ok(None) => self.end()?,
            // An answer that was whole before the connection failed is an answer.
            Err(error) => self.end().map_err(|_| fault::from_transport(error))?,
        };
        Ok(if flow == Flow::Done { Phase::Ending(response) } else { Phase::Answering(response) })
    }

    pub(crate) fn new(codec: C) -> Self {
        Self { codec, decoder: Decoder::default(), out: Deltas::new() }
    }

    /// Takes a chunk of a stream.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<Flow, ModelError> {
        let Self { codec, decoder, out } = self;
        decoder.feed(bytes, |event| {
            let flow = codec.event(event, out)?;
            codec.held().check()?;
            Ok(flow)
        })
    }

    /// Takes the end of a stream.
    pub(crate) fn end(&mut self) -> Result<Flow, ModelError> {
        let Self { codec, decoder, out } = self;
        match decoder.end(|event| codec.event(event, out)) {
            Ok(Flow::Done) => {}
            Ok(Flow::More) => codec.end(out)?,
            // A torn event after an answer that was whole takes nothing from it.
            Err(error) => codec.end(out).map_err(|_| error)?,
        }
        Ok(Flow::Done)
    }
}

/// Reads a body to its end or to `limit` bytes.
async fn read(response: &mut Response, body: &mut Vec<u8>, limit: usize) -> Result<(), ModelError> {
    while body.len() < limit
        && let Some(bytes) = response.chunk().await.map_err(fault::from_transport)?
    {
        body.extend_from_slice(&bytes[..bytes.len().min(limit - body.len())]);
    }
    Ok(())
}

impl From<TooMuch> for ModelError {
    fn from(error: TooMuch) -> Self {
        Self::new(FaultClass::Transient, error.to_string())
    }
}

impl From<TooLong> for ModelError {
    fn from(error: TooLong) -> Self {
        Self::new(FaultClass::Transient, error.to_string())
    }
}
