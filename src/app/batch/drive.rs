//! Drives a batch: submits tasks as slots come free, retries, writes results, stops when told to.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio_util::sync::CancellationToken;

use super::{
    BatchError, Event, Options, Report, Stopper,
    journal::Journal,
    rebuild::{abandon, rebuild, result_line, submit_changed},
    results::Results,
    stopper::drain,
    submission::{How, HowOver, Next, OnItsWay, Over, in_order},
};
use crate::{
    app::{herder::Herder, input::InputTask},
    config::Config,
    domain::{
        batch::{self, HaltHow, Plan},
        event::RunEnd,
        id::BatchId,
        outcome::Outcome,
    },
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

/// A batch under way.
struct Course<'a, T> {
    herder: &'a Herder,
    tasks: &'a [InputTask],
    options: &'a Options,
    results: Results,
    report: Report,
    failed: usize,
    chosen: usize,
    /// Tasks that wait for their next attempt, with their last one and its end.
    retrying: BTreeMap<usize, (Over, Arc<RunEnd>)>,
    stopping: bool,
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
        let results = rebuild(&journal, &tasks, &chosen, &plan, &options, &stopper).await?;
        let clock = crate::clock::SystemClock;
        for run in &plan.abandon {
            abandon(&*journal.state.store, *run, &clock).await?;
        }
        submit_changed(&journal, &tasks, &mut plan, &clock).await?;
        journal.record(&tasks, &chosen, &options, &clock).await?;
        let batch = journal.batch;
        let models: BTreeSet<&str> = tasks.iter().map(|task| &*task.spec.model).collect();
        let herder = Herder::start(config, journal.state, models).await?;
        herder.supervisor.set_max_live_runs(options.concurrency);
        Ok(Self { herder, batch, chosen: chosen.len(), tasks, plan, results, options, stopper })
    }

    /// herder at work on the batch.
    pub const fn herder(&self) -> &Herder {
        &self.herder
    }

    /// What is to be done.
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Runs the batch to its end, or until it is stopped or halted. `tell` is told what happens, as it happens.
    ///
    /// # Errors
    /// The results cannot be written any more, or the log has failed. What is of record stays so.
    pub async fn run(self, tell: impl FnMut(Event)) -> Result<Report, BatchError> {
        let Self { herder, batch, tasks, plan, results, options, stopper, chosen } = self;
        let settled: Vec<Outcome> = plan.settled.iter().map(|one| one.outcome).collect();
        let mut course = Course {
            failed: settled.iter().filter(|outcome| **outcome != Outcome::Done).count(),
            report: Report { settled, ..Report::default() },
            herder: &herder,
            tasks: &tasks,
            options: &options,
            results,
            chosen,
            retrying: BTreeMap::new(),
            stopping: false,
            tell,
        };
        let supervisor = &herder.supervisor;
        let interrupted = CancellationToken::new();
        let draining =
            tokio::spawn(drain(supervisor.clone(), options.drain, stopper.clone(), interrupted.clone()));
        let left = match supervisor.settle(plan.resume.iter().map(|one| one.run)).await {
            Ok(()) => course.drive(batch, in_order(&plan, &tasks), &stopper, &interrupted).await,
            Err(error) => Err(error.into()),
        };
        let report = match left {
            Ok(left) => course.finish(left).await,
            Err(error) => Err(error),
        };
        // Whoever was interrupted may still be saying so; after an error, whoever runs is.
        interrupted.cancel();
        // Only a panic could be lost here, and it has told of itself.
        let _ = draining.await;
        herder.close().await;
        report
    }
}

