//! What becomes of a run whose log is damaged: the sound beginning stays, the rest is set aside as it is, and the run ends.
//!
//! It ends because the rest may have told of a call that took effect, and no call is made twice. Nothing that could be
//! read is thrown away. An append of a later version is not damage.

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use super::{
    append::{Append, milestone},
    check::{Stored, columns},
    rows,
    writer::{insert, last_pos},
};
use crate::{
    clock::{Clock, SystemClock},
    domain::{
        event::{Envelope, Event, Fact, RestartCause, RunEnd},
        id::{Pos, RunId, Seq},
        outcome::{Breakage, Outcome},
        run::{Input, Run},
        time::Timestamp,
        usage::Usage,
    },
    store::damage::Damage,
};

/// Where the log of a run stops being sound.
#[derive(Debug)]
pub(in crate::store) struct Torn {
    pub(in crate::store) pos: Pos,
    /// The last event before it.
    pub(in crate::store) sound: Seq,
    pub(in crate::store) damage: Damage,
}

/// Who is believed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Trust {
    /// An append whose checksum fits is what was written, so it is not read but for the last.
    Sums,
    /// Everything is read.
    Nothing,
}

/// A log that is not torn.
pub(super) struct Log {
    /// What is in it, as far as it was read.
    pub(super) facts: Vec<Envelope>,
    /// A later version wrote what follows.
    pub(super) goes_on: bool,
}

/// Looks through the log of a run, and tells where it is torn, if it is.
pub(super) fn look(db: &Connection, number: i64, trust: Trust) -> rusqlite::Result<Result<Log, Torn>> {
    let mut select = db.prepare_cached(concat!(
        "SELECT ",
        columns!(),
        " FROM append JOIN run ON run.pos = append.run WHERE append.run = ?1 ORDER BY append.pos"
    ))?;
    let last = "SELECT max(pos) FROM append WHERE run = ?1";
    let last: Option<i64> = db.prepare_cached(last)?.query_row([number], |row| row.get(0))?;
    let mut rows = select.query([number])?;
    let (mut sound, mut facts) = (Seq::START, Vec::<Envelope>::new());
    while let Some(row) = rows.next()? {
        let stored = Stored::of(row)?;
        let is_last = last.is_some_and(|last| Pos::new(last.unsigned_abs()) == stored.pos);
        let ended = matches!(facts.last().map(|one| &one.fact.event), Some(Event::RunEnd(_)));
        let checked = stored.follows(sound).and_then(|()| {
            if ended {
                Err(Damage::AfterEnd)
            } else if trust == Trust::Sums && !is_last && stored.is_vouched_for() {
                Ok(Vec::new())
            } else {
                stored.read()
            }
        });
        match checked {
            Ok(read) => facts.extend(read),
            // There is nothing to be said of what follows it.
            Err(damage) if damage.is_newer() => return Ok(Ok(Log { facts, goes_on: true })),
            Err(damage) => return Ok(Err(Torn { pos: stored.pos, sound, damage })),
        }
        sound = stored.last();
    }
    if sound == Seq::START {
        let damage = Damage::Place { expected: Seq::new(1), found: 0 };
        return Ok(Err(Torn { pos: Pos::START, sound, damage }));
    }
    Ok(Ok(Log { facts, goes_on: false }))
}

/// Sees to it that every run that is to go on has a sound log.
pub(super) fn open_runs(db: &mut Connection) -> rusqlite::Result<()> {
    let change = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let open: Vec<(i64, [u8; 16])> = change
        .prepare("SELECT pos, id FROM run WHERE standing = 'open'")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    for (number, run) in open {
        mend(&change, number, RunId::from_bytes(run), Trust::Sums)?;
    }
    change.commit()
}

/// What was done for a run.
#[derive(Debug)]
pub(in crate::store) enum Mended {
    /// There was nothing to do.
    Sound,
    /// Its row was at odds with its log.
    Row,
    /// Its log was torn, and is cut.
    Cut,
}

/// Cuts the log of a run where it is torn, and brings its row in line with how its log ends.
pub(super) fn mend(
    change: &Transaction<'_>,
    number: i64,
    run: RunId,
    trust: Trust,
) -> rusqlite::Result<Mended> {
    let last = match look(change, number, trust)? {
        Ok(Log { goes_on: true, .. }) => return Ok(Mended::Sound),
        Ok(log) => log.facts.into_iter().next_back(),
        Err(torn) => {
            let (pos, seq, damage) = (torn.pos.get(), torn.sound.plus(1).get(), &torn.damage);
            tracing::warn!(run.id = %run, pos, seq, %damage, "log of a run damaged; the rest set aside, the run ended");
            cut(change, number, run, &torn)?;
            return Ok(Mended::Cut);
        }
    };
    let standing = "SELECT standing FROM run WHERE pos = ?1";
    let standing: Option<String> = change.prepare_cached(standing)?.query_row([number], |row| row.get(0))?;
    let end = last.as_ref().map(|last| &last.fact).filter(|last| matches!(last.event, Event::RunEnd(_)));
    match (standing.as_deref(), end) {
        (Some("open"), Some(end)) => {
            reach(change, number, run, end)?;
            tracing::warn!(run.id = %run, "run had ended without its row saying so");
            Ok(Mended::Row)
        }
        (Some(standing), None) if standing != "open" && trust == Trust::Nothing => {
            end_open(change, number, run)?;
            tracing::warn!(run.id = %run, "the end of a run was missing from its log");
            Ok(Mended::Row)
        }
        (Some(_) | None, Some(_) | None) => Ok(Mended::Sound),
    }
}

