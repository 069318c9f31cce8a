//! Runs as files: the whole log of each, to be kept or taken to another folder.
//!
//! A run is a line that says what it is, its events, and a line that seals them: one that is missing or changed by accident is
//! noticed. Whoever can write the file can write the seal too, so nothing is done because the file says that it was allowed. A
//! run that has not ended does not go on by itself where it is taken to: it is held until somebody resumes it.

use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::{
    clock::Clock,
    domain::{
        event::{DecodeError, Envelope, Event, FORMAT, Fact, RestartCause},
        id::{Pos, RunId, Seq},
        run::{Input, Run},
        time::Timestamp,
    },
    store::{EventStore, StoreError},
};

/// The version of the file's form.
const FORM: u16 = 1;

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

/// Puts a run into a log, at once or not at all. Of one of which the log has only a beginning, the rest is added.
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
    let is_same = known.iter().zip(facts).all(|(known, fact)| text(&known.fact) == text(fact));
    if !is_same {
        return Err(ImportError::Exists(*run));
    }
    let Some(new @ [_, ..]) = facts.get(known.len()..) else { return Ok(Imported::Unchanged) };
    let mut state = Run::replay(*run, facts);
    let held = if state.outcome().is_none() { hold(&mut state, clock.now()) } else { Vec::new() };
    let place = Seq::START.plus(known.len() as u64);
    store.durable(store.append(*run, place, &[new, &held].concat())?).await?;
    Ok(if state.outcome().is_none() { Imported::Held } else { Imported::Ended })
}

fn text(fact: &Fact) -> Option<String> {
    serde_json::to_string(fact).ok()
}

/// Leaves a run to whoever resumes it. What was at work on it is at work elsewhere, or no more: its commands are none of
/// this log's, calls that have no result are not made here, and what was to end ends here too.
fn hold(run: &mut Run, now: Timestamp) -> Vec<Fact> {
    let restart = Input::Restart { cause: RestartCause::Import, error: None };
    let had_begun = run.started_at().is_some();
    // Told to stop first: where it was did not die of it.
    let stop = [Input::Interrupt, restart, Input::Interrupt].into_iter().filter(|_| had_begun);
    let mut facts = Vec::new();
    for input in stop.chain([Input::Pause]) {
        // One that has ended takes nothing more, and one that is paused is not paused twice.
        let more = run.decide(input, now).unwrap_or_default();
        more.iter().for_each(|fact| run.evolve(fact));
        facts.extend(more);
    }
    facts
}

#[cfg(test)]
mod tests;
