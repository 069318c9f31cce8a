//! A batch that is run by itself: it has herder to itself, and stopping the one stops the other.

use std::{collections::BTreeSet, sync::Arc};

use tokio_util::sync::CancellationToken;

use super::{
    BatchError, Event, Options, Report, Stopper,
    course::{Asked, Course, Host, Reached, Terms},
    history::{abandon, submit_asked},
    journal::Journal,
    rebuild::{rebuild, result_line},
    results::Results,
    stopper::drain,
    submission::{Over, in_order},
    tasks::LineLost,
};
use crate::{
    app::{
        herder::{Herder, People},
        input::InputTask,
        isolation, spent,
    },
    config::Config,
    domain::{
        batch::{HaltHow, Plan},
        budget::Node,
        event::RunEnd,
        id::{BatchId, RunId},
    },
    store::RunFilter,
};

/// A batch that is ready to be run.
pub struct Batch {
    herder: Herder,
    batch: BatchId,
    tasks: Vec<InputTask>,
    plan: Plan,
    results: Results,
    options: Options,
    stopper: Stopper,
    chosen: usize,
}

/// Who runs it: one command, which writes the results.
struct Alone<'a, T> {
    herder: &'a Herder,
    tasks: &'a [InputTask],
    options: &'a Options,
    results: Results,
    stopper: &'a Stopper,
    is_stopped: bool,
    interrupted: &'a CancellationToken,
    tell: T,
}

impl Batch {
    /// Compares the journal with the input, rebuilds the results and starts herder. Nothing runs yet.
    ///
    /// # Errors
    /// The input does not fit the journal, or something is not to be had. Nothing was changed but the results, which hold
    /// what the journal says.
    pub async fn prepare(
        config: &Config,
        mut journal: Journal,
        tasks: Vec<InputTask>,
        chosen: Vec<usize>,
        options: Options,
        stopper: Stopper,
    ) -> Result<Self, BatchError> {
        let mut plan = journal.plan(&tasks, &chosen, &options)?;
        // Before the results are made: what is put away late is in them.
        let isolation = Arc::new(isolation::isolation(config, &journal.state));
        isolation::recover(&isolation, &*journal.state.store).await?;
        let results = rebuild(&journal, &tasks, &chosen, &plan, &options, &stopper).await?;
        let clock = crate::clock::SystemClock;
        let (batch, store, slice) = (journal.batch, journal.state.store.clone(), tasks.as_slice());
        for run in &plan.abandon {
            abandon(&*store, *run, &clock).await?;
        }
        isolation::put_away(&isolation, &*store, plan.abandon.clone()).await?;
        let is_changed = journal.history.is_of_a_changed_line(&slice);
        submit_asked(&*store, batch, &slice, &mut plan, is_changed, &clock).await?;
        journal.record(&tasks, &chosen, &options, &clock).await?;
        let resumed = store.runs(RunFilter { batch: Some(batch), ..RunFilter::default() }).await?;
        let resuming: BTreeSet<RunId> = plan.resume.iter().map(|resume| resume.run).collect();
        let mut models: BTreeSet<&str> = tasks.iter().map(|task| &*task.spec.model).collect();
        // A run goes on with the model that it began with.
        let resumed = resumed.iter().filter(|run| resuming.contains(&run.run));
        models.extend(resumed.filter_map(|run| run.asked.as_ref()).map(|asked| &*asked.model));
        let people = if options.parks { People::Asked } else { People::Absent };
        let herder = Herder::start_with_workspaces(config, journal.state, isolation, models, people).await?;
        herder.supervisor.set_max_live_runs(options.concurrency);
        if options.max_cost.is_some() {
            let spent = spent::by_batch(&herder.supervisor, &*herder.state().store, &|_| {}, batch).await?;
            herder.supervisor.spent(Node::Batch(batch), spent);
            herder.supervisor.set_cap(Node::Batch(batch), options.max_cost);
        }
        spent::restore_users(&herder.supervisor, &|_| {}).await?;
        Ok(Self { herder, batch, chosen: chosen.len(), tasks, plan, results, options, stopper })
    }

