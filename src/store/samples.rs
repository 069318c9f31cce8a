//! One event of each kind as version 1 stores it, and facts made for tests.
//!
//! The text is what is in people's folders: it is added to, never changed, and must read and write back as it is.

use std::sync::Arc;

use crate::domain::{
    event::{Envelope, Event, Fact, RunEnd, TurnStart, decode, encode},
    id::{BatchId, Pos, RunId, Seq},
    outcome::Outcome,
    task::TaskSpec,
    time::Timestamp,
    usage::Usage,
};

/// One event of each kind, one a line.
const STORED: &str = include_str!("samples.jsonl");

fn body() -> String {
    format!("[{}]", STORED.lines().collect::<Vec<_>>().join(","))
}

/// One fact of each kind.
pub(super) fn every_kind() -> Vec<Fact> {
    let run = RunId::from_bytes([7; 16]);
    let stored = decode(body().as_bytes(), run, Pos::new(1), Seq::new(1)).unwrap();
    stored.into_iter().map(|one| one.fact).collect()
}

pub(super) fn run_id(number: u64) -> RunId {
    RunId::from_bytes(u128::from(number).to_be_bytes())
}

/// What a test can compare of an envelope.
pub(super) fn text(envelope: &Envelope) -> String {
    let Envelope { v, pos, run, seq, fact } = envelope;
    format!("{v} {pos} {run} {seq} {}", serde_json::to_string(fact).unwrap())
}

pub(super) fn texts(envelopes: &[Envelope]) -> Vec<String> {
    envelopes.iter().map(text).collect()
}

pub(super) fn submitted(at: i64, batch: Option<BatchId>, task_id: &str, attempt: u32) -> Fact {
    let spec = format!(
        r#"{{"task":"count","task_id":{task_id:?},"attempt":{attempt},"model":"scripted","workspace":"/w"}}"#
    );
    let spec = TaskSpec { batch, ..serde_json::from_str(&spec).unwrap() };
    Fact { at: Timestamp::from_micros(at), turn: 0, event: Event::Submitted(Arc::new(spec)) }
}

pub(super) fn turn(turn: u32) -> Fact {
    Fact { at: Timestamp::from_micros(turn.into()), turn, event: Event::TurnStart(TurnStart {}) }
}

pub(super) fn end() -> RunEnd {
    RunEnd {
        outcome: Outcome::Done,
        text: "all counted".into(),
        error: None,
        turns: 1,
        calls: 0,
        usage: Usage::default(),
        queued_us: 1,
        duration_us: 2,
        active_us: 3,
    }
}

pub(super) fn run_end(at: i64) -> Fact {
    Fact { at: Timestamp::from_micros(at), turn: 1, event: Event::RunEnd(Box::new(end())) }
}

#[test]
fn there_is_a_stored_sample_of_every_kind() {
    let kinds: Vec<_> = every_kind().iter().map(|fact| fact.event.kind()).collect();
    assert_eq!(kinds, Event::KINDS);
}

#[test]
fn what_is_stored_reads_and_writes_back_as_it_is() {
    let written = String::from_utf8(encode(&every_kind()).unwrap()).unwrap();
    assert_eq!(written.replace("},{\"v\":", "},\n{\"v\":"), body().replace("},{\"v\":", "},\n{\"v\":"));
}
