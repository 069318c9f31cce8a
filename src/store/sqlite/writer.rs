//! The one thread that writes: takes what waits, writes it as one transaction, says what became of it.
//!
//! Many appends share one wait for the disk. An append whose run is elsewhere is left out and fails alone. For want of room a
//! transaction is tried again until there is some, or the log is closed; if it fails otherwise, all of its appends fail and the
//! writer goes on with the next. To a file that is damaged nothing more is written. Nothing is reported as durable before the
//! commit has returned.

use std::{
    collections::HashMap,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use rusqlite::{
    Connection, ErrorCode, OptionalExtension, Row, Transaction, TransactionBehavior, ffi, params,
};
use tokio::sync::watch;

use super::{
    append::{Append, Milestone},
    queue::{Group, Queue, Request},
    rows,
    tail::{Kept, Tail},
};
use crate::{
    clock::{Clock, SystemClock},
    crash::{self, Edge, Point},
    domain::{
        id::{Pos, RunId, Seq},
        time::Pauses,
    },
    store::{StoreError, Ticket, health::Health, tickets::Tickets},
    telemetry::{metric, span},
};

/// The part of a commit's time that it is worth to wait for more to commit.
const PATIENCE: u32 = 4;
/// And no longer than this, however long a commit took.
const LONGEST_PATIENCE: Duration = Duration::from_millis(2);

/// Between two tries while there is no room: at first, and at most.
const PAUSES: Pauses = Pauses::between(Duration::from_millis(100), Duration::from_secs(5));

pub(super) struct Writer {
    db: Connection,
    health: Arc<watch::Sender<Health>>,
    /// Why nothing more is written to the file.
    malformed: Option<StoreError>,
    queue: Arc<Queue>,
    tickets: Arc<Tickets>,
    tail: Arc<Tail>,
    durable: Arc<watch::Sender<Pos>>,
    heads: Heads,
}

/// What a transaction came to: the last place in the store, the appends in it, and those that were left out.
struct Written {
    last: Pos,
    appends: Vec<Kept>,
    refused: Vec<(Ticket, StoreError)>,
    /// Whether something is gone that was there.
    has_forgotten: bool,
}

impl Writer {
    pub(super) fn new(
        db: Connection,
        queue: Arc<Queue>,
        tickets: Arc<Tickets>,
        tail: Arc<Tail>,
        durable: Arc<watch::Sender<Pos>>,
        health: Arc<watch::Sender<Health>>,
    ) -> rusqlite::Result<Self> {
        durable.send_replace(last_pos(&db)?);
        Ok(Self { db, health, malformed: None, queue, tickets, tail, durable, heads: Heads::default() })
    }

    /// Writes until the queue is closed and empty.
    pub(super) fn run(mut self) {
        let (mut last, mut patience) = (1, Duration::ZERO);
        while let Some(group) = self.queue.take(last, patience) {
            let begun = Instant::now();
            span::store_append().in_scope(|| self.commit(&group));
            last = group.requests.len();
            let took = begun.elapsed();
            patience = (took / PATIENCE).min(LONGEST_PATIENCE);
            metrics::histogram!(metric::STORE_COMMIT_SECONDS).record(took.as_secs_f64());
            metrics::histogram!(metric::STORE_COMMIT_REQUESTS)
                .record(f64::from(u32::try_from(last).unwrap_or(u32::MAX)));
        }
        if let Err(error) = self.db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())) {
            tracing::warn!(error = %error, "log not folded into its file at close");
        }
    }

    fn commit(&mut self, group: &Group) {
        if let Some(error) = &self.malformed {
            return self.fail(group, &error.clone());
        }
        group.reach(Edge::Before);
        match self.write(group) {
            Ok(written) => {
                group.reach(Edge::After);
                self.set_well();
                if written.has_forgotten {
                    self.tail.clear();
                } else {
                    self.tail.extend(written.appends);
                }
                // First: whoever learns that a ticket is durable finds it so here, too.
                self.durable.send_if_modified(|last| std::mem::replace(last, written.last) != written.last);
                self.tickets.decide(group.last(), written.refused);
            }
            Err(error) => {
                tracing::warn!(error = %error, requests = group.requests.len(), "log write failed");
                let error = StoreError::from(error);
                if let StoreError::Malformed(_) = error {
                    self.malformed = Some(error.clone());
                }
                self.fail(group, &error);
            }
        }
    }

    fn fail(&self, group: &Group, error: &StoreError) {
        self.tickets.decide(group.last(), group.tickets().map(|one| (one, error.clone())).collect());
    }

    /// Writes a group, as soon as there is room for it. Once the log is closed there is nobody to wait for.
    fn write(&mut self, group: &Group) -> rusqlite::Result<Written> {
        let mut pauses = PAUSES;
        loop {
            let error = match write(&mut self.db, &mut self.heads, group) {
                Ok(written) => return Ok(written),
                Err(error) => error,
            };
            // What the transaction would have made of them is not what stands in the file.
            self.heads.clear();
            if !is_for_want_of_room(&error) {
                return Err(error);
            }
            self.set_stuck(&error);
            if self.queue.rest(pauses.take()) {
                return Err(error);
            }
        }
    }

    fn set_stuck(&self, error: &rusqlite::Error) {
        let free_bytes = self.db.path().and_then(|path| free_bytes(Path::new(path)));
        let was = *self.health.borrow();
        let since = if let Health::Stuck { since, .. } = was { since } else { SystemClock.now() };
        let stuck = Health::Stuck { since, free_bytes };
        self.health.send_replace(stuck);
        if !was.is_stuck() {
            let trouble = stuck.trouble().unwrap_or_default();
            tracing::error!(%error, "{trouble}; nothing starts and nothing goes on until there is room");
            metrics::gauge!(metric::STORE_STUCK).set(1.0);
        }
    }

    fn set_well(&self) {
        if self.health.send_if_modified(|health| std::mem::take(health).is_stuck()) {
            tracing::warn!("the log is written again; everything goes on");
            metrics::gauge!(metric::STORE_STUCK).set(0.0);
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // However the thread ends, nobody may hand over to it or wait for it any more.
        self.queue.close();
        self.tickets.close();
    }
}

