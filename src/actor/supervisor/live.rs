//! What the root knows of a run that has a slot.

use std::sync::Arc;

use super::over::Waiters;
use crate::domain::{
    id::{BatchId, Seq},
    outcome::Outcome,
    run::Run,
    task::TaskSpec,
};

/// A run that has a slot.
pub(super) struct LiveRun {
    pub(super) spec: Option<Arc<TaskSpec>>,
    /// Where its log stood when it got the slot.
    pub(super) head: Seq,
    pub(super) done: Waiters,
    /// It was told to end as this.
    pub(super) wish: Option<Outcome>,
    /// It was told to send no further request.
    pub(super) held: bool,
    /// The model that it asks.
    pub(super) model: Option<Arc<str>>,
    /// Whether another model can go on with it.
    pub(super) falls_back: bool,
}

impl LiveRun {
    pub(super) fn new(run: &Run, done: Waiters, wish: Option<Outcome>) -> Self {
        Self {
            spec: run.spec().cloned(),
            head: run.seq(),
            done,
            wish,
            held: false,
            model: run.model().cloned(),
            falls_back: false,
        }
    }

    pub(super) fn batch(&self) -> Option<BatchId> {
        self.spec.as_ref().and_then(|spec| spec.batch)
    }
}
