//! That a run is over, and who is to be told.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::{
    domain::{event::RunEnd, id::RunId},
    store::StoreError,
};

/// A run that is over, for now or for good.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The run.
    pub run: RunId,
    /// How it ended, which is of record; or why it is over without that.
    pub end: Result<Arc<RunEnd>, Unended>,
}

/// Why a run is over although it has not ended.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Unended {
    /// It goes on at the next start.
    #[error("herder is stopping")]
    Stopped,
    /// Its task is not of record and nothing was done for it. It can be submitted again, as another run.
    #[error("the log did not take the task")]
    NotRecorded(#[source] StoreError),
    /// What it belongs to has no money left to begin it with. It goes on when it is taken up again.
    #[error("there is no money left to begin the run with")]
    Unaffordable,
    /// It is of record, but its log cannot be read or written now. It goes on when it is taken up again.
    #[error("the log of the run is not to be had")]
    Left,
}

/// Those who wait for a run to be over.
#[derive(Debug, Default)]
pub struct Waiters(Vec<oneshot::Sender<Ended>>);

impl Waiters {
    pub(super) fn join(&mut self, others: Self) {
        // A run may be joined often while it is held, by those who do not stay.
        self.0.retain(|waiter| !waiter.is_closed());
        self.0.extend(others.0);
    }

    pub(super) fn tell(self, ended: &Ended) {
        for waiter in self.0 {
            // It may have gone.
            let _ = waiter.send(ended.clone());
        }
    }

    /// herder stops before the run is over.
    pub(super) fn stop(self, run: RunId) {
        self.tell(&Ended { run, end: Err(Unended::Stopped) });
    }
}

impl FromIterator<oneshot::Sender<Ended>> for Waiters {
    fn from_iter<I: IntoIterator<Item = oneshot::Sender<Ended>>>(waiters: I) -> Self {
        Self(waiters.into_iter().collect())
    }
}
