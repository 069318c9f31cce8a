//! What goes over the wire: server-sent events, joined into chunks.
//!
//! An event is encoded once for all who are sent it; only the line that names its place differs from stream to stream.
//! What is not of record has no such line, so a client's cursor never leaves the log.

use axum::body::Bytes;
use serde::{Serialize, Serializer, ser::SerializeStruct};
use serde_json::json;

use crate::{
    actor::{Live, LiveDelta},
    clock::rfc3339,
    daemon::wire::{ApiError, Code},
    domain::{
        event::{Envelope, Event},
        id::{Pos, RunId, Seq},
    },
    store::StoreError,
};

/// Bytes after which a chunk is handed on.
const CHUNK: usize = 64 << 10;

/// The public JSON of an event.
#[derive(Clone, Copy, Debug)]
pub struct EventJson<'a>(pub &'a Envelope);

struct Data<'a>(&'a Event);

impl Serialize for Data<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize_data(serializer)
    }
}

impl Serialize for EventJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Envelope { v, pos, run, seq, fact } = self.0;
        let mut fields = serializer.serialize_struct("Event", 8)?;
        fields.serialize_field("v", v)?;
        fields.serialize_field("pos", pos)?;
        fields.serialize_field("run", run)?;
        fields.serialize_field("seq", seq)?;
        fields.serialize_field("at", &rfc3339(fact.at))?;
        fields.serialize_field("turn", &fact.turn)?;
        fields.serialize_field("kind", fact.event.kind())?;
        fields.serialize_field("data", &Data(&fact.event))?;
        fields.end()
    }
}

/// An event, encoded but for its place.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) pos: Pos,
    pub(super) seq: Seq,
    /// Whether it is its run's last.
    pub(super) ends: bool,
    pub(super) text: Bytes,
}

impl Frame {
    pub(super) fn of(envelope: &Envelope) -> Self {
        let mut text = format!("event: {}\ndata: ", envelope.fact.event.kind()).into_bytes();
        let data = text.len();
        if let Err(error) = serde_json::to_writer(&mut text, &EventJson(envelope)) {
            // What was read from a log can be written again.
            tracing::error!(error = %error, "event not encoded");
        }
        // Only blanks between the tokens of a JSON text that came from outside can break a line.
        for byte in &mut text[data..] {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
        text.extend(b"\n\n");
        Self {
            pos: envelope.pos,
            seq: envelope.seq,
            ends: matches!(envelope.fact.event, Event::RunEnd(_)),
            text: text.into(),
        }
    }
}

/// A piece of text as it is spoken. Not of record.
pub(super) fn delta(live: &Live) -> Bytes {
    let Live { run, turn, what } = live;
    let (kind, text) = match what {
        LiveDelta::Text(text) => ("text", text),
        LiveDelta::Reasoning(text) => ("reasoning", text),
    };
    let data = Delta { run: *run, turn: *turn, text };
    format!("event: {kind}\ndata: {}\n\n", serde_json::to_string(&data).unwrap_or_default()).into()
}

#[derive(Serialize)]
struct Delta<'a> {
    run: RunId,
    turn: u32,
    text: &'a str,
}

/// Why a stream ended.
#[derive(Clone, Debug)]
pub(super) enum End {
    /// The run that it followed has.
    Ended,
    /// The server or its log is closing.
    Closing,
    /// The log could not be read.
    Failed(ApiError),
}

impl From<&StoreError> for End {
    fn from(error: &StoreError) -> Self {
        let code = match error {
            StoreError::Closed => return Self::Closing,
            StoreError::Damaged { .. } | StoreError::Conflict { .. } | StoreError::Encode(_) => {
                Code::Internal
            }
            StoreError::Unavailable(_) | StoreError::Malformed(_) => Code::StoreUnavailable,
        };
        Self::Failed(ApiError::new(code, error.to_string()))
    }
}

/// Text on its way to one client.
#[derive(Debug, Default)]
pub(super) struct Chunk(Vec<u8>);

impl Chunk {
    /// Whether it is large enough to be handed on.
    pub(super) const fn is_full(&self) -> bool {
        self.0.len() >= CHUNK
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn into_bytes(self) -> Bytes {
        self.0.into()
    }

    /// How long a client is to wait before it comes again, and where it is to go on then.
    pub(super) fn hello(&mut self, after: u64) {
        self.0.extend(format!("retry: 1000\nid: {after}\n\n").as_bytes());
    }

    pub(super) fn event(&mut self, id: u64, frame: &Frame) {
        self.0.extend(format!("id: {id}\n").as_bytes());
        self.0.extend(&frame.text);
    }

    pub(super) fn delta(&mut self, text: &Bytes) {
        self.0.extend(text);
    }

    pub(super) fn ping(&mut self) {
        self.0.extend(b": ping\n\n");
    }

    pub(super) fn lagged(&mut self, missed: u64) {
        self.special("lagged", &json!({ "missed": missed }));
    }

    pub(super) fn gap(&mut self, after: u64) {
        let message = "this reader was too slow and was cut off; resume after the last id that was received";
        self.special("gap", &json!({ "code": "slow_reader", "after": after, "message": message }));
    }

    pub(super) fn end(&mut self, end: &End) {
        match end {
            End::Closing => {
                let message = "herder is closing; resume once it is back";
                self.special("end", &json!({ "code": "closing", "message": message }));
            }
            End::Ended => self.special("end", &json!({ "code": "ended", "message": "the run has ended" })),
            End::Failed(error) => self.special("error", &json!(error)),
        }
    }

    fn special(&mut self, event: &str, data: &serde_json::Value) {
        self.0.extend(format!("event: {event}\ndata: {data}\n\n").as_bytes());
    }
}
