//! A point in time as data: what the clock said when a fact was decided.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Waits for something that failed in passing: each is twice as long as the one before, up to the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pauses {
    first: Duration,
    longest: Duration,
    coming: Duration,
}

impl Pauses {
    /// From the shortest one to the longest.
    pub const fn between(first: Duration, longest: Duration) -> Self {
        Self { first, longest, coming: first }
    }

    /// The wait that comes, after which a longer one does.
    pub fn take(&mut self) -> Duration {
        let taken = self.coming;
        self.coming = taken.saturating_mul(2).min(self.longest);
        taken
    }

    /// The wait that comes.
    pub const fn coming(&self) -> Duration {
        self.coming
    }

    /// Begins with the shortest again.
    pub const fn restart(&mut self) {
        self.coming = self.first;
    }
}

/// Microseconds since the Unix epoch, UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Wraps microseconds since the Unix epoch.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since the Unix epoch.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// The time that passed since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// The point `delay` later.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(delay.as_micros()).unwrap_or(i64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_twice_the_one_before_up_to_the_longest() {
        let mut pauses = Pauses::between(Duration::from_millis(300), Duration::from_secs(1));
        let taken = [pauses.take(), pauses.take(), pauses.take(), pauses.take()].map(|wait| wait.as_millis());
        assert_eq!(taken, [300, 600, 1_000, 1_000]);
        pauses.restart();
        assert_eq!(
            (pauses.coming(), pauses.take()),
            (Duration::from_millis(300), Duration::from_millis(300))
        );
    }
}
