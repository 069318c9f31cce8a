//! Which waiting run gets the next slot: by priority, then fair between batches, then first come.
//!
//! Runs wait in lanes, one for each model that they ask. A lane that is closed is passed over, and holds up nobody in
//! another. Every step on one run, wherever it waits, costs the logarithm of how many wait; one on the next run, as many
//! steps as there are batches and lanes before it that are closed.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use super::id::{BatchId, RunId};

#[cfg(test)]
mod properties;
mod slots;

pub use slots::Slots;

/// The runs that wait for a slot. `T` is what is kept of each.
#[derive(Debug)]
pub struct Admission<T> {
    runs: BTreeMap<RunId, Waiting<T>>,
    levels: BTreeMap<Reverse<i32>, Level>,
    /// Numbers arrivals and turns, in their order.
    next: u64,
}

/// A run, and where it stands.
#[derive(Debug)]
struct Waiting<T> {
    place: Place,
    arrival: u64,
    kept: T,
}

/// Where a run waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Higher ones go first.
    pub priority: i32,
    /// Batches take turns.
    pub batch: Option<BatchId>,
    /// What it is told by whether it may go: the model's name.
    pub lane: Arc<str>,
}

/// The runs of one priority: a queue for each batch, and the batches in the order of their turns.
#[derive(Debug, Default)]
struct Level {
    queues: BTreeMap<Option<BatchId>, Queue>,
    turns: BTreeMap<u64, Option<BatchId>>,
}

/// The runs of one batch by lane and arrival, never none.
#[derive(Debug)]
struct Queue {
    turn: u64,
    lanes: BTreeMap<Arc<str>, BTreeMap<u64, RunId>>,
}

impl Queue {
    /// The run that came first of those in an open lane.
    fn first(&self, mut is_open: impl FnMut(&str) -> bool) -> Option<RunId> {
        let open = self.lanes.iter().filter(|(lane, _)| is_open(lane));
        let firsts = open.filter_map(|(_, runs)| runs.first_key_value());
        firsts.min().map(|(_, run)| *run)
    }
}

impl<T> Default for Admission<T> {
    fn default() -> Self {
        Self { runs: BTreeMap::new(), levels: BTreeMap::new(), next: 0 }
    }
}

impl<T> Admission<T> {
    /// Lets a run wait. One that waits already loses its place.
    pub fn push(&mut self, place: Place, run: RunId, kept: T) {
        self.remove(run);
        let Place { priority, batch, lane } = place.clone();
        let arrival = self.next;
        // If its batch has none that waits, this is its turn as well.
        self.next += 1;
        let Level { queues, turns } = self.levels.entry(Reverse(priority)).or_default();
        let queue = queues.entry(batch).or_insert_with(|| {
            turns.insert(arrival, batch);
            Queue { turn: arrival, lanes: BTreeMap::new() }
        });
        queue.lanes.entry(lane).or_default().insert(arrival, run);
        self.runs.insert(run, Waiting { place, arrival, kept });
    }

    /// Takes the run that is next.
    pub fn pop(&mut self) -> Option<T> {
        self.pop_if(|_| true)
    }

    /// Takes the run that is next of those in open lanes.
    pub fn pop_if(&mut self, mut is_open: impl FnMut(&str) -> bool) -> Option<T> {
        let (level, turn, batch, run) = self.levels.values_mut().find_map(|level| {
            let (turn, batch, run) = level.turns.iter().find_map(|(turn, batch)| {
                let run = level.queues.get(batch)?.first(&mut is_open)?;
                Some((*turn, *batch, run))
            })?;
            Some((level, turn, batch, run))
        })?;
        // Its batch's next turn comes after all others.
        level.turns.remove(&turn);
        level.queues.get_mut(&batch)?.turn = self.next;
        level.turns.insert(self.next, batch);
        self.next += 1;
        self.remove(run)
    }

    /// What is kept of a run that waits.
    pub fn get_mut(&mut self, run: RunId) -> Option<&mut T> {
        self.runs.get_mut(&run).map(|waiting| &mut waiting.kept)
    }

    /// Takes a run out, wherever it waits.
    pub fn remove(&mut self, run: RunId) -> Option<T> {
        let Waiting { place: Place { priority, batch, lane }, arrival, kept } = self.runs.remove(&run)?;
        let level = self.levels.get_mut(&Reverse(priority))?;
        let queue = level.queues.get_mut(&batch)?;
        let runs = queue.lanes.get_mut(&lane)?;
        runs.remove(&arrival);
        if runs.is_empty() {
            queue.lanes.remove(&lane);
        }
        if queue.lanes.is_empty() {
            level.turns.remove(&queue.turn);
            level.queues.remove(&batch);
        }
        if level.queues.is_empty() {
            self.levels.remove(&Reverse(priority));
        }
        Some(kept)
    }

