//! Why the supervisor did not do what it was asked.

use crate::{domain::run::Refused, store::StoreError};

/// Why a task was not taken on, or a run not taken up.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SubmitError {
    #[error("the task cannot be taken on: {0}")]
    Refused(#[from] Refused),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("herder is stopping")]
    Stopping,
}

/// Why something asked of a run did not happen.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    #[error("{0}")]
    Refused(#[from] Refused),
    /// It waits for a slot or is held, and this is of what goes on in a run that has one.
    #[error("the run is not at work")]
    NotLive,
    /// The log did not take it, or cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It has ended, or nobody has taken it up.
    #[error("no such run is live")]
    NoSuchRun,
}
