//! How many requests may be out at once: found by asking more until the server refuses, then less.
//!
//! A round is as many answers as there are places (at least four). A clean one, in which the server was seen to take
//! at least 80 % of the limit at once, doubles the limit until the first cut and adds 5 % afterwards. A refusal cuts
//! it to 80 %, and starts a horizon whose end is fixed there and then: until it is over nothing cuts or moves it, so
//! that refusals which come in a heap count once, and the limit never waits longer than the horizon.
//!
//! Within a horizon clean rounds win back what the cut took too much, but stay short of where the refusal was, and only
//! if the cut has ended the refusals: so it neither stands at 80 % of what the server takes, nor knocks at the same
//! door again and again.
//!
//! Only what was sent after the last cut bears on the limit as it is. Knows nothing of queues, tokens or tasks.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    Concurrency,
    pace::{Pace, Verdict},
};
use crate::domain::outcome::FaultClass;

/// Answers in a round, at least.
const ROUND: u32 = 4;

/// In percent of the limit: what must have been in use for a round to show anything.
const USED: u64 = 80;

/// One more fault than one in so many answers spoils a round: a server that fails now and then is not full.
const FAULTS: u32 = 20;

/// How close to where it was refused the limit may come again within the horizon, in percent.
const SHORT: u64 = 95;

/// A wait that is longer than this is the latch's and does not stretch a horizon.
const LONGEST: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Limiter {
    concurrency: Concurrency,
    limit: u32,
    doubling: bool,
    horizon: Duration,
    until: Option<Instant>,
    /// Where the limit was when it was last cut.
    refused_at: u32,
    /// Whether the server refused again since then.
    refused_again: bool,
    epoch: u64,
    cuts: u64,
    last_cut: Option<Instant>,
    round: Round,
    pace: Pace,
}

#[derive(Debug, Default)]
struct Round {
    answers: u32,
    faults: u32,
    /// The most that were out when a request was sent that the server then answered: what it is known to take.
    taken: u32,
}

/// Under which limit a request was sent, and how many were out with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    epoch: u64,
    out: u32,
}

impl Limiter {
    pub(super) fn new(concurrency: Concurrency, horizon: Duration) -> Self {
        Self {
            concurrency,
            limit: start(concurrency),
            doubling: true,
            horizon,
            until: None,
            refused_at: u32::MAX,
            refused_again: false,
            epoch: 0,
            cuts: 0,
            last_cut: None,
            round: Round::default(),
            pace: Pace::default(),
        }
    }

    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    pub(super) fn cuts(&self) -> u64 {
        self.cuts
    }

    pub(super) fn last_cut(&self) -> Option<Instant> {
        self.last_cut
    }

    /// When the last cut may be followed by another, if that is still to come.
    pub(super) fn horizon(&self, now: Instant) -> Option<Instant> {
        self.until.filter(|until| now < *until)
    }

    /// Goes by other bounds from now on. What was learnt within them is kept.
    pub(super) fn set(&mut self, concurrency: Concurrency) {
        self.limit = match (self.concurrency, concurrency) {
            (Concurrency::Adaptive { .. }, Concurrency::Adaptive { min, max, .. }) => {
                self.limit.clamp(min.get().min(max.get()), max.get())
            }
            (Concurrency::Unlimited | Concurrency::Fixed(_), Concurrency::Adaptive { .. })
            | (_, Concurrency::Unlimited | Concurrency::Fixed(_)) => start(concurrency),
        };
        self.concurrency = concurrency;
        self.round = Round::default();
    }

    /// For a request that is sent while so many are out, itself included.
    pub(super) fn stamp(&self, out: u32) -> Stamp {
        Stamp { epoch: self.epoch, out }
    }

    pub(super) fn answered(&mut self, stamp: Stamp, now: Instant) {
        if self.shows_something(stamp) {
            self.round.answers += 1;
            self.round.taken = self.round.taken.max(stamp.out);
            self.end_round(now);
        }
    }

    pub(super) fn failed(
        &mut self,
        stamp: Stamp,
        class: FaultClass,
        retry_after: Option<Duration>,
        now: Instant,
    ) {
        if !self.shows_something(stamp) {
            return;
        }
        match class {
            FaultClass::RateLimit if self.horizon(now).is_some() => self.refused_again = true,
            FaultClass::RateLimit => self.cut(retry_after, now),
            FaultClass::Overloaded | FaultClass::Transient | FaultClass::Timeout | FaultClass::Stall => {
                self.round.faults += 1;
                self.end_round(now);
            }
            FaultClass::Auth
            | FaultClass::Quota
            | FaultClass::Invalid
            | FaultClass::ContextOverflow
            | FaultClass::Cancelled => {}
        }
    }

    pub(super) fn first_token(&mut self, stamp: Stamp, after: Duration, now: Instant) {
        if !self.shows_something(stamp) {
            return;
        }
        let verdict = self.pace.first_token(after, self.limit, now);
        if verdict == Some(Verdict::TooSlow) && self.horizon(now).is_none() {
            self.pace.cut();
            self.cut(None, now);
        }
    }

    fn shows_something(&self, stamp: Stamp) -> bool {
        matches!(self.concurrency, Concurrency::Adaptive { .. }) && stamp.epoch == self.epoch
    }

    fn cut(&mut self, retry_after: Option<Duration>, now: Instant) {
        let Concurrency::Adaptive { min, .. } = self.concurrency else { return };
        let cut = scaled(self.limit, 80).min(self.limit.saturating_sub(1)).max(min.get()).min(self.limit);
        if cut < self.limit {
            self.cuts += 1;
            self.last_cut = Some(now);
        }
        (self.refused_at, self.refused_again) = (self.limit, false);
        self.limit = cut;
        self.doubling = false;
        self.epoch += 1;
        self.until = Some(now + retry_after.unwrap_or_default().min(LONGEST).max(self.horizon));
        self.round = Round::default();
        self.pace.start_window();
    }

    fn end_round(&mut self, now: Instant) {
        let Round { answers, faults, taken } = self.round;
        if answers + faults < self.limit.max(ROUND) {
            return;
        }
        self.round = Round::default();
        let clean = faults.saturating_mul(FAULTS) <= answers + faults;
        let used = u64::from(taken) * 100 >= u64::from(self.limit) * USED;
        let Concurrency::Adaptive { max, .. } = self.concurrency else { return };
        match self.pace.verdict() {
            Verdict::Even if clean && used => {
                let more = if self.doubling { self.limit } else { scaled(self.limit, 5).max(1) };
                let most = match self.horizon(now) {
                    None => max.get(),
                    Some(_) if self.refused_again => self.limit,
                    Some(_) => scaled(self.refused_at, SHORT).min(max.get()),
                };
                self.limit = self.limit.saturating_add(more).min(most).max(self.limit);
            }
            Verdict::Even | Verdict::Slow | Verdict::TooSlow => {}
        }
    }
}

fn start(concurrency: Concurrency) -> u32 {
    match concurrency {
        Concurrency::Unlimited => u32::MAX,
        Concurrency::Fixed(limit) => limit.get(),
        Concurrency::Adaptive { min, start, max } => start.max(min).min(max).get(),
    }
}

fn scaled(limit: u32, percent: u64) -> u32 {
    u32::try_from(u64::from(limit) * percent / 100).unwrap_or(u32::MAX)
}