/// Bytes that are free where a file lies.
fn free_bytes(path: &Path) -> Option<u64> {
    let facts = rustix::fs::statvfs(path.parent()?).ok()?;
    Some(facts.f_bavail.saturating_mul(facts.f_frsize))
}

/// Whether the same may be written later: the disk or a quota is used up, or the file may not grow.
fn is_for_want_of_room(error: &rusqlite::Error) -> bool {
    let rusqlite::Error::SqliteFailure(failure, _) = error else { return false };
    failure.code == ErrorCode::DiskFull
        || matches!(
            failure.extended_code,
            ffi::SQLITE_IOERR_WRITE
                | ffi::SQLITE_IOERR_FSYNC
                | ffi::SQLITE_IOERR_TRUNCATE
                | ffi::SQLITE_IOERR_SHMSIZE
        )
}

fn write(db: &mut Connection, heads: &mut Heads, group: &Group) -> rusqlite::Result<Written> {
    let change = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut written =
        Written { last: last_pos(&change)?, appends: Vec::new(), refused: Vec::new(), has_forgotten: false };
    for (ticket, request) in group.tickets().zip(&group.requests) {
        match request {
            Request::Append(append) => {
                let Append { run, expected, count, .. } = append;
                let known = heads.of(&change, *run)?;
                let actual = known.map_or(Seq::START, |head| head.at);
                if actual != *expected {
                    let conflict = StoreError::Conflict { run: *run, expected: *expected, actual };
                    written.refused.push((ticket, conflict));
                } else if *count > 0 {
                    let pos = written.last.plus(1);
                    insert(&change, append, pos, known.map(|head| head.number))?;
                    written.last = written.last.plus(*count);
                    written.appends.push(append.kept(pos));
                    heads.moved(append, known.map_or(pos, |head| head.number));
                }
            }
            Request::Checkpoint { run, through, state } => {
                let actual = heads.of(&change, *run)?.map_or(Seq::START, |head| head.at);
                if actual < *through {
                    let conflict = StoreError::Conflict { run: *run, expected: *through, actual };
                    written.refused.push((ticket, conflict));
                } else {
                    rows::save_checkpoint(&change, *run, *through, state)?;
                }
            }
            Request::Batch { batch, tasks } => rows::record_batch(&change, batch, tasks)?,
            Request::Setting { name, value } => rows::save_setting(&change, name, value.as_deref())?,
            Request::Audit(record) => rows::record_audit(&change, record)?,
            Request::Forget { batches, runs } => {
                rows::forget(&change, batches, runs, written.last)?;
                heads.clear();
                written.has_forgotten = true;
            }
        }
    }
    change.commit()?;
    Ok(written)
}

