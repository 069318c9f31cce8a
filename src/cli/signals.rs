//! SIGINT and SIGTERM: the first time what runs ends its turn, the second time everything stops.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};

use indicatif::MultiProgress;
use tokio::{
    signal::unix::{SignalKind, signal},
    task::JoinHandle,
};

use super::{Exit, start::Tell};
use crate::app::batch::{Stop, Stopper};

/// Watches signals for as long as it lives.
pub(super) struct Signals {
    first: Arc<AtomicU8>,
    watcher: JoinHandle<()>,
}

impl Signals {
    /// Has `stopper` stop on the next signals.
    ///
    /// # Errors
    /// The process cannot watch signals.
    pub(super) fn watch(stopper: Stopper, screen: MultiProgress, tell: Tell) -> io::Result<Self> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let first = Arc::new(AtomicU8::new(0));
        let seen = first.clone();
        let watcher = tokio::spawn(async move {
            loop {
                let exit = tokio::select! {
                    Some(()) = interrupt.recv() => Exit::Interrupted,
                    Some(()) = terminate.recv() => Exit::Terminated,
                    else => return,
                };
                // The exit code is that of the first signal.
                let _ = seen.compare_exchange(0, exit.code(), Ordering::SeqCst, Ordering::SeqCst);
                screen.suspend(|| match stopper.stop() {
                    Stop::Drain => tell("stopping: runs end their turn; once more stops at once"),
                    Stop::Now => tell("stopping now"),
                });
            }
        });
        Ok(Self { first, watcher })
    }

    /// How the first signal asks the process to end, if there was one.
    pub(super) fn received(&self) -> Option<Exit> {
        [Exit::Interrupted, Exit::Terminated]
            .into_iter()
            .find(|exit| exit.code() == self.first.load(Ordering::SeqCst))
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.watcher.abort();
    }
}
