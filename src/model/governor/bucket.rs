//! So many units a minute, evenly, with a small burst.
//!
//! Of units that are taken one by one, never more than the minute's allowance passes in any 60 s, wherever they begin.
//! One take may be larger than the burst; then it passes as soon as a whole burst is there and the rest is a debt, so
//! that 60 s see at most the allowance and what the last take exceeded the burst by. The long run is never faster than
//! the allowance.

use std::time::Duration;

use tokio::time::Instant;

const MINUTE: Duration = Duration::from_secs(60);

/// What part of the allowance may go out at once.
const BURST_SHARE: u64 = 20;

/// A take counts as no more than so many allowances: its estimate is wrong.
const LARGEST: u64 = 10;

#[derive(Debug)]
pub(super) struct Bucket {
    allowance: u64,
    burst: u64,
    /// In which one unit comes back, in nanoseconds. A burst and what comes back in the 60 s after it are the allowance.
    interval: u64,
    /// When the bucket is full again, if nothing more is taken.
    full: Instant,
}

impl Bucket {
    /// A full one.
    pub(super) fn new(allowance: u64, now: Instant) -> Self {
        let burst = (allowance / BURST_SHARE).max(1);
        let minute = u64::try_from(MINUTE.as_nanos()).unwrap_or(u64::MAX);
        Self { allowance, burst, interval: minute.div_ceil((allowance - burst).saturating_add(1)), full: now }
    }

    /// When so many units may be taken, if none are before.
    pub(super) fn ready(&self, units: u64, now: Instant) -> Instant {
        let spare = self.burst - units.min(self.burst);
        self.full.checked_sub(self.time_for(spare)).map_or(now, |ready| ready.max(now))
    }

    pub(super) fn take(&mut self, units: u64, now: Instant) {
        self.full = self.full.max(now) + self.time_for(units);
    }

    /// Puts right what was taken for `taken` and turned out to be `used`.
    pub(super) fn settle(&mut self, taken: u64, used: u64) {
        let (taken, used) = (self.time_for(taken), self.time_for(used));
        // Before now is as good as now: a bucket is never more than full.
        self.full = (self.full + used).checked_sub(taken).unwrap_or(self.full);
    }

    /// How many units may go out in the minute that begins now.
    pub(super) fn left(&self, now: Instant) -> u64 {
        let missing = self.full.saturating_duration_since(now).as_nanos() / u128::from(self.interval);
        self.allowance.saturating_sub(u64::try_from(missing).unwrap_or(u64::MAX))
    }

    fn time_for(&self, units: u64) -> Duration {
        let units = units.min(self.allowance.saturating_mul(LARGEST));
        Duration::from_nanos(units.saturating_mul(self.interval))
    }
}
