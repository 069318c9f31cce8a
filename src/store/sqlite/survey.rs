//! Looks through a whole log, changes nothing, and tells what is wrong with it; or mends it, which is another function.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::{
    AheadDamage, Durability, OpenError, Options, ahead_damage,
    mend::{self, Log, Mended, Torn, Trust},
    orphans, schema,
};
use crate::domain::{
    event::{Envelope, Event, RunEnd},
    id::{BatchId, RunId},
};

/// Lines of what SQLite finds wrong.
const MOST_TOLD: u32 = 20;

/// What there is in a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Runs of record.
    pub runs: BTreeSet<RunId>,
    /// Those that have not ended.
    pub open: u64,
    /// Events that can be read.
    pub events: u64,
    /// Batches of record.
    pub batches: BTreeSet<BatchId>,
    /// Appends that were set aside before.
    pub set_aside: u64,
    /// What is wrong, in the order of the log.
    pub findings: Vec<Finding>,
}

/// Something that is wrong with a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The file is not sound as such.
    File(String),
    /// Commits in the write-ahead log lie behind damage.
    Ahead(AheadDamage),
    /// A run's log cannot be read from this event on.
    Torn { run: RunId, pos: u64, seq: u64, why: String },
    /// What is known of a run without its log is not what its log says.
    Row { run: RunId, what: &'static str },
    /// A run's log holds an event of a later version.
    Newer(RunId),
    /// The row of a run is gone, and so many of its appends are there.
    Rowless { run: String, appends: u64 },
    /// Runs of a batch that is not of record.
    UnknownBatch(BatchId),
}

impl Finding {
    /// Whether it takes a new file to mend it.
    pub const fn needs_salvage(&self) -> bool {
        matches!(self, Self::File(_) | Self::Ahead(_))
    }
}

/// Looks through the log at `path`. While another process writes to it, its write-ahead log is not looked at: what is being
/// written there may be read in part.
///
/// # Errors
/// It cannot be opened.
pub fn survey(path: &Path, is_written: impl Fn() -> bool) -> Result<Survey, OpenError> {
    // It may have begun to since the first look.
    if !is_written()
        && let Some(damage) = ahead_damage(path)
        && !is_written()
    {
        return Ok(Survey { findings: vec![Finding::Ahead(damage)], ..Survey::default() });
    }
    let db = schema::open_reader(path, Options::default().busy_timeout)?;
    look(&db).map_err(|source| OpenError::sqlite(path, source))
}

fn look(db: &Connection) -> rusqlite::Result<Survey> {
    let mut survey = Survey::default();
    let mut check = db.prepare(&format!("PRAGMA main.quick_check({MOST_TOLD})"))?;
    let told = check.query_map([], |row| row.get::<_, String>(0))?;
    for line in told {
        match line? {
            line if line == "ok" => {}
            line => survey.findings.push(Finding::File(line)),
        }
    }
    if !survey.findings.is_empty() {
        return Ok(survey);
    }
    survey.set_aside = db.query_row("SELECT count(*) FROM damaged", [], |row| row.get(0))?;
    survey.batches = db
        .prepare("SELECT batch FROM batch")?
        .query_map([], |row| row.get(0).map(BatchId::from_bytes))?
        .collect::<Result<_, _>>()?;
    for (number, run) in runs(db)? {
        survey.runs.insert(run);
        survey.look_at(db, number, run)?;
    }
    for number in orphans::numbers(db)? {
        let appends = "SELECT count(*) FROM append WHERE run = ?1";
        let appends = db.query_row(appends, [number], |row| row.get(0))?;
        survey.findings.push(Finding::Rowless { run: orphans::name(db, number)?, appends });
    }
    let named: BTreeSet<BatchId> = db
        .prepare("SELECT DISTINCT batch FROM run WHERE batch IS NOT NULL")?
        .query_map([], |row| row.get(0).map(BatchId::from_bytes))?
        .collect::<Result<_, _>>()?;
    let unknown = named.difference(&survey.batches).copied().map(Finding::UnknownBatch);
    survey.findings.extend(unknown.collect::<Vec<_>>());
    Ok(survey)
}

pub(super) fn runs(db: &Connection) -> rusqlite::Result<Vec<(i64, RunId)>> {
    let mut select = db.prepare("SELECT pos, id FROM run ORDER BY pos")?;
    let rows = select.query_map([], |row| Ok((row.get(0)?, RunId::from_bytes(row.get(1)?))))?;
    rows.collect()
}

impl Survey {
    fn look_at(&mut self, db: &Connection, number: i64, run: RunId) -> rusqlite::Result<()> {
        let Log { facts, goes_on } = match mend::look(db, number, Trust::Nothing)? {
            Ok(log) => log,
            Err(Torn { pos, sound, damage }) => {
                let (pos, seq, why) = (pos.get(), sound.plus(1).get(), damage.to_string());
                self.findings.push(Finding::Torn { run, pos, seq, why });
                return Ok(());
            }
        };
        self.events += facts.len() as u64;
        if goes_on {
            self.findings.push(Finding::Newer(run));
            return Ok(());
        }
        let row = Row::of(db, number)?;
        self.open += u64::from(row.standing.as_deref() == Some("open"));
        self.findings.extend(row.differs(&facts).map(|what| Finding::Row { run, what }));
        Ok(())
    }
}

