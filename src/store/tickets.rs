//! Which tickets are decided, and how those that failed did.
//!
//! Tickets are decided in order, so one number tells most askers all. A waiter is woken once, when its own ticket is
//! decided; no ticket that failed is ever reported as durable. Knows nothing of what a ticket stands for.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::oneshot;

use super::{StoreError, Ticket};

/// Failures kept for whoever asks late. Beyond it the oldest are forgotten, and whoever asks for one of these, or for
/// a ticket as old, is told that it is not known.
const KEPT_FAILURES: usize = 65_536;

#[derive(Debug, thiserror::Error)]
#[error("too many writes failed since to tell what became of this one")]
struct Forgotten;

type Outcome = Result<(), StoreError>;

#[derive(Debug)]
pub(super) struct Tickets {
    /// Every ticket up to this one is decided. Changes only under the lock of `open`.
    decided: AtomicU64,
    /// The lowest ticket that failed: below it nobody needs the lock.
    first_failed: AtomicU64,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    failures: BTreeMap<u64, StoreError>,
    forgotten: u64,
    /// By ticket, then by order of asking.
    waiters: BTreeMap<(u64, u64), oneshot::Sender<Outcome>>,
    asked: u64,
    closed: bool,
}

impl Open {
    fn outcome(&self, ticket: u64) -> Outcome {
        if ticket <= self.forgotten {
            return Err(StoreError::Unavailable(Arc::new(Forgotten)));
        }
        self.failures.get(&ticket).map_or(Ok(()), |error| Err(error.clone()))
    }

    fn keep(&mut self, failures: Vec<(Ticket, StoreError)>) {
        self.failures.extend(failures.into_iter().map(|(ticket, error)| (ticket.0, error)));
        while self.failures.len() > KEPT_FAILURES {
            if let Some((oldest, _)) = self.failures.pop_first() {
                self.forgotten = oldest;
            }
        }
    }
}

impl Default for Tickets {
    fn default() -> Self {
        Self { decided: AtomicU64::new(0), first_failed: AtomicU64::new(u64::MAX), open: Mutex::default() }
    }
}

impl Tickets {
    /// Decides every ticket up to `through`: those named in `failures` failed, the rest are durable.
    pub(super) fn decide(&self, through: Ticket, failures: Vec<(Ticket, StoreError)>) {
        let mut open = self.lock();
        if let Some((first, _)) = failures.first() {
            self.first_failed.fetch_min(first.0, Ordering::Relaxed);
            open.keep(failures);
        }
        self.decided.store(through.0, Ordering::Release);
        let later = open.waiters.split_off(&(through.0.saturating_add(1), 0));
        let woken: Vec<_> = std::mem::replace(&mut open.waiters, later)
            .into_iter()
            .map(|((ticket, _), waiter)| (waiter, open.outcome(ticket)))
            .collect();
        drop(open);
        for (waiter, outcome) in woken {
            // Whoever stopped waiting does not want to know.
            let _ = waiter.send(outcome);
        }
    }

    /// Says how a ticket was decided, once it is.
    pub(super) async fn outcome(&self, ticket: Ticket) -> Outcome {
        if self.is_durable(ticket) {
            return Ok(());
        }
        let decided = {
            let mut open = self.lock();
            if ticket.0 <= self.decided.load(Ordering::Acquire) {
                return open.outcome(ticket.0);
            }
            if open.closed {
                return Err(StoreError::Closed);
            }
            let (waiter, decided) = oneshot::channel();
            open.asked += 1;
            let asked = open.asked;
            open.waiters.insert((ticket.0, asked), waiter);
            decided
        };
        decided.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Nothing more will be decided.
    pub(super) fn close(&self) {
        let mut open = self.lock();
        open.closed = true;
        open.waiters.clear();
    }

    /// Whether the ticket is known to be durable without a look at the failures.
    fn is_durable(&self, ticket: Ticket) -> bool {
        // In this order: whoever sees the ticket decided sees the failures decided with it, too.
        ticket.0 <= self.decided.load(Ordering::Acquire)
            && ticket.0 < self.first_failed.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn failed() -> StoreError {
        StoreError::Unavailable(Arc::new(std::io::Error::other("disk on fire")))
    }

    #[tokio::test]
    async fn only_the_ticket_that_failed_fails_and_it_does_so_each_time_it_is_asked_for() {
        let tickets = Tickets::default();
        tickets.decide(Ticket(3), vec![(Ticket(2), failed())]);
        assert!(tickets.outcome(Ticket(1)).await.is_ok());
        assert!(tickets.outcome(Ticket(2)).await.is_err());
        assert!(tickets.outcome(Ticket(2)).await.is_err());
        assert!(tickets.outcome(Ticket(3)).await.is_ok());
    }

    #[test]
    fn a_waiter_is_woken_when_its_ticket_is_decided_and_no_sooner() {
        let tickets = Tickets::default();
        let mut first = Box::pin(tickets.outcome(Ticket(1)));
        let mut second = Box::pin(tickets.outcome(Ticket(2)));
        assert!(first.as_mut().now_or_never().is_none());
        assert!(second.as_mut().now_or_never().is_none());
        tickets.decide(Ticket(1), Vec::new());
        assert!(matches!(first.now_or_never(), Some(Ok(()))));
        assert!(second.as_mut().now_or_never().is_none());
        tickets.decide(Ticket(2), vec![(Ticket(2), failed())]);
        assert!(matches!(second.now_or_never(), Some(Err(StoreError::Unavailable(_)))));
    }

    #[test]
    fn what_is_undecided_when_it_closes_is_answered_with_closed() {
        let tickets = Tickets::default();
        let mut waiting = Box::pin(tickets.outcome(Ticket(1)));
        assert!(waiting.as_mut().now_or_never().is_none());
        tickets.close();
        assert!(matches!(waiting.now_or_never(), Some(Err(StoreError::Closed))));
        assert!(matches!(tickets.outcome(Ticket(2)).now_or_never(), Some(Err(StoreError::Closed))));
    }

    #[test]
    fn a_failure_that_had_to_be_forgotten_is_never_taken_for_a_success() {
        let tickets = Tickets::default();
        let count = KEPT_FAILURES as u64 + 10;
        tickets.decide(Ticket(count), (1..=count).map(|ticket| (Ticket(ticket), failed())).collect());
        for ticket in [1, 10, 11, count] {
            assert!(
                matches!(tickets.outcome(Ticket(ticket)).now_or_never(), Some(Err(_))),
                "ticket {ticket}"
            );
        }
        assert_eq!(tickets.lock().failures.len(), KEPT_FAILURES);
    }
}
