//! What can be asked of a batch while it runs, and after.

use std::{collections::VecDeque, num::NonZeroUsize, sync::Arc};

use super::{
    Batches, ControlError, NoSuchBatch,
    board::Standing,
    entry::{Entry, Work},
    lines::{Lines, ReadError},
    record::Record,
    spool,
    status::BatchState,
    undisturbed,
};
use crate::{
    actor::supervisor,
    app::{
        batch::{Asked, History, How, Next, Tasks},
        spent, state,
    },
    domain::{
        batch::{Plan, RetryFailed, StaleLines},
        budget::Node,
        event::Event,
        id::{BatchId, RunId, Seq},
        outcome::Outcome,
        task::TaskSpec,
        usage::{NanoUsd, Usage},
    },
    store::{RunFilter, RunRecord, StoreError},
    tool::workspace::Told,
};

/// Which task is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// The one of this id.
    Task(String),
    /// The one that this is an attempt at.
    Run(RunId),
}

/// Why a task is not done again.
#[derive(Debug, thiserror::Error)]
pub enum RequeueError {
    #[error(transparent)]
    NoSuchBatch(#[from] NoSuchBatch),
    #[error("the batch has no such task that has been started")]
    NoSuchTask,
    #[error("the task is not settled; wait for its end, or cancel its run")]
    Unsettled,
    #[error("the batch cannot go on: {0}")]
    Unable(String),
    #[error("herder is stopping")]
    Stopping,
    #[error(transparent)]
    Submit(supervisor::SubmitError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Batches {
    /// Ends a batch: its runs are cancelled, and what has not started never does. Tells whether that changed anything;
    /// it is on disk then, though runs may still be ending.
    ///
    /// # Errors
    /// There is no such batch, or the log does not take it.
    pub async fn cancel(&self, id: BatchId) -> Result<bool, ControlError> {
        let (batches, entry) = (self.clone(), self.entry(id)?);
        undisturbed(async move {
            entry.check()?;
            let mut work = entry.work.lock().await;
            if work.record.state != BatchState::Open {
                return Ok(false);
            }
            let store = &*batches.0.store;
            let record = Record { state: BatchState::Cancelled, summary: None, ..work.record.clone() };
            entry.write(store, &mut work, record, Vec::new()).await?;
            if let Some(driver) = &work.driver {
                // One that has just come to its end has nothing to stop.
                let _ = driver.asks.send(Asked::Stop);
                driver.cancel.cancel();
            } else {
                entry.status.send_modify(|status| status.error = None);
                batches.try_to_end_the_rest(&entry, &mut work).await?;
            }
            Ok(true)
        })
        .await
    }

    /// Changes how many runs of a batch may be in flight at once. Runs above that go on. Tells whether that changed
    /// anything.
    ///
    /// # Errors
    /// There is no such batch, or the log does not take it.
    pub async fn set_concurrency(&self, id: BatchId, runs: NonZeroUsize) -> Result<bool, ControlError> {
        self.retune(id, move |record| std::mem::replace(&mut record.concurrency, runs) != runs).await
    }

    /// Changes how much all attempts of a batch together may cost; nothing is no limit. What waits for more goes on. Tells
    /// whether that changed anything.
    ///
    /// # Errors
    /// There is no such batch, or what its tasks cost is not known, or the log does not take it.
    pub async fn set_max_cost(&self, id: BatchId, cap: Option<NanoUsd>) -> Result<bool, ControlError> {
        if cap.is_some() {
            self.check_prices(id).await?;
        }
        // Before the batch is told to look again.
        let supervisor = self.0.supervisor.clone();
        self.retune(id, move |record| {
            let changed = std::mem::replace(&mut record.max_cost, cap) != cap;
            // One that has ended is not counted, until something of it is done again.
            if changed && record.state == BatchState::Open {
                supervisor.set_cap(Node::Batch(id), cap);
            }
            changed
        })
        .await
    }

    /// Whether what the tasks of a batch cost is known. Where a cap was set before, it was.
    async fn check_prices(&self, id: BatchId) -> Result<(), ControlError> {
        let entry = self.entry(id)?;
        entry.check()?;
        let record = entry.work.lock().await.record.clone();
        if record.max_cost.is_some() {
            return Ok(());
        }
        let path = spool::path(&self.0.folder, id, &record.digest);
        let terms = (record.labels, record.owner, true);
        match self.read(path, record.digest, terms, Lines::check_prices).await {
            Err(ReadError::Input(error)) => Err(ControlError::Unpriced(error)),
            // Without its input nothing of it starts.
            Ok(_) | Err(ReadError::Open { .. } | ReadError::Damaged { .. }) => Ok(()),
        }
    }

    /// Has whoever waits for more money see whether there is some.
    pub fn look_again(&self) {
        for entry in self.entries() {
            // One that is being changed is looked after.
            if let Ok(work) = entry.work.try_lock()
                && let Some(driver) = &work.driver
            {
                let _ = driver.asks.send(Asked::Look);
            }
        }
    }

    /// Has the supervisor know what may be spent on a batch, and what was before it was first worked on here.
    pub(super) async fn count_spent(&self, entry: &Entry, work: &Work) -> Result<(), StoreError> {
        let supervisor = &self.0.supervisor;
        if entry.is_to_be_counted() {
            let (config, add_model) = (self.config(), self.0.add_model.clone());
            // Without its model a run does not go on, and says so then.
            let has = move |name: &str| drop(add_model(&config, name));
            let spent = spent::by_batch(supervisor, &*self.0.store, &has, entry.id).await?;
            supervisor.spent(Node::Batch(entry.id), spent);
        }
        supervisor.set_cap(Node::Batch(entry.id), work.record.max_cost);
        Ok(())
    }

    async fn retune(
        &self,
        id: BatchId,
        retune: impl FnOnce(&mut Record) -> bool + Send + 'static,
    ) -> Result<bool, ControlError> {
        let (batches, entry) = (self.clone(), self.entry(id)?);
        undisturbed(async move {
            entry.check()?;
            let mut work = entry.work.lock().await;
            batches.entry(id)?;
            let mut record = work.record.clone();
            let changed = retune(&mut record);
            if changed {
                entry.write(&*batches.0.store, &mut work, record, Vec::new()).await?;
                if let Some(driver) = &work.driver {
                    let _ = driver.asks.send(Asked::Look);
                }
            }
            Ok(changed)
        })
        .await
    }

    /// Gives a settled task another attempt, whose result replaces the one before; returns once it is on disk. A batch that
    /// has ended goes on until it has ended again, and starts nothing else.
    ///
    /// # Errors
    /// The task has not been started, or is not settled, or its batch cannot go on.
    pub async fn requeue(&self, id: BatchId, which: Which) -> Result<RunId, RequeueError> {
        let (batches, entry) = (self.clone(), self.entry(id)?);
        undisturbed(async move {
            entry.check().map_err(|unread| RequeueError::Unable(unread.to_string()))?;
            let mut work = entry.work.lock().await;
            batches.entry(id)?;
            if batches.0.closing.is_cancelled() {
                return Err(RequeueError::Stopping);
            }
            let latest = batches.latest(id, which).await?;
            let Some(end) = &latest.end else { return Err(RequeueError::Unsettled) };
            batches.again(&entry, &mut work, &latest, end.outcome).await
        })
        .await
    }

    /// The latest attempt at a task.
    async fn latest(&self, batch: BatchId, which: Which) -> Result<RunRecord, RequeueError> {
        let store = &*self.0.store;
        let of_batch = RunFilter { batch: Some(batch), ..RunFilter::default() };
        let task = match which {
            Which::Task(task) => Some(task),
            Which::Run(run) => {
                let this = RunFilter { id_prefix: Some(run.to_string()), ..of_batch.clone() };
                store.runs(this).await?.pop().and_then(|record| Some(record.task_id?.to_string()))
            }
        };
        let task = task.ok_or(RequeueError::NoSuchTask)?;
        let attempts = store.runs(RunFilter { task_id: Some(task), ..of_batch }).await?;
        attempts.into_iter().max_by_key(|record| (record.attempt, record.run)).ok_or(RequeueError::NoSuchTask)
    }

    async fn again(
        &self,
        entry: &Arc<Entry>,
        work: &mut Work,
        latest: &RunRecord,
        outcome: Outcome,
    ) -> Result<RunId, RequeueError> {
        let task = latest.task_id.as_deref().unwrap_or_default();
        if let Some(driver) = &work.driver {
            if driver.cancel.is_cancelled() {
                return Err(RequeueError::Unsettled);
            }
            let Some(board) = entry.board() else { return Err(RequeueError::Unsettled) };
            let Some((place, Standing::Settled(..))) = board.find(task) else {
                return Err(RequeueError::Unsettled);
            };
            let (run, next) = self.submit_again(latest, place).await?;
            // From now on its last outcome does not count.
            board.put(place, Standing::InFlight, Usage::default());
            // It takes in what it was told before it comes to its end.
            let _ = driver.asks.send(Asked::Again(next, outcome));
            return Ok(run);
        }
        if work.record.state == BatchState::Open {
            let error = entry.status.borrow().error.clone();
            return Err(RequeueError::Unable(error.unwrap_or_default()));
        }
        let unable = |error| RequeueError::Unable(Told(&error).to_string());
        let tasks = self.input_of(entry, work).await.map_err(unable)?;
        let history = History::read(&*self.0.store, entry.id).await?;
        let everything: Vec<usize> = (0..tasks.count()).collect();
        let plan = history.plan(&tasks, &everything, (StaleLines::Restart, RetryFailed::None, 0));
        let plan: Plan = plan.map_err(|error| RequeueError::Unable(error.to_string()))?;
        let place = everything
            .iter()
            .copied()
            .find(|place| tasks.id(*place).is_some_and(|id| &**id == task))
            .ok_or(RequeueError::NoSuchTask)?;
        let record =
            Record { state: BatchState::Open, starts_nothing: true, summary: None, ..work.record.clone() };
        entry.write(&*self.0.store, work, record, Vec::new()).await?;
        self.count_spent(entry, work).await?;
        let (run, waiting) = match self.submit_again(latest, place).await {
            Ok((run, next)) => (Ok(run), VecDeque::from([next])),
            // It is open on record: it comes to its end again.
            Err(error) => (Err(error), VecDeque::new()),
        };
        self.set_off(entry, work, tasks, &history, &plan, waiting);
        run
    }

    /// Submits another attempt, asked for as the latest one was.
    async fn submit_again(&self, latest: &RunRecord, place: usize) -> Result<(RunId, Next), RequeueError> {
        let first = self.0.store.read_some(latest.run, Seq::START, 1).await?.pop();
        let Some(Event::Submitted(spec)) = first.map(|envelope| envelope.fact.event) else {
            return Err(RequeueError::NoSuchTask);
        };
        // One that ended for want of its model may be meant to have it now.
        let model = (self.0.add_model)(&self.config(), &spec.model);
        model.map_err(|error| RequeueError::Unable(Told(&error).to_string()))?;
        let attempt = latest.attempt + 1;
        let spec = TaskSpec { attempt, predecessor: Some(latest.run), ..(*spec).clone() };
        let submitted = self.0.supervisor.submit(state::new_run(), Arc::new(spec)).await;
        let submitted = submitted.map_err(RequeueError::Submit)?;
        let run = submitted.run;
        Ok((run, Next { task: place, attempt, made: 0, how: How::Await(submitted), lost: 0 }))
    }
}
