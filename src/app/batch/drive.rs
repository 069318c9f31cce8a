//! Drives a batch: submits tasks as slots come free, retries, writes results, stops when told to.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio_util::sync::CancellationToken;

use super::{
    BatchError, Event, Options, Report,
    journal::Journal,
    rebuild::{abandon, rebuild, result_line, submit_changed},
    results::Results,
};
use crate::{
    actor::{
        Supervisor,
        supervisor::{SubmitError, Submitted},
    },
    app::{herder::Herder, input::InputTask, state},
    config::Config,
    domain::{
        batch::{self, HaltHow, Plan},
        event::RunEnd,
        id::{BatchId, RunId},
        outcome::Outcome,
        task::TaskSpec,
    },
};

/// Stops a batch from outside.
#[derive(Clone, Debug, Default)]
pub struct Stopper {
    drain: CancellationToken,
    now: CancellationToken,
}

impl Stopper {
    /// Starts no more tasks, lets runs reach the end of their turn; the second time, stops at once. Tells which it was.
    pub fn stop(&self) -> Stop {
        if self.drain.is_cancelled() {
            self.now.cancel();
            Stop::Now
        } else {
            self.drain.cancel();
            Stop::Drain
        }
    }

    /// Waits until it is to stop.
    pub async fn drained(&self) {
        self.drain.cancelled().await;
    }

    /// Waits until it is to stop at once.
    pub async fn stopped_now(&self) {
        self.now.cancelled().await;
    }
}

/// See [`Stopper::stop`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Runs reach the end of their turn.
    Drain,
    /// Everything stops.
    Now,
}

/// A batch that is ready to be run.
pub struct Batch {
    herder: Herder,
    batch: BatchId,
    tasks: Vec<InputTask>,
    plan: Plan,
    results: Results,
    options: Options,
    chosen: usize,
}

/// A task that is to be submitted.
struct Next {
    task: usize,
    attempt: u32,
    /// Attempts before it that count towards its retries.
    made: u32,
    how: How,
}

enum How {
    /// As a new run, after this one.
    Start(Option<RunId>),
    /// As the run that it was.
    Resume(RunId),
}

/// A task whose run is over.
struct Over {
    task: usize,
    run: RunId,
    attempt: u32,
    made: u32,
    /// How the run ended; absent if it has not.
    end: Option<Arc<RunEnd>>,
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
    /// Tasks that wait for their next attempt, with their last one.
    retrying: BTreeMap<usize, Over>,
    stopping: bool,
    tell: T,
}

impl Batch {
    /// Opens the journal, compares it with the input, rebuilds the results and starts herder. Nothing runs yet.
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
    ) -> Result<Self, BatchError> {
        let mut plan = journal.plan(&tasks, &chosen, &options)?;
        let results = rebuild(&journal, &tasks, &chosen, &plan, &options).await?;
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
        Ok(Self { herder, batch, chosen: chosen.len(), tasks, plan, results, options })
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
    pub async fn run(self, stopper: &Stopper, tell: impl FnMut(Event)) -> Result<Report, BatchError> {
        let Self { herder, batch, tasks, plan, results, options, chosen } = self;
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
        let mut waiting = in_order(&plan, &tasks);
        let supervisor = &herder.supervisor;
        supervisor.settle(plan.resume.iter().map(|one| one.run)).await?;
        let (mut live, mut delays) = (FuturesUnordered::new(), FuturesUnordered::new());
        let mut draining = None;
        // Some more than have a slot, so that a slot that comes free is not left waiting for the next submission.
        let ahead = options.concurrency.saturating_add(options.concurrency / 4 + 16);
        loop {
            while !course.stopping
                && live.len() < ahead
                && let Some(next) = waiting.pop_front()
            {
                live.push(OnItsWay::submit(supervisor, batch, &tasks, next).over());
            }
            if live.is_empty() && (course.stopping || (delays.is_empty() && waiting.is_empty())) {
                break;
            }
            let over: Over = tokio::select! {
                biased;
                () = stopper.drain.cancelled(), if draining.is_none() => {
                    course.stop();
                    draining = Some(start_drain(supervisor, options.drain, stopper.now.clone()));
                    continue;
                }
                Some(over) = live.next(), if !live.is_empty() => over?,
                Some(next) = delays.next(), if !delays.is_empty() && !course.stopping => {
                    let next: Next = next;
                    course.retrying.remove(&next.task);
                    waiting.push_front(next);
                    continue;
                }
            };
            if let Some((next, delay)) = course.over(over).await? {
                delays.push(async move {
                    tokio::time::sleep(delay).await;
                    next
                });
            }
            match course.halt() {
                Some(HaltHow::Now) => {
                    draining = Some(start_drain(supervisor, Duration::ZERO, stopper.now.clone()));
                }
                Some(HaltHow::Soon) => supervisor.close(),
                None => {}
            }
        }
        drop((live, delays));
        let report = course.finish(waiting.len()).await?;
        match draining {
            // Whoever was interrupted may still be saying so.
            Some(draining) => drop(draining.await),
            None => supervisor.drain(Duration::ZERO).await,
        }
        herder.close().await;
        Ok(report)
    }
}

