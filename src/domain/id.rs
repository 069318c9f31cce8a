//! Names of runs, calls, batches, and places in a log.
//!
//! Ids are minted outside: nothing here reads a clock or draws a random number.

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Names one attempt of one task for its whole life, across restarts. A UUID v7, so ids sort by age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunId(Uuid);

/// Names one batch of tasks in a state folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BatchId(Uuid);

macro_rules! uuid_id {
    ($id:ident) => {
        impl $id {
            /// Wraps an id minted by the caller.
            pub const fn new(raw: Uuid) -> Self {
                Self(raw)
            }

            /// The id as the sixteen bytes that a store keeps.
            pub const fn as_bytes(&self) -> &[u8; 16] {
                self.0.as_bytes()
            }

            /// Reads back what [`Self::as_bytes`] gave.
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(Uuid::from_bytes(bytes))
            }
        }

        impl fmt::Display for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $id {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::parse_str(text).map(Self)
            }
        }
    };
}

uuid_id!(RunId);
uuid_id!(BatchId);

/// Names one tool call, unique in its run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallId(Arc<str>);

impl CallId {
    /// Wraps an id that is unique in its run.
    pub fn new(raw: impl Into<Arc<str>>) -> Self {
        Self(raw.into())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

macro_rules! place {
    ($(#[$doc:meta])* $id:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $id(u64);

        impl $id {
            /// Before the first event.
            pub const START: Self = Self(0);

            /// Wraps a place read from a store or given by a person.
            pub const fn new(raw: u64) -> Self {
                Self(raw)
            }

            /// The bare number.
            pub const fn get(self) -> u64 {
                self.0
            }

            /// The place `count` events further on.
            #[must_use]
            pub const fn plus(self, count: u64) -> Self {
                Self(self.0 + count)
            }
        }

        impl fmt::Display for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

place! {
    /// Place of an event in its run's log: the first is 1, there are no gaps.
    Seq
}
place! {
    /// Place of an event in its store, over all runs: grows, never reused.
    Pos
}
