//! How much may be asked of an account: at once, and in a minute.

use std::{
    num::{NonZeroU32, NonZeroU64},
    time::Duration,
};

/// Requests that are out at once before anything is known of the server.
const START: NonZeroU32 = NonZeroU32::new(20).unwrap();

/// Requests that are out at once at the very most, where nobody says otherwise.
const MAX: NonZeroU32 = NonZeroU32::new(1_000).unwrap();

/// How long a cut is given to show what it does.
const HORIZON: Duration = Duration::from_secs(15);

/// What a [`Governor`](super::Governor) holds its account's users to.
#[derive(Clone, Debug, PartialEq)]
pub struct Rates {
    pub requests_per_minute: Option<NonZeroU32>,
    /// Of input and output together.
    pub tokens_per_minute: Option<NonZeroU64>,
    pub concurrency: Concurrency,
    /// The least time from one cut of the limit to the next. Shorter than the default only in tests and simulations.
    pub horizon: Duration,
}

impl Default for Rates {
    fn default() -> Self {
        Self {
            requests_per_minute: None,
            tokens_per_minute: None,
            concurrency: Concurrency::default(),
            horizon: HORIZON,
        }
    }
}

/// How many requests may be out at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concurrency {
    /// Any number, and nobody counts them.
    Unlimited,
    /// Always so many, whatever the server says.
    Fixed(NonZeroU32),
    /// As many as the server turns out to take.
    Adaptive { min: NonZeroU32, start: NonZeroU32, max: NonZeroU32 },
}

impl Concurrency {
    /// As many as the server takes, but never more than `max`.
    pub fn up_to(max: NonZeroU32) -> Self {
        Self::Adaptive { min: NonZeroU32::MIN, start: START.min(max), max }
    }
}

impl Default for Concurrency {
    fn default() -> Self {
        Self::up_to(MAX)
    }
}
