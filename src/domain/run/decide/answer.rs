//! The model's answer, or its failure: what is done about it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use super::{Draft, in_short, micros};
use crate::domain::{
    budget::MIN_TOKENS,
    call::{Failure, ToolCall},
    context,
    event::{
        Correction, Decision, Event, ModelRetry, ModelSwitched, ParkReason, RequestLost, RequestSent, TurnEnd,
    },
    id::CallId,
    message::Reply,
    outcome::{Block, FaultClass, Limit, Outcome, Stop},
    policy::Verdict,
    retry,
    run::{Judgement, Phase, Proposal, ProposedCall, Refused, repeats::Failing},
    task::OnTruncated,
    usage::{Usage, estimated_tokens},
};

/// How a request failed, and what can be done about it.
pub(super) struct Fault {
    pub(super) class: FaultClass,
    pub(super) error: String,
    pub(super) retry_after: Option<Duration>,
    /// What it may have used up all the same.
    pub(super) usage: Option<Usage>,
    /// Microseconds that it waited for its place before it went out.
    pub(super) waited_us: u64,
    /// Bytes of the conversation that the model was shown.
    pub(super) shown: usize,
    /// Tokens that its answer might have had.
    pub(super) allowed: Option<u32>,
    /// Whether what it was shown is within the model's window by itself.
    pub(super) fits: bool,
    /// What the run waits for without a slot.
    pub(super) parks: Option<ParkReason>,
    /// The model that can go on.
    pub(super) fallback: Option<Arc<str>>,
    pub(super) jitter: f64,
}

/// What is less about the next request than about one that was too long.
enum Shorter {
    /// Bytes of the conversation that the model is shown at most.
    Shown(u64),
    /// Tokens that its answer may have at most.
    Answer(u32),
}

