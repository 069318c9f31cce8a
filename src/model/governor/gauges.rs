//! Keeps an account's metrics up to date with one of its governors.
//!
//! Several governors of an account add up: each moves the gauges by what has changed with it, and takes its part back
//! when it goes. The gauges are looked up once, so what is recorded must be in force before a governor is made.

use std::sync::Arc;

use metrics::{Counter, Gauge};

use super::{Account, state::State};
use crate::telemetry::metric;

pub(super) struct Gauges {
    limit: (Gauge, u32),
    in_flight: (Gauge, u32),
    waiting: (Gauge, u32),
    cuts: (Counter, u64),
}

impl Gauges {
    pub(super) fn new(account: &Account) -> Self {
        let name = || Arc::clone(account.name());
        Self {
            limit: (metrics::gauge!(metric::ACCOUNT_LIMIT, "account" => name()), 0),
            in_flight: (metrics::gauge!(metric::ACCOUNT_IN_FLIGHT, "account" => name()), 0),
            waiting: (metrics::gauge!(metric::ACCOUNT_WAITING, "account" => name()), 0),
            cuts: (metrics::counter!(metric::ACCOUNT_CUTS, "account" => name()), 0),
        }
    }

    pub(super) fn show(&mut self, state: &State) {
        let limit = state.limiter.limit();
        // No limit is no number.
        set(&mut self.limit, if limit == u32::MAX { 0 } else { limit });
        set(&mut self.in_flight, state.held);
        set(&mut self.waiting, state.admitting);
        let (counter, shown) = &mut self.cuts;
        let cuts = state.limiter.cuts();
        if cuts > *shown {
            counter.increment(cuts - *shown);
            *shown = cuts;
        }
    }
}

fn set((gauge, shown): &mut (Gauge, u32), now: u32) {
    if now > *shown {
        gauge.increment(f64::from(now - *shown));
    } else if now < *shown {
        gauge.decrement(f64::from(*shown - now));
    }
    *shown = now;
}

impl Drop for Gauges {
    fn drop(&mut self) {
        for shown in [&mut self.limit, &mut self.in_flight, &mut self.waiting] {
            set(shown, 0);
        }
    }
}

impl std::fmt::Debug for Gauges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gauges").finish_non_exhaustive()
    }
}
