//! What one request can come to at most, and how it is made to fit what its run may still use up.

use crate::domain::{
    message::Message,
    outcome::Limit,
    usage::{Limits, NanoUsd, Price, Usage},
};

/// Tokens of an answer below which no request is lowered: an answer that is cut is worth nothing.
pub const MIN_TOKENS: u32 = 1_024;

/// A request before it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Tokens that are sent, an upper estimate.
    pub input: u64,
    /// Tokens that the answer may have.
    pub max_tokens: u32,
    /// What they cost, where that is known.
    pub price: Option<Price>,
}

impl Ask {
    /// Tokens of the answer without which it is not sent.
    pub fn least_tokens(&self) -> u32 {
        self.max_tokens.min(MIN_TOKENS)
    }

    /// What it can come to at most.
    pub fn most(&self) -> Usage {
        let (input, output) = (self.input, u64::from(self.max_tokens));
        Usage {
            input,
            output,
            cost: self.price.map(|price| price.most(input, output)),
            estimated: true,
            ..Usage::default()
        }
    }

    /// Makes it fit what limits leave of what they allow.
    ///
    /// The first request of a run is sent if any answer fits: the limit says itself how short that may be.
    ///
    /// # Errors
    /// The limit that it would pass.
    pub fn within(self, limits: &Limits, used: &Usage) -> Result<Self, Limit> {
        let least = if used.total() == 0 { 1 } else { self.least_tokens() };
        let left = |limit: Option<u64>, used: u64| limit.map(|limit| limit.saturating_sub(used));
        if left(limits.max_input_tokens, used.input).is_some_and(|left| left < self.input) {
            return Err(Limit::InputTokens);
        }
        let mut fits = self;
        let output = left(limits.max_output_tokens, used.output);
        let total = left(limits.max_total_tokens, used.total()).map(|left| left.saturating_sub(self.input));
        for (left, limit) in [(output, Limit::OutputTokens), (total, Limit::TotalTokens)] {
            if let Some(left) = left {
                fits.max_tokens = fits.max_tokens.min(u32::try_from(left).unwrap_or(u32::MAX));
                if fits.max_tokens < least {
                    return Err(limit);
                }
            }
        }
        match (limits.max_cost_usd, self.price) {
            (Some(limit), Some(price)) => {
                let spent = used.cost.unwrap_or_default().get();
                fits.costing(NanoUsd::new(limit.get().saturating_sub(spent)), price).ok_or(Limit::Cost)
            }
            (Some(_), None) | (None, _) => Ok(fits),
        }
    }

    /// Makes it cost no more than this, if that can be.
    fn costing(self, amount: NanoUsd, price: Price) -> Option<Self> {
        let max_tokens = price.affords(amount, self.input, self.max_tokens);
        let fits = Self { max_tokens, ..self };
        (max_tokens >= self.least_tokens() && price.most(fits.input, max_tokens.into()) <= amount)
            .then_some(fits)
    }

    /// Makes it cost no more than what it was granted.
    #[must_use]
    pub fn granted(self, amount: NanoUsd) -> Self {
        match self.price {
            Some(price) => Self { max_tokens: price.affords(amount, self.input, self.max_tokens), ..self },
            None => self,
        }
    }
}

/// How many tokens a conversation is at most. The last answer of `model` says how many it was up to there; of what came
/// since, and of a conversation without such an answer and what goes with it, three bytes are taken to be one.
pub fn input_tokens(history: &[Message], model: &str, other_bytes: impl FnOnce() -> usize) -> u64 {
    /// What a message has beside its text.
    const AROUND: usize = 24;
    let mut bytes = 0;
    for message in history.iter().rev() {
        if let Message::Assistant(reply) = message {
            let of_model = reply.request.as_ref().is_some_and(|request| *request.model == *model);
            if of_model && !reply.usage.estimated && reply.usage.total() > 0 {
                return reply.usage.total().saturating_add(tokens(bytes));
            }
        }
        bytes += message.bytes() + AROUND;
    }
    tokens(bytes + other_bytes())
}

fn tokens(bytes: usize) -> u64 {
    u64::try_from(bytes.div_ceil(3)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::domain::{
        message::{Reply, RequestRecord},
        outcome::Stop,
    };

    fn ask(input: u64, max_tokens: u32) -> Ask {
        let price =
            Price { input: NanoUsd::from_usd(1.0), output: NanoUsd::from_usd(10.0), ..Price::default() };
        Ask { input, max_tokens, price: Some(price) }
    }

    fn used(input: u64, output: u64) -> Usage {
        Usage { input, output, cost: Some(NanoUsd::from_usd(0.01)), ..Usage::default() }
    }

    #[test]
    fn an_answer_is_shortened_to_what_is_left_but_not_to_nothing() {
        let total = |limit| Limits { max_total_tokens: Some(limit), ..Limits::default() };
        let output = |limit| Limits { max_output_tokens: Some(limit), ..Limits::default() };
        let input = |limit| Limits { max_input_tokens: Some(limit), ..Limits::default() };
        let cost = |usd| Limits { max_cost_usd: Some(NanoUsd::from_usd(usd)), ..Limits::default() };
        let table = [
            (Limits::default(), Ok(8_192)),
            (total(20_000), Ok(8_192)),
            (total(10_000), Ok(7_500)),
            (total(3_524), Ok(1_024)),
            (total(3_523), Err(Limit::TotalTokens)),
            (output(2_000), Ok(1_500)),
            (output(1_000), Err(Limit::OutputTokens)),
            (input(2_000), Ok(8_192)),
            (input(1_999), Err(Limit::InputTokens)),
            // 0.01 are spent, 1,000 tokens cost 0.001, each answered one 0.00001.
            (cost(1.0), Ok(8_192)),
            (cost(0.031), Ok(2_000)),
            (cost(0.02124), Ok(1_024)),
            (cost(0.0212), Err(Limit::Cost)),
        ];
        for (limits, expected) in table {
            let fits = ask(1_000, 8_192).within(&limits, &used(1_000, 500));
            assert_eq!(fits.map(|fits| fits.max_tokens), expected, "{limits:?}");
        }
    }

    #[test]
    fn a_task_that_wishes_for_less_and_a_first_request_are_sent_with_less() {
        let limits = Limits { max_total_tokens: Some(3_200), ..Limits::default() };
        let small = ask(1_000, 200).within(&limits, &used(1_000, 900));
        assert_eq!(small.map(|fits| fits.max_tokens), Ok(200));
        let first = ask(1_000, 8_192).within(&limits, &Usage::default());
        assert_eq!(first.map(|fits| fits.max_tokens), Ok(2_200));
    }

    #[test]
    fn what_no_usage_covers_is_reckoned_by_its_bytes() {
        let reply = |model: &str, estimated| {
            let usage = Usage { input: 900, output: 100, estimated, ..Usage::default() };
            let request = RequestRecord { model: model.into(), ..RequestRecord::default() };
            Message::Assistant(Arc::new(Reply {
                usage,
                request: Some(request.into()),
                ..Reply::new(Stop::EndTurn)
            }))
        };
        let said = Message::User("x".repeat(276).into());
        let of = |reply| input_tokens(&[said.clone(), reply, said.clone()], "m", || 30);
        assert_eq!(of(reply("m", false)), 1_000 + 100);
        assert_eq!((of(reply("m", true)), of(reply("other", false))), (218, 218));
    }
}
