//! What was handed over and is not yet written, in the order in which it was handed over.
//!
//! Whoever hands over never waits: the queue has no limit of its own, since the supervisor limits how many runs there
//! are and a run hands little over before it waits for a ticket. The writer sleeps while there is nothing to take.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::append::Append;
use crate::{
    domain::id::{BatchId, RunId, Seq},
    store::{AuditRecord, BatchRecord, StoreError, TaskRecord, Ticket},
};

/// Requests that share one transaction at most: enough to make the disk's share of each small, and few enough that
/// the first of them does not wait long for the last.
const GROUP_REQUESTS: usize = 512;
/// Bytes that share one transaction at most, give or take one request.
const GROUP_BYTES: usize = 4 << 20;

/// Something to be written, encoded by whoever asked.
#[derive(Debug)]
pub(super) enum Request {
    Append(Append),
    Checkpoint { run: RunId, through: Seq, state: Vec<u8> },
    Batch { batch: BatchRecord, tasks: Vec<TaskRecord> },
    Setting { name: String, value: Option<String> },
    Audit(AuditRecord),
    Forget { batches: Vec<BatchId>, runs: Vec<RunId> },
}

impl Request {
    fn size(&self) -> usize {
        match self {
            Self::Append(append) => append.body.len(),
            Self::Checkpoint { state, .. } => state.len(),
            Self::Batch { batch, tasks } => {
                batch.options.len()
                    + tasks.iter().map(|task| task.task_id.len() + task.hash.len()).sum::<usize>()
            }
            Self::Setting { name, value } => name.len() + value.as_ref().map_or(0, String::len),
            Self::Audit(record) => record.target.len() + record.detail.as_ref().map_or(0, String::len),
            // Much is to be done for it, so it is the last of its transaction.
            Self::Forget { .. } => GROUP_BYTES,
        }
    }
}

/// Requests that were handed over one after the other, the first of them as `first`.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) first: Ticket,
    pub(super) requests: Vec<Request>,
}

impl Group {
    pub(super) fn tickets(&self) -> impl Iterator<Item = Ticket> + use<> {
        (self.first.0..self.first.0 + self.requests.len() as u64).map(Ticket)
    }

    pub(super) fn last(&self) -> Ticket {
        Ticket(self.first.0 + self.requests.len() as u64 - 1)
    }
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    filled: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    requests: VecDeque<Request>,
    /// Tickets given out so far; the last request in the queue has this one.
    given: u64,
    /// How many requests the writer sleeps for, if it sleeps: waking it costs a system call.
    wake_at: Option<usize>,
    closed: bool,
}

impl Queue {
    pub(super) fn hand_over(&self, request: Request) -> Result<Ticket, StoreError> {
        let mut waiting = self.lock();
        if waiting.closed {
            return Err(StoreError::Closed);
        }
        waiting.given += 1;
        waiting.requests.push_back(request);
        let ticket = Ticket(waiting.given);
        let enough = waiting.wake_at.is_some_and(|wanted| wanted <= waiting.requests.len());
        drop(waiting);
        if enough {
            self.filled.notify_one();
        }
        Ok(ticket)
    }

    /// The last ticket that was given out.
    pub(super) fn last(&self) -> Ticket {
        Ticket(self.lock().given)
    }

    /// Waits for requests and takes as many as fit a transaction; nothing once it is closed and empty.
    ///
    /// Those who were answered together ask again together, if they are given a moment: so it waits for as many as
    /// there were `last` time, but no longer than `patience`.
    pub(super) fn take(&self, last: usize, patience: Duration) -> Option<Group> {
        let mut waiting = self.sleep(self.lock(), 1, Duration::MAX);
        if waiting.requests.len() < last {
            waiting = self.sleep(waiting, last, patience);
        }
        if waiting.requests.is_empty() {
            return None;
        }
        let first = Ticket(waiting.given + 1 - waiting.requests.len() as u64);
        let mut bytes = 0;
        let fitting = waiting.requests.iter().take(GROUP_REQUESTS).take_while(|request| {
            let fits = bytes < GROUP_BYTES;
            bytes += request.size();
            fits
        });
        let count = fitting.count();
        let requests = waiting.requests.drain(..count).collect();
        Some(Group { first, requests })
    }

    /// Sleeps until there are as many requests as `wanted`, the time is up or the queue is closed.
    fn sleep<'a>(
        &self,
        mut waiting: MutexGuard<'a, Waiting>,
        wanted: usize,
        patience: Duration,
    ) -> MutexGuard<'a, Waiting> {
        waiting.wake_at = Some(wanted);
        let too_few = |waiting: &mut Waiting| waiting.requests.len() < wanted && !waiting.closed;
        let slept = self.filled.wait_timeout_while(waiting, patience, too_few);
        let (mut waiting, _) = slept.unwrap_or_else(PoisonError::into_inner);
        waiting.wake_at = None;
        waiting
    }

    /// Sleeps for `delay`, or until the queue is closed; tells whether it is.
    pub(super) fn rest(&self, delay: Duration) -> bool {
        let rested = self.filled.wait_timeout_while(self.lock(), delay, |waiting| !waiting.closed);
        let (waiting, _) = rested.unwrap_or_else(PoisonError::into_inner);
        waiting.closed
    }

    /// Takes no more requests; those in it are still given out.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoint(bytes: usize) -> Request {
        Request::Checkpoint { run: RunId::from_bytes([0; 16]), through: Seq::new(1), state: vec![0; bytes] }
    }

    #[test]
    fn groups_are_cut_by_number_and_by_size_and_keep_the_order_of_tickets() {
        let queue = Queue::default();
        for bytes in [vec![1; GROUP_REQUESTS + 1], vec![GROUP_BYTES / 2; 3]].concat() {
            assert!(queue.hand_over(checkpoint(bytes)).is_ok());
        }
        queue.close();
        let groups: Vec<_> = std::iter::from_fn(|| queue.take(1, Duration::ZERO))
            .map(|group| (group.first.0, group.requests.len()))
            .collect();
        assert_eq!(
            groups,
            [(1, GROUP_REQUESTS), (GROUP_REQUESTS as u64 + 1, 3), (GROUP_REQUESTS as u64 + 4, 1)]
        );
    }

    #[test]
    fn as_many_as_last_time_are_waited_for_but_not_for_ever() {
        let queue = Queue::default();
        let taken = |last, patience| queue.take(last, patience).map(|group| group.requests.len());
        assert!(queue.hand_over(checkpoint(1)).is_ok());
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| taken(2, Duration::from_secs(60)));
            assert!(queue.hand_over(checkpoint(1)).is_ok());
            assert_eq!(writer.join().ok().flatten(), Some(2));
        });
        assert!(queue.hand_over(checkpoint(1)).is_ok());
        assert_eq!(taken(2, Duration::from_millis(1)), Some(1));
    }

    #[test]
    fn a_closed_queue_takes_nothing_but_gives_out_what_it_holds() {
        let queue = Queue::default();
        assert_eq!(queue.hand_over(checkpoint(1)).ok(), Some(Ticket(1)));
        queue.close();
        assert!(matches!(queue.hand_over(checkpoint(1)), Err(StoreError::Closed)));
        assert_eq!(queue.take(1, Duration::ZERO).map(|group| group.last()), Some(Ticket(1)));
        assert!(queue.take(1, Duration::ZERO).is_none());
    }
}
