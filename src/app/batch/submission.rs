//! One task on its way: submitted or taken up again, then waited for.

use std::{cmp::Reverse, collections::VecDeque, sync::Arc};

use tokio_util::sync::CancellationToken;

use super::tasks::Tasks;
use crate::{
    actor::{
        Supervisor,
        supervisor::{SubmitError, Submitted},
    },
    app::state,
    domain::{
        batch::Plan,
        event::RunEnd,
        id::{BatchId, RunId},
        task::TaskSpec,
    },
    store::StoreError,
};

/// A task that is to be worked on.
#[derive(Debug)]
pub(in crate::app) struct Next {
    pub(in crate::app) task: usize,
    pub(in crate::app) attempt: u32,
    /// Attempts before it that count towards its retries.
    pub(in crate::app) made: u32,
    pub(in crate::app) how: How,
}

#[derive(Debug)]
pub(in crate::app) enum How {
    /// As a new run, after this one.
    Start(Option<RunId>),
    /// As the run that it was.
    Resume(RunId),
    /// As this run, which was submitted.
    Await(Submitted),
}

/// A task that herder has let go of.
pub(in crate::app) struct Over {
    pub(in crate::app) task: usize,
    pub(in crate::app) run: RunId,
    pub(in crate::app) attempt: u32,
    pub(in crate::app) made: u32,
    pub(in crate::app) how: HowOver,
}

pub(in crate::app) enum HowOver {
    Ended(Arc<RunEnd>),
    /// It goes on when the batch is run again.
    Stopped,
    /// It could not be worked on.
    Left(Arc<SubmitError>),
}

/// By priority, and of one priority interrupted runs first. The supervisor knows priorities too, but only of what has
/// been submitted.
pub(in crate::app) fn in_order(plan: &Plan, tasks: &dyn Tasks) -> VecDeque<Next> {
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
    order.sort_by_key(|next| Reverse(tasks.priority(next.task)));
    order.into()
}

/// A task on its way.
pub(super) struct OnItsWay {
    task: usize,
    attempt: u32,
    made: u32,
    run: RunId,
    supervisor: Supervisor,
    submitted: Option<Result<Submitted, SubmitError>>,
}

impl OnItsWay {
    pub(super) fn submit(supervisor: &Supervisor, batch: BatchId, tasks: &dyn Tasks, next: Next) -> Self {
        let Next { task, attempt, made, how } = next;
        let (run, submitted) = match how {
            How::Resume(run) => (run, None),
            How::Await(submitted) => (submitted.run, Some(Ok(submitted))),
            How::Start(predecessor) => {
                let run = state::new_run();
                let spec = tasks
                    .spec(task)
                    .map(|spec| Arc::new(TaskSpec { batch: Some(batch), attempt, predecessor, ..spec }));
                (run, spec.map(|spec| supervisor.submit_soon(run, spec)))
            }
        };
        Self { task, attempt, made, run, supervisor: supervisor.clone(), submitted }
    }

    pub(super) const fn run(&self) -> RunId {
        self.run
    }

    /// Waits until the run is over, which it is told to be once `cancel` says so.
    ///
    /// # Errors
    /// The log takes nothing any more. What concerns this run alone is no error: the others go on.
    pub(super) async fn over(self, cancel: CancellationToken) -> Result<Over, StoreError> {
        let Self { task, attempt, made, run, supervisor, submitted } = self;
        let (submitted, is_new) = match submitted {
            Some(submitted) => (submitted, true),
            None => (supervisor.resume(run).await, false),
        };
        let how = match submitted {
            Ok(Submitted { mut done, .. }) => {
                let ended = match cancel.run_until_cancelled(&mut done).await {
                    Some(ended) => ended,
                    None => {
                        // It may be over by now, which is as well.
                        let _ = supervisor.cancel(run).await;
                        done.await
                    }
                };
                ended.ok().and_then(|ended| ended.end.ok()).map_or(HowOver::Stopped, HowOver::Ended)
            }
            Err(SubmitError::Store(error @ StoreError::Closed)) => return Err(error),
            Err(SubmitError::Store(error @ StoreError::Unavailable(_))) if is_new => return Err(error),
            Err(SubmitError::Stopping) => HowOver::Stopped,
            Err(error @ (SubmitError::Store(_) | SubmitError::Refused(_))) => HowOver::Left(Arc::new(error)),
        };
        Ok(Over { task, run, attempt, made, how })
    }
}
