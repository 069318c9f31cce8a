//! Turns an input into the facts that it gives rise to, or a refusal. Changes nothing.

use std::{sync::Arc, time::Duration};

use super::{Input, Judgement, OpenCall, Phase, Proposal, ProposedCall, Refused, Run, Stage};
use crate::domain::{
    call::{EffectClass, Failure, ToolCall, ToolResult},
    event::{
        CallStarted, CancelRequested, Decision, Event, Fact, FileChange, InputClaimed, InputKind,
        Interrupted, ModelRetry, QueuedInput, Restart, RestartCause, RunEnd, RunStart, TurnEnd, TurnStart,
    },
    id::CallId,
    message::{Message, Reply},
    outcome::{Block, Breakage, FaultClass, Limit, Outcome, Stop},
    policy::Verdict,
    retry,
    task::TaskSpec,
    time::Timestamp,
    usage::{Usage, estimated_tokens},
};

/// Facts being drawn up, with what has to be known of the state that they lead to.
struct Draft<'a> {
    run: &'a Run,
    now: Timestamp,
    turn: u32,
    facts: Vec<Fact>,
    /// Usage and counts as they will be.
    usage: Usage,
    answered: u32,
    /// Calls of this turn that will be answered, and whether all of them ask for the end.
    batch: (u32, bool),
    text: Option<Arc<str>>,
    active: Duration,
}

