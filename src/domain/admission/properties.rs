//! The queue against a model that looks at every run each time, over random comings and goings.

use proptest::{collection::vec, prelude::*};
use uuid::Uuid;

use super::{Admission, Place};
use crate::domain::id::{BatchId, RunId};

/// Each run waits in the lane of its number.
const LANES: u128 = 3;

/// One thing that is done to the queue. Runs are few, so that they come again.
#[derive(Clone, Debug)]
enum Step {
    Push {
        priority: i32,
        batch: Option<u128>,
        run: u128,
    },
    Pop,
    /// Of all lanes but this.
    PopBut(u128),
    Remove(u128),
    RemoveOdd,
}

fn step() -> impl Strategy<Value = Step> {
    let push = (-1..2, proptest::option::of(0..3_u128), 0..40_u128);
    prop_oneof![
        5 => push.prop_map(|(priority, batch, run)| Step::Push { priority, batch, run }),
        2 => Just(Step::Pop),
        2 => (0..LANES).prop_map(Step::PopBut),
        2 => (0..40_u128).prop_map(Step::Remove),
        1 => Just(Step::RemoveOdd),
    ]
}

type Group = (i32, Option<u128>);

/// Runs in the order in which they came, and the groups that have one in the order of their turns.
#[derive(Debug, Default)]
struct Model {
    runs: Vec<(Group, u128)>,
    turns: Vec<Group>,
}

impl Model {
    fn push(&mut self, group: Group, run: u128) {
        self.remove(run);
        if !self.turns.contains(&group) {
            self.turns.push(group);
        }
        self.runs.push((group, run));
    }

    fn pop_if(&mut self, is_open: impl Fn(u128) -> bool) -> Option<u128> {
        let mut turns = self.turns.clone();
        turns.sort_by_key(|(priority, _)| std::cmp::Reverse(*priority));
        let (group, run) = turns.into_iter().find_map(|group| {
            let mut runs = self.runs.iter();
            let (_, run) = runs.find(|(of, run)| *of == group && is_open(*run % LANES))?;
            Some((group, *run))
        })?;
        self.turns.retain(|one| *one != group);
        self.turns.push(group);
        self.remove(run)
    }

    fn remove(&mut self, run: u128) -> Option<u128> {
        self.remove_if(|one| one == run).pop()
    }

    fn remove_if(&mut self, matches: impl Fn(u128) -> bool) -> Vec<u128> {
        let mut out: Vec<_> =
            self.runs.extract_if(.., |(_, run)| matches(*run)).map(|(_, run)| run).collect();
        let runs = &self.runs;
        self.turns.retain(|group| runs.iter().any(|(of, _)| of == group));
        out.sort_unstable();
        out
    }
}

fn name(run: u128) -> RunId {
    RunId::new(Uuid::from_u128(run))
}

proptest! {
    #[test]
    fn the_queue_does_as_one_that_looks_at_every_run(steps in vec(step(), 1..200)) {
        let (mut queue, mut model) = (Admission::default(), Model::default());
        for step in steps {
            match step {
                Step::Push { priority, batch, run } => {
                    let lane = (run % LANES).to_string().into();
                    let batch_id = batch.map(|batch| BatchId::new(Uuid::from_u128(batch)));
                    queue.push(Place { priority, batch: batch_id, lane }, name(run), run);
                    model.push((priority, batch), run);
                }
                Step::Pop => prop_assert_eq!(queue.pop(), model.pop_if(|_| true)),
                Step::PopBut(shut) => {
                    let popped = queue.pop_if(|lane| lane != shut.to_string());
                    prop_assert_eq!(popped, model.pop_if(|lane| lane != shut));
                }
                Step::Remove(run) => prop_assert_eq!(queue.remove(name(run)), model.remove(run)),
                Step::RemoveOdd => {
                    prop_assert_eq!(queue.remove_if(|run| run % 2 == 1), model.remove_if(|run| run % 2 == 1));
                }
            }
            prop_assert_eq!(queue.len(), model.runs.len());
            prop_assert_eq!(queue.levels.values().map(|level| level.queues.len()).sum::<usize>(), model.turns.len());
            for run in 0..40 {
                let waits = model.runs.iter().any(|(_, one)| *one == run);
                prop_assert_eq!(queue.get_mut(name(run)).copied(), waits.then_some(run));
            }
        }
        let rest: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        prop_assert_eq!(rest, std::iter::from_fn(|| model.pop_if(|_| true)).collect::<Vec<_>>());
        prop_assert!(queue.levels.is_empty());
    }
}
