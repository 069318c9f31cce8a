//! The model's answer, or its failure: what is done about it.

use std::{sync::Arc, time::Duration};

use super::{Draft, micros};
use crate::domain::{
    call::{Failure, ToolCall},
    event::{Decision, Event, ModelRetry, ModelSwitched, ParkReason, RequestLost, TurnEnd},
    id::CallId,
    message::Reply,
    outcome::{Block, FaultClass, Limit, Outcome, Stop},
    retry,
    run::{Judgement, Phase, Proposal, ProposedCall, Refused},
    usage::{Usage, estimated_tokens},
};

/// How a request failed, and what can be done about it.
pub(super) struct Fault {
    pub(super) class: FaultClass,
    pub(super) error: String,
    pub(super) retry_after: Option<Duration>,
    /// What it may have used up all the same.
    pub(super) usage: Option<Usage>,
    /// What the run waits for without a slot.
    pub(super) parks: Option<ParkReason>,
    /// The model that can go on.
    pub(super) fallback: Option<Arc<str>>,
    pub(super) jitter: f64,
}

impl Fault {
    fn new(class: FaultClass, error: &str) -> Self {
        let error = error.to_owned();
        Self { class, error, retry_after: None, usage: None, parks: None, fallback: None, jitter: 0.5 }
    }
}