impl<T: FnMut(Event)> Course<'_, T> {
    /// Has herder work on what waits until nothing is left to do, or it is to stop. Tells how many were never submitted.
    async fn drive(
        &mut self,
        batch: BatchId,
        mut waiting: VecDeque<Next>,
        stopper: &Stopper,
        interrupted: &CancellationToken,
    ) -> Result<usize, BatchError> {
        let supervisor = &self.herder.supervisor;
        let (mut live, mut delays) = (FuturesUnordered::new(), FuturesUnordered::new());
        // Some more than have a slot, so that a slot that comes free is not left waiting for the next submission.
        let ahead = self.options.concurrency.saturating_add(self.options.concurrency / 4 + 16);
        loop {
            while !self.stopping
                && live.len() < ahead
                && let Some(next) = waiting.pop_front()
            {
                live.push(OnItsWay::submit(supervisor, batch, self.tasks, next).over());
            }
            if live.is_empty() && (self.stopping || (delays.is_empty() && waiting.is_empty())) {
                return Ok(waiting.len());
            }
            let over: Over = tokio::select! {
                biased;
                () = stopper.drained(), if !self.stopping => {
                    self.stop();
                    continue;
                }
                Some(over) = live.next(), if !live.is_empty() => over?,
                Some(next) = delays.next(), if !delays.is_empty() && !self.stopping => {
                    let next: Next = next;
                    self.retrying.remove(&next.task);
                    waiting.push_front(next);
                    continue;
                }
            };
            if let Some((next, delay)) = self.over(over).await? {
                delays.push(async move {
                    tokio::time::sleep(delay).await;
                    next
                });
            }
            match self.halt() {
                Some(HaltHow::Now) => interrupted.cancel(),
                Some(HaltHow::Soon) => supervisor.close(),
                None => {}
            }
        }
    }

    fn stop(&mut self) {
        self.stopping = true;
        (self.tell)(Event::Stopping);
    }

    /// Takes in that a run is over: another attempt follows, or the task is settled.
    async fn over(&mut self, over: Over) -> Result<Option<(Next, Duration)>, BatchError> {
        let end = match &over.how {
            HowOver::Ended(end) => end.clone(),
            HowOver::Stopped => {
                self.report.unfinished += 1;
                return Ok(None);
            }
            HowOver::Left(why) => {
                self.report.unfinished += 1;
                (self.tell)(Event::Left(over.run, why.clone()));
                return Ok(None);
            }
        };
        if self.stopping || over.made >= self.options.retries || !batch::is_worth_a_retry(end.outcome) {
            self.settle(&over, &end).await?;
            return Ok(None);
        }
        let made = over.made + 1;
        let delay = batch::retry_delay(made, crate::actor::jitter());
        (self.tell)(Event::Retrying(end.outcome, end.usage, delay));
        let next = Next { task: over.task, attempt: over.attempt + 1, made, how: How::Start(Some(over.run)) };
        self.retrying.insert(over.task, (over, end));
        Ok(Some((next, delay)))
    }

    async fn settle(&mut self, over: &Over, end: &RunEnd) -> Result<(), BatchError> {
        (self.tell)(Event::Settled(end.outcome, end.usage));
        self.report.settled.push(end.outcome);
        self.failed += usize::from(end.outcome != Outcome::Done);
        let Some(task) = self.tasks.get(over.task) else { return Ok(()) };
        let store = &*self.herder.state().store;
        let line = result_line(store, task, over.run, over.attempt, end, self.options.with_messages).await?;
        self.results.write(over.task, line).await
    }

    /// Gives the batch up if too many tasks have failed.
    fn halt(&mut self) -> Option<HaltHow> {
        let halt =
            self.options.halt.filter(|halt| !self.stopping && halt.is_reached(self.failed, self.chosen))?;
        self.report.halted = true;
        self.stop();
        Some(halt.how)
    }

    /// `left` tasks were never submitted. Those that wait for another attempt will not get it now.
    async fn finish(mut self, left: usize) -> Result<Report, BatchError> {
        self.report.unfinished += left;
        for (over, end) in std::mem::take(&mut self.retrying).into_values() {
            self.settle(&over, &end).await?;
        }
        self.results.finish().await?;
        Ok(self.report)
    }
}
