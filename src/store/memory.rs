//! The log in memory: the same contract, gone with the process.
//!
//! Everything is durable as soon as it is handed over. Facts are kept as they are, never encoded; their payloads are
//! shared, so an append costs about a microsecond.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::{FutureExt, future::BoxFuture};
use tokio::sync::watch;

use super::{
    Asked, AuditFilter, AuditRecord, BatchRecord, Checkpoint, EventStore, RunCounts, RunFilter, RunRecord,
    StoreError, TaskRecord, Ticket, tickets::Tickets,
};
use crate::domain::{
    event::{Envelope, Event, FORMAT, Fact},
    id::{BatchId, Pos, RunId, Seq},
};

/// A log in memory.
#[derive(Debug, Default)]
pub struct MemoryStore {
    log: Mutex<Log>,
    tickets: Tickets,
    durable: watch::Sender<Pos>,
}

#[derive(Debug, Default)]
struct Log {
    given: u64,
    closed: bool,
    last: Pos,
    appends: Vec<Append>,
    runs: HashMap<RunId, Run>,
    records: Vec<RunRecord>,
    batches: Vec<(BatchRecord, Vec<TaskRecord>)>,
    settings: BTreeMap<String, String>,
    audit: Vec<AuditRecord>,
}

#[derive(Debug)]
struct Append {
    pos: Pos,
    run: RunId,
    first: Seq,
    facts: Vec<Fact>,
}

/// What is known of one run: its head, and where in the log the rest is.
#[derive(Debug, Default)]
struct Run {
    head: Seq,
    appends: Vec<usize>,
    record: Option<usize>,
    checkpoint: Option<Checkpoint>,
}

impl Append {
    fn envelopes(&self) -> impl Iterator<Item = Envelope> {
        self.facts.iter().zip(0..).map(|(fact, index)| Envelope {
            v: FORMAT,
            pos: self.pos.plus(index),
            run: self.run,
            seq: self.first.plus(index),
            fact: fact.clone(),
        })
    }
}

impl MemoryStore {
    /// Refuses whatever is handed over from now on.
    pub fn close(&self) {
        self.lock().closed = true;
        self.tickets.close();
        self.durable.send_modify(|_| {});
    }

    /// Changes the log, decides the ticket that stands for the change and tells how far the log goes now.
    fn change(&self, change: impl FnOnce(&mut Log) -> Result<(), StoreError>) -> Result<Ticket, StoreError> {
        let mut log = self.lock();
        if log.closed {
            return Err(StoreError::Closed);
        }
        log.given += 1;
        let ticket = Ticket(log.given);
        let failure = change(&mut log).err();
        self.durable.send_if_modified(|last| std::mem::replace(last, log.last) != log.last);
        self.tickets.decide(ticket, failure.map(|error| (ticket, error)).into_iter().collect());
        Ok(ticket)
    }

    fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Log) -> T,
    ) -> BoxFuture<'static, Result<T, StoreError>> {
        let log = self.lock();
        let found = if log.closed { Err(StoreError::Closed) } else { Ok(look(&log)) };
        std::future::ready(found).boxed()
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log {
    fn append(&mut self, id: RunId, expected: Seq, facts: &[Fact]) -> Result<(), StoreError> {
        let actual = self.runs.get(&id).map_or(Seq::START, |run| run.head);
        if actual != expected {
            return Err(StoreError::Conflict { run: id, expected, actual });
        }
        if facts.is_empty() {
            return Ok(());
        }
        let run = self.runs.entry(id).or_default();
        let count = facts.len() as u64;
        run.head = expected.plus(count);
        run.appends.push(self.appends.len());
        for fact in facts {
            if let Event::Submitted(spec) = &fact.event {
                run.record.get_or_insert(self.records.len());
                self.records.push(RunRecord {
                    run: id,
                    batch: spec.batch,
                    task_id: spec.task_id.clone(),
                    attempt: spec.attempt,
                    submitted_at: fact.at,
                    asked: Some(Arc::new(Asked::of(spec))),
                    end: None,
                    ended_at: None,
                });
            } else if let Event::RunEnd(end) = &fact.event
                && let Some(record) = run.record.and_then(|index| self.records.get_mut(index))
            {
                record.end = Some(Arc::new((**end).clone()));
                record.ended_at = Some(fact.at);
            }
        }
        let (pos, first) = (self.last.plus(1), expected.plus(1));
        self.appends.push(Append { pos, run: id, first, facts: facts.to_vec() });
        self.last = self.last.plus(count);
        Ok(())
    }

    fn read(&self, run: RunId, after: Seq) -> Vec<Envelope> {
        let Some(run) = self.runs.get(&run) else { return Vec::new() };
        let appends = run.appends.iter().filter_map(|index| self.appends.get(*index));
        appends
            .filter(|append| append.first.plus(append.facts.len() as u64 - 1) > after)
            .flat_map(Append::envelopes)
            .skip_while(|one| one.seq <= after)
            .collect()
    }

    fn read_all(&self, after: Pos, limit: usize) -> Vec<Envelope> {
        let start = self.appends.partition_point(|append| append.pos <= after).saturating_sub(1);
        let mut facts = Vec::new();
        for append in self.appends.iter().skip(start) {
            facts.extend(append.envelopes().skip_while(|one| one.pos <= after));
            if facts.len() >= limit.max(1) {
                break;
            }
        }
        facts
    }

    fn runs(&self, filter: &RunFilter) -> Vec<RunRecord> {
        let end = filter.before.map_or(self.records.len(), |run| {
            self.runs.get(&run).and_then(|known| known.record).unwrap_or(0)
        });
        newest(self.records.iter().take(end), filter.limit, |record| filter.admits(record))
    }

    fn count(&self, filter: &RunFilter) -> RunCounts {
        let mut counts = RunCounts::default();
        for record in self.records.iter().filter(|record| filter.admits(record)) {
            counts.add(record.end.as_ref().map(|end| end.outcome.as_str()), 1);
        }
        counts
    }

    fn forget(&mut self, batches: &[BatchId], runs: &[RunId]) {
        let is_ended =
            |run: &RunId| self.records.iter().any(|record| record.run == *run && record.ended_at.is_some());
        let gone: BTreeSet<RunId> = runs.iter().copied().filter(is_ended).collect();
        self.appends.retain(|append| !gone.contains(&append.run));
        self.records.retain(|record| !gone.contains(&record.run));
        self.runs.retain(|run, _| !gone.contains(run));
        for known in self.runs.values_mut() {
            (known.appends, known.record) = (Vec::new(), None);
        }
        for (index, append) in self.appends.iter().enumerate() {
            self.runs.entry(append.run).or_default().appends.push(index);
        }
        for (index, record) in self.records.iter().enumerate() {
            self.runs.entry(record.run).or_default().record.get_or_insert(index);
        }
        let is_open = |batch: BatchId| {
            self.records.iter().any(|record| record.batch == Some(batch) && record.ended_at.is_none())
        };
        self.batches.retain(|(known, _)| !batches.contains(&known.id) || is_open(known.id));
    }

    fn record_batch(&mut self, batch: BatchRecord, tasks: Vec<TaskRecord>) {
        let index = self.batches.iter().position(|(known, _)| known.id == batch.id).unwrap_or_else(|| {
            self.batches.push((batch.clone(), Vec::new()));
            self.batches.len() - 1
        });
        let Some((record, known)) = self.batches.get_mut(index) else { return };
        *record = BatchRecord { created_at: record.created_at, ..batch };
        let places: HashMap<_, _> =
            known.iter().enumerate().map(|(place, task)| (Arc::clone(&task.task_id), place)).collect();
        for task in tasks {
            match places.get(&task.task_id).and_then(|place| known.get_mut(*place)) {
                Some(older) => *older = task,
                None => known.push(task),
            }
        }
    }
}