/// Ends a run that is sound as far as it can be told, but may have lost what came last.
pub(super) fn end_open(change: &Transaction<'_>, number: i64, run: RunId) -> rusqlite::Result<()> {
    let torn = match look(change, number, Trust::Nothing)? {
        Ok(Log { goes_on: true, .. }) => return Ok(()),
        Ok(log) => {
            let sound = log.facts.last().map_or(Seq::START, |last| last.seq);
            Torn { pos: last_pos(change)?.plus(1), sound, damage: Damage::Lost }
        }
        Err(torn) => torn,
    };
    cut(change, number, run, &torn)
}

/// Sets everything of a run aside from where it is torn, and puts its end on record after what is sound.
fn cut(change: &Transaction<'_>, number: i64, run: RunId, torn: &Torn) -> rusqlite::Result<()> {
    let now = SystemClock.now();
    // Before anything is taken away: a place is never used twice.
    let pos = last_pos(change)?.plus(1);
    set_aside(change, number, torn, now)?;
    let sound = look(change, number, Trust::Nothing)?.map(|log| log.facts).unwrap_or_default();
    let facts = end(change, number, Run::replay(run, sound.iter().map(|one| &one.fact)), torn, now)?;
    let Ok(append) = Append::of(run, torn.sound, &facts) else { return Ok(()) };
    insert(change, &append, pos, Some(Pos::new(number.unsigned_abs())))
}

fn set_aside(change: &Transaction<'_>, number: i64, torn: &Torn, now: Timestamp) -> rusqlite::Result<()> {
    change.prepare_cached(
        "INSERT INTO damaged (found_at, why, pos, run, first_seq, count, body, sum)
         SELECT ?3, ?4, append.pos, id, first_seq, count, body, sum FROM append LEFT JOIN run ON run.pos = append.run
         WHERE append.run = ?1 AND append.pos >= ?2 ORDER BY append.pos",
    )?
    .execute(params![number, torn.pos.get(), now.as_micros(), torn.damage.to_string()])?;
    change
        .prepare_cached("DELETE FROM append WHERE run = ?1 AND pos >= ?2")?
        .execute(params![number, torn.pos.get()])?;
    Ok(())
}

/// What is put on record of a run whose log was cut: the end that its row tells of, or that it could not go on.
fn end(
    change: &Transaction<'_>,
    number: i64,
    mut run: Run,
    torn: &Torn,
    now: Timestamp,
) -> rusqlite::Result<Vec<Fact>> {
    let place = torn.sound.plus(1);
    let lost = format!("the log of this run is damaged from event {place} on: {}", torn.damage);
    let told = "SELECT end, ended_at FROM run WHERE pos = ?1 AND end IS NOT NULL";
    let told = change
        .prepare_cached(told)?
        .query_row([number], |row| Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, Option<i64>>(1)?)))
        .optional()?;
    if let Some((end, at)) = told
        && let Ok(mut end) = serde_json::from_slice::<RunEnd>(&end)
    {
        let at = at.map_or(now, Timestamp::from_micros);
        let told = format!("{lost}; its end is known from beside it");
        end.error = Some(match end.error {
            Some(error) => format!("{error}; {told}"),
            None => told,
        });
        return Ok(vec![Fact { at, turn: run.turn(), event: Event::RunEnd(Box::new(end)) }]);
    }
    let error = lost;
    // The time in which nobody was at work on it does not count.
    let restart = Input::Restart { cause: RestartCause::Process, error: None };
    let give_up = Input::GiveUp { breakage: Breakage::Store, error: error.clone() };
    let mut facts = Vec::new();
    for input in [restart, give_up] {
        // Refused only by a run without its task, and by one that has ended with the first of the two.
        let decided = run.decide(input, now).unwrap_or_default();
        decided.iter().for_each(|fact| run.evolve(fact));
        facts.extend(decided);
    }
    if facts.is_empty() {
        facts.push(unknown_end(error, now));
    }
    Ok(facts)
}

fn unknown_end(error: String, now: Timestamp) -> Fact {
    let end = RunEnd {
        outcome: Outcome::Failed(Breakage::Store),
        text: "".into(),
        error: Some(error),
        turns: 0,
        calls: 0,
        usage: Usage::default(),
        queued_us: 0,
        duration_us: 0,
        active_us: 0,
    };
    Fact { at: now, turn: 0, event: Event::RunEnd(Box::new(end)) }
}

/// Writes into a run's row what one of its facts says.
pub(super) fn reach(change: &Transaction<'_>, number: i64, run: RunId, fact: &Fact) -> rusqlite::Result<()> {
    match milestone(fact) {
        Some(Ok(milestone)) => rows::reach(change, number.unsigned_abs(), run, &milestone),
        Some(Err(_)) | None => Ok(()),
    }
}
