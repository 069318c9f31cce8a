//! The open runs at a glance, so that a list of them is shown without reading a log.
//!
//! Holds one [`Glance`] for each run that has not ended, how many have, and what happened in the last minute. Whoever follows the log
//! feeds it, in the order of the log; an event that it has taken in before changes nothing. A question holds up whoever
//! feeds it for no longer than it takes to look at each glance once: sorting is done afterwards, on shared copies.

mod rate;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, btree_map::Entry},
    pin::pin,
    sync::{Arc, PoisonError, RwLock},
};

use futures_util::{StreamExt as _, stream};

pub use rate::Rates;

use self::rate::Minute;
use crate::{
    domain::{
        event::{Envelope, Event},
        glance::{CallStage, Glance, Stand},
        id::{BatchId, Pos, RunId, Seq},
        time::Timestamp,
        usage::Usage,
    },
    store::{EventStore, RunCounts, RunFilter, StoreError},
};

/// Logs that are read at once.
const AT_ONCE: usize = 16;

/// The open runs at a glance.
#[derive(Debug, Default)]
pub struct Board(RwLock<State>);

#[derive(Debug, Default)]
struct State {
    open: BTreeMap<RunId, Arc<Glance>>,
    counts: RunCounts,
    /// The last event that was counted as the log was loaded.
    loaded: Pos,
    minute: Minute,
}

/// Some of the open runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// How many there are in all.
    pub total: usize,
    /// Those that were asked for.
    pub runs: Vec<Arc<Glance>>,
}

/// The open runs together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    /// Runs that are not held by where they stand, in the order of [`Stand::OPEN`].
    pub stands: [usize; Stand::OPEN.len()],
    /// Runs that are held: where they stand, nothing goes on.
    pub held: usize,
    /// Calls that may be taking effect.
    pub calls_running: usize,
    /// Calls that wait for a lock or a permit.
    pub calls_waiting: usize,
    /// Calls that people are to decide about.
    pub calls_asked_about: usize,
    /// What the open runs have used up.
    pub usage: Usage,
    /// What happens of late, in all runs.
    pub rates: Rates,
}

impl Totals {
    /// Runs that stand there and are not held, by its name in [`Stand::OPEN`].
    pub fn stand(&self, name: &str) -> usize {
        Stand::OPEN
            .iter()
            .zip(self.stands)
            .find_map(|(stand, runs)| (*stand == name).then_some(runs))
            .unwrap_or(0)
    }

    /// Open runs.
    pub fn open(&self) -> usize {
        self.stands.iter().sum::<usize>() + self.held
    }
}

