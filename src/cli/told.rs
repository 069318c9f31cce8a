//! An event as a daemon tells it: what every command that follows events reads it with.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{daemon::client, domain::event::Event};

/// Who reads ignores what they do not know: kinds may have come with a later daemon.
#[derive(Debug)]
pub(super) struct Told {
    /// When it happened, as `03:04:05` in UTC.
    pub(super) time: String,
    pub(super) turn: u32,
    pub(super) kind: String,
    /// The event, or its data as JSON if this version does not know the kind.
    pub(super) event: Result<Event, String>,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    at: String,
    turn: u32,
    kind: String,
    #[serde(borrow)]
    data: &'a RawValue,
}

impl Told {
    /// Reads an event of record; nothing if it is none.
    pub(super) fn read(event: &client::Event) -> Option<Self> {
        let Envelope { at, turn, kind, data } = serde_json::from_str(&event.data).ok()?;
        let time = at.parse::<jiff::Timestamp>().map_or(at, |at| at.strftime("%H:%M:%S").to_string());
        let event = Event::from_parts(&kind, data.get()).map_err(|_| data.get().to_owned());
        Some(Self { time, turn, kind, event })
    }
}
