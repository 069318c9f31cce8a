//! The jobs with one kind of claim at one path, in order of arrival.
//!
//! Its first job is always one that is still there. A job further back that is gone stays as a tombstone until it
//! comes to the front or tombstones are the greater part, so leaving is O(1) amortised.

use std::collections::VecDeque;

use super::Ticket;

/// Up to this length a queue is not searched for tombstones.
const UNSWEPT: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Sorted; a job that makes the claim twice is in it twice.
    tickets: VecDeque<Ticket>,
    /// How many of them are not tombstones.
    alive: usize,
}

impl Queue {
    /// Adds the job that arrived last.
    pub(super) fn push(&mut self, ticket: Ticket) {
        self.tickets.push_back(ticket);
        self.alive += 1;
    }

    pub(super) fn first(&self) -> Option<Ticket> {
        self.tickets.front().copied()
    }

    /// Gives up one claim of a job that is gone by now; says whether another job, or none, is first after it.
    pub(super) fn leave(&mut self, ticket: Ticket, is_there: impl Fn(Ticket) -> bool) -> bool {
        self.alive -= 1;
        let was_first = self.first() == Some(ticket);
        if was_first {
            while self.first().is_some_and(|first| !is_there(first)) {
                self.tickets.pop_front();
            }
        }
        if self.tickets.len() > UNSWEPT && self.tickets.len() / 2 > self.alive {
            self.tickets.retain(|&ticket| is_there(ticket));
        }
        was_first
    }

    /// Returns the jobs that arrived after `start` and, if there is an `end`, not after that, tombstones included.
    pub(super) fn between(&self, start: Ticket, end: Option<Ticket>) -> impl Iterator<Item = Ticket> {
        let from = match self.first() {
            Some(first) if first <= start => self.tickets.partition_point(|&ticket| ticket <= start),
            Some(_) | None => 0,
        };
        self.tickets.range(from..).copied().take_while(move |&ticket| end.is_none_or(|end| ticket <= end))
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.tickets.len()
    }
}
