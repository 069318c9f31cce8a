//! Turns an input into the facts that it gives rise to, or a refusal. Changes nothing.
//!
//! The facts of one decision are one append: no log ends between them, so an answer is never of record without its
//! decisions, nor the last result of a turn without what follows from it.

use std::{sync::Arc, time::Duration};

use super::{Input, Phase, Refused, Run, open::Batch};
use crate::domain::{
    event::{Event, Fact, InputClaimed, InputKind, Interrupted, QueuedInput, RunStart, TurnEnd, TurnStart},
    outcome::{Block, Limit, Outcome},
    task::TaskSpec,
    time::Timestamp,
    usage::{Limits, NanoUsd, Usage},
};

mod answer;
mod approval;
mod calls;
mod ending;
mod hold;
mod restart;

use answer::Fault;

/// Facts being drawn up, with what has to be known of the state that they lead to.
struct Draft<'a> {
    run: &'a Run,
    now: Timestamp,
    turn: u32,
    facts: Vec<Fact>,
    /// Usage and counts as they will be.
    usage: Usage,
    answered: u32,
    /// Approvals asked for, as they will be.
    approvals: u32,
    /// The results of this turn, as they will be.
    batch: Batch,
    text: Option<Arc<str>>,
    wall: Duration,
    active: Duration,
}

impl Run {
    /// Returns the facts that `input` gives rise to, or why it is refused. Changes nothing.
    ///
    /// # Errors
    /// The run stands where the input makes no sense; most often, a report that comes too late.
    pub fn decide(&self, input: Input, now: Timestamp) -> Result<Vec<Fact>, Refused> {
        self.decide_while(input, now, Duration::ZERO)
    }

    /// The same while a request is open that waits for its place, or has waited for it: so long, which is no active time.
    /// What is reported of that request says so itself.
    ///
    /// # Errors
    /// As above.
    pub fn decide_while(&self, input: Input, now: Timestamp, waited: Duration) -> Result<Vec<Fact>, Refused> {
        // Time never goes back within a run, whatever the machine's clock does.
        let mut draft = Draft::of(self, now.max(self.last_at));
        draft.active = draft.active.saturating_sub(waited);
        let submits = matches!(input, Input::Submit(_));
        match self.phase {
            Phase::Ended(_) => return Err(self.refusal_at_the_end(&input)),
            Phase::New if !submits => return Err(Refused::OutOfTurn),
            Phase::New | Phase::Queued | Phase::Between | Phase::Thinking { .. } | Phase::Acting(_) => {}
        }
        match input {
            Input::Submit(spec) => draft.submit(spec)?,
            Input::Start { model, tools } => draft.start(model, tools)?,
            Input::Replied { turn, attempt, proposal } => draft.replied(turn, attempt, *proposal)?,
            Input::ModelFailed {
                turn,
                attempt,
                class,
                error,
                retry_after,
                usage,
                waited,
                shown,
                allowed,
                fits,
                parks,
                fallback,
                jitter,
            } => {
                draft.expect_request(turn, attempt)?;
                draft.model_failed(Fault {
                    class,
                    error,
                    retry_after,
                    usage,
                    waited_us: micros(waited),
                    shown,
                    allowed,
                    fits,
                    parks,
                    fallback,
                    jitter,
                });
            }
            Input::RequestSent { turn, attempt, usage } => draft.request_sent(turn, attempt, usage)?,
            Input::OutOfBudget { turn, attempt, limit } => {
                draft.expect_request(turn, attempt)?;
                draft.finish_turn(Outcome::Budget(limit), None);
            }
            Input::Granted { call, change } => draft.granted(call, change)?,
            Input::NotMade(call) => draft.not_made(&call)?,
            Input::Grouped(group) => draft.grouped(group)?,
            Input::AskAgain { call, access, rule, ask } => draft.ask_again(&call, access, rule, ask)?,
            Input::Resolve { approval, answer, command, by } => {
                draft.resolve(approval, answer, command, by)?;
            }
            Input::Expire => draft.expire()?,
            Input::CallEnded(result) => draft.call_ended(result)?,
            Input::Say { when, text, expected_turn, key } => draft.say(when, text, expected_turn, key)?,
            Input::CancelCall(call) => draft.cancel_call(&call)?,
            Input::Pause => draft.pause()?,
            Input::Resume => draft.resume()?,
            Input::Park(reason) => draft.park(reason)?,
            Input::Unpark => draft.unpark()?,
            Input::SetLimits(limits) => draft.set_limits(limits)?,
            Input::End(outcome) => draft.end_early(outcome)?,
            Input::Interrupt => {
                draft.lose_request();
                let waited_us = micros(waited);
                draft.push(Event::Interrupted(Interrupted { waited_us }));
            }
            Input::Restart { cause, error } => draft.restart(cause, error),
            Input::GiveUp { breakage, error } => {
                draft.lose_request();
                draft.give_up(breakage, error);
            }
        }
        Ok(draft.facts)
    }

    fn refusal_at_the_end(&self, input: &Input) -> Refused {
        let before = if let Input::Resolve { approval, answer, command, .. } = input {
            self.resolved_before(*approval, answer, command)
        } else {
            None
        };
        before.unwrap_or(Refused::Ended)
    }
}

impl<'a> Draft<'a> {
    fn of(run: &'a Run, now: Timestamp) -> Self {
        Self {
            run,
            now,
            turn: run.turn,
            facts: Vec::with_capacity(4),
            usage: run.usage,
            answered: run.answered,
            approvals: u32::try_from(run.approvals.len()).unwrap_or(u32::MAX),
            batch: match &run.phase {
                Phase::Acting(calls) => calls.batch.clone(),
                Phase::New | Phase::Queued | Phase::Between | Phase::Thinking { .. } | Phase::Ended(_) => {
                    Batch::default()
                }
            },
            text: None,
            wall: run.wall(now),
            active: run.active(now),
        }
    }

