//! Tests of the governor, by part; here is what they share.

mod account;
mod bucket;
mod edge;
mod gauges;
mod headers;
mod limiter;
mod pace;
mod properties;
mod scenarios;
mod server;
mod simulation;
mod told;

use std::{
    num::{NonZeroU32, NonZeroU64},
    time::Duration,
};

use super::{Concurrency, Rates};

fn count(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap()
}

fn tokens(number: u64) -> NonZeroU64 {
    NonZeroU64::new(number).unwrap()
}

fn adaptive(min: u32, start: u32, max: u32) -> Concurrency {
    Concurrency::Adaptive { min: count(min), start: count(start), max: count(max) }
}

fn fixed(limit: u32) -> Rates {
    Rates { concurrency: Concurrency::Fixed(count(limit)), ..Rates::default() }
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Random numbers that are the same each time: splitmix64.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to 1.
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn between(&mut self, low: Duration, high: Duration) -> Duration {
        low + (high - low).mul_f64(self.share())
    }
}
