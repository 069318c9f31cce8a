//! One task on its way: submitted or taken up again, then waited for.

use std::{cmp::Reverse, collections::VecDeque, sync::Arc};

use tokio_util::sync::CancellationToken;

use super::{
    history::record_failed,
    tasks::{LineLost, Tasks, Wanted},
};
use crate::{
    actor::{
        Supervisor,
        supervisor::{SubmitError, Submitted, Unended},
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
    /// How often in a row the log has lost it.
    pub(in crate::app) lost: u32,
}

#[derive(Debug)]
pub(in crate::app) enum How {
    /// As a new run, after this one.
    Start(Option<RunId>),
    /// As the run that it was.
    Resume(RunId),
    /// As this run, which was submitted.
    Await(Submitted),
    /// As the run that it was if that is of record, else as a new one, after the second.
    Recover(RunId, Option<RunId>),
}

/// A task that herder has let go of.
pub(in crate::app) struct Over {
    pub(in crate::app) task: usize,
    pub(in crate::app) run: RunId,
    pub(in crate::app) attempt: u32,
    pub(in crate::app) made: u32,
    pub(in crate::app) predecessor: Option<RunId>,
    pub(in crate::app) lost: u32,
    pub(in crate::app) how: HowOver,
}

pub(in crate::app) enum HowOver {
    Ended(Arc<RunEnd>),
    /// It goes on when the batch is run again.
    Stopped,
    /// The log did not take what was handed over to it. Looks like a stop to whoever does not know whether herder stops.
    Lost(Option<StoreError>),
    /// It has not begun: what it belongs to has no money left.
    Unaffordable,
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
        lost: 0,
    });
    let start = plan.start.iter().map(|one| Next {
        task: one.task,
        attempt: one.attempt,
        made: one.made,
        how: How::Start(one.predecessor),
        lost: 0,
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
    predecessor: Option<RunId>,
    lost: u32,
    run: RunId,
    supervisor: Supervisor,
    submitted: Option<Result<Submitted, SubmitError>>,
}

impl OnItsWay {
    pub(super) async fn submit(
        supervisor: &Supervisor,
        batch: BatchId,
        tasks: &dyn Tasks,
        next: Next,
    ) -> Result<Self, LineLost> {
        let Next { task, attempt, made, how, lost } = next;
        let start = async |predecessor| {
            let run = state::new_run();
            let wanted = tasks.spec(task).await?;
            let of_batch = |spec| Arc::new(TaskSpec { batch: Some(batch), attempt, predecessor, ..spec });
            let submitted = match wanted {
                Wanted::Whole(spec) => supervisor.submit_soon(run, of_batch(spec)),
                Wanted::Incomplete(spec, why) => fail(supervisor, run, of_batch(spec), why).await,
            };
            Ok((run, predecessor, Some(submitted)))
        };
        let (run, predecessor, submitted) = match how {
            // Reading its line has its model at hand. Without what it names it waits rather than fails.
            How::Resume(run) => match tasks.spec(task).await? {
                Wanted::Whole(_) => (run, None, None),
                Wanted::Incomplete(_, why) => {
                    let task = tasks.id(task).cloned().unwrap_or_default();
                    return Err(LineLost { task, why });
                }
            },
            How::Await(submitted) => (submitted.run, None, Some(Ok(submitted))),
            How::Start(predecessor) => start(predecessor).await?,
            How::Recover(run, predecessor) => match supervisor.resume(run).await {
                Err(SubmitError::Refused(_)) => start(predecessor).await?,
                resumed => (run, predecessor, Some(resumed)),
            },
        };
        Ok(Self { task, attempt, made, predecessor, lost, run, supervisor: supervisor.clone(), submitted })
    }

    pub(super) const fn run(&self) -> RunId {
        self.run
    }

    /// Waits until the run is over, which it is told to be once `cancel` says so.
    ///
    /// # Errors
    /// The log is closed. What concerns this run alone is no error: the others go on.
    pub(super) async fn over(self, cancel: CancellationToken) -> Result<Over, StoreError> {
        let Self { task, attempt, made, predecessor, lost, run, supervisor, submitted } = self;
        let submitted = match submitted {
            Some(submitted) => submitted,
            None => supervisor.resume(run).await,
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
                match ended.map(|ended| ended.end) {
                    Ok(Ok(end)) => HowOver::Ended(end),
                    Ok(Err(Unended::NotRecorded(error))) => HowOver::Lost(Some(error)),
                    Ok(Err(Unended::Unaffordable)) => HowOver::Unaffordable,
                    Ok(Err(Unended::Left)) => HowOver::Lost(None),
                    // The whole tree may be down.
                    Ok(Err(Unended::Stopped)) | Err(_) => HowOver::Stopped,
                }
            }
            Err(SubmitError::Store(error @ StoreError::Closed)) => return Err(error),
            Err(SubmitError::Store(error @ (StoreError::Unavailable(_) | StoreError::Malformed(_)))) => {
                HowOver::Lost(Some(error))
            }
            Err(SubmitError::Stopping) => HowOver::Stopped,
            Err(error @ (SubmitError::Store(_) | SubmitError::Refused(_))) => HowOver::Left(Arc::new(error)),
        };
        Ok(Over { task, run, attempt, made, predecessor, lost, how })
    }
}

/// Takes a task on whose run ends as it begins, for this reason.
async fn fail(
    supervisor: &Supervisor,
    run: RunId,
    spec: Arc<TaskSpec>,
    why: String,
) -> Result<Submitted, SubmitError> {
    let services = supervisor.services();
    let ticket = record_failed(&*services.store, run, spec, why, &*services.clock)?;
    services.store.durable(ticket).await?;
    supervisor.resume(run).await
}
