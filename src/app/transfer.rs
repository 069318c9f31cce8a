//! Runs as files: the whole log of each, to be kept or taken to another folder.
//!
//! A run is a line that says what it is, its events, and a line that seals them: one that is missing or changed is noticed. A
//! run that has not ended does not go on by itself where it is taken to: it is held until somebody resumes it.

use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::{
    clock::Clock,
    domain::{
        event::{DecodeError, Envelope, Event, FORMAT, Fact},
        id::{Pos, RunId, Seq},
        run::{Input, Run},
        time::Timestamp,
    },
    store::{EventStore, StoreError},
};

/// The version of the file's form.
const FORM: u16 = 1;

/// Events that are handed to a log at once.
const CHUNK: usize = 200;

#[derive(Serialize, Deserialize)]
struct Head {
    herder_export: u16,
    run: RunId,
    herder: String,
}

#[derive(Serialize)]
struct Written<'a> {
    pos: Pos,
    run: RunId,
    seq: Seq,
    #[serde(flatten)]
    fact: &'a Fact,
}

#[derive(Deserialize)]
struct Found<'a> {
    run: RunId,
    seq: Seq,
    v: u16,
    at: Timestamp,
    turn: u32,
    kind: String,
    #[serde(borrow)]
    data: &'a RawValue,
}

#[derive(Serialize, Deserialize)]
struct Seal {
    sealed: RunId,
    events: u64,
    sha256: String,
}

/// Writes a run to `out`.
///
/// # Errors
/// It cannot be written.
pub fn export(run: RunId, log: &[Envelope], out: &mut impl Write) -> io::Result<()> {
    let mut digest = Sha256::new();
    let mut write = |line: serde_json::Result<Vec<u8>>| {
        let mut line = line?;
        line.push(b'\n');
        digest.update(&line);
        out.write_all(&line)
    };
    let herder = env!("CARGO_PKG_VERSION").to_owned();
    write(serde_json::to_vec(&Head { herder_export: FORM, run, herder }))?;
    for Envelope { pos, run, seq, fact, .. } in log {
        write(serde_json::to_vec(&Written { pos: *pos, run: *run, seq: *seq, fact }))?;
    }
    let seal = Seal { sealed: run, events: log.len() as u64, sha256: hex(digest) };
    serde_json::to_writer(&mut *out, &seal)?;
    out.write_all(b"\n")
}

