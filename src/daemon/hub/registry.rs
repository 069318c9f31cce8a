//! Who is to have what: readers by the run that they follow, and those that follow all.
//!
//! A reader is woken only by what it is to have. Handing over never waits; a reader whose queue is full is forgotten.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use axum::body::Bytes;

use super::{
    filter::{Filter, Kinds},
    frame::{self, End, Frame},
    queue::Queue,
};
use crate::{
    actor::Live,
    domain::{
        event::Envelope,
        id::{BatchId, Pos, RunId},
    },
};

/// Who is to have what.
#[derive(Debug)]
pub(super) struct Registry(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    by_run: HashMap<RunId, Vec<Arc<Reader>>>,
    all: Vec<Arc<Reader>>,
    /// Readers that want spoken text.
    listeners: usize,
    /// Whether somebody relays spoken text to them.
    relayed: bool,
    /// The place of the last event that was handed over.
    handed: Pos,
    closed: Option<End>,
}

/// Whether a stream has text as it is spoken, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Deltas {
    /// Only what is of record.
    #[default]
    Without,
    /// As far as its reader keeps up.
    With,
}

#[derive(Debug)]
struct Reader {
    queue: Queue,
    batch: Option<BatchId>,
    kinds: Kinds,
    deltas: Deltas,
    /// Whether it has read what its queue does not have.
    has_caught_up: AtomicBool,
}

impl Reader {
    fn is_in(&self, batch: Option<BatchId>) -> bool {
        self.batch.is_none() || self.batch == batch
    }
}

/// A place in the registry, given up when it is dropped.
#[derive(Debug)]
pub(super) struct Subscription {
    registry: Arc<Registry>,
    reader: Arc<Reader>,
    /// Empty: all.
    runs: Vec<RunId>,
    after: Pos,
}

impl Subscription {
    pub(super) fn queue(&self) -> &Queue {
        &self.reader.queue
    }

    /// The queue has what stands behind this place, and nothing before it.
    pub(super) const fn after(&self) -> Pos {
        self.after
    }

    /// Its reader has all that stands before what the queue has, and lives on the queue alone.
    pub(super) fn mark_caught_up(&self) {
        self.reader.has_caught_up.store(true, Relaxed);
    }
}

impl Registry {
    /// Nobody is entered, and what comes first stands behind `head`.
    pub(super) fn new(head: Pos) -> Self {
        Self(Mutex::new(State { handed: head, ..State::default() }))
    }

    /// Enters a reader. Also says whether spoken text must be relayed from now on.
    pub(super) fn subscribe(self: &Arc<Self>, filter: &Filter, deltas: Deltas) -> (Subscription, bool) {
        let Filter { batch, runs, kinds } = filter;
        let reader = Arc::new(Reader {
            queue: Queue::default(),
            batch: *batch,
            kinds: kinds.clone(),
            deltas,
            has_caught_up: AtomicBool::new(false),
        });
        let runs: Vec<RunId> = runs.iter().copied().collect();
        let mut state = self.lock();
        if let Some(end) = &state.closed {
            reader.queue.close(end.clone());
        }
        for run in &runs {
            state.by_run.entry(*run).or_default().push(Arc::clone(&reader));
        }
        if runs.is_empty() {
            state.all.push(Arc::clone(&reader));
        }
        let listens = deltas == Deltas::With;
        state.listeners += usize::from(listens);
        let starts = listens && !state.relayed;
        state.relayed |= listens;
        let after = state.handed;
        drop(state);
        (Subscription { registry: Arc::clone(self), reader, runs, after }, starts)
    }

    /// Readers that have caught up and whose queue has not overflowed.
    pub(super) fn followers(&self) -> usize {
        let state = self.lock();
        let readers = state.by_run.values().flatten().chain(&state.all);
        let followers = readers.filter(|reader| reader.has_caught_up.load(Relaxed)).map(Arc::as_ptr);
        // One that follows several runs is entered for each.
        followers.collect::<BTreeSet<_>>().len()
    }

    /// Hands an event to whoever is to have it, encoded once and only if there is anybody.
    pub(super) fn publish(&self, envelope: &Envelope, batch: Option<BatchId>) {
        let mut frame = None;
        let kind = envelope.fact.event.kind();
        let mut takes = |reader: &Arc<Reader>| {
            let wants = reader.is_in(batch) && reader.kinds.has(kind);
            !wants || reader.queue.offer(frame.get_or_insert_with(|| Frame::of(envelope)))
        };
        let mut state = self.lock();
        state.handed = envelope.pos;
        if let Some(readers) = state.by_run.get_mut(&envelope.run) {
            readers.retain(&mut takes);
        }
        state.all.retain(takes);
    }

    /// Hands spoken text to whoever wants it, and says whether anybody still does.
    pub(super) fn speak(&self, live: &Live, batch: impl FnOnce() -> Option<BatchId>) -> bool {
        let mut state = self.lock();
        if !state.is_listened_to() {
            return false;
        }
        let by_run = state.by_run.get(&live.run).into_iter().flatten();
        let mut listeners =
            by_run.chain(&state.all).filter(|reader| reader.deltas == Deltas::With).peekable();
        if listeners.peek().is_some() {
            let (batch, text): (_, Bytes) = (batch(), frame::delta(live));
            for reader in listeners.filter(|reader| reader.is_in(batch)) {
                reader.queue.offer_delta(&text);
            }
        }
        true
    }

    /// So much spoken text got lost, of whatever runs; says whether anybody still wants any.
    pub(super) fn miss(&self, count: u64) -> bool {
        let mut state = self.lock();
        let listens = |reader: &&Arc<Reader>| reader.deltas == Deltas::With;
        for reader in state.by_run.values().flatten().chain(&state.all).filter(listens) {
            reader.queue.miss(count);
        }
        state.is_listened_to()
    }

    /// Events of a run cannot be handed over: whoever was to have them has no more of anything.
    pub(super) fn fail(&self, run: RunId, end: &End) {
        let mut state = self.lock();
        let of_run = state.by_run.remove(&run).unwrap_or_default();
        for reader in of_run.into_iter().chain(std::mem::take(&mut state.all)) {
            reader.queue.close(end.clone());
        }
    }

    /// Nothing more will be handed over.
    pub(super) fn close(&self, end: &End) {
        let mut state = self.lock();
        for reader in state.by_run.values().flatten().chain(&state.all) {
            reader.queue.close(end.clone());
        }
        state.closed = Some(end.clone());
    }

    /// Readers that are entered, one that follows several runs once for each.
    #[cfg(test)]
    pub(super) fn entered(&self) -> usize {
        let state = self.lock();
        state.by_run.values().map(Vec::len).sum::<usize>() + state.all.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Under one lock with the answer, so that a reader that comes next knows that nobody relays any more.
    fn is_listened_to(&mut self) -> bool {
        self.relayed = self.listeners > 0;
        self.relayed
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut state = self.registry.lock();
        let is_other = |reader: &Arc<Reader>| !Arc::ptr_eq(reader, &self.reader);
        for run in &self.runs {
            if let Some(readers) = state.by_run.get_mut(run) {
                readers.retain(is_other);
                if readers.is_empty() {
                    state.by_run.remove(run);
                }
            }
        }
        if self.runs.is_empty() {
            state.all.retain(is_other);
        }
        state.listeners -= usize::from(self.reader.deltas == Deltas::With);
    }
}
