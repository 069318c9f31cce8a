//! The jobs that wait or run, and which of them wait for nothing but a permit.
//!
//! A job counts its barriers: each claim of it at one path that stands behind an earlier claim of a kind that
//! bars it. At zero it is ready. Knows nothing of what the barriers are.

use std::collections::BTreeSet;

use super::{Phase, Ticket, paths::Hold, slab::Slab};

#[derive(Debug, Default)]
pub(super) struct Job {
    /// Its ticket's number; zero, which no ticket has, where no job is.
    number: u64,
    barriers: usize,
    pub(super) phase: Phase,
    pub(super) holds: Vec<Hold>,
}

#[derive(Debug, Default)]
pub(super) struct Jobs {
    slots: Slab<Job>,
    /// The waiting jobs without a barrier.
    ready: BTreeSet<Ticket>,
    running: usize,
    last_number: u64,
}

impl Jobs {
    /// Gives out the next ticket. The job is to be placed before anything else is done.
    pub(super) fn admit(&mut self) -> Ticket {
        self.last_number += 1;
        let number = self.last_number;
        Ticket { number, slot: self.slots.insert(Job { number, ..Job::default() }) }
    }

    /// Lets an admitted job wait for its barriers.
    pub(super) fn place(&mut self, ticket: Ticket, holds: Vec<Hold>, barriers: usize) {
        let job = &mut self.slots[ticket.slot];
        job.holds = holds;
        job.barriers = barriers;
        if barriers == 0 {
            self.ready.insert(ticket);
        }
    }

    /// Takes one barrier from a waiting job; a job that is gone has none.
    pub(super) fn lift_barrier(&mut self, ticket: Ticket) {
        if self.has(ticket) {
            let job = &mut self.slots[ticket.slot];
            job.barriers -= 1;
            if job.barriers == 0 {
                self.ready.insert(ticket);
            }
        }
    }

    /// Starts the earliest ready job.
    pub(super) fn start_first(&mut self) -> Option<Ticket> {
        let ticket = self.ready.pop_first()?;
        self.slots[ticket.slot].phase = Phase::Running;
        self.running += 1;
        Some(ticket)
    }

    /// Takes a job out. Its claims are still to be given up.
    pub(super) fn take(&mut self, ticket: Ticket) -> Option<Job> {
        if !self.has(ticket) {
            return None;
        }
        let job = self.slots.take(ticket.slot);
        match job.phase {
            Phase::Running => self.running -= 1,
            Phase::Waiting if job.barriers == 0 => {
                self.ready.remove(&ticket);
            }
            Phase::Waiting => {}
        }
        Some(job)
    }

    pub(super) fn find(&self, ticket: Ticket) -> Option<&Job> {
        self.slots.get(ticket.slot).filter(|job| job.number == ticket.number)
    }

    pub(super) fn has(&self, ticket: Ticket) -> bool {
        self.find(ticket).is_some()
    }

    pub(super) fn waiting(&self) -> usize {
        self.slots.len() - self.running
    }

    pub(super) fn running(&self) -> usize {
        self.running
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.slots.capacity()
    }
}