    /// herder at work on the batch.
    pub const fn herder(&self) -> &Herder {
        &self.herder
    }

    /// What its runs are of.
    pub const fn id(&self) -> BatchId {
        self.batch
    }

    /// What is to be done.
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Runs the batch to its end, or until it is stopped or halted. `tell` is told what happens, as it happens.
    ///
    /// # Errors
    /// The results cannot be written any more, or the log has failed. What is of record stays so.
    pub async fn run(self, tell: impl FnMut(Event) + Send) -> Result<Report, BatchError> {
        let Self { herder, batch, tasks, plan, results, options, stopper, chosen } = self;
        let (supervisor, slice) = (&herder.supervisor, tasks.as_slice());
        let interrupted = CancellationToken::new();
        let _answers = herder.take_answers();
        let alone = Alone {
            herder: &herder,
            tasks: &tasks,
            options: &options,
            results,
            stopper: &stopper,
            is_stopped: false,
            interrupted: &interrupted,
            tell,
        };
        let settled = plan.settled.iter().map(|one| one.outcome).collect();
        let terms = Terms { retries: options.retries, halt: options.halt, chosen };
        let course = Course::new(supervisor, batch, &slice, terms, settled, alone);
        let draining =
            tokio::spawn(drain(supervisor.clone(), options.drain, stopper.clone(), interrupted.clone()));
        let reached = match supervisor.settle(plan.resume.iter().map(|one| one.run)).await {
            Ok(()) => Ok(course.run(in_order(&plan, &slice)).await),
            Err(error) => Err(error.into()),
        };
        // Nothing, if herder was stopped.
        let retries = supervisor.load().await.retries.get(&Some(batch)).copied().unwrap_or_default();
        let report = match reached {
            Ok(Reached { report, host, error: None, .. }) => {
                host.results.finish().await.map(|()| Report { retries, ..report })
            }
            Ok(Reached { error: Some(error), .. }) | Err(error) => Err(error),
        };
        // Whoever was interrupted may still be saying so; after an error, whoever runs is.
        interrupted.cancel();
        // Only a panic could be lost here, and it has told of itself.
        let _ = draining.await;
        herder.close().await;
        report
    }
}

impl<T: FnMut(Event) + Send> Host for Alone<'_, T> {
    /// Some more than have a slot, so that a slot that comes free is not left waiting for the next submission.
    fn room(&self) -> usize {
        self.options.concurrency.saturating_add(self.options.concurrency / 4 + 16)
    }

    async fn asked(&mut self) -> Asked {
        if self.is_stopped {
            return std::future::pending().await;
        }
        self.stopper.drained().await;
        self.is_stopped = true;
        Asked::Stop
    }

    fn started(&mut self, _: usize, _: RunId) {}

    fn tell(&mut self, _: Option<usize>, event: Event) {
        (self.tell)(event);
    }

    async fn settled(&mut self, over: &Over, end: &Arc<RunEnd>) -> Result<(), BatchError> {
        let Some(task) = self.tasks.get(over.task) else { return Ok(()) };
        let store = &*self.herder.state().store;
        let change = isolation::change_by(self.herder, over.run).await;
        let with_messages = self.options.with_messages;
        let line = result_line(store, task, over.run, over.attempt, end, change, with_messages).await?;
        self.results.write(over.task, line).await
    }

    /// Lines are all in memory.
    fn lost(&mut self, _: usize, why: LineLost) {
        tracing::error!(error = %why, "task not started");
    }

    /// Whoever gave the command may give it again, with more money.
    fn unaffordable(&mut self, _: usize) -> bool {
        false
    }

    /// Whoever gave the command is told, and may give it again.
    fn stops_when_blocked(&self) -> bool {
        true
    }

    /// Whoever gave the command is told, and may give it again.
    fn outlasts_the_log(&self) -> bool {
        false
    }

    fn halt(&mut self, how: HaltHow) {
        match how {
            HaltHow::Now => self.interrupted.cancel(),
            HaltHow::Soon => self.herder.supervisor.close(),
        }
    }
}
