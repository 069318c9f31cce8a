//! The tasks of an input, however they are held: all of them in memory, or each read again when its turn comes.

use std::{future::ready, sync::Arc};

use futures_util::{FutureExt as _, future::BoxFuture};

use crate::{app::input::InputTask, domain::task::TaskSpec};

/// What a line comes to when the turn of its task has come.
pub(in crate::app) enum Wanted {
    /// This is asked of its first attempt.
    Whole(TaskSpec),
    /// What it names is not to be had any more, as these words say: an attempt ends as it begins.
    Incomplete(TaskSpec, String),
}

/// The line of a task cannot be read again, so nobody knows what is asked.
#[derive(Debug, thiserror::Error)]
#[error("the line of task {task:?} cannot be read again: {why}")]
pub(in crate::app) struct LineLost {
    pub(in crate::app) task: Arc<str>,
    pub(in crate::app) why: String,
}

/// The tasks of an input, by their places in it.
pub(in crate::app) trait Tasks: Sync {
    fn count(&self) -> usize;

    fn id(&self, place: usize) -> Option<&Arc<str>>;

    /// The hash of its line.
    fn hash(&self, place: usize) -> Option<&str>;

    fn priority(&self, place: usize) -> i32;

    /// What is asked of its first attempt. May take as long as reading a long line does.
    fn spec(&self, place: usize) -> BoxFuture<'_, Result<Wanted, LineLost>>;
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

    fn spec(&self, place: usize) -> BoxFuture<'_, Result<Wanted, LineLost>> {
        let lost = || LineLost { task: "".into(), why: "there is no such task".to_owned() };
        ready(self.get(place).map(|task| Wanted::Whole(task.spec.clone())).ok_or_else(lost)).boxed()
    }
}
