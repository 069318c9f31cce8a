//! Reading: a fixed number of threads, each with a connection of its own that cannot write.
//!
//! What is read is committed, hence as durable as it will ever be. A row that cannot be read is an error that names
//! its place; it is never passed over.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, mpsc},
};

use rusqlite::{Connection, OptionalExtension, params};
use tokio::sync::oneshot;

use super::{
    check::{Stored, columns},
    rows::LAST_FORGOTTEN,
};
use crate::{
    domain::{
        event::Envelope,
        id::{BatchId, Pos, RunId, Seq},
        time::Timestamp,
    },
    store::{BatchRecord, Checkpoint, StoreError, TaskRecord},
};

/// Bytes of a page that are read before it is cut: many clients may catch up at once, and each holds one.
const PAGE_BYTES: usize = 1 << 20;

/// How much is read at once. One append always is.
#[derive(Clone, Copy)]
pub(super) struct Limit {
    facts: usize,
    bytes: usize,
}

/// All there is.
pub(super) const ALL: Limit = Limit { facts: usize::MAX, bytes: usize::MAX };

/// As many facts, unless they are large.
pub(super) const fn page(facts: usize) -> Limit {
    Limit { facts, bytes: PAGE_BYTES }
}

type Job = Box<dyn FnOnce(&Connection) + Send>;

/// The reading threads. They end, and close their connections, once this is dropped or closed.
pub(super) struct Readers {
    jobs: Mutex<Option<mpsc::Sender<Job>>>,
    threads: Mutex<Vec<std::thread::JoinHandle<()>>>,
}

impl Readers {
    pub(super) fn start(connections: Vec<Connection>) -> std::io::Result<Self> {
        let (jobs, queue) = mpsc::channel::<Job>();
        let queue = Arc::new(Mutex::new(queue));
        let start = |db: Connection| {
            let queue = Arc::clone(&queue);
            std::thread::Builder::new().name("log-reader".to_owned()).spawn(move || {
                while let Some(job) = next(&queue) {
                    job(&db);
                }
            })
        };
        let threads = connections.into_iter().map(start).collect::<Result<_, _>>()?;
        Ok(Self { jobs: Mutex::new(Some(jobs)), threads: Mutex::new(threads) })
    }

    /// Has a reading thread run `read`.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |db| {
            // Whoever stopped waiting does not want to know.
            let _ = answer.send(read(db));
        });
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).clone();
        jobs.and_then(|jobs| jobs.send(job).ok()).ok_or(StoreError::Closed)?;
        answered.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Answers what was asked so far and ends the threads.
    pub(super) fn close(&self) {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).take();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // A thread that panicked has closed its connection all the same.
            let _ = thread.join();
        }
    }
}

fn next(queue: &Mutex<mpsc::Receiver<Job>>) -> Option<Job> {
    queue.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

/// The facts of one run after `after`, as far as `limit` goes.
pub(super) fn run(
    db: &Connection,
    run: RunId,
    after: Seq,
    limit: Limit,
) -> Result<Vec<Envelope>, StoreError> {
    let mut select = db.prepare_cached(
        concat!(
            "SELECT ", columns!(), " FROM run JOIN append ON append.run = run.pos
         WHERE id = ?1 AND first_seq >= coalesce(
             (SELECT max(before.first_seq) FROM append AS before WHERE before.run = run.pos AND before.first_seq <= ?2), 0)
         ORDER BY first_seq"
        ),
    )?;
    let mut rows = select.query(params![run.as_bytes(), following(after.get())])?;
    let (mut facts, mut bytes, mut before) = (Vec::new(), 0, None);
    while let Some(row) = rows.next()? {
        let stored = Stored::of(row)?;
        // The first may begin before the cursor, but not behind it.
        let place =
            before.unwrap_or_else(|| after.min(Seq::new(stored.first.unsigned_abs().saturating_sub(1))));
        stored.follows(place).map_err(|damage| stored.damaged(damage))?;
        before = Some(stored.last());
        facts.extend(stored.envelopes()?.into_iter().skip_while(|one| one.seq <= after));
        bytes += stored.body.len();
        if facts.len() >= limit.facts || bytes >= limit.bytes {
            break;
        }
    }
    facts.truncate(limit.facts);
    Ok(facts)
}

/// The facts of all runs after `after`: whole appends, as far as `limit` goes, or up to one that cannot be read.
pub(super) fn all(db: &Connection, after: Pos, limit: Limit) -> Result<Vec<Envelope>, StoreError> {
    let mut select = db.prepare_cached(concat!(
        "SELECT ",
        columns!(),
        " FROM append LEFT JOIN run ON run.pos = append.run
         WHERE append.pos >= coalesce((SELECT max(pos) FROM append WHERE pos <= ?1), 0)
         ORDER BY append.pos"
    ))?;
    let mut rows = select.query([following(after.get())])?;
    let (mut facts, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        let stored = Stored::of(row)?;
        match stored.envelopes() {
            Ok(append) => facts.extend(append.into_iter().skip_while(|one| one.pos <= after)),
            // Whoever reads on is told.
            Err(StoreError::Damaged { .. }) if !facts.is_empty() => break,
            Err(error) => return Err(error),
        }
        bytes += stored.body.len();
        if facts.len() >= limit.facts.max(1) || bytes >= limit.bytes {
            break;
        }
    }
    Ok(facts)
}

/// The place after a cursor, as a number that the file can hold: a cursor may be whatever a client sent.
fn following(cursor: u64) -> i64 {
    i64::try_from(cursor).unwrap_or(i64::MAX).saturating_add(1)
}

/// The last snapshot of a run.
pub(super) fn checkpoint(db: &Connection, run: RunId) -> Result<Option<Checkpoint>, StoreError> {
    let mut select = db.prepare_cached("SELECT through, state FROM checkpoint WHERE run = ?1")?;
    let found = select.query_row([run.as_bytes()], |row| Ok((Seq::new(row.get(0)?), row.get(1)?)));
    Ok(found.optional()?)
}

/// Every batch, oldest first.
pub(super) fn batches(db: &Connection) -> Result<Vec<BatchRecord>, StoreError> {
    let mut select = db.prepare_cached("SELECT batch, name, created_at, options FROM batch ORDER BY idx")?;
    let rows = select.query_map([], |row| {
        Ok(BatchRecord {
            id: BatchId::from_bytes(row.get(0)?),
            name: row.get(1)?,
            created_at: Timestamp::from_micros(row.get(2)?),
            options: row.get(3)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The tasks of a batch, in the order in which they were recorded.
pub(super) fn tasks(db: &Connection, batch: BatchId) -> Result<Vec<TaskRecord>, StoreError> {
    let mut select = db.prepare_cached("SELECT task_id, hash FROM task WHERE batch = ?1 ORDER BY idx")?;
    let rows = select
        .query_map([batch.as_bytes()], |row| Ok(TaskRecord { task_id: row.get(0)?, hash: row.get(1)? }))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Every setting, by name, but the log's own.
pub(super) fn settings(db: &Connection) -> Result<BTreeMap<String, String>, StoreError> {
    let mut select = db.prepare_cached("SELECT name, value FROM setting WHERE name != ?1")?;
    let rows = select.query_map([LAST_FORGOTTEN], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}
