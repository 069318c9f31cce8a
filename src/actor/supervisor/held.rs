//! The runs that are kept from getting a slot, and how many they are of each batch, for whoever makes room for them.

use std::collections::{BTreeMap, HashMap};

use tokio::sync::watch;

use super::message::Admitted;
use crate::domain::id::{BatchId, RunId};

/// Runs by their batch.
pub type HeldByBatch = BTreeMap<Option<BatchId>, usize>;

/// Runs that are kept from getting a slot.
pub(super) struct Held {
    runs: HashMap<RunId, Admitted>,
    counts: watch::Sender<HeldByBatch>,
}

impl Held {
    /// None yet. `counts` is told of each.
    pub(super) fn new(counts: watch::Sender<HeldByBatch>) -> Self {
        Self { runs: HashMap::new(), counts }
    }

    pub(super) fn insert(&mut self, admitted: Admitted) {
        let batch = batch_of(&admitted);
        if self.runs.insert(admitted.run.id(), admitted).is_none() {
            self.counts.send_modify(|counts| *counts.entry(batch).or_default() += 1);
        }
    }

    pub(super) fn remove(&mut self, run: RunId) -> Option<Admitted> {
        let admitted = self.runs.remove(&run)?;
        let batch = batch_of(&admitted);
        self.counts.send_modify(|counts| {
            let count = counts.entry(batch).or_default();
            *count = count.saturating_sub(1);
            if *count == 0 {
                counts.remove(&batch);
            }
        });
        Some(admitted)
    }

    /// Takes them all out.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Admitted> {
        self.counts.send_modify(BTreeMap::clear);
        self.runs.drain().map(|(_, admitted)| admitted)
    }

    pub(super) fn get_mut(&mut self, run: RunId) -> Option<&mut Admitted> {
        self.runs.get_mut(&run)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Admitted> {
        self.runs.values()
    }

    pub(super) fn len(&self) -> usize {
        self.runs.len()
    }
}

fn batch_of(admitted: &Admitted) -> Option<BatchId> {
    admitted.run.spec().and_then(|spec| spec.batch)
}
