//! Slows down before the server has to refuse: what its answers say is left is spread over the time to the reset.
//!
//! Where plenty is left nothing is held. Where nothing is left everything waits for the reset and then goes out one by
//! one. What was told is believed for a minute at most, and every answer replaces it.

use std::time::Duration;

use tokio::time::Instant;

use super::Window;

/// How long what was told is believed. Longer waits are the latch's.
const BELIEVED: Duration = Duration::from_secs(60);

/// Over how long the first requests after a reset are spread.
const SPREAD: Duration = Duration::from_secs(2);

/// What an answer said of one of the server's limits, in requests or in tokens.
#[derive(Debug, Default)]
pub(super) struct Told {
    scarce: Option<Scarce>,
    /// When something was last sent.
    last: Option<Instant>,
}

#[derive(Debug)]
struct Scarce {
    left: u64,
    until: Instant,
    /// From one unit to the next, before the reset.
    gap: Duration,
    /// From one request to the next, after it.
    gap_after: Duration,
}

/// What the account's users ask for now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    /// Units of the requests that are out; the server may not have counted them yet.
    pub(super) out: u64,
    /// Units that would go out if every place were filled anew.
    pub(super) wanted: u64,
    /// Requests that may be out at once.
    pub(super) places: u32,
}

impl Told {
    pub(super) fn hear(&mut self, window: &Window, demand: Demand, now: Instant) {
        let (Some(remaining), Some(reset)) = (window.remaining, window.reset) else { return };
        // Who has no limit, or resets at once, has nothing to slow down for.
        if window.limit == Some(0) || reset.is_zero() {
            self.scarce = None;
            return;
        }
        let left = remaining.saturating_sub(demand.out);
        let reset = reset.min(BELIEVED);
        self.scarce = (left < demand.wanted).then(|| Scarce {
            left,
            until: now + reset,
            gap: Duration::from_nanos(nanos(reset) / left.saturating_add(1)),
            gap_after: SPREAD / demand.places.max(1),
        });
    }

    /// When a request of so many units may go out, if none does before.
    pub(super) fn ready(&self, units: u64, now: Instant) -> Instant {
        let Some(scarce) = &self.scarce else { return now };
        let after = |gap| self.last.map_or(now, |last| last + gap).max(now);
        if now >= scarce.until {
            if now < scarce.until + SPREAD { after(scarce.gap_after) } else { now }
        } else if units > scarce.left {
            scarce.until
        } else {
            let gap = Duration::from_nanos(nanos(scarce.gap).saturating_mul(units));
            after(gap.min(BELIEVED)).min(scarce.until)
        }
    }

    pub(super) fn take(&mut self, units: u64, now: Instant) {
        self.last = Some(now);
        if let Some(scarce) = &mut self.scarce {
            scarce.left = scarce.left.saturating_sub(units);
        }
    }

    /// What is left until the reset, where that is little.
    pub(super) fn left(&self, now: Instant) -> Option<u64> {
        self.scarce.as_ref().filter(|scarce| now < scarce.until).map(|scarce| scarce.left)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
