//! Runs tool calls, so that no two that touch the same thing overlap, over all runs of the process.
//!
//! The order is [`Schedule`]'s; this gives each call that may start a task of its own and keeps its locks until the
//! work has really ended and the log has its result. If this actor dies, its jobs are cancelled and awaited before
//! another one starts, since otherwise edits could interleave.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use tracing::Instrument;

use super::Services;
use crate::domain::{
    id::{CallId, RunId},
    schedule::{Schedule, Ticket},
};

pub(in crate::actor) mod doubt;
mod job;
mod message;

pub use message::{ExecutorMsg, Job, Load, Waiting};

/// The executor.
pub struct Executor {
    services: Arc<Services>,
    jobs: TaskTracker,
    cancel: CancellationToken,
    /// Fires when this actor ends, however it ends.
    _cancel_on_end: DropGuard,
}

/// What is queued and what runs.
pub struct Queue {
    schedule: Schedule,
    waiting: BTreeMap<Ticket, Job>,
    /// The same, by run.
    waiting_of: BTreeMap<RunId, BTreeSet<Ticket>>,
    running: BTreeMap<Ticket, (RunId, CallId)>,
}

impl Executor {
    /// An executor whose jobs are counted by `jobs`, so that whoever starts another one can wait for them.
    pub fn new(services: Arc<Services>, jobs: TaskTracker) -> Self {
        let cancel = CancellationToken::new();
        Self { services, jobs, _cancel_on_end: cancel.clone().drop_guard(), cancel }
    }
}

impl Actor for Executor {
    type Msg = ExecutorMsg;
    type State = Queue;
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<ExecutorMsg>, (): ()) -> Result<Queue, ActorProcessingErr> {
        let schedule = Schedule::new(self.services.settings.max_running_calls);
        Ok(Queue {
            schedule,
            waiting: BTreeMap::new(),
            waiting_of: BTreeMap::new(),
            running: BTreeMap::new(),
        })
    }

    async fn handle(
        &self,
        me: ActorRef<ExecutorMsg>,
        message: ExecutorMsg,
        queue: &mut Queue,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            ExecutorMsg::Submit(jobs) => {
                let queued_at = self.services.clock.now();
                jobs.into_iter().for_each(|job| queue.submit(Job { queued_at, ..job }));
            }
            ExecutorMsg::Finished(ticket) => queue.free(ticket),
            ExecutorMsg::Moved(ticket, job) => {
                queue.free(ticket);
                // Its run may have withdrawn its calls meanwhile.
                if !job.cancel.is_cancelled() {
                    queue.submit(*job);
                }
            }
            ExecutorMsg::Withdraw(run) => queue.withdraw(run),
            ExecutorMsg::WithdrawCall(run, call) => queue.withdraw_call(run, &call),
            ExecutorMsg::SetPermits(permits) => queue.schedule.set_permits(permits),
            // Whoever asked may have gone; that is no fault of ours.
            ExecutorMsg::Ask(reply) => drop(reply.send(queue.load())),
            ExecutorMsg::Why(run, reply) => drop(reply.send(queue.why(run))),
        }
        self.start_what_may(&me, queue);
        Ok(())
    }
}

impl Executor {
    fn start_what_may(&self, me: &ActorRef<ExecutorMsg>, queue: &mut Queue) {
        while let Some(ticket) = queue.schedule.start_next() {
            let Some(job) = queue.take(ticket) else { continue };
            queue.running.insert(ticket, (job.run, job.call.id.clone()));
            let span = job.span.clone();
            let work = job::run(self.services.clone(), me.clone(), ticket, job, self.cancel.clone());
            // It is large, and would be moved at every step of its way to where it runs.
            self.jobs.spawn(Box::pin(work).instrument(span));
        }
        metrics::gauge!(crate::telemetry::metric::TOOL_CALLS_WAITING).set(count(queue.schedule.waiting()));
        metrics::gauge!(crate::telemetry::metric::TOOL_CALLS_RUNNING).set(count(queue.schedule.running()));
    }
}

#[expect(clippy::cast_precision_loss, reason = "a gauge takes a float, and these counts are small")]
const fn count(n: usize) -> f64 {
    n as f64
}

impl Queue {
    fn submit(&mut self, job: Job) {
        let ticket = self.schedule.submit(&job.access);
        self.waiting_of.entry(job.run).or_default().insert(ticket);
        self.waiting.insert(ticket, job);
    }

    /// A job that waits no more.
    fn take(&mut self, ticket: Ticket) -> Option<Job> {
        let job = self.waiting.remove(&ticket)?;
        if let Some(tickets) = self.waiting_of.get_mut(&job.run) {
            tickets.remove(&ticket);
            if tickets.is_empty() {
                self.waiting_of.remove(&job.run);
            }
        }
        Some(job)
    }

    fn free(&mut self, ticket: Ticket) {
        self.running.remove(&ticket);
        self.schedule.remove(ticket);
    }

    fn withdraw(&mut self, run: RunId) {
        for ticket in self.waiting_of.remove(&run).unwrap_or_default() {
            self.waiting.remove(&ticket);
            self.schedule.remove(ticket);
        }
    }

    fn withdraw_call(&mut self, run: RunId, call: &CallId) {
        let mut of_run = self.waiting_of.get(&run).into_iter().flatten().copied();
        let ticket = of_run.find(|ticket| self.waiting.get(ticket).is_some_and(|job| job.call.id == *call));
        if let Some(ticket) = ticket {
            self.take(ticket);
            self.schedule.remove(ticket);
        }
    }

    fn load(&self) -> Load {
        Load { waiting: self.schedule.waiting(), running: self.schedule.running() }
    }

    fn why(&self, run: RunId) -> Vec<Waiting> {
        let of_run = self.waiting_of.get(&run).into_iter().flatten();
        of_run
            .filter_map(|ticket| self.waiting.get_key_value(ticket))
            .map(|(ticket, job)| {
                let behind = self.schedule.blocked_by(*ticket).and_then(|blocker| self.who(blocker));
                Waiting { call: job.call.id.clone(), behind }
            })
            .collect()
    }

    fn who(&self, ticket: Ticket) -> Option<(RunId, CallId)> {
        let waiting = self.waiting.get(&ticket).map(|job| (job.run, job.call.id.clone()));
        waiting.or_else(|| self.running.get(&ticket).cloned())
    }
}
