//! Where each task of a batch stands, and which results there are, in the order in which they came.
//!
//! Written by whoever drives the batch, read by whoever shows it. Counts in the status follow from it alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::watch;

use super::status::{Counts, Status};
use crate::{
    app::batch::{Attempt, History},
    domain::{id::RunId, outcome::Outcome, usage::Usage},
};

/// The place of a result whose task has another by now.
const NOWHERE: usize = usize::MAX;

/// Where a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Waiting,
    InFlight,
    /// It waits for another attempt.
    Retrying,
    /// Its run could not be worked on.
    Left,
    /// Its latest attempt has ended, and no other follows by itself.
    Settled(RunId, Outcome),
}

impl Standing {
    const fn is_settled(self) -> bool {
        matches!(self, Self::Settled(..))
    }
}

/// Where the tasks of a batch stand.
pub(super) struct Board {
    inner: Mutex<Inner>,
    status: watch::Sender<Status>,
}

#[derive(Default)]
struct Inner {
    tasks: Vec<(Arc<str>, Standing)>,
    /// Tasks in the order in which they were settled; one that was settled twice is there twice.
    results: Vec<(usize, RunId)>,
    closing: Option<Closed>,
}

/// No more results come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closed {
    /// There are no more.
    Complete,
    /// There will be more another time.
    Unfinished,
}

/// What a reader of results finds.
pub(super) enum Found {
    Result(RunId),
    /// Nothing yet.
    Wait,
    Closed(Closed),
}

impl Board {
    /// Tasks as the history has them: settled if the latest attempt has ended, but for those places that go on. Results
    /// are in this order; those that are not in it follow in the order of their ends on record.
    pub(super) fn new(
        status: watch::Sender<Status>,
        ids: impl IntoIterator<Item = Arc<str>>,
        history: &History,
        going_on: &BTreeSet<usize>,
        order: &[RunId],
    ) -> Self {
        let mut inner = Inner::default();
        let mut ended = BTreeMap::new();
        let mut counts = Counts { usage: history.usage, ..Counts::default() };
        for (place, id) in ids.into_iter().enumerate() {
            let latest = history.latest(&id).filter(|_| !going_on.contains(&place));
            let standing = latest.and_then(|Attempt { run, end, .. }| {
                let (ended_at, outcome) = end?;
                ended.insert(run, (ended_at, place));
                Some(Standing::Settled(run, outcome))
            });
            let standing = standing.unwrap_or(Standing::Waiting);
            counts.tasks += 1;
            counts.enter(standing);
            inner.tasks.push((id, standing));
        }
        // One that was overtaken keeps its place in the order: readers count by it.
        let of_old = order.iter().map(|run| (ended.remove(run).map_or(NOWHERE, |(_, place)| place), *run));
        inner.results = of_old.collect();
        let mut others: Vec<_> = ended.into_iter().map(|(run, (at, place))| (at, place, run)).collect();
        others.sort_unstable();
        inner.results.extend(others.into_iter().map(|(_, place, run)| (place, run)));
        status.send_modify(|status| status.counts = counts);
        Self { inner: Mutex::new(inner), status }
    }

    /// What a task has come to, and what a run of it has used up by that.
    pub(super) fn put(&self, place: usize, standing: Standing, usage: Usage) {
        let mut inner = self.lock();
        let Some((_, current)) = inner.tasks.get_mut(place) else { return };
        let before = std::mem::replace(current, standing);
        if let Standing::Settled(run, _) = standing {
            inner.results.push((place, run));
        }
        // Not before the lock is given back: what others write in between would be counted first.
        self.status.send_modify(|status| {
            status.counts.leave(before);
            status.counts.enter(standing);
            // One that waited for another attempt in vain was counted when its last one ended.
            if before == Standing::InFlight {
                status.counts.usage += usage;
            }
        });
    }

