//! What happened in the last minute, a second at a time. Told the time by the facts, and by whoever asks.

use crate::domain::{
    event::{Event, Fact},
    time::Timestamp,
    usage::Usage,
};

const SECONDS: usize = 60;

/// What happens of late, in all runs: of the last minute, the running second left out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Answers of models a second.
    pub turns: f64,
    /// Tokens sent and answered a second.
    pub tokens: f64,
    /// Dollars a minute.
    pub usd_per_minute: f64,
    /// Runs that ended, a second.
    pub ends: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Second {
    at: i64,
    turns: u32,
    ends: u32,
    usage: Usage,
}

/// A ring of seconds.
#[derive(Debug)]
pub(super) struct Minute {
    seconds: [Second; SECONDS],
    /// The first second of which anything is known.
    since: Option<i64>,
}

impl Default for Minute {
    fn default() -> Self {
        Self { seconds: [Second::default(); SECONDS], since: None }
    }
}

impl Minute {
    pub(super) fn count(&mut self, fact: &Fact) {
        let at = second(fact.at);
        self.since.get_or_insert(at);
        if let Event::Message(reply) = &fact.event {
            let second = self.at(at);
            second.turns += 1;
            second.usage += reply.usage;
        } else if let Event::RunEnd(_) = &fact.event {
            self.at(at).ends += 1;
        }
    }

    fn at(&mut self, at: i64) -> &mut Second {
        let second = &mut self.seconds[usize::try_from(at).unwrap_or(0) % SECONDS];
        if second.at != at {
            *second = Second { at, ..Second::default() };
        }
        second
    }

    #[expect(clippy::cast_precision_loss, reason = "shown to people, with few digits")]
    pub(super) fn rates(&self, now: Timestamp) -> Rates {
        let now = second(now);
        let window = 60.min(now - self.since.unwrap_or(now));
        if window <= 0 {
            return Rates::default();
        }
        let (mut turns, mut ends, mut usage) = (0, 0, Usage::default());
        for second in self.seconds.iter().filter(|second| (now - window..now).contains(&second.at)) {
            turns += second.turns;
            ends += second.ends;
            usage += second.usage;
        }
        let window = window as f64;
        Rates {
            turns: f64::from(turns) / window,
            tokens: usage.total() as f64 / window,
            usd_per_minute: usage.cost.map_or(0.0, |cost| cost.usd() * 60.0 / window),
            ends: f64::from(ends) / window,
        }
    }
}

const fn second(at: Timestamp) -> i64 {
    at.as_micros().div_euclid(1_000_000)
}
