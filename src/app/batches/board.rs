//! Where each task of a batch stands, and which results there are, in the order in which they came.
//!
//! Written by whoever drives the batch, read by whoever shows it. Counts in the status follow from it alone.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::watch;

use super::status::{Counts, Status};
use crate::{
    app::batch::History,
    domain::{id::RunId, outcome::Outcome, usage::Usage},
};

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
    /// Tasks as the history has them: settled if the latest attempt has ended, but for those places that go on.
    pub(super) fn new(
        status: watch::Sender<Status>,
        ids: impl IntoIterator<Item = Arc<str>>,
        history: &History,
        going_on: &BTreeSet<usize>,
    ) -> Self {
        let mut inner = Inner::default();
        let mut ended = Vec::new();
        let mut counts = Counts { usage: history.usage, ..Counts::default() };
        for (place, id) in ids.into_iter().enumerate() {
            let record = history.latest(&id).filter(|_| !going_on.contains(&place));
            let standing = record.and_then(|record| {
                let end = record.end.as_ref()?;
                ended.push((record.ended_at, place, record.run));
                Some(Standing::Settled(record.run, end.outcome))
            });
            let standing = standing.unwrap_or(Standing::Waiting);
            counts.tasks += 1;
            counts.enter(standing);
            inner.tasks.push((id, standing));
        }
        ended.sort_unstable();
        inner.results = ended.into_iter().map(|(_, place, run)| (place, run)).collect();
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
        drop(inner);
        self.status.send_modify(|status| {
            status.counts.leave(before);
            status.counts.enter(standing);
            // One that waited for another attempt in vain was counted when its last one ended.
            if before == Standing::InFlight {
                status.counts.usage += usage;
            }
        });
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
        drop(inner);
        self.status.send_modify(|status| {
            status.counts.waiting += std::mem::take(&mut status.counts.in_flight);
        });
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
