//! What a governor knows, and what it decides by it. Pure: it is told the time, and waits for nothing.
//!
//! A place is held from admission to the end of a turn, through every back-off; a request is out from its sending to
//! its answer or failure. Both are kept below the limit: places so that started runs do not pile up, requests so that
//! after a cut those that hold their places send again only as the limit allows.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    Concurrency, RateLimits, Rates,
    bucket::Bucket,
    limiter::{Limiter, Stamp},
    told::{Demand, Told},
};
use crate::domain::outcome::FaultClass;

#[derive(Debug)]
pub(super) struct State {
    pub(super) limiter: Limiter,
    requests: Option<Bucket>,
    tokens: Option<Bucket>,
    told_requests: Told,
    told_tokens: Told,
    /// Places that are held.
    pub(super) held: u32,
    /// Requests that are out, and the tokens that they were taken to need.
    pub(super) out: u32,
    out_tokens: u64,
    /// Those that wait for a place.
    pub(super) admitting: u32,
    /// Those that have a place and wait to send.
    pub(super) sending: u32,
    pub(super) pledged: u32,
}

/// A request that is out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    stamp: Stamp,
    tokens: u64,
}

/// Why a request may not go out now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// As many are out as may be: until one of them is back.
    Full,
    /// Until then, if nothing changes before.
    Until(Instant),
}

impl State {
    pub(super) fn new(rates: &Rates, now: Instant) -> Self {
        Self {
            limiter: Limiter::new(rates.concurrency, rates.horizon),
            requests: rates.requests_per_minute.map(|rate| Bucket::new(rate.get().into(), now)),
            tokens: rates.tokens_per_minute.map(|rate| Bucket::new(rate.get(), now)),
            told_requests: Told::default(),
            told_tokens: Told::default(),
            held: 0,
            out: 0,
            out_tokens: 0,
            admitting: 0,
            sending: 0,
            pledged: 0,
        }
    }

    pub(super) fn set(&mut self, concurrency: Concurrency) {
        self.limiter.set(concurrency);
    }

    pub(super) fn has_place(&self) -> bool {
        self.held < self.limiter.limit()
    }

    /// Whether a run that starts now would find a place when it asks.
    pub(super) fn has_room(&self) -> bool {
        let spoken_for = u64::from(self.held) + u64::from(self.admitting) + u64::from(self.pledged);
        spoken_for < self.limiter.limit().into()
    }

    /// Takes a place if there is one.
    pub(super) fn admit(&mut self) -> bool {
        let admitted = self.has_place();
        self.held += u32::from(admitted);
        admitted
    }

    pub(super) fn leave(&mut self) {
        self.held = self.held.saturating_sub(1);
    }

    /// Counts a request of about so many tokens as out, or says what holds it.
    pub(super) fn send(&mut self, tokens: u64, now: Instant) -> Result<Sent, Held> {
        if self.out >= self.limiter.limit() {
            return Err(Held::Full);
        }
        let allowed = [
            self.requests.as_ref().map(|bucket| bucket.ready(1, now)),
            self.tokens.as_ref().map(|bucket| bucket.ready(tokens, now)),
            Some(self.told_requests.ready(1, now)),
            Some(self.told_tokens.ready(tokens, now)),
        ];
        if let Some(until) = allowed.into_iter().flatten().max().filter(|until| *until > now) {
            return Err(Held::Until(until));
        }
        if let Some(bucket) = &mut self.requests {
            bucket.take(1, now);
        }
        if let Some(bucket) = &mut self.tokens {
            bucket.take(tokens, now);
        }
        self.told_requests.take(1, now);
        self.told_tokens.take(tokens, now);
        self.out += 1;
        self.out_tokens = self.out_tokens.saturating_add(tokens);
        Ok(Sent { stamp: self.limiter.stamp(self.out), tokens })
    }

    pub(super) fn first_token(&mut self, sent: Sent, after: Duration, now: Instant) {
        self.limiter.first_token(sent.stamp, after, now);
    }

    pub(super) fn answered(&mut self, sent: Sent, tokens: u64, now: Instant) {
        self.back(sent);
        self.used(sent, tokens);
        self.limiter.answered(sent.stamp, now);
    }

    pub(super) fn failed(
        &mut self,
        sent: Sent,
        class: FaultClass,
        retry_after: Option<Duration>,
        now: Instant,
    ) {
        self.back(sent);
        match class {
            // The server turned it away before it read it.
            FaultClass::RateLimit | FaultClass::Auth | FaultClass::Quota => self.used(sent, 0),
            FaultClass::Overloaded
            | FaultClass::Transient
            | FaultClass::Timeout
            | FaultClass::Stall
            | FaultClass::Invalid
            | FaultClass::ContextOverflow
            | FaultClass::Cancelled => {}
        }
        self.limiter.failed(sent.stamp, class, retry_after, now);
    }

    /// A request is back, or will never be: nothing is known of it.
    pub(super) fn back(&mut self, sent: Sent) {
        self.out = self.out.saturating_sub(1);
        self.out_tokens = self.out_tokens.saturating_sub(sent.tokens);
    }

    /// Takes in what the answer to `own` said; one that is not out any more is none of those that are still to count.
    pub(super) fn told(&mut self, said: &RateLimits, own: Option<Sent>, now: Instant) {
        let out = self.out.saturating_sub(u32::from(own.is_some()));
        let tokens = own.map_or(0, |own| own.tokens);
        let places = self.limiter.limit();
        if let Some(window) = &said.requests {
            let demand = Demand { out: out.into(), wanted: places.into(), places };
            self.told_requests.hear(window, demand, now);
        }
        if let Some(window) = &said.tokens {
            let wanted = tokens.max(1).saturating_mul(places.into());
            let out = self.out_tokens.saturating_sub(tokens);
            self.told_tokens.hear(window, Demand { out, wanted, places }, now);
        }
    }

    pub(super) fn requests_left(&self, now: Instant) -> Option<u64> {
        left(self.requests.as_ref(), &self.told_requests, now)
    }

    pub(super) fn tokens_left(&self, now: Instant) -> Option<u64> {
        left(self.tokens.as_ref(), &self.told_tokens, now)
    }

    fn used(&mut self, sent: Sent, tokens: u64) {
        if let Some(bucket) = &mut self.tokens {
            bucket.settle(sent.tokens, tokens);
        }
    }
}

/// The stricter of what is configured and what was told.
fn left(bucket: Option<&Bucket>, told: &Told, now: Instant) -> Option<u64> {
    bucket.map(|bucket| bucket.left(now)).into_iter().chain(told.left(now)).min()
}
