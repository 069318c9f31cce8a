//! One task on its way: submitted or taken up again, then waited for.

use std::{cmp::Reverse, collections::VecDeque, sync::Arc};

use crate::{
    actor::{
        Supervisor,
        supervisor::{SubmitError, Submitted},
    },
    app::{input::InputTask, state},
    domain::{
        batch::Plan,
        event::RunEnd,
        id::{BatchId, RunId},
        task::TaskSpec,
    },
    store::StoreError,
};

/// A task that is to be submitted.
pub(super) struct Next {
    pub(super) task: usize,
    pub(super) attempt: u32,
    /// Attempts before it that count towards its retries.
    pub(super) made: u32,
    pub(super) how: How,
}

pub(super) enum How {
    /// As a new run, after this one.
    Start(Option<RunId>),
    /// As the run that it was.
    Resume(RunId),
}

/// A task that herder has let go of.
pub(super) struct Over {
    pub(super) task: usize,
    pub(super) run: RunId,
    pub(super) attempt: u32,
    pub(super) made: u32,
    pub(super) how: HowOver,
}

pub(super) enum HowOver {
    Ended(Arc<RunEnd>),
    /// It goes on when the batch is run again.
    Stopped,
    /// It could not be worked on.
    Left(Arc<SubmitError>),
}

/// By priority, and of one priority interrupted runs first. The supervisor knows priorities too, but only of what has
/// been submitted.
pub(super) fn in_order(plan: &Plan, tasks: &[InputTask]) -> VecDeque<Next> {
    let resume = plan.resume.iter().map(|one| Next {
        task: one.task,
        attempt: one.attempt,
        made: one.made,
        how: How::Resume(one.run),
    });
    let start = plan.start.iter().map(|one| Next {
        task: one.task,
        attempt: one.attempt,
        made: one.made,
        how: How::Start(one.predecessor),
    });
    let mut order: Vec<Next> = resume.chain(start).collect();
    order.sort_by_key(|next| Reverse(tasks.get(next.task).map(|task| task.spec.priority)));
    order.into()
}

/// A task on its way.
pub(super) struct OnItsWay {
    next: Next,
    run: RunId,
    supervisor: Supervisor,
    submitted: Option<Result<Submitted, SubmitError>>,
}

impl OnItsWay {
    pub(super) fn submit(supervisor: &Supervisor, batch: BatchId, tasks: &[InputTask], next: Next) -> Self {
        let (run, submitted) = match (&next.how, tasks.get(next.task)) {
            (How::Resume(run), _) => (*run, None),
            (How::Start(predecessor), task) => {
                let run = state::new_run();
                let (attempt, predecessor) = (next.attempt, *predecessor);
                let spec = task.map(|task| {
                    Arc::new(TaskSpec { batch: Some(batch), attempt, predecessor, ..task.spec.clone() })
                });
                (run, spec.map(|spec| supervisor.submit_soon(run, spec)))
            }
        };
        Self { next, run, supervisor: supervisor.clone(), submitted }
    }

    /// Waits until the run is over.
    ///
    /// # Errors
    /// The log takes nothing any more. What concerns this run alone is no error: the others go on.
    pub(super) async fn over(self) -> Result<Over, StoreError> {
        let Self { next: Next { task, attempt, made, .. }, run, supervisor, submitted } = self;
        let (submitted, is_new) = match submitted {
            Some(submitted) => (submitted, true),
            None => (supervisor.resume(run).await, false),
        };
        let how = match submitted {
            Ok(submitted) => match submitted.done.await.ok().and_then(|ended| ended.end) {
                Some(end) => HowOver::Ended(end),
                None => HowOver::Stopped,
            },
            Err(SubmitError::Store(error @ StoreError::Closed)) => return Err(error),
            Err(SubmitError::Store(error @ StoreError::Unavailable(_))) if is_new => return Err(error),
            Err(SubmitError::Stopping) => HowOver::Stopped,
            Err(error @ (SubmitError::Store(_) | SubmitError::Refused(_))) => HowOver::Left(Arc::new(error)),
        };
        Ok(Over { task, run, attempt, made, how })
    }
}
