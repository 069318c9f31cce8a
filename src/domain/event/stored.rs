//! Facts as they are stored, and read back.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use super::{Envelope, Event, FORMAT, Fact};
use crate::domain::{
    id::{Pos, RunId, Seq},
    time::Timestamp,
};

/// Why stored text is no event.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    #[error("event kind {0:?} is not known to this version")]
    Kind(String),
    #[error("event of kind {kind:?} does not have that kind's shape")]
    Data {
        kind: String,
        #[source]
        source: serde_json::Error,
    },
    #[error("not a list of events")]
    Body(#[source] serde_json::Error),
}

pub(super) fn read<T: DeserializeOwned>(kind: &str, data: &str) -> Result<T, DecodeError> {
    serde_json::from_str(data).map_err(|source| DecodeError::Data { kind: kind.to_owned(), source })
}

/// A fact as it is stored: what the row it lies in does not tell.
#[derive(Serialize, Deserialize)]
struct Stored<'a> {
    v: u16,
    at: Timestamp,
    turn: u32,
    #[serde(borrow)]
    kind: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    data: &'a RawValue,
}

struct Data<'a>(&'a Event);

impl Serialize for Data<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize_data(serializer)
    }
}

impl Serialize for Fact {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut fields = serializer.serialize_struct("Fact", 5)?;
        fields.serialize_field("v", &FORMAT)?;
        fields.serialize_field("at", &self.at)?;
        fields.serialize_field("turn", &self.turn)?;
        fields.serialize_field("kind", self.event.kind())?;
        fields.serialize_field("data", &Data(&self.event))?;
        fields.end()
    }
}

/// Encodes facts as the body of one append: a JSON list.
///
/// # Errors
/// Only if a value in a fact has no JSON form.
pub fn encode(facts: &[Fact]) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(facts)
}

/// Reads the body of one append back.
///
/// # Errors
/// The first event that this version cannot read.
pub fn decode(body: &[u8], run: RunId, pos: Pos, first: Seq) -> Result<Vec<Envelope>, DecodeError> {
    let stored: Vec<Stored<'_>> = serde_json::from_slice(body).map_err(DecodeError::Body)?;
    stored
        .into_iter()
        .zip(0..)
        .map(|(one, index)| {
            let event = Event::from_parts(&one.kind, one.data.get())?;
            let fact = Fact { at: one.at, turn: one.turn, event };
            Ok(Envelope { v: one.v, pos: pos.plus(index), run, seq: first.plus(index), fact })
        })
        .collect()
}