    /// Takes out the runs that match, in the order of their ids.
    pub fn remove_if(&mut self, mut matches: impl FnMut(&T) -> bool) -> Vec<T> {
        let matching: Vec<RunId> =
            self.runs.iter().filter(|(_, waiting)| matches(&waiting.kept)).map(|(run, _)| *run).collect();
        matching.into_iter().filter_map(|run| self.remove(run)).collect()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn batch(n: u128) -> Option<BatchId> {
        Some(BatchId::new(Uuid::from_u128(n)))
    }

    /// Runs are named by what is kept of them.
    fn run(name: &str) -> RunId {
        let number = name.bytes().fold(0, |number, byte| number << 8 | u128::from(byte));
        RunId::new(Uuid::from_u128(number))
    }

    impl Admission<&'static str> {
        fn add(&mut self, priority: i32, batch: Option<BatchId>, name: &'static str) {
            self.push(Place { priority, batch, lane: "m".into() }, run(name), name);
        }
    }

    fn drain(admission: &mut Admission<&'static str>) -> Vec<&'static str> {
        std::iter::from_fn(|| admission.pop()).collect()
    }

    #[test]
    fn a_higher_priority_goes_first() {
        let mut admission = Admission::default();
        admission.add(0, None, "normal");
        admission.add(-1, None, "low");
        admission.add(7, None, "high");
        assert_eq!(drain(&mut admission), ["high", "normal", "low"]);
        assert!(admission.is_empty());
    }

    #[test]
    fn a_small_batch_is_not_kept_waiting_by_a_big_one() {
        let mut admission = Admission::default();
        for run in ["a1", "a2", "a3"] {
            admission.add(0, batch(1), run);
        }
        for run in ["b1", "b2"] {
            admission.add(0, batch(2), run);
        }
        assert_eq!(drain(&mut admission), ["a1", "b1", "a2", "b2", "a3"]);
    }

    #[test]
    fn a_batch_that_was_empty_for_a_while_queues_up_at_the_end() {
        let mut admission = Admission::default();
        admission.add(0, batch(1), "a1");
        admission.add(0, batch(2), "b1");
        assert_eq!(admission.pop(), Some("a1"));
        admission.add(0, batch(1), "a2");
        admission.add(0, batch(1), "a3");
        assert_eq!(drain(&mut admission), ["b1", "a2", "a3"]);
    }

    #[test]
    fn what_is_taken_out_is_gone_and_the_others_keep_their_order() {
        let mut admission = Admission::default();
        for run in ["a1", "a2", "a3"] {
            admission.add(0, batch(1), run);
        }
        admission.add(0, batch(2), "b1");
        admission.add(3, None, "c1");
        assert_eq!(admission.remove(run("a2")), Some("a2"));
        assert_eq!(admission.remove(run("a2")), None);
        assert_eq!(admission.remove_if(|run| *run == "b1" || *run == "c1"), ["b1", "c1"]);
        assert_eq!(admission.len(), 2);
        assert_eq!(drain(&mut admission), ["a1", "a3"]);
    }

    #[test]
    fn a_closed_lane_is_passed_over_and_holds_up_no_other() {
        let mut admission = Admission::default();
        let mut add = |batch, lane: &str, name| {
            admission.push(Place { priority: 0, batch, lane: lane.into() }, run(name), name);
        };
        add(batch(1), "full", "a1");
        add(batch(1), "free", "a2");
        add(batch(1), "free", "a3");
        add(batch(2), "full", "b1");
        add(batch(3), "free", "c1");
        let open = |lane: &str| lane == "free";
        let order: Vec<_> = std::iter::from_fn(|| admission.pop_if(open)).collect();
        assert_eq!(order, ["a2", "c1", "a3"], "fair between batches, in the lane that is open");
        assert_eq!(admission.pop_if(|_| false), None);
        assert_eq!(drain(&mut admission), ["b1", "a1"], "whoever was passed over has kept its turn");
    }

    #[test]
    fn a_hundred_thousand_runs_are_taken_out_one_by_one() {
        let name = |n| RunId::new(Uuid::from_u128(n));
        let mut admission = Admission::default();
        for n in 0..100_000 {
            admission.push(Place { priority: 0, batch: batch(n % 3), lane: "m".into() }, name(n), n);
        }
        // Moving all that wait for each that leaves, this would take minutes.
        for n in (0..100_000).rev() {
            assert_eq!(admission.remove(name(n)), Some(n));
        }
        assert!(admission.is_empty() && admission.levels.is_empty());
    }
}