impl<T: FnMut(Event)> Course<'_, T> {
    fn stop(&mut self) {
        self.stopping = true;
        (self.tell)(Event::Stopping);
    }

    /// Takes in that a run is over: another attempt follows, or the task is settled.
    async fn over(&mut self, over: Over) -> Result<Option<(Next, Duration)>, BatchError> {
        let Some(end) = over.end.clone() else {
            self.report.unfinished += 1;
            return Ok(None);
        };
        if self.stopping || over.made >= self.options.retries || !batch::is_worth_a_retry(end.outcome) {
            self.settle(&over, &end).await?;
            return Ok(None);
        }
        let made = over.made + 1;
        let delay = batch::retry_delay(made, crate::actor::jitter());
        (self.tell)(Event::Retrying(end.outcome, end.usage, delay));
        let next = Next { task: over.task, attempt: over.attempt + 1, made, how: How::Start(Some(over.run)) };
        self.retrying.insert(over.task, over);
        Ok(Some((next, delay)))
    }

    async fn settle(&mut self, over: &Over, end: &RunEnd) -> Result<(), BatchError> {
        (self.tell)(Event::Settled(end.outcome, end.usage));
        self.report.settled.push(end.outcome);
        self.failed += usize::from(end.outcome != Outcome::Done);
        let Some(task) = self.tasks.get(over.task) else { return Ok(()) };
        let store = &*self.herder.state().store;
        let line = result_line(store, task, over.run, over.attempt, end, self.options.with_messages).await?;
        self.results.write(over.task, line)
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
        for over in std::mem::take(&mut self.retrying).into_values() {
            if let Some(end) = over.end.clone() {
                self.settle(&over, &end).await?;
            }
        }
        self.results.finish()?;
        Ok(self.report)
    }
}

/// By priority, and of one priority interrupted runs first. The supervisor knows priorities too, but only of what has
/// been submitted.
fn in_order(plan: &Plan, tasks: &[InputTask]) -> VecDeque<Next> {
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

fn start_drain(
    supervisor: &Supervisor,
    patience: Duration,
    now: CancellationToken,
) -> tokio::task::JoinHandle<()> {
    let supervisor = supervisor.clone();
    tokio::spawn(async move {
        let drain = supervisor.drain(patience);
        tokio::pin!(drain);
        tokio::select! {
            () = &mut drain => return,
            () = now.cancelled() => supervisor.interrupt(),
        }
        drain.await;
    })
}

/// A task on its way.
struct OnItsWay {
    next: Next,
    run: RunId,
    supervisor: Supervisor,
    submitted: Option<Result<Submitted, SubmitError>>,
}

impl OnItsWay {
    fn submit(supervisor: &Supervisor, batch: BatchId, tasks: &[InputTask], next: Next) -> Self {
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

    async fn over(self) -> Result<Over, BatchError> {
        let Self { next: Next { task, attempt, made, .. }, run, supervisor, submitted } = self;
        let submitted = match submitted {
            Some(submitted) => submitted,
            None => supervisor.resume(run).await,
        };
        let done = match submitted {
            Ok(submitted) => submitted.done,
            Err(SubmitError::Store(error)) => return Err(error.into()),
            Err(SubmitError::Stopping | SubmitError::Refused(_)) => {
                return Ok(Over { task, run, attempt, made, end: None });
            }
        };
        let end = done.await.ok().and_then(|ended| ended.end);
        Ok(Over { task, run, attempt, made, end })
    }
}
