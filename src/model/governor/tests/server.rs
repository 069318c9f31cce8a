//! A server that exists in numbers alone: what it does with a request that comes at a given time.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

use super::{
    super::{RateLimits, Window},
    Dice, millis, secs,
};
use crate::domain::outcome::FaultClass;

/// How a server is set up.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    /// From when on it takes how many at once.
    pub(super) capacity: Vec<(Duration, u32)>,
    pub(super) per_minute: Option<u32>,
    /// Whether its answers tell what is left of the minute.
    pub(super) tells: bool,
    /// What a refusal asks for, if anything, in turn.
    pub(super) retry_after: Vec<Option<Duration>>,
    /// How often a request meets a fault, by kind: 503, 529, a stall, a drop.
    pub(super) faults: f64,
    /// Takes everything and slows down instead of refusing.
    pub(super) queues: bool,
    pub(super) latency: (Duration, Duration),
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            capacity: vec![(Duration::ZERO, 50)],
            per_minute: None,
            tells: false,
            retry_after: vec![None],
            faults: 0.0,
            queues: false,
            latency: (secs(1), secs(5)),
        }
    }
}

/// What comes back, and how long after the request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub(super) after: Duration,
    pub(super) first_token: Duration,
    pub(super) result: Result<(), (FaultClass, Option<Duration>)>,
    pub(super) told: Option<RateLimits>,
    /// Whether it took up a place at the server.
    pub(super) taken: bool,
}

pub(super) struct Server {
    setup: Setup,
    start: Instant,
    pub(super) out: u32,
    pub(super) refused: u32,
    minute: VecDeque<Instant>,
    /// What was taken, and for how long in all.
    pub(super) taken: u32,
    pub(super) busy: Duration,
}

const SILENCE: Duration = Duration::from_secs(20);

impl Server {
    pub(super) fn new(setup: Setup, start: Instant) -> Self {
        Self { setup, start, out: 0, refused: 0, minute: VecDeque::new(), taken: 0, busy: Duration::ZERO }
    }

    pub(super) fn capacity(&self, now: Instant) -> u32 {
        let begun = self.setup.capacity.iter().rev().find(|(from, _)| self.start + *from <= now);
        begun.map_or(0, |(_, capacity)| *capacity)
    }

    pub(super) fn receive(&mut self, dice: &mut Dice, now: Instant) -> Answer {
        while self.minute.front().is_some_and(|at| *at + secs(60) <= now) {
            self.minute.pop_front();
        }
        let capacity = self.capacity(now);
        let spent = self.setup.per_minute.is_some_and(|limit| self.minute.len() >= limit as usize);
        if spent || !self.setup.queues && self.out >= capacity {
            return self.refuse(now);
        }
        self.minute.push_back(now);
        self.taken += 1;
        self.out += 1;
        let answer = self.answer(dice, capacity, now);
        self.busy += answer.after;
        answer
    }

    fn refuse(&mut self, now: Instant) -> Answer {
        let turn = self.refused as usize % self.setup.retry_after.len();
        self.refused += 1;
        Answer {
            after: millis(50),
            first_token: Duration::ZERO,
            result: Err((FaultClass::RateLimit, self.setup.retry_after[turn])),
            told: self.told(now),
            taken: false,
        }
    }

    fn answer(&self, dice: &mut Dice, capacity: u32, now: Instant) -> Answer {
        let load = if self.setup.queues { f64::from(self.out) / f64::from(capacity) } else { 1.0 };
        let latency = dice.between(self.setup.latency.0, self.setup.latency.1).mul_f64(load.max(1.0));
        let (after, result) = match dice.share() / self.setup.faults.max(f64::MIN_POSITIVE) {
            kind if kind < 0.25 => (millis(100), Err((FaultClass::Overloaded, Some(secs(1))))),
            kind if kind < 0.5 => (millis(100), Err((FaultClass::Overloaded, None))),
            kind if kind < 0.75 => (SILENCE, Err((FaultClass::Stall, None))),
            kind if kind < 1.0 => (latency / 2, Err((FaultClass::Transient, None))),
            _ => (latency, Ok(())),
        };
        Answer { after, first_token: latency / 4, result, told: self.told(now), taken: true }
    }

    fn told(&self, now: Instant) -> Option<RateLimits> {
        let limit = self.setup.per_minute.filter(|_| self.setup.tells)?;
        let oldest = self.minute.front()?;
        let window = Window {
            limit: Some(limit.into()),
            remaining: Some(u64::from(limit) - self.minute.len() as u64),
            reset: Some(*oldest + secs(60) - now),
        };
        Some(RateLimits { requests: Some(window), tokens: None })
    }
}