fn hex(digest: Sha256) -> String {
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a file holds of one run.
#[derive(Debug)]
pub struct Exported {
    /// The run.
    pub run: RunId,
    /// Its events.
    pub facts: Vec<Fact>,
}

/// Why a file or a run in it was not taken.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("line {line}: {what}")]
    Damaged { line: usize, what: String },
    #[error("the file ends within run {0}: it was cut short")]
    CutShort(RunId),
    #[error("line {line}: a later version of herder wrote this ({what}); use a newer herder")]
    Newer { line: usize, what: String },
    #[error("run {0} is here already, and is not the same")]
    Exists(RunId),
    #[error("there is no run in it")]
    Empty,
    #[error("the file cannot be read")]
    Read(#[source] io::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Reads the runs of a file. Either all of it is sound, or nothing is given.
///
/// # Errors
/// It is damaged, cut short, or a later version wrote it.
pub fn read(mut file: impl BufRead) -> Result<Vec<Exported>, ImportError> {
    let (mut runs, mut open): (Vec<Exported>, Option<(Exported, Sha256)>) = (Vec::new(), None);
    let mut bytes = Vec::new();
    for line in 1.. {
        bytes.clear();
        if file.read_until(b'\n', &mut bytes).map_err(ImportError::Read)? == 0 {
            break;
        }
        let damaged = |what: &str| ImportError::Damaged { line, what: what.to_owned() };
        let text = std::str::from_utf8(&bytes).map_err(|_| damaged("is no UTF-8"))?;
        open = match open {
            None => {
                let head: Head = serde_json::from_str(text).map_err(|_| damaged("does not begin a run"))?;
                if head.herder_export > FORM {
                    let what = format!("form {}", head.herder_export);
                    return Err(ImportError::Newer { line, what });
                }
                Some((Exported { run: head.run, facts: Vec::new() }, Sha256::new_with_prefix(&bytes)))
            }
            Some((exported, digest)) => match serde_json::from_str::<Seal>(text) {
                Ok(seal) => {
                    if (seal.sealed, seal.events) != (exported.run, exported.facts.len() as u64) {
                        return Err(damaged("events are missing"));
                    }
                    if seal.sha256 != hex(digest) {
                        return Err(damaged("the run was changed after it was written"));
                    }
                    runs.push(exported);
                    None
                }
                Err(_) => Some((exported.followed_by(text, line)?, digest.chain_update(&bytes))),
            },
        };
    }
    match (open, runs.is_empty()) {
        (Some((exported, _)), _) => Err(ImportError::CutShort(exported.run)),
        (None, true) => Err(ImportError::Empty),
        (None, false) => Ok(runs),
    }
}

impl Exported {
    fn followed_by(mut self, text: &str, line: usize) -> Result<Self, ImportError> {
        let damaged = |what: String| ImportError::Damaged { line, what };
        let found: Found<'_> = serde_json::from_str(text).map_err(|_| damaged("is no event".to_owned()))?;
        if found.v > FORMAT {
            return Err(ImportError::Newer { line, what: format!("format {}", found.v) });
        }
        let due = Seq::START.plus(self.facts.len() as u64 + 1);
        if (found.run, found.seq) != (self.run, due) {
            return Err(damaged(format!("event {due} of run {} is due here", self.run)));
        }
        let event = Event::from_parts(&found.kind, found.data.get()).map_err(|error| match error {
            DecodeError::Kind(kind) => ImportError::Newer { line, what: format!("event kind {kind:?}") },
            DecodeError::Data { .. } | DecodeError::Body(_) => damaged(error.to_string()),
        })?;
        if matches!(event, Event::Submitted(_)) != self.facts.is_empty() {
            return Err(damaged("a run begins with its task, and has one".to_owned()));
        }
        self.facts.push(Fact { at: found.at, turn: found.turn, event });
        Ok(self)
    }
}

/// What became of a run that was imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Imported {
    /// It is here now.
    Ended,
    /// It is here now, and is held until somebody resumes it.
    Held,
    /// It was here already.
    Unchanged,
}

/// Puts a run into a log.
///
/// # Errors
/// Another run of its name is there, or the log does not take it.
pub async fn import(
    store: &dyn EventStore,
    exported: &Exported,
    clock: &dyn Clock,
) -> Result<Imported, ImportError> {
    let Exported { run, facts } = exported;
    let known = store.read(*run, Seq::START).await?;
    if !known.is_empty() {
        let texts = |facts: &mut dyn Iterator<Item = &Fact>| -> Vec<String> {
            facts.filter_map(|fact| serde_json::to_string(fact).ok()).collect()
        };
        let is_same =
            texts(&mut known.iter().map(|one| &one.fact).take(facts.len())) == texts(&mut facts.iter());
        return if is_same { Ok(Imported::Unchanged) } else { Err(ImportError::Exists(*run)) };
    }
    let mut state = Run::replay(*run, facts);
    let mut last = None;
    let mut place = Seq::START;
    for chunk in facts.chunks(CHUNK) {
        last = Some(store.append(*run, place, chunk)?);
        place = place.plus(chunk.len() as u64);
    }
    let is_open = state.outcome().is_none();
    // Whoever takes up what is open leaves it until it is resumed.
    for input in [Input::Interrupt, Input::Pause].into_iter().filter(|_| is_open) {
        let held = state.decide(input, clock.now()).unwrap_or_default();
        if !held.is_empty() {
            last = Some(store.append(*run, state.seq(), &held)?);
            held.iter().for_each(|fact| state.evolve(fact));
        }
    }
    if let Some(last) = last {
        store.durable(last).await?;
    }
    Ok(if is_open { Imported::Held } else { Imported::Ended })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        clock::SystemClock,
        domain::outcome::Outcome,
        store::{RunFilter, memory::MemoryStore},
    };

    /// A run as an earlier herder wrote it.
    const SAMPLE: &str = include_str!("../../tests/formats/export-1.jsonl");

    fn facts(ended: bool) -> (RunId, Vec<Fact>) {
        let run = RunId::new(uuid::Uuid::from_u128(7));
        let spec = serde_json::json!({"task": "caf\u{e9}", "attempt": 1, "model": "m", "workspace": "/w"});
        let submit = Input::Submit(Arc::new(serde_json::from_value(spec).expect("a spec")));
        let mut facts = Run::new(run).decide(submit, Timestamp::from_micros(1)).expect("facts");
        if ended {
            let end = Input::End(Outcome::Cancelled);
            facts.extend(Run::replay(run, &facts).decide(end, Timestamp::from_micros(2)).expect("facts"));
        }
        (run, facts)
    }

    async fn exported(ended: bool) -> Vec<u8> {
        let (store, (run, facts)) = (MemoryStore::default(), facts(ended));
        store.append(run, Seq::START, &facts).expect("taken");
        let mut out = Vec::new();
        export(run, &store.read(run, Seq::START).await.expect("read"), &mut out).expect("written");
        out
    }

    #[tokio::test]
    async fn a_run_that_was_taken_elsewhere_is_the_same_there_and_taking_it_again_changes_nothing() {
        let file = exported(true).await;
        let store = MemoryStore::default();
        let runs = read(&file[..]).expect("sound");
        assert_eq!(import(&store, &runs[0], &SystemClock).await.expect("taken"), Imported::Ended);
        assert_eq!(import(&store, &runs[0], &SystemClock).await.expect("taken"), Imported::Unchanged);
        let mut again = Vec::new();
        export(runs[0].run, &store.read(runs[0].run, Seq::START).await.expect("read"), &mut again)
            .expect("written");
        assert_eq!(String::from_utf8(again), String::from_utf8(file));
        let other = Exported { run: runs[0].run, facts: facts(true).1[..1].to_vec() };
        assert_eq!(import(&store, &other, &SystemClock).await.expect("a beginning"), Imported::Unchanged);
        let mut changed = facts(true).1;
        changed[0].at = Timestamp::from_micros(9);
        let refused = import(&store, &Exported { run: other.run, facts: changed }, &SystemClock).await;
        assert!(matches!(refused, Err(ImportError::Exists(_))));
    }

    #[tokio::test]
    async fn a_run_that_has_not_ended_is_held_where_it_is_taken_to() {
        let store = MemoryStore::default();
        let runs = read(&exported(false).await[..]).expect("sound");
        assert_eq!(import(&store, &runs[0], &SystemClock).await.expect("taken"), Imported::Held);
        assert_eq!(import(&store, &runs[0], &SystemClock).await.expect("taken"), Imported::Unchanged);
        let log = store.read(runs[0].run, Seq::START).await.expect("read");
        assert!(Run::replay(runs[0].run, log.iter().map(|one| &one.fact)).is_paused());
        assert_eq!(store.runs(RunFilter::default()).await.expect("runs").len(), 1);
    }

    #[tokio::test]
    async fn a_file_that_is_not_whole_is_refused_with_the_line() {
        let whole = String::from_utf8(exported(true).await).expect("text");
        let lines: Vec<&str> = whole.split_inclusive('\n').collect();
        let told = |bytes: &[u8]| read(bytes).expect_err("refused").to_string();
        let run = facts(true).0;
        let cut_short = format!("the file ends within run {run}: it was cut short");
        assert_eq!(told(lines[..2].concat().as_bytes()), cut_short);
        assert_eq!(told(&whole.as_bytes()[..lines[0].len() + 9]), "line 2: is no event");
        let within_a_letter = whole.find('é').expect("there") + 1;
        assert_eq!(told(&whole.as_bytes()[..within_a_letter]), "line 2: is no UTF-8");
        assert_eq!(
            told(whole.replace("café", "cafe").as_bytes()),
            "line 5: the run was changed after it was written"
        );
        let gap = [lines[0], lines[1], lines[3], lines[4]].concat();
        assert_eq!(told(gap.as_bytes()), format!("line 3: event 2 of run {run} is due here"));
        let missing = [lines[0], lines[1], lines[4]].concat();
        assert_eq!(told(missing.as_bytes()), "line 3: events are missing");
        assert_eq!(told(b""), "there is no run in it");
        assert_eq!(told(b"notes\n"), "line 1: does not begin a run");
        assert!(read(whole.trim_end().as_bytes()).is_ok());
        for newer in [
            whole.replace("\"herder_export\":1", "\"herder_export\":2"),
            whole.replace("\"kind\":\"run_end\"", "\"kind\":\"tea_break\""),
            whole.replace("\"v\":1", "\"v\":2"),
        ] {
            assert!(matches!(read(newer.as_bytes()), Err(ImportError::Newer { .. })), "{newer}");
        }
    }

    #[test]
    fn what_an_earlier_version_exported_is_read() {
        let runs = read(SAMPLE.as_bytes()).expect("sound");
        let state = Run::replay(runs[0].run, &runs[0].facts);
        assert_eq!((runs.len(), state.outcome()), (1, Some(Outcome::Cancelled)));
    }
}
