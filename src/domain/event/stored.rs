//! Facts as they are stored, and read back.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use super::{Envelope, Event, FORMAT, Fact};
use crate::domain::{
    id::{Pos, RunId, Seq},
    text,
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

/// Reads what other hands have written too: half of a surrogate pair is no reason to lose an event.
pub(super) fn read<T: DeserializeOwned>(kind: &str, data: &str) -> Result<T, DecodeError> {
    text::from_json(data).map_err(|source| DecodeError::Data { kind: kind.to_owned(), source })
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

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::domain::outcome::Outcome;

    #[test]
    fn half_of_a_surrogate_pair_in_stored_text_loses_no_event() {
        let end = r#"{"outcome":"done","text":"bye \ud83e","turns":1,"calls":0,"usage":{"input":1,"output":1},
            "queued_us":0,"duration_us":1,"active_us":1}"#;
        let body = format!(r#"[{{"v":1,"at":1,"turn":1,"kind":"run_end","data":{end}}}]"#);
        let run = RunId::new(Uuid::nil());
        let read = decode(body.as_bytes(), run, Pos::START.plus(1), Seq::START.plus(1)).expect("read");
        let Event::RunEnd(end) = &read[0].fact.event else { panic!("not an end: {read:?}") };
        assert_eq!((end.outcome, &*end.text), (Outcome::Done, "bye \u{fffd}"));
    }
}