    /// Takes in what is of record though nobody told: of runs that were lost sight of, or that nobody went on with, and of
    /// tasks that were to have another attempt.
    pub(super) fn catch_up(&self, history: &History) {
        let mut inner = self.lock();
        let Inner { tasks, results, .. } = &mut *inner;
        let unsettled = tasks.iter_mut().enumerate().filter(|(_, (_, standing))| !standing.is_settled());
        self.status.send_modify(|status| {
            status.counts.usage = history.usage;
            for (place, (id, standing)) in unsettled {
                let Some(Attempt { run, end: Some((_, outcome)), .. }) = history.latest(id) else { continue };
                results.push((place, run));
                let before = std::mem::replace(standing, Standing::Settled(run, outcome));
                status.counts.leave(before);
                status.counts.enter(*standing);
            }
        });
    }

    /// Whether every task is settled.
    pub(super) fn is_settled(&self) -> bool {
        self.lock().tasks.iter().all(|(_, standing)| standing.is_settled())
    }

    /// Nothing is in flight any more, and no more results come.
    pub(super) fn close(&self, closed: Closed) {
        let mut inner = self.lock();
        for (_, standing) in &mut inner.tasks {
            if *standing == Standing::InFlight {
                *standing = Standing::Waiting;
            }
        }
        inner.closing = Some(closed);
        self.status.send_modify(|status| {
            status.counts.waiting += std::mem::take(&mut status.counts.in_flight);
        });
    }

    /// All results in the order in which they came.
    pub(super) fn order(&self) -> Arc<[RunId]> {
        self.lock().results.iter().map(|(_, run)| *run).collect()
    }

    pub(super) fn outcomes(&self) -> Vec<Outcome> {
        let settled = |(_, standing): &(Arc<str>, Standing)| match standing {
            Standing::Settled(_, outcome) => Some(*outcome),
            Standing::Waiting | Standing::InFlight | Standing::Retrying | Standing::Left => None,
        };
        self.lock().tasks.iter().filter_map(settled).collect()
    }

    /// The place of a task, and where it stands.
    pub(super) fn find(&self, id: &str) -> Option<(usize, Standing)> {
        let inner = self.lock();
        let place = inner.tasks.iter().position(|(known, _)| &**known == id)?;
        inner.tasks.get(place).map(|(_, standing)| (place, *standing))
    }

    /// The next result from a reader's place on, which moves past it. One that a later attempt has overtaken is passed
    /// over.
    pub(super) fn next(&self, from: &mut usize) -> Found {
        let inner = self.lock();
        while let Some((place, run)) = inner.results.get(*from).copied() {
            *from += 1;
            let standing = inner.tasks.get(place).map(|(_, standing)| *standing);
            if matches!(standing, Some(Standing::Settled(current, _)) if current == run) {
                return Found::Result(run);
            }
        }
        inner.closing.map_or(Found::Wait, Found::Closed)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::batches::{entry::Entry, record::Record};

    #[test]
    fn counts_follow_from_the_tasks_whoever_writes() {
        let record: Record =
            serde_json::from_str(r#"{"digest":"d","retries":0,"concurrency":1,"state":"open"}"#)
                .expect("a record");
        let id = crate::domain::id::BatchId::from_bytes([1; 16]);
        let now = crate::domain::time::Timestamp::from_micros(0);
        let entry = Entry::new(id, "b".to_owned(), now, record);
        let board =
            Board::new(entry.status.clone(), ["a".into()], &History::default(), &BTreeSet::new(), &[]);
        let run = RunId::from_bytes([2; 16]);
        let write = || {
            for _ in 0..20_000 {
                board.put(0, Standing::InFlight, Usage::default());
                board.put(0, Standing::Settled(run, Outcome::Done), Usage::default());
            }
        };
        std::thread::scope(|scope| {
            let (one, other) = (scope.spawn(write), scope.spawn(write));
            assert!(one.join().is_ok() && other.join().is_ok());
        });
        let counts = entry.status.borrow().counts.clone();
        assert_eq!((counts.waiting, counts.in_flight), (0, 0));
        assert_eq!(counts.settled.get("done"), Some(&1));
    }
}
