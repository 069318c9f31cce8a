//! SIGINT and SIGTERM while a batch of the daemon's is watched: each only ends the watching.

use std::{io, sync::Arc, sync::OnceLock};

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::task::AbortOnDropHandle;

use crate::{app::batch::Stopper, cli::Exit};

/// Watches signals for as long as it lives.
pub(super) struct Stopping {
    stopper: Stopper,
    received: Arc<OnceLock<Exit>>,
    _watcher: AbortOnDropHandle<()>,
}

impl Stopping {
    /// # Errors
    /// The process cannot watch signals.
    pub(super) fn watch() -> io::Result<Self> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        Ok(Self::by(async move {
            tokio::select! {
                _ = interrupt.recv() => Exit::Interrupted,
                _ = terminate.recv() => Exit::Terminated,
            }
        }))
    }

    /// Stops when `told` says how.
    pub(super) fn by(told: impl Future<Output = Exit> + Send + 'static) -> Self {
        let (stopper, received) = (Stopper::default(), Arc::new(OnceLock::new()));
        let (stop, seen) = (stopper.clone(), received.clone());
        let watcher = tokio::spawn(async move {
            // The first one is the last: there is nothing to drain.
            let _ = seen.set(told.await);
            stop.stop();
            stop.stop();
        });
        Self { stopper, received, _watcher: AbortOnDropHandle::new(watcher) }
    }

    /// For whoever waits for something that a signal is to cut short.
    pub(super) fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Waits for a signal, and tells how the process is to end.
    pub(super) async fn stopped(&self) -> Exit {
        self.stopper.stopped_now().await;
        self.received.get().copied().unwrap_or(Exit::Interrupted)
    }
}
