//! What time it is, as something that can be handed in.
//!
//! Waiting is the runtime's business (and a test pauses it); this only tells the time that facts are stamped with.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use crate::domain::time::Timestamp;

/// A point in time as herder writes it: RFC 3339 in UTC, to the microsecond; nothing for one that no calendar has.
pub fn rfc3339(at: Timestamp) -> String {
    jiff::Timestamp::from_microsecond(at.as_micros()).map_or_else(|_| String::new(), |at| format!("{at:.6}"))
}

/// Reads a point in time, in RFC 3339 with any offset.
pub fn from_rfc3339(text: &str) -> Option<Timestamp> {
    let at: jiff::Timestamp = text.parse().ok()?;
    Some(Timestamp::from_micros(at.as_microsecond()))
}

/// A point in time for people who look at it about `now`: to the minute, the next if it is not whole, with the day where that
/// is another one; in UTC, and says so.
pub fn time_of_day(at: Timestamp, now: Timestamp) -> String {
    const MINUTE: i64 = 60_000_000;
    let minutes = at.as_micros().div_euclid(MINUTE) + i64::from(at.as_micros().rem_euclid(MINUTE) > 0);
    let read = |micros| jiff::Timestamp::from_microsecond(micros).ok();
    let (Some(at), Some(now)) = (read(minutes.saturating_mul(MINUTE)), read(now.as_micros())) else {
        return String::new();
    };
    let is_of_today = at.strftime("%F").to_string() == now.strftime("%F").to_string();
    at.strftime(if is_of_today { "%H:%M UTC" } else { "%F %H:%M UTC" }).to_string()
}

/// Tells the time.
pub trait Clock: Send + Sync + 'static {
    /// Now, in UTC.
    fn now(&self) -> Timestamp;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Timestamp::from_micros(0).after(since_epoch)
    }
}

/// A clock that stands still until it is moved.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock that says `now`.
    pub const fn at(now: Timestamp) -> Self {
        Self(AtomicI64::new(now.as_micros()))
    }

    /// Moves the clock on.
    pub fn advance(&self, by: Duration) {
        let now = self.now().after(by);
        self.0.store(now.as_micros(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst))
    }
}
