//! An answer as it comes together, and what is made of it once it is whole.

use std::{sync::Arc, time::Duration};

use super::judge::Judge;
use crate::{
    domain::{
        json::RawJson,
        message::{Kept, RequestRecord},
        outcome::Stop,
        run::Proposal,
        usage::{Usage, estimated_tokens},
    },
    model::{Delta, Model, ProposedCall},
};

/// An answer so far.
#[derive(Default)]
pub(super) struct Answer {
    text: String,
    reasoning: String,
    kept: Vec<RawJson>,
    calls: Vec<ProposedCall>,
    /// Bytes of the calls and of what is kept.
    other: usize,
    usage: Option<Usage>,
    stop: Option<Stop>,
    /// The digest of what was sent.
    pub(super) digest: Option<Arc<str>>,
}

impl Answer {
    /// Bytes so far.
    pub(super) const fn bytes(&self) -> usize {
        self.text.len() + self.reasoning.len() + self.other
    }

    /// Takes the next piece; says whether it was the last.
    pub(super) fn take(&mut self, delta: Delta) -> bool {
        match delta {
            Delta::Text(more) if self.text.is_empty() => self.text = more,
            Delta::Text(more) => self.text.push_str(&more),
            Delta::Reasoning(more) => self.reasoning.push_str(&more),
            Delta::Progress | Delta::RateLimits(_) => {}
            Delta::Keep(block) => {
                self.other += block.get().len();
                self.kept.push(block);
            }
            Delta::Call(call) => {
                self.other += call.name.len() + call.arguments.len();
                self.calls.push(call);
            }
            Delta::Usage(usage) => self.usage = Some(usage),
            Delta::Stop(stop) => self.stop = Some(stop),
            Delta::Sent(digest) => self.digest = Some(digest),
        }
        self.stop.is_some()
    }

    /// What the request used up, with its cost: as the server says, or as can be guessed from the bytes that were sent. Of
    /// an answer that says nothing, not even that, nothing is guessed: it is no answer.
    ///
    /// Where it is paid for, the guess is of the most that it can be: `most` if the answer says nothing.
    pub(super) fn used(&self, model: &Model, sent: usize, most: Option<Usage>) -> Option<Usage> {
        let guess = || match most {
            Some(most) => Usage { output: self.most_tokens().min(most.output), ..most },
            None => Usage {
                input: estimated_tokens(sent),
                output: estimated_tokens(self.bytes()),
                estimated: true,
                ..Usage::default()
            },
        };
        let usage = self.usage.or_else(|| (self.bytes() > 0).then(guess))?;
        Some(Usage { cost: model.price.map(|price| price.of(&usage)), ..usage })
    }

    /// What the server said that the request used up, where the answer is not whole: at least what came of it.
    pub(super) fn told(&self, model: &Model) -> Option<Usage> {
        let told = self.usage?;
        let output = told.output.max(self.most_tokens());
        let usage = Usage { output, estimated: told.estimated || output > told.output, ..told };
        Some(Usage { cost: model.price.map(|price| price.of(&usage)), ..usage })
    }

    /// An upper estimate of the tokens so far.
    fn most_tokens(&self) -> u64 {
        u64::try_from(self.bytes().div_ceil(3)).unwrap_or(u64::MAX)
    }

    /// Whether it has come to an end that says nothing, which is as good as none.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes() == 0 && matches!(self.stop, None | Some(Stop::EndTurn | Stop::ToolCalls | Stop::Error))
    }

    /// The whole answer, its calls judged.
    pub(super) async fn judged(
        self,
        judge: &Judge,
        request: RequestRecord,
        usage: Option<Usage>,
        duration: Duration,
    ) -> Proposal {
        let is_last = self.calls.is_empty() && matches!(self.stop, Some(Stop::EndTurn | Stop::ToolCalls));
        let kept = Kept { model: request.model.clone(), blocks: self.kept };
        Proposal {
            misfit: judge.form.as_ref().filter(|_| is_last).and_then(|form| form.misfit(&self.text)),
            text: self.text.into(),
            reasoning: (!self.reasoning.is_empty()).then(|| self.reasoning.into()),
            kept: (!kept.blocks.is_empty()).then_some(kept),
            calls: judge.judge_all(self.calls).await,
            usage,
            duration,
            request: Some(Arc::new(request)),
            ..Proposal::new(self.stop.unwrap_or(Stop::Error))
        }
    }
}
