//! The queue against a model that looks at every run each time, over random comings and goings.

use proptest::{collection::vec, prelude::*};
use uuid::Uuid;

use super::Admission;
use crate::domain::id::{BatchId, RunId};

/// One thing that is done to the queue. Runs are few, so that they come again.
#[derive(Clone, Debug)]
enum Step {
    Push { priority: i32, batch: Option<u128>, run: u128 },
    Pop,
    Remove(u128),
    RemoveOdd,
}

fn step() -> impl Strategy<Value = Step> {
    let push = (-1..2, proptest::option::of(0..3_u128), 0..40_u128);
    prop_oneof![
        5 => push.prop_map(|(priority, batch, run)| Step::Push { priority, batch, run }),
        2 => Just(Step::Pop),
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

    fn pop(&mut self) -> Option<u128> {
        let highest = self.turns.iter().map(|(priority, _)| *priority).max()?;
        let turn = self.turns.iter().position(|(priority, _)| *priority == highest)?;
        let group = self.turns.remove(turn);
        self.turns.push(group);
        let (_, run) = *self.runs.iter().find(|(of, _)| *of == group)?;
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
                    queue.push(priority, batch.map(|batch| BatchId::new(Uuid::from_u128(batch))), name(run), run);
                    model.push((priority, batch), run);
                }
                Step::Pop => prop_assert_eq!(queue.pop(), model.pop()),
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
        prop_assert_eq!(rest, std::iter::from_fn(|| model.pop()).collect::<Vec<_>>());
        prop_assert!(queue.levels.is_empty());
    }
}