impl Fault {
    fn new(class: FaultClass, error: &str) -> Self {
        let error = error.to_owned();
        Self {
            class,
            error,
            retry_after: None,
            usage: None,
            waited_us: 0,
            shown: 0,
            allowed: None,
            fits: false,
            parks: None,
            fallback: None,
            jitter: 0.5,
        }
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
        let Proposal {
            text,
            reasoning,
            kept,
            calls,
            misfit,
            stop,
            usage,
            duration,
            waited,
            request,
            fallback,
        } = proposal;
        self.active = self.active.saturating_sub(waited);
        let says_nothing =
            text.trim().is_empty() && calls.is_empty() && usage.is_none_or(|usage| usage.total() == 0);
        let fault = match stop {
            Stop::Error => Some("the model's answer broke off with an error"),
            Stop::EndTurn | Stop::ToolCalls if says_nothing => Some("the model's answer was empty"),
            Stop::EndTurn | Stop::ToolCalls | Stop::Length | Stop::Refusal => None,
        };
        if let Some(error) = fault {
            self.model_failed(Fault {
                usage,
                waited_us: micros(waited),
                fallback,
                ..Fault::new(FaultClass::Transient, error)
            });
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
            waited_us: micros(waited),
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
                if self.goes_on_though_cut() && !reply.calls.is_empty() {
                    self.batch_answered();
                } else {
                    self.finish_turn(Outcome::Blocked(Block::Truncated), None);
                }
            }
            Stop::Refusal => {
                for call in &reply.calls {
                    self.refuse(&call.id, Failure::Denied, "not executed: the model's answer was withheld");
                }
                self.finish_turn(Outcome::Blocked(Block::Refusal), None);
            }
            Stop::ToolCalls | Stop::EndTurn | Stop::Error if reply.calls.is_empty() => {
                self.answered_for_good(misfit.as_deref());
            }
            Stop::ToolCalls | Stop::EndTurn | Stop::Error => self.act(&reply.calls, judgements),
        }
        Ok(())
    }

    /// Gives every call an id that is unique in the run; a provider's id that is not, or is missing, is replaced.
    fn name_calls(&self, proposed: Vec<ProposedCall>) -> (Vec<ToolCall>, Vec<Judgement>) {
        let mut calls: Vec<ToolCall> = Vec::with_capacity(proposed.len());
        let mut named = BTreeSet::new();
        // How often an id came before: where the search for a free one goes on.
        let mut taken_of: BTreeMap<Arc<str>, u64> = BTreeMap::new();
        let mut judgements = Vec::with_capacity(proposed.len());
        for (index, ProposedCall { id, name, arguments, judgement }) in proposed.into_iter().enumerate() {
            let id = id.filter(|id| !id.trim().is_empty());
            let base = id.clone().unwrap_or_else(|| format!("call_{}_{}", self.turn, index + 1).into());
            let count = taken_of.entry(base.clone()).or_insert(1);
            let mut unique = CallId::new(base.clone());
            while self.run.call_ids.contains(&unique) || named.contains(&unique) {
                *count += 1;
                unique = CallId::new(format!("{base}_{count}"));
            }
            named.insert(unique.clone());
            let provider_id = id.filter(|id| **id != *unique.as_str());
            calls.push(ToolCall { id: unique, provider_id, name: tool_name(name), arguments });
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
        let (at_once, repeats) = (self.limits().calls_per_turn(), self.limits().repeats());
        let mut open = false;
        for (place, (call, judgement)) in (0..).zip(calls.iter().zip(judgements)) {
            if place >= at_once {
                let why = format!(
                    "not executed: over the limit of {at_once} calls in one answer; ask again for it in a later one"
                );
                self.refuse(&call.id, Failure::OverLimit, &why);
                continue;
            }
            let failing = self.run.repeats.of(&call.name, &call.arguments);
            if let Some(Failing { times, error, .. }) = failing.filter(|failing| failing.times >= repeats) {
                let why = format!(
                    "not executed: this call has failed {times} times in a row and would fail again. Do something else. \
                     What it was told last: {}",
                    in_short(error)
                );
                self.refuse(&call.id, Failure::Repeated, &why);
                continue;
            }
            match judgement {
                Judgement::Refused { failure, why } => self.refuse(&call.id, failure, &why),
                Judgement::Judged { verdict, rule, effect, access, ask } => {
                    let denial = verdict.denial(&rule);
                    let ask = ask.map(|ask| (rule.clone(), access.clone(), ask));
                    let decision = Decision { call: call.id.clone(), verdict, rule, effect, access };
                    self.push(Event::Decision(Arc::new(decision)));
                    match (denial, ask) {
                        (None, _) => open = true,
                        (Some(_), Some((rule, access, ask))) if verdict == Verdict::Ask => {
                            self.ask_people(&call.id, rule, access, ask);
                            open = true;
                        }
                        (Some(why), _) => self.refuse(&call.id, Failure::Denied, &why),
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
        let shorter = self.shorter(&fault);
        let Fault { class, error, retry_after, usage, waited_us, parks, fallback, jitter, .. } = fault;
        let fallback = fallback.filter(|to| retry::another_may_do(class) && !self.run.models.contains(to));
        // Who can go on elsewhere waits for nobody for long.
        let parks = parks.filter(|_| fallback.is_none());
        let is_long = retry_after.is_some_and(|wait| wait > retry::PATIENCE);
        self.usage += usage.unwrap_or_default();
        self.active = self.active.saturating_sub(Duration::from_micros(waited_us));
        let tries = tries + u32::from(retry::uses_a_try(class) && parks.is_none());
        let delay = match (parks, &shorter) {
            (Some(_), _) => Some(retry_after.unwrap_or_default()),
            (None, Some(_)) => Some(Duration::ZERO),
            (None, None) if is_long && fallback.is_some() => None,
            (None, None) => retry::delay(class, tries, attempt, retry_after, jitter),
        };
        match (delay, fallback, self.run.model()) {
            (Some(delay), ..) => {
                let not_before = self.now.after(delay);
                let (shown_at_most, max_tokens) = match shorter {
                    Some(Shorter::Shown(bytes)) => (Some(bytes), None),
                    Some(Shorter::Answer(tokens)) => (None, Some(tokens)),
                    None => (None, None),
                };
                let retry = ModelRetry {
                    attempt,
                    class,
                    error,
                    not_before,
                    waited_us,
                    shown_at_most,
                    max_tokens,
                    usage,
                };
                self.push(Event::ModelRetry(retry));
            }
            (None, Some(to), Some(from)) => {
                let from = from.clone();
                self.push(Event::ModelSwitched(ModelSwitched { from, to, class, error, usage, waited_us }));
            }
            (None, ..) => {
                if let Some(usage) = usage {
                    self.push(Event::RequestLost(RequestLost { usage }));
                }
                self.finish_turn(Outcome::ProviderError(class), Some(error));
            }
        }
    }

    pub(super) fn request_sent(&mut self, turn: u32, attempt: u32, usage: Usage) -> Result<(), Refused> {
        self.expect_request(turn, attempt)?;
        if self.run.out.is_some() {
            return Err(Refused::OutOfTurn);
        }
        self.push(Event::RequestSent(RequestSent { attempt, usage }));
        Ok(())
    }

    /// Nobody will hear the answer to the open request any more. If it went out, it may have used something up.
    pub(super) fn lose_request(&mut self) {
        if let Some(usage) = self.run.out {
            self.usage += usage;
            self.push(Event::RequestLost(RequestLost { usage }));
        }
    }

    /// What is changed about a request that was too long, if anything can be: the same is never sent again.
    fn shorter(&self, fault: &Fault) -> Option<Shorter> {
        if fault.class != FaultClass::ContextOverflow {
            return None;
        }
        let answer = || {
            let less = fault.allowed.filter(|tokens| *tokens > MIN_TOKENS)? / 4;
            Some(Shorter::Answer(less.max(MIN_TOKENS)))
        };
        let shown = || self.narrower(fault.shown).map(Shorter::Shown);
        if fault.fits { answer().or_else(shown) } else { shown().or_else(answer) }
    }

    /// Half of what was too long, once a turn and if something can be left out.
    fn narrower(&self, shown: usize) -> Option<u64> {
        let run = self.run;
        if run.narrowed.is_some_and(|narrowed| narrowed.turn == run.turn) {
            return None;
        }
        let bytes = shown / 2;
        let less = context::narrow(run.spec.as_ref()?, &run.history, bytes);
        (less.bytes < shown).then(|| u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    /// Whether the model gets another chance after an answer that was cut, as the task may allow so often in a row.
    fn goes_on_though_cut(&self) -> bool {
        const IN_A_ROW: u32 = 2;
        let retries = self.run.spec.as_ref().is_some_and(|spec| spec.on_truncated == OnTruncated::Retry);
        retries && self.run.truncated < IN_A_ROW
    }

    /// The model has nothing more to ask for. An answer that is not of its form is to be mended first.
    fn answered_for_good(&mut self, misfit: Option<&str>) {
        const CORRECTIONS: u32 = 2;
        self.push(Event::TurnEnd(TurnEnd { calls: 0 }));
        match misfit {
            None => self.follow_up(),
            Some(why) if self.run.corrections < CORRECTIONS => {
                let text = format!(
                    "Your answer is not of the form that it must have: {why}\n\nAnswer again, with the whole JSON and \
                     nothing else: no words around it."
                );
                self.next_turn(Some(Event::Correction(Correction { text: text.into() })));
            }
            Some(why) => self.end(Outcome::Blocked(Block::Format), Some(why.to_owned())),
        }
    }
}

/// The name in a form that every server takes back. One that has to be changed for that names no tool.
fn tool_name(name: Arc<str>) -> Arc<str> {
    const LONGEST: usize = 64;
    let fits = |char: char| char.is_ascii_alphanumeric() || matches!(char, '_' | '-');
    if (1..=LONGEST).contains(&name.len()) && name.chars().all(fits) {
        return name;
    }
    let name: String =
        name.trim().chars().take(LONGEST).map(|char| if fits(char) { char } else { '_' }).collect();
    if name.is_empty() { "unnamed".into() } else { name.into() }
}
