//! The tasks of an input, however they are held: all of them in memory, or each read again when its turn comes.

use std::sync::Arc;

use crate::{app::input::InputTask, domain::task::TaskSpec};

/// The tasks of an input, by their places in it.
pub(in crate::app) trait Tasks: Sync {
    fn count(&self) -> usize;

    fn id(&self, place: usize) -> Option<&Arc<str>>;

    /// The hash of its line.
    fn hash(&self, place: usize) -> Option<&str>;

    fn priority(&self, place: usize) -> i32;

    /// What is asked of its first attempt. A task whose line cannot be had any more has none.
    fn spec(&self, place: usize) -> Option<TaskSpec>;
}

impl Tasks for &[InputTask] {
    fn count(&self) -> usize {
        self.len()
    }

    fn id(&self, place: usize) -> Option<&Arc<str>> {
        self.get(place).map(|task| &task.id)
    }

    fn hash(&self, place: usize) -> Option<&str> {
        self.get(place).map(|task| &*task.hash)
    }

    fn priority(&self, place: usize) -> i32 {
        self.get(place).map_or(0, |task| task.spec.priority)
    }

    fn spec(&self, place: usize) -> Option<TaskSpec> {
        self.get(place).map(|task| task.spec.clone())
    }
}