impl Run {
    /// Returns the facts that `input` gives rise to, or why it is refused. Changes nothing.
    ///
    /// # Errors
    /// The run stands where the input makes no sense; most often, a report that comes too late.
    pub fn decide(&self, input: Input, now: Timestamp) -> Result<Vec<Fact>, Refused> {
        // Time never goes back within a run, whatever the machine's clock does.
        let mut draft = Draft::of(self, now.max(self.last_at));
        let submits = matches!(input, Input::Submit(_));
        match self.phase {
            Phase::Ended(_) => return Err(Refused::Ended),
            Phase::New if !submits => return Err(Refused::OutOfTurn),
            Phase::New | Phase::Queued | Phase::Between | Phase::Thinking { .. } | Phase::Acting(_) => {}
        }
        match input {
            Input::Submit(spec) => draft.submit(spec)?,
            Input::Start { model, tools } => draft.start(model, tools)?,
            Input::Replied { turn, attempt, proposal } => draft.replied(turn, attempt, *proposal)?,
            Input::ModelFailed { turn, attempt, class, error, retry_after, jitter } => {
                draft.expect_request(turn, attempt)?;
                draft.model_failed(class, error, retry_after, jitter);
            }
            Input::Granted { call, change } => draft.granted(call, change)?,
            Input::CallEnded(result) => draft.call_ended(result)?,
            Input::Say { when, text, expected_turn } => draft.say(when, text, expected_turn)?,
            Input::End(outcome) => draft.end_early(outcome)?,
            Input::Interrupt => draft.push(Event::Interrupted(Interrupted {})),
            Input::Restart { cause, error } => draft.restart(cause, error),
            Input::GiveUp { breakage, error } => draft.give_up(breakage, error),
        }
        Ok(draft.facts)
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
            batch: (0, true),
            text: None,
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

    fn expect_request(&self, turn: u32, attempt: u32) -> Result<(), Refused> {
        match self.run.phase {
            Phase::Thinking { attempt: open, .. } if turn == self.run.turn && attempt == open => Ok(()),
            Phase::New
            | Phase::Queued
            | Phase::Between
            | Phase::Thinking { .. }
            | Phase::Acting(_)
            | Phase::Ended(_) => Err(Refused::StaleRequest),
        }
    }

    fn replied(&mut self, turn: u32, attempt: u32, proposal: Proposal) -> Result<(), Refused> {
        self.expect_request(turn, attempt)?;
        let Proposal { text, reasoning, calls, stop, usage, duration } = proposal;
        let says_nothing =
            text.trim().is_empty() && calls.is_empty() && usage.is_none_or(|usage| usage.total() == 0);
        let fault = match stop {
            Stop::Error => Some("the model's answer broke off with an error"),
            Stop::EndTurn | Stop::ToolCalls if says_nothing => Some("the model's answer was empty"),
            Stop::EndTurn | Stop::ToolCalls | Stop::Length | Stop::Refusal => None,
        };
        if let Some(error) = fault {
            self.model_failed(FaultClass::Transient, error.to_owned(), None, 0.5);
            return Ok(());
        }
        let (calls, judgements) = self.name_calls(calls);
        let mut reply = Reply {
            text,
            reasoning,
            calls,
            stop,
            usage: usage.unwrap_or_default(),
            duration_us: micros(duration),
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
                self.finish_turn_as(Outcome::Blocked(Block::Truncated));
            }
            Stop::Refusal => {
                for call in &reply.calls {
                    self.refuse(&call.id, Failure::Denied, "not executed: the model's answer was withheld");
                }
                self.finish_turn_as(Outcome::Blocked(Block::Refusal));
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
            self.finish_turn_as(Outcome::Budget(Limit::ToolCalls));
            return;
        }
        let mut open = false;
        for (call, judgement) in calls.iter().zip(judgements) {
            match judgement {
                Judgement::Refused { failure, why } => self.refuse(&call.id, failure, &why),
                Judgement::Judged { verdict, rule, effect, access } => {
                    let denial = match verdict {
                        Verdict::Allow => None,
                        Verdict::Ask => Some(format!("denied: {rule}, and nobody is there to ask")),
                        Verdict::Deny => Some(format!("denied: {rule}")),
                    };
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

    fn refuse(&mut self, call: &CallId, failure: Failure, why: &str) {
        self.result(ToolResult {
            call: call.clone(),
            ok: false,
            output: why.into(),
            failure: Some(failure),
            terminate: false,
            timing: None,
        });
    }

    fn result(&mut self, result: ToolResult) {
        self.answered += 1;
        self.batch = (self.batch.0 + 1, self.batch.1 && result.terminate);
        self.push(Event::Result(Arc::new(result)));
    }

    /// `class` failed the open request.
    fn model_failed(&mut self, class: FaultClass, error: String, retry_after: Option<Duration>, jitter: f64) {
        let Phase::Thinking { attempt, tries, .. } = self.run.phase else { return };
        let tries = tries + u32::from(class != FaultClass::RateLimit);
        match retry::delay(class, tries, attempt, retry_after, jitter) {
            Some(delay) => {
                let not_before = self.now.after(delay);
                self.push(Event::ModelRetry(ModelRetry { attempt, class, error, not_before }));
            }
            None => {
                self.push(Event::TurnEnd(TurnEnd { calls: 0 }));
                self.end(Outcome::ProviderError(class), Some(error));
            }
        }
    }

    fn granted(&mut self, call: CallId, change: Option<FileChange>) -> Result<(), Refused> {
        if self.run.ending.is_some() {
            return Err(Refused::Ending);
        }
        let stage = self.open_calls()?.iter().find(|open| open.call.id == call).map(|open| &open.stage);
        match stage {
            Some(Stage::Judged(_) | Stage::InDoubt(..)) => {
                self.push(Event::CallStarted(CallStarted { call, change }));
                Ok(())
            }
            Some(Stage::Asked | Stage::Started(..) | Stage::Answered(_)) | None => Err(Refused::UnknownCall),
        }
    }

    fn call_ended(&mut self, result: ToolResult) -> Result<(), Refused> {
        let calls = self.open_calls()?;
        if !calls.iter().any(|open| open.call.id == result.call && !open.is_answered()) {
            return Err(Refused::UnknownCall);
        }
        let last = calls.iter().filter(|open| !open.is_answered()).count() == 1;
        self.count_answered(calls);
        self.result(result);
        if last {
            self.batch_answered();
        }
        Ok(())
    }

    fn open_calls(&self) -> Result<&'a [OpenCall], Refused> {
        match &self.run.phase {
            Phase::Acting(calls) => Ok(calls),
            Phase::New | Phase::Queued | Phase::Between | Phase::Thinking { .. } | Phase::Ended(_) => {
                Err(Refused::UnknownCall)
            }
        }
    }

    fn count_answered(&mut self, calls: &[OpenCall]) {
        for open in calls {
            if let Stage::Answered(result) = &open.stage {
                self.batch = (self.batch.0 + 1, self.batch.1 && result.terminate);
            }
        }
    }

    /// The model has nothing more to ask for: a follow-up is taken up, or the run is done.
    fn answered_for_good(&mut self) {
        self.push(Event::TurnEnd(TurnEnd { calls: 0 }));
        self.follow_up();
    }

    fn follow_up(&mut self) {
        match self.oldest(InputKind::Steer).or_else(|| self.oldest(InputKind::FollowUp)) {
            Some(input) => self.next_turn(Some(input)),
            None => self.end(Outcome::Done, None),
        }
    }

    /// Every call of the turn has its result.
    fn batch_answered(&mut self) {
        let (calls, terminate) = self.batch;
        self.push(Event::TurnEnd(TurnEnd { calls }));
        if let Some(outcome) = self.run.ending {
            return self.end(outcome, None);
        }
        if terminate && calls > 0 {
            return self.end(Outcome::Done, None);
        }
        self.next_turn(self.oldest(InputKind::Steer));
    }

    fn finish_turn_as(&mut self, outcome: Outcome) {
        self.push(Event::TurnEnd(TurnEnd { calls: self.batch.0 }));
        self.end(outcome, None);
    }

    /// Inputs are taken up one at a time, the oldest of its kind first.
    fn oldest(&self, when: InputKind) -> Option<InputClaimed> {
        let input = self.run.inputs.iter().find(|input| input.when == when)?;
        Some(InputClaimed { input: input.input })
    }

    /// Begins a turn, in which the model is shown `input`, unless a limit forbids one.
    fn next_turn(&mut self, input: Option<InputClaimed>) {
        if let Some(limit) = self.reached() {
            return self.end(Outcome::Budget(limit), None);
        }
        if let Some(input) = input {
            self.push(Event::InputClaimed(input));
        }
        self.turn += 1;
        self.push(Event::TurnStart(TurnStart {}));
    }

    fn limits(&self) -> crate::domain::usage::Limits {
        self.run.spec.as_ref().map(|spec| spec.limits).unwrap_or_default()
    }

    /// The limit that forbids another turn, if one does.
    fn reached(&self) -> Option<Limit> {
        let limits = self.limits();
        let over = |used: u64, limit: Option<u64>| limit.is_some_and(|limit| used >= limit);
        let wall = self.run.started_at.map(|at| self.now.since(at));
        let checks = [
            (self.turn >= limits.turns(), Limit::Turns),
            (over(self.usage.input, limits.max_input_tokens), Limit::InputTokens),
            (over(self.usage.output, limits.max_output_tokens), Limit::OutputTokens),
            (over(self.usage.total(), limits.max_total_tokens), Limit::TotalTokens),
            (limits.wall_time().zip(wall).is_some_and(|(limit, wall)| wall >= limit), Limit::WallTime),
            (limits.active_time().is_some_and(|limit| self.active >= limit), Limit::ActiveTime),
        ];
        checks.into_iter().find_map(|(reached, limit)| reached.then_some(limit))
    }

    fn say(&mut self, when: InputKind, text: Arc<str>, expected_turn: Option<u32>) -> Result<(), Refused> {
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
        self.push(Event::InputQueued(QueuedInput { input, when, text }));
        Ok(())
    }

    /// Asks for the end. What has not started never will; what has is waited for.
    fn end_early(&mut self, outcome: Outcome) -> Result<(), Refused> {
        if self.run.ending.is_some() {
            return Err(Refused::Ending);
        }
        self.push(Event::CancelRequested(CancelRequested { outcome }));
        match &self.run.phase {
            Phase::Acting(calls) => {
                self.abort_unstarted(calls);
                if !calls.iter().any(OpenCall::is_started) {
                    self.finish_turn_as(outcome);
                }
            }
            Phase::Thinking { .. } => self.finish_turn_as(outcome),
            Phase::New | Phase::Queued | Phase::Between | Phase::Ended(_) => self.end(outcome, None),
        }
        Ok(())
    }

    fn abort_unstarted(&mut self, calls: &[OpenCall]) {
        self.count_answered(calls);
        for open in calls {
            match &open.stage {
                Stage::Asked | Stage::Judged(_) => {
                    self.refuse(
                        &open.call.id,
                        Failure::AbortedBeforeStart,
                        "aborted before start: the run was ended",
                    );
                }
                Stage::InDoubt(..) => self.refuse(&open.call.id, Failure::OutcomeUnknown, UNKNOWN),
                Stage::Started(..) | Stage::Answered(_) => {}
            }
        }
    }

    /// Goes on from wherever the log ends.
    fn restart(&mut self, cause: RestartCause, error: Option<String>) {
        // Whatever was at work when herder stopped has not been since.
        self.active = self.run.active(self.run.last_at);
        self.push(Event::Restart(Restart { cause, error }));
        match &self.run.phase {
            Phase::New | Phase::Queued | Phase::Ended(_) => {}
            Phase::Thinking { .. } => {
                if let Some(outcome) = self.run.ending {
                    self.finish_turn_as(outcome);
                }
            }
            Phase::Between => self.go_on(),
            Phase::Acting(calls) => self.settle(calls),
        }
    }

    fn go_on(&mut self) {
        if let Some(outcome) = self.run.ending {
            return self.end(outcome, None);
        }
        match self.run.history.last() {
            Some(Message::Assistant(reply)) if reply.calls.is_empty() => {
                self.follow_up();
            }
            Some(Message::Assistant(_) | Message::Tool(_) | Message::User(_) | Message::System(_)) | None => {
                self.next_turn(None);
            }
        }
    }

    /// Answers the calls that nobody can or will run again.
    fn settle(&mut self, calls: &[OpenCall]) {
        self.count_answered(calls);
        let ending = self.run.ending.is_some();
        let mut open = false;
        for call in calls {
            match &call.stage {
                Stage::Answered(_) => {}
                Stage::Asked => {
                    let why = "not executed: herder stopped before the call was judged";
                    self.refuse(&call.call.id, Failure::AbortedBeforeStart, why);
                }
                Stage::Judged(_) if ending => {
                    self.refuse(
                        &call.call.id,
                        Failure::AbortedBeforeStart,
                        "aborted before start: the run was ended",
                    );
                }
                Stage::Judged(_) => open = true,
                Stage::Started(decision, change) => {
                    let can_tell = match decision.effect {
                        EffectClass::Read => true,
                        EffectClass::Write => change.is_some(),
                        EffectClass::Outside => false,
                    };
                    if can_tell && !ending {
                        open = true;
                    } else {
                        self.refuse(&call.call.id, Failure::OutcomeUnknown, UNKNOWN);
                    }
                }
                Stage::InDoubt(..) if ending => self.refuse(&call.call.id, Failure::OutcomeUnknown, UNKNOWN),
                Stage::InDoubt(..) => open = true,
            }
        }
        if !open {
            self.batch_answered();
        }
    }

    fn give_up(&mut self, breakage: Breakage, error: String) {
        match &self.run.phase {
            Phase::Acting(calls) => {
                self.abort_unstarted(calls);
                for open in calls.iter().filter(|open| open.is_started()) {
                    self.refuse(&open.call.id, Failure::OutcomeUnknown, UNKNOWN);
                }
                self.push(Event::TurnEnd(TurnEnd { calls: self.batch.0 }));
            }
            Phase::Thinking { .. } => self.push(Event::TurnEnd(TurnEnd { calls: 0 })),
            Phase::New | Phase::Queued | Phase::Between | Phase::Ended(_) => {}
        }
        self.end(Outcome::Failed(breakage), Some(error));
    }

    /// The one way out: every run ends here.
    fn end(&mut self, outcome: Outcome, error: Option<String>) {
        let run = self.run;
        let text = self.text.take().or_else(|| run.last_text()).unwrap_or_default();
        let started = run.started_at.unwrap_or(self.now);
        let end = RunEnd {
            outcome,
            text,
            error,
            turns: self.turn,
            calls: self.answered,
            usage: self.usage,
            queued_us: micros(started.since(run.submitted_at)),
            duration_us: micros(self.now.since(started)),
            active_us: micros(self.active),
        };
        self.push(Event::RunEnd(Box::new(end)));
    }
}

const UNKNOWN: &str = "outcome unknown: interrupted. The call had started when herder stopped; whether it took effect is \
not known, and it was not repeated. Check before you do it again.";

impl Run {
    fn last_text(&self) -> Option<Arc<str>> {
        self.history.iter().rev().find_map(|message| match message {
            Message::Assistant(reply) => Some(reply.text.clone()).filter(|text| !text.trim().is_empty()),
            Message::System(_) | Message::User(_) | Message::Tool(_) => None,
        })
    }

    /// Calls of the running turn that wait for a lock, a permit or an actor.
    pub fn waiting_calls(&self) -> impl Iterator<Item = &ToolCall> {
        let calls = match &self.phase {
            Phase::Acting(calls) => calls.as_slice(),
            Phase::New | Phase::Queued | Phase::Between | Phase::Thinking { .. } | Phase::Ended(_) => &[],
        };
        calls.iter().filter(|open| matches!(open.stage, Stage::Judged(_))).map(|open| &open.call)
    }

    /// Whether a call of the run may be taking effect right now.
    pub fn is_acting(&self) -> bool {
        match &self.phase {
            Phase::Acting(calls) => calls.iter().any(OpenCall::is_started),
            Phase::New | Phase::Queued | Phase::Between | Phase::Thinking { .. } | Phase::Ended(_) => false,
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