impl Draft<'_> {
    pub(super) fn expect_request(&self, turn: u32, attempt: u32) -> Result<(), Refused> {
        match self.run.phase {
            Phase::Thinking { attempt: open, .. }
                if turn == self.run.turn && attempt == open && self.run.parked.is_none() =>
            {
                Ok(())
            }
            Phase::New
            | Phase::Queued
            | Phase::Between
            | Phase::Thinking { .. }
            | Phase::Acting(_)
            | Phase::Ended(_) => Err(Refused::StaleRequest),
        }
    }

    pub(super) fn replied(&mut self, turn: u32, attempt: u32, proposal: Proposal) -> Result<(), Refused> {
        self.expect_request(turn, attempt)?;
        let Proposal { text, reasoning, kept, calls, misfit: _, stop, usage, duration, request } = proposal;
        let says_nothing =
            text.trim().is_empty() && calls.is_empty() && usage.is_none_or(|usage| usage.total() == 0);
        let fault = match stop {
            Stop::Error => Some("the model's answer broke off with an error"),
            Stop::EndTurn | Stop::ToolCalls if says_nothing => Some("the model's answer was empty"),
            Stop::EndTurn | Stop::ToolCalls | Stop::Length | Stop::Refusal => None,
        };
        if let Some(error) = fault {
            self.model_failed(Fault { usage, ..Fault::new(FaultClass::Transient, error) });
            return Ok(());
        }
        let (calls, judgements) = self.name_calls(calls);
        let mut reply = Reply {
            text,
            reasoning,
            kept,
            calls,
            stop,
            usage: usage.unwrap_or_default(),
            duration_us: micros(duration),
            request,
        };
        if usage.is_none() {
            let (input, output) = (estimated_tokens(self.run.history_bytes), estimated_tokens(reply.bytes()));
            reply.usage = Usage { input, output, estimated: true, ..Usage::default() };
        }
        let reply = Arc::new(reply);
        self.usage += reply.usage;
        self.text = Some(reply.text.clone());
        self.push(Event::Message(reply.clone()));
        match stop {
            Stop::Length => {
                for call in &reply.calls {
                    let why = "not executed: the reply was cut at its length limit, so nothing of it was run";
                    self.refuse(&call.id, Failure::Truncated, why);
                }
                self.finish_turn(Outcome::Blocked(Block::Truncated), None);
            }
            Stop::Refusal => {
                for call in &reply.calls {
                    self.refuse(&call.id, Failure::Denied, "not executed: the model's answer was withheld");
                }
                self.finish_turn(Outcome::Blocked(Block::Refusal), None);
            }
            Stop::ToolCalls | Stop::EndTurn | Stop::Error if reply.calls.is_empty() => {
                self.answered_for_good()
            }
            Stop::ToolCalls | Stop::EndTurn | Stop::Error => self.act(&reply.calls, judgements),
        }
        Ok(())
    }

    /// Gives every call an id that is unique in the run; a provider's id that is not, or is missing, is replaced.
    fn name_calls(&self, proposed: Vec<ProposedCall>) -> (Vec<ToolCall>, Vec<Judgement>) {
        let mut calls: Vec<ToolCall> = Vec::with_capacity(proposed.len());
        let mut judgements = Vec::with_capacity(proposed.len());
        for (index, ProposedCall { id, name, arguments, judgement }) in proposed.into_iter().enumerate() {
            let id = id.filter(|id| !id.is_empty());
            let base = id.clone().unwrap_or_else(|| format!("call_{}_{}", self.turn, index + 1).into());
            let taken =
                |id: &CallId| self.run.call_ids.contains(id) || calls.iter().any(|call| call.id == *id);
            let unique = std::iter::once(CallId::new(base.clone()))
                .chain((2_u64..).map(|n| CallId::new(format!("{base}_{n}"))))
                .find(|id| !taken(id))
                .unwrap_or_else(|| CallId::new(base.clone()));
            let provider_id = id.filter(|id| **id != *unique.as_str());
            calls.push(ToolCall { id: unique, provider_id, name, arguments });
            judgements.push(judgement);
        }
        (calls, judgements)
    }

    fn act(&mut self, calls: &[ToolCall], judgements: Vec<Judgement>) {
        let asked = self.answered.saturating_add(u32::try_from(calls.len()).unwrap_or(u32::MAX));
        if self.limits().max_tool_calls.is_some_and(|limit| asked > limit) {
            for call in calls {
                self.refuse(
                    &call.id,
                    Failure::Denied,
                    "not executed: the run's limit of tool calls is reached",
                );
            }
            self.finish_turn(Outcome::Budget(Limit::ToolCalls), None);
            return;
        }
        let mut open = false;
        for (call, judgement) in calls.iter().zip(judgements) {
            match judgement {
                Judgement::Refused { failure, why } => self.refuse(&call.id, failure, &why),
                Judgement::Judged { verdict, rule, effect, access } => {
                    let denial = verdict.denial(&rule);
                    let decision = Decision { call: call.id.clone(), verdict, rule, effect, access };
                    self.push(Event::Decision(Arc::new(decision)));
                    match denial {
                        None => open = true,
                        Some(why) => self.refuse(&call.id, Failure::Denied, &why),
                    }
                }
            }
        }
        if !open {
            self.batch_answered();
        }
    }

    /// The open request failed: it is sent again, by itself or to another model, or the run ends.
    pub(super) fn model_failed(&mut self, fault: Fault) {
        let Phase::Thinking { attempt, tries, .. } = self.run.phase else { return };
        let Fault { class, error, retry_after, usage, parks, fallback, jitter } = fault;
        self.usage += usage.unwrap_or_default();
        let tries = tries + u32::from(retry::uses_a_try(class));
        let delay = match parks {
            Some(_) => Some(retry_after.unwrap_or_default()),
            None => retry::delay(class, tries, attempt, retry_after, jitter),
        };
        match (delay, fallback, self.run.model()) {
            (Some(delay), ..) => {
                let not_before = self.now.after(delay);
                self.push(Event::ModelRetry(ModelRetry { attempt, class, error, not_before, usage }));
            }
            (None, Some(to), Some(from)) => {
                let from = from.clone();
                self.push(Event::ModelSwitched(ModelSwitched { from, to, class, error, usage }));
            }
            (None, ..) => {
                if let Some(usage) = usage {
                    self.push(Event::RequestLost(RequestLost { usage }));
                }
                self.finish_turn(Outcome::ProviderError(class), Some(error));
            }
        }
    }

    /// Nobody waits for the open request any more.
    pub(super) fn request_lost(&mut self, usage: Usage) -> Result<(), Refused> {
        if !matches!(self.run.phase, Phase::Thinking { .. }) {
            return Err(Refused::StaleRequest);
        }
        self.push(Event::RequestLost(RequestLost { usage }));
        Ok(())
    }

    fn answered_for_good(&mut self) {
        self.push(Event::TurnEnd(TurnEnd { calls: 0 }));
        self.follow_up();
    }
}
