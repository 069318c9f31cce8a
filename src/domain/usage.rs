//! What a run uses up, and how much of it is allowed.

use std::{ops::AddAssign, time::Duration};

use serde::{Deserialize, Serialize};

/// US dollars in billionths: exact where a float would drift over a million requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NanoUsd(u64);

impl NanoUsd {
    /// Wraps billionths of a dollar.
    pub const fn new(nano: u64) -> Self {
        Self(nano)
    }

    /// Dollars as a person writes them, rounded to a billionth; what is no amount is nothing.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float is clamped as it is cast"
    )]
    pub fn from_usd(usd: f64) -> Self {
        Self((usd * 1e9).round() as u64)
    }

    /// Billionths of a dollar.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Dollars, for showing.
    #[expect(clippy::cast_precision_loss, reason = "shown to people, with few digits")]
    pub fn usd(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl AddAssign for NanoUsd {
    fn add_assign(&mut self, other: Self) {
        self.0 = self.0.saturating_add(other.0);
    }
}

/// Tokens and money of one request, or of many together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens sent, cached ones included.
    pub input: u64,
    /// Tokens answered, reasoning included.
    pub output: u64,
    /// The part of `input` that the provider had cached.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cached: u64,
    /// The part of `input` that the provider put into its cache and charges for as such.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_written: u64,
    /// What it cost, where the model's price is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<NanoUsd>,
    /// Some of it is an estimate, since the provider did not say.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Usage {
    /// Tokens sent and answered.
    pub const fn total(&self) -> u64 {
        self.input.saturating_add(self.output)
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.input = self.input.saturating_add(other.input);
        self.output = self.output.saturating_add(other.output);
        self.cached = self.cached.saturating_add(other.cached);
        self.cache_written = self.cache_written.saturating_add(other.cache_written);
        self.estimated |= other.estimated;
        if let Some(cost) = other.cost {
            *self.cost.get_or_insert_default() += cost;
        }
    }
}

/// A fair guess where nobody counted: four bytes a token.
pub fn estimated_tokens(bytes: usize) -> u64 {
    u64::try_from(bytes / 4).unwrap_or(u64::MAX)
}

/// The most bytes that are estimated to be so many tokens.
pub fn bytes_of(tokens: u64) -> usize {
    usize::try_from(tokens).unwrap_or(usize::MAX).saturating_mul(4)
}

/// What a model costs. Whole billionths of a dollar for a million tokens: finer than any price list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Price {
    /// Tokens sent that the provider had not cached.
    pub input: NanoUsd,
    /// Tokens sent that it had.
    pub cached: NanoUsd,
    /// Tokens sent that it put into its cache.
    pub cache_written: NanoUsd,
    /// Tokens answered.
    pub output: NanoUsd,
}

impl Price {
    /// What this much costs, rounded up.
    pub fn of(&self, usage: &Usage) -> NanoUsd {
        const MILLION: u128 = 1_000_000;
        let part = |tokens: u64, price: NanoUsd| u128::from(tokens) * u128::from(price.0);
        let fresh = usage.input.saturating_sub(usage.cached).saturating_sub(usage.cache_written);
        let cost = part(fresh, self.input)
            + part(usage.cached, self.cached)
            + part(usage.cache_written, self.cache_written)
            + part(usage.output, self.output);
        NanoUsd(u64::try_from(cost.div_ceil(MILLION)).unwrap_or(u64::MAX))
    }

    /// The most that so many tokens can cost, however the provider caches them.
    pub fn most(&self, input: u64, output: u64) -> NanoUsd {
        let dearest = self.input.max(self.cached).max(self.cache_written);
        Self { input: dearest, ..*self }.of(&Usage { input, output, ..Usage::default() })
    }

    /// How many tokens may be answered to so many that are sent, for this much at most; `wish` if all of them.
    pub fn affords(&self, amount: NanoUsd, input: u64, wish: u32) -> u32 {
        let fits = |output: &u32| self.most(input, u64::from(*output)) <= amount;
        if fits(&wish) {
            return wish;
        }
        let rest = u128::from(amount.0.saturating_sub(self.most(input, 0).0));
        let tokens = (rest * 1_000_000).checked_div(u128::from(self.output.0)).unwrap_or_default();
        u32::try_from(tokens).unwrap_or(u32::MAX).min(wish)
    }

    /// Whether anything costs anything.
    pub fn is_free(&self) -> bool {
        *self == Self::default()
    }
}

/// How much a run may use up. An absent limit does not limit; a reached one ends the run as `budget`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Model turns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<u32>,
    /// Tool calls, refused ones included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tool_calls: Option<u32>,
    /// Tokens sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_input_tokens: Option<u64>,
    /// Tokens answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u64>,
    /// Tokens sent and answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_total_tokens: Option<u64>,
    /// What it may cost.
    #[serde(skip_serializing_if = "Option::is_none", with = "dollars")]
    pub max_cost_usd: Option<NanoUsd>,
    /// Tool calls of one answer that are run; those beyond it are refused one by one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_calls_per_turn: Option<u32>,
    /// How often in a row one and the same call may fail before it is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_repeats: Option<u32>,
    /// Seconds from the run's start to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall_time_s: Option<u64>,
    /// Seconds in which a model request or a tool of the run was at work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_time_s: Option<u64>,
}

