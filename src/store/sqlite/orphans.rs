//! Runs whose row is gone: their events name a row that is not there. Whoever does not see them does their tasks again.
//!
//! A row is put back from the first event, which says what was asked. A run's id stands in its row alone; of the ids that are
//! known from elsewhere the checksums say which it was, and if it is none of them the run gets a new one.

use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::{SqliteStore, check, mend};
use crate::{
    domain::{
        event::{Envelope, Event, decode},
        id::{Pos, RunId, Seq},
    },
    store::StoreError,
};

impl SqliteStore {
    /// What the runs are known by whose events are there and whose rows are gone; no list of runs has them.
    ///
    /// # Errors
    /// The log cannot be read.
    pub async fn rowless(&self) -> Result<Vec<String>, StoreError> {
        let names = |db: &Connection| {
            let names = numbers(db)?.into_iter().map(|number| name(db, number));
            names.collect::<rusqlite::Result<_>>()
        };
        self.readers.ask(move |db| Ok(names(db)?)).await
    }
}

/// The rows that events name and that are not there. Looks at one event a run.
pub(super) fn numbers(db: &Connection) -> rusqlite::Result<Vec<i64>> {
    let mut select = db.prepare(
        "WITH RECURSIVE named (number) AS (
             SELECT min(run) FROM append
             UNION ALL
             SELECT (SELECT min(run) FROM append WHERE run > number) FROM named WHERE number IS NOT NULL
         )
         SELECT number FROM named WHERE number IS NOT NULL AND number NOT IN (SELECT pos FROM run)",
    )?;
    let numbers = select.query_map([], |row| row.get(0))?;
    numbers.collect()
}

/// What people know such a run by: its task's id, or else where its events begin.
pub(super) fn name(db: &Connection, number: i64) -> rusqlite::Result<String> {
    let task = match first(db, number)?.as_ref().map(|one| &one.fact.event) {
        Some(Event::Submitted(spec)) => spec.task_id.clone(),
        Some(_) | None => None,
    };
    Ok(task.map_or_else(
        || format!("the run from position {number} on"),
        |task| format!("the run of task {task}"),
    ))
}

/// The first event, if it can be read.
fn first(db: &Connection, number: i64) -> rusqlite::Result<Option<Envelope>> {
    let body = "SELECT pos, body FROM append WHERE run = ?1 AND first_seq = 1";
    let body =
        db.prepare_cached(body)?.query_row([number], |row| Ok((row.get(0)?, row.get::<_, Vec<u8>>(1)?)));
    let Some((pos, body)) = body.optional()? else { return Ok(None) };
    let read = decode(&body, RunId::from_bytes([0; 16]), Pos::new(pos), Seq::new(1));
    Ok(read.ok().and_then(|facts| facts.into_iter().next()))
}

/// Puts a row back. Tells which run it is of, if the events say what was asked of it.
pub(super) fn restore(
    change: &Transaction<'_>,
    number: i64,
    known: &[RunId],
) -> rusqlite::Result<Option<RunId>> {
    let Some(first) = first(change, number)? else { return Ok(None) };
    if !matches!(first.fact.event, Event::Submitted(_)) {
        return Ok(None);
    }
    let run = match was(change, number, known)? {
        Some(run) => run,
        None => {
            let run = RunId::new(uuid::Uuid::now_v7());
            sign(change, number, run)?;
            run
        }
    };
    mend::reach(change, number, run, &first.fact)?;
    Ok(Some(run))
}

/// The run that it was, by the checksum of its first append.
fn was(db: &Connection, number: i64, known: &[RunId]) -> rusqlite::Result<Option<RunId>> {
    let first = "SELECT count, body, sum FROM append WHERE run = ?1 AND first_seq = 1";
    let first = db.prepare_cached(first)?.query_row([number], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?, row.get::<_, Option<i64>>(2)?))
    });
    let (count, body, sum) = first?;
    let fits = |run: &&RunId| sum == Some(i64::from(check::sum(run, 1, count, &body)));
    Ok(known.iter().find(fits).copied())
}

/// Has the events be of this run.
fn sign(change: &Transaction<'_>, number: i64, run: RunId) -> rusqlite::Result<()> {
    let mut select = change
        .prepare("SELECT pos, first_seq, count, body FROM append WHERE run = ?1 AND sum IS NOT NULL")?;
    let mut rows = select.query([number])?;
    while let Some(row) = rows.next()? {
        let (pos, first, count): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let sum = check::sum(&run, first, count, &row.get::<_, Vec<u8>>(3)?);
        change.prepare_cached("UPDATE append SET sum = ?2 WHERE pos = ?1")?.execute(params![pos, sum])?;
    }
    Ok(())
}
