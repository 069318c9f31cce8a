//! Which tasks of an input are run this time, how often, and in which order.

use std::{collections::BTreeSet, sync::Arc};

use super::InputTask;

/// A choice among the tasks of an input. Tasks that are not chosen stay part of the batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Only these ids; empty: all.
    pub only: Vec<String>,
    /// At most this many, the first ones.
    pub first: Option<usize>,
    /// Draws the order by this seed; absent: the input's order.
    pub shuffle: Option<u64>,
}

impl Selection {
    /// The places of the chosen tasks, in the order in which they shall start.
    ///
    /// # Errors
    /// An id that no task has.
    pub fn choose(&self, tasks: &[InputTask]) -> Result<Vec<usize>, String> {
        self.among(&tasks.iter().map(|task| &*task.id).collect::<Vec<_>>())
            .map_err(|unknown| format!("--only: no task has the id {unknown:?}; want an id of the input"))
    }

    /// The places of the chosen ones of these ids, in the order in which they shall start.
    ///
    /// # Errors
    /// An id that is wanted and not among them.
    pub fn among(&self, ids: &[&str]) -> Result<Vec<usize>, String> {
        let known: BTreeSet<&str> = ids.iter().copied().collect();
        if let Some(unknown) = self.only.iter().find(|id| !known.contains(id.as_str())) {
            return Err(unknown.clone());
        }
        let only: BTreeSet<&str> = self.only.iter().map(String::as_str).collect();
        let chosen = |(place, id): (usize, &&str)| (only.is_empty() || only.contains(id)).then_some(place);
        let mut places: Vec<usize> = ids.iter().enumerate().filter_map(chosen).collect();
        places.truncate(self.first.unwrap_or(usize::MAX));
        if let Some(seed) = self.shuffle {
            shuffle(&mut places, seed);
        }
        Ok(places)
    }
}

/// Each task `count` times, the copies named `ID#1`, `ID#2` and so on; a single one keeps its name.
pub fn repeated(tasks: Vec<InputTask>, count: u32) -> Vec<InputTask> {
    if count <= 1 {
        return tasks;
    }
    let copies = |task: InputTask| {
        (1..=count).map(move |copy| {
            let id: Arc<str> = format!("{}#{copy}", task.id).into();
            let mut task = task.clone();
            task.spec.task_id = Some(id.clone());
            InputTask { id, ..task }
        })
    };
    tasks.into_iter().flat_map(copies).collect()
}

/// Fisher and Yates's shuffle over splitmix64: the same seed gives the same order on every machine and version.
fn shuffle(places: &mut [usize], seed: u64) {
    let mut state = seed;
    for last in (1..places.len()).rev() {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let drawn = (u128::from(mixed) * (last as u128 + 1)) >> 64;
        places.swap(last, usize::try_from(drawn).unwrap_or(last));
    }
}