/// The last `limit` that match, in their order.
fn newest<'a, T: Clone + 'a>(
    all: impl DoubleEndedIterator<Item = &'a T>,
    limit: Option<usize>,
    admits: impl Fn(&T) -> bool,
) -> Vec<T> {
    let matching = all.rev().filter(|one| admits(one));
    let mut found: Vec<_> = matching.take(limit.unwrap_or(usize::MAX)).cloned().collect();
    found.reverse();
    found
}

impl EventStore for MemoryStore {
    fn append(&self, run: RunId, expected: Seq, facts: &[Fact]) -> Result<Ticket, StoreError> {
        self.change(|log| log.append(run, expected, facts))
    }

    fn durable(&self, ticket: Ticket) -> BoxFuture<'_, Result<(), StoreError>> {
        self.tickets.outcome(ticket).boxed()
    }

    fn read(&self, run: RunId, after: Seq) -> BoxFuture<'_, Result<Vec<Envelope>, StoreError>> {
        self.look(|log| log.read(run, after))
    }

    fn read_all(&self, after: Pos, limit: usize) -> BoxFuture<'_, Result<Vec<Envelope>, StoreError>> {
        self.look(|log| log.read_all(after, limit))
    }

    fn watch(&self) -> watch::Receiver<Pos> {
        self.durable.subscribe()
    }

    fn runs(&self, filter: RunFilter) -> BoxFuture<'_, Result<Vec<RunRecord>, StoreError>> {
        self.look(|log| log.runs(&filter))
    }

    fn count(&self, filter: RunFilter) -> BoxFuture<'_, Result<RunCounts, StoreError>> {
        self.look(|log| log.count(&filter))
    }

    fn save_checkpoint(&self, run: RunId, through: Seq, state: Vec<u8>) -> Result<Ticket, StoreError> {
        self.change(|log| {
            let known = log.runs.entry(run).or_default();
            if known.head < through {
                return Err(StoreError::Conflict { run, expected: through, actual: known.head });
            }
            known.checkpoint = Some((through, state));
            Ok(())
        })
    }

    fn checkpoint(&self, run: RunId) -> BoxFuture<'_, Result<Option<Checkpoint>, StoreError>> {
        self.look(|log| log.runs.get(&run).and_then(|run| run.checkpoint.clone()))
    }

    fn record_batch(&self, batch: BatchRecord, tasks: Vec<TaskRecord>) -> Result<Ticket, StoreError> {
        self.change(|log| {
            log.record_batch(batch, tasks);
            Ok(())
        })
    }

    fn batches(&self) -> BoxFuture<'_, Result<Vec<BatchRecord>, StoreError>> {
        self.look(|log| log.batches.iter().map(|(batch, _)| batch.clone()).collect())
    }

    fn tasks(&self, batch: BatchId) -> BoxFuture<'_, Result<Vec<TaskRecord>, StoreError>> {
        self.look(|log| {
            let found = log.batches.iter().find(|(known, _)| known.id == batch);
            found.map_or_else(Vec::new, |(_, tasks)| tasks.clone())
        })
    }

    fn forget(&self, batches: Vec<BatchId>, runs: Vec<RunId>) -> Result<Ticket, StoreError> {
        self.change(|log| {
            log.forget(&batches, &runs);
            Ok(())
        })
    }

    fn save_setting(&self, name: &str, value: Option<String>) -> Result<Ticket, StoreError> {
        self.change(|log| {
            match value {
                Some(value) => log.settings.insert(name.to_owned(), value),
                None => log.settings.remove(name),
            };
            Ok(())
        })
    }

    fn settings(&self) -> BoxFuture<'_, Result<BTreeMap<String, String>, StoreError>> {
        self.look(|log| log.settings.clone())
    }

    fn record_audit(&self, record: AuditRecord) -> Result<Ticket, StoreError> {
        self.change(|log| {
            log.audit.push(record);
            Ok(())
        })
    }

    fn audit(&self, filter: AuditFilter) -> BoxFuture<'_, Result<Vec<AuditRecord>, StoreError>> {
        self.look(|log| newest(log.audit.iter(), filter.limit, |record| filter.admits(record)))
    }
}
