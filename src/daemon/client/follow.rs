//! Events as they come, each once and in order, over as many connections as it takes.

use std::{collections::VecDeque, time::Duration};

use reqwest::{Method, Response};
use tokio::time::Instant;

use super::{Client, ClientError, Route};
use crate::daemon::wire::{ApiError, Code};
use crate::domain::time::Pauses;
use crate::model::sse::{self, Decoder, Flow};

/// How long a daemon that went away is waited for.
const WINDOW: Duration = Duration::from_secs(30);

/// Between two tries to reach it: at first, and at most.
const PAUSES: Pauses = Pauses::between(Duration::from_millis(50), Duration::from_secs(1));

/// One event of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its id, to go on after; absent for what is not of record.
    pub id: Option<u64>,
    /// Its kind.
    pub name: String,
    /// What it says, as JSON.
    pub data: String,
}

/// Follows events. A connection that breaks, a daemon that starts again and a reader that was cut off for its slowness
/// are all gone on from where the last event ended.
#[derive(Debug)]
pub struct Follower {
    client: Client,
    route: Route,
    after: Option<u64>,
    window: Duration,
    connection: Option<(Response, Decoder)>,
    ready: VecDeque<Event>,
    over: bool,
    /// Why no more comes, once what has come is handed on.
    failed: Option<ClientError>,
}

impl Follower {
    pub(super) const fn new(client: Client, route: Route, after: Option<u64>) -> Self {
        Self {
            client,
            route,
            after,
            window: WINDOW,
            connection: None,
            ready: VecDeque::new(),
            over: false,
            failed: None,
        }
    }

    /// Waits this long for a daemon that went away; zero: not at all.
    #[must_use]
    pub const fn waiting(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// The next event. Nothing once the stream is over, as that of a run is when the run has ended.
    ///
    /// # Errors
    /// The daemon refuses, or it is gone for longer than it is waited for.
    pub async fn next(&mut self) -> Result<Option<Event>, ClientError> {
        let mut pauses = PAUSES;
        let mut since = None;
        loop {
            while let Some(event) = self.ready.pop_front() {
                if event.id.is_some_and(|id| Some(id) <= self.after) {
                    continue;
                }
                self.after = event.id.or(self.after);
                return Ok(Some(event));
            }
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
            if self.over {
                return Ok(None);
            }
            match self.read().await {
                Ok(()) => since = None,
                // What came before it comes first.
                Err(error) if !error.may_pass() => self.failed = Some(error),
                Err(_) if !self.ready.is_empty() => self.connection = None,
                Err(error) => {
                    self.connection = None;
                    let since = *since.get_or_insert_with(Instant::now);
                    if since.elapsed() + pauses.coming() > self.window {
                        return Err(error);
                    }
                    tokio::time::sleep(pauses.take()).await;
                }
            }
        }
    }

    /// Reads some more, over a new connection if there is none.
    async fn read(&mut self) -> Result<(), ClientError> {
        let (response, decoder) = match &mut self.connection {
            Some(connection) => connection,
            None => {
                let request = self.client.request(Method::GET, &self.route);
                let request = match self.after {
                    Some(after) => request.header("last-event-id", after),
                    None => request,
                };
                let response = self.client.send(request).await?;
                self.connection.insert((response, Decoder::default()))
            }
        };
        let lost = |source| ClientError::Lost { place: self.client.place.clone(), source };
        let chunk = response.chunk().await.map_err(|source| lost(Some(source)))?;
        let Some(chunk) = chunk else { return Err(lost(None)) };
        let (ready, mut told) = (&mut self.ready, Told::Nothing);
        let taken = decoder.feed(&chunk, |event: sse::Event<'_>| {
            told = Told::by(event);
            if !matches!(told, Told::Nothing) {
                return Ok(Flow::Done);
            }
            ready.push_back(Event {
                id: event.id.parse().ok(),
                name: event.name.to_owned(),
                data: event.data.to_owned(),
            });
            Ok::<_, sse::TooLong>(Flow::More)
        });
        // A stream that begins at the log's end says where that is, before there is an event.
        if self.after.is_none() && !ready.iter().any(|event| event.id.is_some()) {
            self.after = decoder.last_id().parse().ok();
        }
        match (taken, told) {
            // None of herder's events is that long.
            (Err(sse::TooLong), _) => Err(lost(None)),
            (Ok(_), Told::Nothing) => Ok(()),
            (Ok(_), Told::Over) => {
                self.over = true;
                Ok(())
            }
            (Ok(_), Told::Gap) => {
                self.connection = None;
                Ok(())
            }
            (Ok(_), Told::Closing) => Err(lost(None)),
            (Ok(_), Told::Refused(error)) => Err(ClientError::Refused(error)),
        }
    }
}

/// What the daemon says of the stream itself.
enum Told {
    /// It was an event.
    Nothing,
    /// No more will come.
    Over,
    /// This reader was too slow, and goes on from where it is.
    Gap,
    /// The daemon stops.
    Closing,
    /// The stream cannot go on.
    Refused(ApiError),
}

impl Told {
    fn by(event: sse::Event<'_>) -> Self {
        let code = |event: sse::Event<'_>| {
            let data: serde_json::Value = serde_json::from_str(event.data).unwrap_or_default();
            data["code"].as_str().map(str::to_owned)
        };
        match event.name {
            "end" if code(event).as_deref() == Some("ended") => Self::Over,
            "end" => Self::Closing,
            "gap" => Self::Gap,
            "error" => Self::Refused(
                serde_json::from_str(event.data)
                    .unwrap_or_else(|_| ApiError::new(Code::Internal, event.data)),
            ),
            _ => Self::Nothing,
        }
    }
}
