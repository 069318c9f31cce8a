//! What is wrong with a stored append that cannot be trusted.
//!
//! Knows nothing of where appends are stored, nor of what is done about one.

use crate::domain::{event::DecodeError, id::Seq};

/// Why an append is not taken for what was written.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// It is no list of events that this version knows.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// It was changed after it was written.
    #[error("the checksum does not match")]
    Sum,
    /// It is shorter or longer than it was.
    #[error("{found} events where {expected} were written")]
    Count { expected: i64, found: usize },
    /// Something before it is missing, or is there twice.
    #[error("event {expected} is due, and {found} stands there")]
    Place { expected: Seq, found: i64 },
    /// Its run has no row of its own.
    #[error("its run is not known")]
    Orphan,
    /// It may have been there, and is not to be had.
    #[error("what followed may be lost")]
    Lost,
    /// The run had ended before it.
    #[error("it follows the run's end")]
    AfterEnd,
}

impl Damage {
    /// Whether it is sound for all one can tell, and only of a later version.
    pub const fn is_newer(&self) -> bool {
        matches!(self, Self::Decode(DecodeError::Kind(_)))
    }
}