    fn push(&mut self, event: Event) {
        self.facts.push(Fact { at: self.now, turn: self.turn, event });
    }

    fn submit(&mut self, spec: Arc<TaskSpec>) -> Result<(), Refused> {
        if self.run.phase != Phase::New {
            return Err(Refused::OutOfTurn);
        }
        if spec.task.trim().is_empty() {
            return Err(Refused::Empty);
        }
        self.push(Event::Submitted(spec));
        Ok(())
    }

    fn start(&mut self, model: Arc<str>, tools: Vec<Arc<str>>) -> Result<(), Refused> {
        if self.run.phase != Phase::Queued {
            return Err(Refused::OutOfTurn);
        }
        self.push(Event::RunStart(RunStart { model, tools }));
        self.next_turn(None);
        Ok(())
    }

    /// The model has nothing more to ask for: an input is taken up, or the run is done.
    fn follow_up(&mut self) {
        match self.oldest(InputKind::Steer).or_else(|| self.oldest(InputKind::FollowUp)) {
            Some(input) => self.next_turn(Some(input)),
            None => self.end(Outcome::Done, None),
        }
    }

    /// Every call of the turn has its result.
    fn batch_answered(&mut self) {
        self.push(Event::TurnEnd(TurnEnd { calls: self.batch_size() }));
        if let Some(outcome) = self.run.ending {
            return self.end(outcome, None);
        }
        if let Some(failed) = self.batch.failed.take().filter(|_| self.stops_on_tool_error()) {
            let error = format!("call {} failed: {}", failed.call, in_short(&failed.output));
            return self.end(Outcome::Blocked(Block::ToolError), Some(error));
        }
        if self.batch.terminates() {
            return self.end(Outcome::Done, None);
        }
        self.next_turn(self.oldest(InputKind::Steer));
    }

    fn batch_size(&self) -> u32 {
        u32::try_from(self.batch.answered).unwrap_or(u32::MAX)
    }

    fn stops_on_tool_error(&self) -> bool {
        self.run.spec.as_ref().is_some_and(|spec| spec.stop_on_tool_error)
    }

    /// Inputs are taken up one at a time, the oldest of its kind first.
    fn oldest(&self, when: InputKind) -> Option<Event> {
        let input = self.run.inputs.iter().find(|input| input.when == when)?;
        Some(Event::InputClaimed(InputClaimed { input: input.input }))
    }

    /// Begins a turn, in which the model is shown what is `said`, unless a limit forbids one.
    fn next_turn(&mut self, said: Option<Event>) {
        if let Some(limit) = self.reached() {
            return self.end(Outcome::Budget(limit), None);
        }
        if let Some(said) = said {
            self.push(said);
        }
        self.turn += 1;
        self.push(Event::TurnStart(TurnStart {}));
    }

    fn limits(&self) -> Limits {
        self.run.spec.as_ref().map(|spec| spec.limits).unwrap_or_default()
    }

    /// The limit that forbids another turn, if one does.
    fn reached(&self) -> Option<Limit> {
        let limits = self.limits();
        let over = |used: u64, limit: Option<u64>| limit.is_some_and(|limit| used >= limit);
        let checks = [
            (self.turn >= limits.turns(), Limit::Turns),
            (over(self.usage.input, limits.max_input_tokens), Limit::InputTokens),
            (over(self.usage.output, limits.max_output_tokens), Limit::OutputTokens),
            (over(self.usage.total(), limits.max_total_tokens), Limit::TotalTokens),
            (self.cost_is_reached(limits.max_cost_usd), Limit::Cost),
            (limits.wall_time().is_some_and(|limit| self.wall >= limit), Limit::WallTime),
            (limits.active_time().is_some_and(|limit| self.active >= limit), Limit::ActiveTime),
        ];
        checks.into_iter().find_map(|(reached, limit)| reached.then_some(limit))
    }

    fn cost_is_reached(&self, limit: Option<NanoUsd>) -> bool {
        let cost = self.usage.cost.unwrap_or_default();
        limit.is_some_and(|limit| cost >= limit && cost > NanoUsd::default())
    }

    fn set_limits(&mut self, limits: Limits) -> Result<(), Refused> {
        if self.run.ending.is_some() {
            return Err(Refused::Ending);
        }
        if limits.or(self.limits()) == self.limits() {
            return Err(Refused::Unchanged);
        }
        self.push(Event::LimitsSet(limits));
        Ok(())
    }

    fn say(
        &mut self,
        when: InputKind,
        text: Arc<str>,
        expected_turn: Option<u32>,
        key: Option<Arc<str>>,
    ) -> Result<(), Refused> {
        if key.as_ref().is_some_and(|key| self.run.input_keys.contains(key)) {
            return Err(Refused::Unchanged);
        }
        if self.run.ending.is_some() {
            return Err(Refused::Ending);
        }
        if text.trim().is_empty() {
            return Err(Refused::Empty);
        }
        if expected_turn.is_some_and(|turn| turn != self.turn) {
            return Err(Refused::OtherTurn { actual: self.turn });
        }
        let input = self.run.inputs_seen + 1;
        self.push(Event::InputQueued(QueuedInput { input, when, text, key }));
        Ok(())
    }
}

/// As much of a text as there is room for beside others.
fn in_short(text: &str) -> &str {
    const CHARS: usize = 500;
    text.char_indices().nth(CHARS).and_then(|(end, _)| text.get(..end)).unwrap_or(text)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
