//! Which waiting run gets the next slot: by priority, then fair between batches, then first come.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, VecDeque},
};

use super::id::BatchId;

/// The runs that wait for a slot. `T` is whatever stands for a run.
#[derive(Debug)]
pub struct Admission<T> {
    levels: BTreeMap<Reverse<i32>, Level<T>>,
    len: usize,
}

/// The runs of one priority: a queue for each batch, and the batches in the order of their turns.
#[derive(Debug)]
struct Level<T> {
    queues: BTreeMap<Option<BatchId>, VecDeque<T>>,
    turns: VecDeque<Option<BatchId>>,
}

impl<T> Default for Admission<T> {
    fn default() -> Self {
        Self { levels: BTreeMap::new(), len: 0 }
    }
}

impl<T> Admission<T> {
    /// Lets a run wait.
    pub fn push(&mut self, priority: i32, batch: Option<BatchId>, run: T) {
        let level = self
            .levels
            .entry(Reverse(priority))
            .or_insert_with(|| Level { queues: BTreeMap::new(), turns: VecDeque::new() });
        let queue = level.queues.entry(batch).or_default();
        if queue.is_empty() {
            level.turns.push_back(batch);
        }
        queue.push_back(run);
        self.len += 1;
    }

    /// Takes the run that is next.
    pub fn pop(&mut self) -> Option<T> {
        let mut entry = self.levels.first_entry()?;
        let level = entry.get_mut();
        let batch = level.turns.pop_front()?;
        let queue = level.queues.get_mut(&batch)?;
        let run = queue.pop_front()?;
        if queue.is_empty() {
            level.queues.remove(&batch);
        } else {
            level.turns.push_back(batch);
        }
        if level.turns.is_empty() {
            entry.remove();
        }
        self.len -= 1;
        Some(run)
    }

    /// The first run found that matches, where it waits.
    pub fn find(&mut self, matches: impl Fn(&T) -> bool) -> Option<&mut T> {
        let queues = self.levels.values_mut().flat_map(|level| level.queues.values_mut());
        queues.flatten().find(|run| matches(run))
    }

    /// Takes out the runs that match, in no order that means anything.
    pub fn remove(&mut self, mut matches: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut removed = Vec::new();
        for level in self.levels.values_mut() {
            for queue in level.queues.values_mut() {
                let (out, kept): (Vec<T>, Vec<T>) = queue.drain(..).partition(&mut matches);
                removed.extend(out);
                queue.extend(kept);
            }
            level.queues.retain(|_, queue| !queue.is_empty());
            let queues = &level.queues;
            level.turns.retain(|batch| queues.contains_key(batch));
        }
        self.levels.retain(|_, level| !level.turns.is_empty());
        self.len -= removed.len();
        removed
    }

    /// How many wait.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether none waits.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn batch(n: u128) -> Option<BatchId> {
        Some(BatchId::new(Uuid::from_u128(n)))
    }

    fn drain(admission: &mut Admission<&'static str>) -> Vec<&'static str> {
        std::iter::from_fn(|| admission.pop()).collect()
    }

    #[test]
    fn a_higher_priority_goes_first() {
        let mut admission = Admission::default();
        admission.push(0, None, "normal");
        admission.push(-1, None, "low");
        admission.push(7, None, "high");
        assert_eq!(drain(&mut admission), ["high", "normal", "low"]);
        assert!(admission.is_empty());
    }

    #[test]
    fn a_small_batch_is_not_kept_waiting_by_a_big_one() {
        let mut admission = Admission::default();
        for run in ["a1", "a2", "a3"] {
            admission.push(0, batch(1), run);
        }
        for run in ["b1", "b2"] {
            admission.push(0, batch(2), run);
        }
        assert_eq!(drain(&mut admission), ["a1", "b1", "a2", "b2", "a3"]);
    }

    #[test]
    fn a_batch_that_was_empty_for_a_while_queues_up_at_the_end() {
        let mut admission = Admission::default();
        admission.push(0, batch(1), "a1");
        admission.push(0, batch(2), "b1");
        assert_eq!(admission.pop(), Some("a1"));
        admission.push(0, batch(1), "a2");
        admission.push(0, batch(1), "a3");
        assert_eq!(drain(&mut admission), ["b1", "a2", "a3"]);
    }

    #[test]
    fn what_is_taken_out_is_gone_and_the_others_keep_their_order() {
        let mut admission = Admission::default();
        for run in ["a1", "a2", "a3"] {
            admission.push(0, batch(1), run);
        }
        admission.push(0, batch(2), "b1");
        admission.push(3, None, "c1");
        assert_eq!(admission.remove(|run| *run == "a2" || *run == "b1" || *run == "c1").len(), 3);
        assert_eq!(admission.len(), 2);
        assert_eq!(drain(&mut admission), ["a1", "a3"]);
    }
}
