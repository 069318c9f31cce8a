//! Drives a batch: submits tasks as slots come free, retries, writes results, stops when told to.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio_util::sync::CancellationToken;

use super::{
    BatchError, Event, HaltHow, Options, Report,
    journal::Journal,
    results::{ResultLine, Results, encode},
};
use crate::{
    actor::{
        Supervisor,
        supervisor::{SubmitError, Submitted},
    },
    app::{herder::Herder, input::InputTask, state},
    config::Config,
    domain::{
        batch::{self, Plan},
        event::{Envelope, RestartCause, RunEnd},
        id::{BatchId, RunId, Seq},
        outcome::Outcome,
        run::{Input, Run},
        task::TaskSpec,
    },
    store::EventStore,
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
enum Next {
    Start { task: usize, attempt: u32, predecessor: Option<RunId> },
    Resume { task: usize, run: RunId, attempt: u32 },
}

/// What a task's future comes back with.
struct Over {
    task: usize,
    run: RunId,
    attempt: u32,
    /// How the run ended; absent if it has not.
    end: Option<Arc<RunEnd>>,
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
        let plan = journal.plan(&tasks, &chosen, &options)?;
        let results = rebuild(&journal, &tasks, &chosen, &plan, &options).await?;
        let clock = crate::clock::SystemClock;
        journal.record(&tasks, &options, &clock).await?;
        for run in &plan.abandon {
            abandon(&*journal.state.store, *run, &clock).await?;
        }
        let batch = journal.batch;
        let models: std::collections::BTreeSet<&str> = tasks.iter().map(|task| &*task.spec.model).collect();
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
    pub async fn run(self, stopper: &Stopper, mut tell: impl FnMut(Event)) -> Result<Report, BatchError> {
        let Self { herder, batch, tasks, plan, mut results, options, chosen } = self;
        let mut report = Report { settled: plan.settled.iter().map(|one| one.outcome).collect(), ..Report::default() };
        let mut failed = count_failed(&report.settled);
        let mut waiting: VecDeque<Next> = VecDeque::new();
        waiting.extend(plan.resume.iter().map(|one| Next::Resume { task: one.task, run: one.run, attempt: one.attempt }));
        waiting.extend(plan.start.iter().map(|one| Next::Start {
            task: one.task,
            attempt: one.attempt,
            predecessor: one.predecessor,
        }));
        let supervisor = herder.supervisor.clone();
        let mut live = FuturesUnordered::new();
        let mut retrying = FuturesUnordered::new();
        let mut stopping = false;
        let mut draining = None;
        // Some more than have a slot, so that a slot that comes free is not left waiting for the next submission.
        let ahead = options.concurrency.saturating_add(options.concurrency / 4 + 16);
        loop {
            while !stopping && live.len() < ahead
                && let Some(next) = waiting.pop_front()
            {
                let submitted = submit(&supervisor, batch, &tasks, next);
                live.push(async move { submitted.over().await });
            }
            if live.is_empty() && (stopping || (retrying.is_empty() && waiting.is_empty())) {
                break;
            }
            let over: Over = tokio::select! {
                biased;
                () = stopper.drain.cancelled(), if draining.is_none() => {
                    stopping = true;
                    tell(Event::Stopping);
                    draining = Some(start_drain(&supervisor, options.drain, stopper.now.clone()));
                    continue;
                }
                Some(over) = live.next(), if !live.is_empty() => over?,
                Some(next) = retrying.next(), if !retrying.is_empty() && !stopping => {
                    waiting.push_front(next);
                    continue;
                }
            };
            let Some(end) = over.end else {
                report.unfinished += 1;
                continue;
            };
            let made = over.attempt.saturating_sub(first_attempt(&plan, over.task));
            if !stopping && made < options.retries && batch::is_worth_a_retry(end.outcome) {
                let delay = batch::retry_delay(made + 1, crate::actor::jitter());
                tell(Event::Retrying(end.outcome, delay));
                let next = Next::Start { task: over.task, attempt: over.attempt + 1, predecessor: Some(over.run) };
                retrying.push(async move {
                    tokio::time::sleep(delay).await;
                    next
                });
                continue;
            }
            tell(Event::Settled(end.outcome, end.usage));
            if let Some(task) = tasks.get(over.task) {
                let line = line(&*herder.state().store, task, over.run, over.attempt, &end, options.with_messages).await?;
                results.write(over.task, line)?;
            }
            report.settled.push(end.outcome);
            failed += usize::from(end.outcome != Outcome::Done);
            if let Some(halt) = options.halt.filter(|halt| !stopping && halt.is_due(failed, chosen)) {
                stopping = true;
                report.halted = true;
                tell(Event::Stopping);
                if halt.how == HaltHow::Now {
                    draining = Some(start_drain(&supervisor, Duration::ZERO, stopper.now.clone()));
                }
            }
        }
        report.unfinished += waiting.len() + retrying.len();
        results.finish()?;
        match draining {
            // It has nothing left to wait for, but whoever was interrupted may still be saying so.
            Some(draining) => drop(draining.await),
            None => supervisor.drain(Duration::ZERO).await,
        }
        herder.close().await;
        Ok(report)
    }
}

fn count_failed(outcomes: &[Outcome]) -> usize {
    outcomes.iter().filter(|outcome| **outcome != Outcome::Done).count()
}

/// The attempt that this command began with: retries are counted from it.
fn first_attempt(plan: &Plan, task: usize) -> u32 {
    let started = plan.start.iter().find(|one| one.task == task).map(|one| one.attempt);
    let resumed = plan.resume.iter().find(|one| one.task == task).map(|one| one.attempt);
    started.or(resumed).unwrap_or(1)
}

fn start_drain(supervisor: &Supervisor, patience: Duration, now: CancellationToken) -> tokio::task::JoinHandle<()> {
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
    task: usize,
    run: RunId,
    attempt: u32,
    supervisor: Supervisor,
    submitted: Option<Result<Submitted, SubmitError>>,
}

fn submit(supervisor: &Supervisor, batch: BatchId, tasks: &[InputTask], next: Next) -> OnItsWay {
    match next {
        Next::Start { task, attempt, predecessor } => {
            let run = state::new_run();
            let spec = tasks.get(task).map(|task| {
                Arc::new(TaskSpec { batch: Some(batch), attempt, predecessor, ..task.spec.clone() })
            });
            let submitted = spec.map(|spec| supervisor.submit_soon(run, spec));
            OnItsWay { task, run, attempt, supervisor: supervisor.clone(), submitted }
        }
        Next::Resume { task, run, attempt } => {
            OnItsWay { task, run, attempt, supervisor: supervisor.clone(), submitted: None }
        }
    }
}

impl OnItsWay {
    async fn over(self) -> Result<Over, BatchError> {
        let Self { task, run, attempt, supervisor, submitted } = self;
        let submitted = match submitted {
            Some(submitted) => submitted,
            None => supervisor.resume(run).await,
        };
        let done = match submitted {
            Ok(submitted) => submitted.done,
            Err(SubmitError::Store(error)) => return Err(error.into()),
            Err(SubmitError::Stopping | SubmitError::Refused(_)) => return Ok(Over { task, run, attempt, end: None }),
        };
        let end = done.await.ok().and_then(|ended| ended.end);
        Ok(Over { task, run, attempt, end })
    }
}

/// Makes the results anew from what the journal says.
async fn rebuild(
    journal: &Journal,
    tasks: &[InputTask],
    chosen: &[usize],
    plan: &Plan,
    options: &Options,
) -> Result<Results, BatchError> {
    let again: std::collections::BTreeSet<usize> =
        plan.start.iter().map(|one| one.task).chain(plan.resume.iter().map(|one| one.task)).collect();
    let mut ended = Vec::new();
    for (place, task) in tasks.iter().enumerate().filter(|(place, _)| !again.contains(place)) {
        if let Some(record) = journal.latest(&task.id)
            && let Some(end) = &record.end
        {
            ended.push((record.ended_at, place, task, record, end.clone()));
        }
    }
    if !options.keep_order {
        ended.sort_by_key(|(ended_at, place, ..)| (*ended_at, *place));
    }
    let store = &*journal.state.store;
    let mut lines = Vec::with_capacity(ended.len());
    for (_, place, task, record, end) in &ended {
        let line = line(store, task, record.run, record.attempt, end, options.with_messages).await?;
        lines.push((*place, line));
    }
    match (&options.out, options.keep_order) {
        (Some(out), false) => Results::to_file(out, lines.into_iter().map(|(_, line)| line)),
        (Some(out), true) => keep_order(Results::to_file(out, [])?, lines, chosen, tasks.len()),
        (None, true) => keep_order(Results::to_stdout(), lines, chosen, tasks.len()),
        (None, false) => {
            let mut results = Results::to_stdout();
            for (place, line) in lines {
                results.write(place, line)?;
            }
            Ok(results)
        }
    }
}

/// In the order of the input, tasks that are not chosen included where the journal has them.
fn keep_order(
    results: Results,
    lines: Vec<(usize, Vec<u8>)>,
    chosen: &[usize],
    tasks: usize,
) -> Result<Results, BatchError> {
    let there: std::collections::BTreeSet<usize> = lines.iter().map(|(place, _)| *place).chain(chosen.iter().copied()).collect();
    let mut results = results.in_order((0..tasks).filter(|place| there.contains(place)).collect());
    for (place, line) in lines {
        results.write(place, line)?;
    }
    Ok(results)
}

async fn line(
    store: &dyn EventStore,
    task: &InputTask,
    run: RunId,
    attempt: u32,
    end: &RunEnd,
    with_messages: bool,
) -> Result<Vec<u8>, BatchError> {
    let mut line = ResultLine::of(&task.id, run, attempt, &task.spec, end);
    if with_messages {
        let log = store.read(run, Seq::START).await?;
        line.messages = Some(crate::app::conversation::of(run, &log));
    }
    Ok(encode(&line))
}

/// Ends an open run that nothing works on: its task starts again as another attempt.
async fn abandon(store: &dyn EventStore, run: RunId, clock: &dyn crate::clock::Clock) -> Result<(), BatchError> {
    let log: Vec<Envelope> = store.read(run, Seq::START).await?;
    let mut state = Run::replay(run, log.iter().map(|envelope| &envelope.fact));
    for input in [Input::Restart { cause: RestartCause::Process, error: None }, Input::End(Outcome::Cancelled)] {
        let Ok(facts) = state.decide(input, clock.now()) else { break };
        let ticket = store.append(run, state.seq(), &facts)?;
        for fact in &facts {
            state.evolve(fact);
        }
        store.durable(ticket).await?;
    }
    Ok(())
}