impl Group {
    /// Tells the tests how far what it holds has come.
    fn reach(&self, edge: Edge) {
        for request in &self.requests {
            match (request, edge) {
                (Request::Append(append), _) => crash::facts(&append.facts, edge),
                (Request::Batch { .. }, Edge::Before) => crash::point(Point::BeforeBatch),
                (Request::Batch { .. }, Edge::After) => crash::point(Point::AfterBatch),
                (
                    Request::Checkpoint { .. }
                    | Request::Setting { .. }
                    | Request::Audit(_)
                    | Request::Forget { .. },
                    _,
                ) => {}
            }
        }
    }
}

/// Where a run is.
#[derive(Clone, Copy)]
struct Head {
    /// The place of its first event, which names it in the file.
    number: Pos,
    at: Seq,
}

/// Where the runs are that were written to lately: what is in the file, and what the open transaction adds.
#[derive(Default)]
struct Heads(HashMap<RunId, Head>);

impl Heads {
    fn of(&self, change: &Transaction<'_>, run: RunId) -> rusqlite::Result<Option<Head>> {
        self.0.get(&run).map_or_else(|| head(change, run), |known| Ok(Some(*known)))
    }

    fn moved(&mut self, append: &Append, number: Pos) {
        if append.milestones.iter().any(|one| matches!(one, Milestone::Ended { .. })) {
            self.0.remove(&append.run);
        } else {
            self.0.insert(append.run, Head { number, at: append.expected.plus(append.count) });
        }
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

fn head(db: &Connection, run: RunId) -> rusqlite::Result<Option<Head>> {
    let last = "SELECT run.pos, first_seq + count - 1 FROM run JOIN append ON append.run = run.pos
                WHERE run.id = ?1 ORDER BY first_seq DESC LIMIT 1";
    let place = |row: &Row<'_>| Ok(Head { number: Pos::new(row.get(0)?), at: Seq::new(row.get(1)?) });
    db.prepare_cached(last)?.query_row([run.as_bytes()], place).optional()
}

/// The place of the last fact in the file, or of the last that was there.
pub(super) fn last_pos(db: &Connection) -> rusqlite::Result<Pos> {
    let last = "SELECT max(
        coalesce((SELECT pos + count - 1 FROM append ORDER BY pos DESC LIMIT 1), 0),
        coalesce((SELECT CAST(value AS INTEGER) FROM setting WHERE name = ?1), 0))";
    let pos = db.prepare_cached(last)?.query_row([rows::LAST_FORGOTTEN], |row| row.get(0))?;
    Ok(Pos::new(pos))
}

/// Inserts an append to the run of that number, or to a run that is new.
pub(super) fn insert(
    change: &Transaction<'_>,
    append: &Append,
    pos: Pos,
    number: Option<Pos>,
) -> rusqlite::Result<()> {
    let submits = matches!(append.milestones.first(), Some(Milestone::Submitted { .. }));
    if number.is_none() && !submits {
        rows::insert_run(change, pos.get(), append.run)?;
    }
    let number = number.unwrap_or(pos).get();
    change
        .prepare_cached(
            "INSERT INTO append (pos, run, first_seq, count, body, sum) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![
            pos.get(),
            number,
            append.expected.plus(1).get(),
            append.count,
            append.body,
            append.sum
        ])?;
    for milestone in &append.milestones {
        rows::reach(change, number, append.run, milestone)?;
    }
    Ok(())
}
