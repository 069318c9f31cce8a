//! Stopping a batch: from outside, in two steps, or from within, at once.
//!
//! Runs are stopped beside the driver and not by it, so they stop even while it waits for whoever reads the results.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::actor::Supervisor;

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

/// Waits for a reason to stop and takes the supervisor down: with `patience` if the stopper says so, at once if
/// `interrupted` does.
pub(super) async fn drain(
    supervisor: Supervisor,
    patience: Duration,
    stopper: Stopper,
    interrupted: CancellationToken,
) {
    let patience = tokio::select! {
        () = stopper.drained() => patience,
        () = interrupted.cancelled() => Duration::ZERO,
    };
    let drain = supervisor.drain(patience);
    tokio::pin!(drain);
    tokio::select! {
        () = &mut drain => return,
        () = stopper.stopped_now() => {}
        () = interrupted.cancelled() => {}
    }
    supervisor.interrupt();
    drain.await;
}