/// What a run's row says that its log says, too.
struct Row {
    standing: Option<String>,
    batch: Option<BatchId>,
    task_id: Option<String>,
    attempt: Option<u32>,
    end: Option<Vec<u8>>,
    /// Absent where an older version did not write any.
    labels: Option<String>,
}

impl Row {
    fn of(db: &Connection, number: i64) -> rusqlite::Result<Self> {
        let row = "SELECT standing, batch, task_id, attempt, end, labels FROM run WHERE pos = ?1";
        db.prepare_cached(row)?.query_row([number], |row| {
            let batch: Option<[u8; 16]> = row.get(1)?;
            Ok(Self {
                standing: row.get(0)?,
                batch: batch.map(BatchId::from_bytes),
                task_id: row.get(2)?,
                attempt: row.get(3)?,
                end: row.get(4)?,
                labels: row.get(5)?,
            })
        })
    }

    fn differs(&self, facts: &[Envelope]) -> Option<&'static str> {
        let (first, last) =
            (facts.first().map(|one| &one.fact.event), facts.last().map(|one| &one.fact.event));
        let ended = if let Some(Event::RunEnd(end)) = last { Some(&**end) } else { None };
        let end = ended.map(|end| end.outcome.as_str());
        let (is_open, standing) = (self.standing.as_deref() == Some("open"), self.standing.as_deref());
        if is_open && end.is_some() {
            return Some("is open, and its log has its end");
        }
        if !is_open && standing.is_some() && end.is_none() {
            return Some("has ended, and its log does not have its end");
        }
        if !is_open && standing != end {
            return Some("ended otherwise than its log says");
        }
        let told = self.end.as_deref().and_then(|end| serde_json::from_slice::<RunEnd>(end).ok());
        if told.as_ref() != ended {
            return Some("does not have the end that its log has");
        }
        let Some(Event::Submitted(spec)) = first else { return None };
        let is_known = self.batch == spec.batch
            && self.task_id.as_deref() == spec.task_id.as_deref()
            && self.attempt == Some(spec.attempt)
            && self.labels.as_ref().is_none_or(|labels| {
                serde_json::from_str::<BTreeMap<String, String>>(labels)
                    .is_ok_and(|known| known == spec.labels)
            });
        (!is_known).then_some("is of another task than its log says")
    }
}

/// What was mended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// Logs that were cut where they were torn.
    pub cut: u64,
    /// Rows that were brought in line with their logs.
    pub rows: u64,
    /// Rows that were gone and are put back.
    pub restored: u64,
    /// Events without a run that were set aside.
    pub orphans: u64,
}

/// Mends the log at `path`, which nobody else may write to meanwhile. Of runs whose ids are lost, `known` may have them.
///
/// # Errors
/// It cannot be opened or written.
pub fn repair(path: &Path, known: &[RunId]) -> Result<Repaired, OpenError> {
    let mut db = schema::open_writer(path, Durability::Power, Options::default().busy_timeout)?;
    mend_all(&mut db, known).map_err(|source| OpenError::sqlite(path, source))
}

fn mend_all(db: &mut Connection, known: &[RunId]) -> rusqlite::Result<Repaired> {
    let change = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut repaired = Repaired::default();
    for number in orphans::numbers(&change)? {
        let Some(run) = orphans::restore(&change, number, known)? else { continue };
        repaired.restored += 1;
        // Whether that is all that was lost of it is not known.
        if let Mended::Sound = mend::mend(&change, number, run, Trust::Nothing)? {
            mend::end_open(&change, number, run)?;
        }
    }
    for (number, run) in runs(&change)? {
        match mend::mend(&change, number, run, Trust::Nothing)? {
            Mended::Sound => repaired.rows += u64::from(rewrite(&change, number, run)?),
            Mended::Row => repaired.rows += 1,
            Mended::Cut => repaired.cut += 1,
        }
    }
    change.execute(
        "INSERT INTO damaged (found_at, why, pos, first_seq, count, body, sum)
         SELECT unixepoch() * 1000000, 'its run is not known', pos, first_seq, count, body, sum FROM append
         WHERE run NOT IN (SELECT pos FROM run)",
        [],
    )?;
    repaired.orphans =
        change.execute("DELETE FROM append WHERE run NOT IN (SELECT pos FROM run)", [])? as u64;
    change.commit()?;
    Ok(repaired)
}

/// Writes what is known of a run without its log as its log has it, if that differs.
fn rewrite(change: &Transaction<'_>, number: i64, run: RunId) -> rusqlite::Result<bool> {
    let log = mend::look(change, number, Trust::Nothing)?;
    let Ok(Log { facts, goes_on: false }) = log else { return Ok(false) };
    if Row::of(change, number)?.differs(&facts).is_none() {
        return Ok(false);
    }
    for fact in &facts {
        mend::reach(change, number, run, &fact.fact)?;
    }
    Ok(true)
}