impl Limits {
    /// Turns that a run may take where nobody set a limit.
    pub const DEFAULT_MAX_TURNS: u32 = 50;
    /// Calls of one answer that are run where nobody set a limit.
    pub const DEFAULT_MAX_CALLS_PER_TURN: u32 = 64;
    /// Failures of one call in a row where nobody set a limit.
    pub const DEFAULT_MAX_REPEATS: u32 = 3;

    /// The turn limit in force: a run is bounded whether or not anybody set a limit.
    pub fn turns(&self) -> u32 {
        self.max_turns.unwrap_or(Self::DEFAULT_MAX_TURNS)
    }

    /// The limit in force of calls of one answer.
    pub fn calls_per_turn(&self) -> u32 {
        self.max_calls_per_turn.unwrap_or(Self::DEFAULT_MAX_CALLS_PER_TURN)
    }

    /// The limit in force of failures of one call in a row.
    pub fn repeats(&self) -> u32 {
        self.max_repeats.unwrap_or(Self::DEFAULT_MAX_REPEATS)
    }

    /// Fills what `self` leaves open from `defaults`.
    #[must_use]
    pub fn or(self, defaults: Self) -> Self {
        Self {
            max_turns: self.max_turns.or(defaults.max_turns),
            max_tool_calls: self.max_tool_calls.or(defaults.max_tool_calls),
            max_input_tokens: self.max_input_tokens.or(defaults.max_input_tokens),
            max_output_tokens: self.max_output_tokens.or(defaults.max_output_tokens),
            max_total_tokens: self.max_total_tokens.or(defaults.max_total_tokens),
            max_cost_usd: self.max_cost_usd.or(defaults.max_cost_usd),
            max_calls_per_turn: self.max_calls_per_turn.or(defaults.max_calls_per_turn),
            max_repeats: self.max_repeats.or(defaults.max_repeats),
            wall_time_s: self.wall_time_s.or(defaults.wall_time_s),
            active_time_s: self.active_time_s.or(defaults.active_time_s),
        }
    }

    /// The wall time allowed.
    pub fn wall_time(&self) -> Option<Duration> {
        self.wall_time_s.map(Duration::from_secs)
    }

    /// The active time allowed.
    pub fn active_time(&self) -> Option<Duration> {
        self.active_time_s.map(Duration::from_secs)
    }
}

/// An amount as a number of dollars, as people write it.
pub mod dollars {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    use super::NanoUsd;

    /// Writes it.
    ///
    /// # Errors
    /// Whatever takes it fails.
    pub fn serialize<S: Serializer>(amount: &Option<NanoUsd>, serializer: S) -> Result<S::Ok, S::Error> {
        amount.map(NanoUsd::usd).serialize(serializer)
    }

    /// Reads it.
    ///
    /// # Errors
    /// It is no amount.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<NanoUsd>, D::Error> {
        let Some(usd) = Option::<f64>::deserialize(deserializer)? else { return Ok(None) };
        if usd.is_finite() && usd >= 0.0 {
            Ok(Some(NanoUsd::from_usd(usd)))
        } else {
            Err(D::Error::custom("want a number of US dollars, 0 or more"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_tokens_cost_their_own_price_and_a_fraction_is_rounded_up() {
        let usd = NanoUsd::from_usd;
        let price = Price { input: usd(2.5), cached: usd(0.25), cache_written: usd(5.0), output: usd(10.0) };
        let usage = Usage { input: 1_000_000, cached: 400_000, output: 200_000, ..Usage::default() };
        assert_eq!(price.of(&usage), usd(1.5 + 0.1 + 2.0));
        assert_eq!(price.of(&Usage { cache_written: 600_000, ..usage }), usd(3.0 + 0.1 + 2.0));
        let price = Price { input: usd(0.0001), ..Price::default() };
        assert_eq!(price.of(&Usage { input: 1, ..Usage::default() }), NanoUsd::new(1));
    }

    #[test]
    fn as_many_tokens_are_affordable_as_the_dearest_input_leaves_money_for() {
        let usd = NanoUsd::from_usd;
        let price = Price { input: usd(1.0), cached: usd(0.1), cache_written: usd(2.0), output: usd(10.0) };
        assert_eq!(price.most(1_000, 100), usd(0.003));
        assert_eq!(price.affords(usd(0.003), 1_000, 500), 100);
        assert_eq!(price.affords(usd(0.003), 1_000, 50), 50);
        assert_eq!(price.affords(usd(0.001), 1_000, 50), 0);
        for nano in [0, 2_000_000, 2_009_999, 2_010_000, 2_999_999] {
            let output = price.affords(NanoUsd::new(nano), 1_000, 1_000);
            assert!(output == 0 || price.most(1_000, output.into()) <= NanoUsd::new(nano), "{nano}");
        }
    }
}
