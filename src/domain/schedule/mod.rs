//! Decides which jobs may start now: the mutation queue as a pure structure.
//!
//! A job names what it touches and queues on all of it in one step. It may start once it conflicts with nothing
//! that runs and with nothing that arrived earlier, and a permit is free; it takes locks and permit together and
//! holds neither while it waits, so there is no deadlock and only the permit cap delays an unrelated job. An
//! operation costs O(depth x log n) amortised, plus the jobs that it frees.
//!
//! Knows nothing of tools, files, time or cancellation: whoever runs the jobs says when one has gone.

mod claim;
mod jobs;
mod paths;
mod queue;
mod slab;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

use self::{jobs::Jobs, paths::Paths};
use super::call::Access;

/// A job's place in the order of arrival: the earlier job has the smaller ticket. Never given out twice.
// The number comes first: it alone decides the order, the slot only finds the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    number: u64,
    slot: usize,
}

/// How far a job has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Holds no lock and no permit.
    #[default]
    Waiting,
    /// Holds all its locks and a permit.
    Running,
}

/// All jobs that wait or run, and what each of them touches.
#[derive(Debug)]
pub struct Schedule {
    permits: usize,
    jobs: Jobs,
    paths: Paths,
}

impl Schedule {
    /// Creates an empty schedule that lets `permits` jobs run at once.
    pub fn new(permits: usize) -> Self {
        Self { permits, jobs: Jobs::default(), paths: Paths::default() }
    }

    /// Queues a job behind every earlier job that it conflicts with. Its own accesses never conflict.
    pub fn submit(&mut self, accesses: &[Access]) -> Ticket {
        let ticket = self.jobs.admit();
        let mut holds = Vec::with_capacity(accesses.len());
        let mut barriers = 0;
        for access in accesses {
            let (hold, found) = self.paths.enter(access, ticket);
            holds.push(hold);
            barriers += found;
        }
        self.jobs.place(ticket, holds, barriers);
        ticket
    }

    /// Starts the earliest job that may start now, if there is one. Call until it returns `None`.
    pub fn start_next(&mut self) -> Option<Ticket> {
        if self.running() < self.permits { self.jobs.start_first() } else { None }
    }

    /// Takes a job out, be it done or cancelled, with its locks and its permit; returns how far it had come, or
    /// `None` if it was gone already.
    pub fn remove(&mut self, ticket: Ticket) -> Option<Phase> {
        let job = self.jobs.take(ticket)?;
        for hold in job.holds {
            self.paths.leave(hold, ticket, &mut self.jobs);
        }
        Some(job.phase)
    }

    /// Changes how many jobs may run at once. Those that run go on, even if they are more than that.
    pub fn set_permits(&mut self, permits: usize) {
        self.permits = permits;
    }

    /// Returns how many jobs have not started.
    pub fn waiting(&self) -> usize {
        self.jobs.waiting()
    }

    /// Returns how many jobs have started and not been removed.
    pub fn running(&self) -> usize {
        self.jobs.running()
    }

    /// Returns the earliest job that holds or is to get what this one needs; `None` for a job that waits for no
    /// more than a permit, runs, or is gone.
    pub fn blocked_by(&self, ticket: Ticket) -> Option<Ticket> {
        let job = self.jobs.find(ticket)?;
        job.holds.iter().filter_map(|&hold| self.paths.first_barrier(hold, ticket)).min()
    }
}