impl Board {
    /// Counts the runs and reads the logs of those that are open. A log that cannot be read is passed over: its run cannot
    /// go on either. What is counted is right if nothing is written meanwhile.
    ///
    /// # Errors
    /// What the store says otherwise.
    pub async fn load(&self, store: &dyn EventStore) -> Result<(), StoreError> {
        let loaded = *store.watch().borrow();
        let counts = store.count(RunFilter::default()).await?;
        self.write(|state| (state.loaded, state.counts) = (loaded, counts));
        let open = RunFilter { ended: Some(false), ..RunFilter::default() };
        let runs = store.runs(open).await?.into_iter().map(|record| record.run);
        let logs = stream::iter(runs).map(|run| async move { (run, store.read(run, Seq::START).await) });
        let mut logs = pin!(logs.buffer_unordered(AT_ONCE));
        while let Some((run, log)) = logs.next().await {
            match log {
                Ok(log) => {
                    let mut glance = Glance::new(run);
                    for envelope in &log {
                        glance.evolve(&envelope.fact);
                    }
                    self.put(glance);
                }
                Err(error @ StoreError::Damaged { .. }) => {
                    tracing::warn!(run.id = %run, error = %error, "open run not readable");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn put(&self, glance: Glance) {
        if !matches!(glance.stand, Stand::Ended(_)) {
            self.write(|state| state.open.insert(glance.run, Arc::new(glance)));
        }
    }

    /// Takes an event in and says which batch its run belongs to, if that is known.
    pub fn fold(&self, envelope: &Envelope) -> Option<BatchId> {
        self.write(|state| state.fold(envelope))
    }

    /// One open run.
    pub fn get(&self, run: RunId) -> Option<Arc<Glance>> {
        self.read(|state| state.open.get(&run).cloned())
    }

    /// The open runs that `admits` admits, oldest first.
    pub fn ids(&self, admits: impl Fn(&Glance) -> bool) -> Vec<RunId> {
        self.read(|state| {
            state.open.values().filter(|glance| admits(glance)).map(|glance| glance.run).collect()
        })
    }

    /// How many runs there are, and how they stand.
    pub fn counts(&self) -> RunCounts {
        self.read(|state| state.counts.clone())
    }

    /// Open runs that `admits` admits, by `key`, then by age; `limit` of them after the first `offset`.
    pub fn page<K: Ord>(
        &self,
        admits: impl Fn(&Glance) -> bool,
        key: impl Fn(&Glance) -> K,
        offset: usize,
        limit: usize,
    ) -> Page {
        let mut found: Vec<_> =
            self.read(|state| state.open.values().filter(|glance| admits(glance)).cloned().collect());
        // Stable: what is equal stays in order of age.
        found.sort_by_cached_key(|glance| key(glance));
        Page { total: found.len(), runs: found.into_iter().skip(offset).take(limit).collect() }
    }

    /// The open runs that `admits` admits together; the rates are of all runs.
    pub fn totals(&self, admits: impl Fn(&Glance) -> bool, now: Timestamp) -> Totals {
        self.read(|state| {
            let mut totals = Totals { rates: state.minute.rates(now), ..Totals::default() };
            for glance in state.open.values().filter(|glance| admits(glance)) {
                totals.usage += glance.usage;
                let at = |stage: CallStage| glance.calls().iter().filter(|call| call.stage == stage).count();
                totals.calls_running += at(CallStage::Running);
                totals.calls_waiting += at(CallStage::Waiting);
                totals.calls_asked_about += glance.approvals().count();
                if glance.is_held() {
                    totals.held += 1;
                } else if let Some(place) = Stand::OPEN.iter().position(|name| *name == glance.stand.as_str())
                {
                    totals.stands[place] += 1;
                }
            }
            totals
        })
    }

    fn read<T>(&self, read: impl FnOnce(&State) -> T) -> T {
        read(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, write: impl FnOnce(&mut State) -> T) -> T {
        write(&mut self.0.write().unwrap_or_else(PoisonError::into_inner))
    }
}

impl State {
    fn fold(&mut self, envelope: &Envelope) -> Option<BatchId> {
        let mut entry = match self.open.entry(envelope.run) {
            Entry::Occupied(entry) => entry,
            Entry::Vacant(entry) => {
                // Of a run that had ended before this board was made, or that could not be read.
                let is_new = matches!(envelope.fact.event, Event::Submitted(_)) && envelope.pos > self.loaded;
                if !is_new {
                    return None;
                }
                self.counts.total += 1;
                self.counts.open += 1;
                entry.insert_entry(Arc::new(Glance::new(envelope.run)))
            }
        };
        let glance = entry.get_mut();
        if envelope.seq <= glance.seq {
            return glance.batch;
        }
        // Copied only if somebody still shows it.
        let glance = Arc::make_mut(glance);
        glance.evolve(&envelope.fact);
        // Behind what could not be read it is right again with the next turn at the latest.
        glance.seq = envelope.seq;
        self.minute.count(&envelope.fact);
        let batch = glance.batch;
        if let Stand::Ended(outcome) = glance.stand {
            self.counts.open -= 1;
            *self.counts.ended.entry(outcome.as_str().to_owned()).or_default() += 1;
            entry.remove();
        }
        batch
    }
}
