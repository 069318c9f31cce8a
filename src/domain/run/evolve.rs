//! Folds facts into a run. Total: a fact once written is never refused.

use std::sync::Arc;

use super::{Approval, Narrowed, OpenCall, OpenCalls, Phase, Run, Stage};
use crate::domain::{
    call::{EffectClass, ToolResult},
    event::{
        ApprovalRequested, ApprovalResolved, CallStarted, Decision, Event, Fact, ModelRetry, ModelSwitched,
        ParkReason, Resolution, RestartCause,
    },
    id::{CallId, Seq},
    message::{Message, Reply},
    outcome::Stop,
    policy::Verdict,
    retry,
    task::TaskSpec,
    time::Timestamp,
    usage::Limits,
};

impl Run {
    /// Folds one fact in.
    pub fn evolve(&mut self, fact: &Fact) {
        let at = fact.at;
        if !matches!(fact.event, Event::Restart(_) | Event::RequestSent(_) | Event::RequestLost(_)) {
            self.idle_restarts.clear();
        }
        match &fact.event {
            Event::Submitted(spec) => {
                self.submitted_at = at;
                self.take_on(spec);
            }
            Event::RunStart(start) => {
                self.started_at = Some(at);
                self.models = vec![start.model.clone()];
                self.phase = Phase::Between;
            }
            Event::TurnStart(_) => {
                self.turn = fact.turn;
                self.phase = Phase::Thinking { attempt: 1, tries: 0, not_before: at };
                self.activity.begin(at);
            }
            Event::Message(reply) => {
                self.activity.end(at);
                self.activity.leave_out(reply.waited_us);
                self.hear(reply);
            }
            Event::Decision(decision) => self.judge(decision),
            Event::ApprovalRequested(request) => self.ask_people(request, at),
            Event::ApprovalResolved(resolved) => self.resolve(resolved),
            Event::CommandGroup(group) => {
                if let Some(open) = self.open_call(&group.call) {
                    open.group = Some(group.clone());
                }
            }
            Event::CallStarted(started) => {
                if self.start(started) {
                    self.activity.begin(at);
                }
            }
            Event::Result(result) => {
                if self.answer(result) {
                    self.activity.end(at);
                }
            }
            Event::TurnEnd(_) => self.phase = Phase::Between,
            Event::InputQueued(input) => {
                self.inputs_seen = input.input;
                self.input_keys.extend(input.key.clone());
                self.inputs.push_back(input.clone());
            }
            Event::InputClaimed(claimed) => {
                if let Some(index) = self.inputs.iter().position(|input| input.input == claimed.input)
                    && let Some(input) = self.inputs.remove(index)
                {
                    self.corrections = 0;
                    self.say(input.text);
                }
            }
            Event::ModelRetry(retry) => self.retry(retry, at),
            Event::RequestSent(sent) => self.out = Some(sent.usage),
            Event::RequestLost(lost) => {
                self.usage += lost.usage;
                self.out = None;
            }
            Event::ModelSwitched(switched) => self.switch(switched, at),
            Event::Correction(correction) => {
                self.corrections += 1;
                self.say(correction.text.clone());
            }
            Event::CancelRequested(requested) => self.ending = Some(requested.outcome),
            Event::LimitsSet(limits) => self.set_limits(*limits),
            Event::Paused(_) => self.paused = true,
            Event::Resumed(_) => self.paused = false,
            Event::Parked(parked) => {
                // Its request has not gone out: all of it was waiting.
                self.activity.call_off();
                self.parked = Some(parked.reason);
            }
            Event::Unparked(_) => {
                if let Some(ParkReason::Quota | ParkReason::Auth) = self.parked.take()
                    && let Phase::Thinking { not_before, .. } = &mut self.phase
                {
                    // A person has seen to it before the time that the server named.
                    *not_before = (*not_before).min(at);
                }
                self.think_on(at);
            }
            Event::Interrupted(interrupted) => {
                self.activity.stop(at);
                self.activity.leave_out(interrupted.waited_us);
            }
            Event::Restart(restart) => {
                if restart.cause == RestartCause::Import {
                    self.foreign_approvals = self.approvals.len();
                }
                self.activity.stop(self.alive_at);
                self.idle_restarts.push(at);
                self.doubt();
                self.think_on(at);
            }
            Event::RunEnd(end) => {
                self.activity.end_at(end.active_us);
                self.inputs.clear();
                self.out = None;
                (self.paused, self.parked) = (false, None);
                self.phase = Phase::Ended(end.outcome);
            }
        }
        self.live(fact);
        self.last_at = at;
        self.seq = self.seq.plus(1);
    }

    /// Folds a whole log in.
    pub fn replay<'a>(id: crate::domain::id::RunId, log: impl IntoIterator<Item = &'a Fact>) -> Self {
        let mut run = Self::new(id);
        for fact in log {
            run.evolve(fact);
        }
        run
    }

    /// The place of the next fact.
    pub const fn next_seq(&self) -> Seq {
        self.seq.plus(1)
    }

    /// The open request is sent again.
    fn think_on(&mut self, at: Timestamp) {
        if let Phase::Thinking { not_before, .. } = self.phase
            && self.parked.is_none()
        {
            self.activity.begin(at.max(not_before));
        }
    }

    /// Counts the time since the last sign of life, unless nobody was there to live through it, and what was not lived
    /// through.
    fn live(&mut self, fact: &Fact) {
        if !fact.event.is_sign_of_life() {
            return;
        }
        let was_down = matches!(&fact.event, Event::Restart(restart) if restart.cause != RestartCause::Actor);
        if matches!(fact.event, Event::TurnEnd(_)) {
            self.crashes = 0;
        }
        self.crashes += u32::from(self.living && was_down);
        if self.living && !was_down {
            self.lived += fact.at.since(self.alive_at);
        }
        let stops = matches!(fact.event, Event::Interrupted(_) | Event::RunEnd(_));
        self.living = self.started_at.is_some() && self.parked.is_none() && !stops;
        self.alive_at = fact.at;
    }

    /// What the change does not name stays.
    fn set_limits(&mut self, limits: Limits) {
        if let Some(spec) = &mut self.spec {
            let limits = limits.or(spec.limits);
            Arc::make_mut(spec).limits = limits;
        }
    }

    fn take_on(&mut self, spec: &Arc<TaskSpec>) {
        self.phase = Phase::Queued;
        self.spec = Some(spec.clone());
        for message in &spec.before {
            if let Message::Assistant(reply) = message {
                self.call_ids.extend(reply.calls.iter().map(|call| call.id.clone()));
            }
            self.remember(message.clone());
        }
        self.say(spec.task.clone());
    }

    fn say(&mut self, text: Arc<str>) {
        self.remember(Message::User(text));
    }

    fn remember(&mut self, message: Message) {
        self.history_bytes += message.bytes();
        self.history.push(message);
    }

    fn hear(&mut self, reply: &Arc<Reply>) {
        self.replies += 1;
        self.usage += reply.usage;
        self.out = None;
        let is_cut = reply.stop == Stop::Length && !reply.calls.is_empty();
        self.truncated = if is_cut { self.truncated + 1 } else { 0 };
        if !reply.text.trim().is_empty() || !reply.calls.is_empty() {
            self.remember(Message::Assistant(reply.clone()));
        }
        self.call_ids.extend(reply.calls.iter().map(|call| call.id.clone()));
        self.phase =
            if reply.calls.is_empty() { Phase::Between } else { Phase::Acting(OpenCalls::of(&reply.calls)) };
    }

    fn open_call(&mut self, id: &CallId) -> Option<&mut OpenCall> {
        match &mut self.phase {
            Phase::Acting(calls) => calls.get_mut(id),
            Phase::New | Phase::Queued | Phase::Between | Phase::Thinking { .. } | Phase::Ended(_) => None,
        }
    }

    fn open_calls(&mut self) -> Option<&mut OpenCalls> {
        match &mut self.phase {
            Phase::Acting(calls) => Some(calls),
            Phase::New | Phase::Queued | Phase::Between | Phase::Thinking { .. } | Phase::Ended(_) => None,
        }
    }

    fn judge(&mut self, decision: &Arc<Decision>) {
        let Some(calls) = self.open_calls() else { return };
        let in_doubt = calls.get(&decision.call).is_some_and(|open| matches!(open.stage, Stage::InDoubt(..)));
        // A log may end before what else was decided: nothing runs that nobody has allowed.
        let stage = match decision.verdict {
            Verdict::Allow => Stage::Judged(decision.clone()),
            Verdict::Ask if in_doubt => Stage::Judged(decision.clone()),
            Verdict::Ask => Stage::Deciding(decision.clone()),
            Verdict::Deny => Stage::Asked,
        };
        calls.set(&decision.call, stage);
    }

    fn ask_people(&mut self, request: &Arc<ApprovalRequested>, at: Timestamp) {
        self.approvals.push(Approval { request: request.clone(), at, answered: None, resolved: None });
        let Some(calls) = self.open_calls() else { return };
        let Some(open) = calls.get_mut(&request.call) else { return };
        open.asked = Some(request.clone());
        open.times_asked += 1;
        if let Some(decision) = open.stage.decision() {
            // It may touch something else than when it was judged.
            let (access, rule) = (request.access.clone(), request.rule.clone());
            let decision = Arc::new(Decision { access, rule, ..(**decision).clone() });
            calls.set(&request.call, Stage::Deciding(decision));
        }
    }

    fn resolve(&mut self, resolved: &Arc<ApprovalResolved>) {
        let place = usize::try_from(resolved.approval).unwrap_or(usize::MAX).wrapping_sub(1);
        if let Some(approval) = self.approvals.get_mut(place) {
            if resolved.command.is_some() {
                approval.answered = Some(resolved.clone());
            }
            approval.resolved = Some(resolved.clone());
        }
        let Some(calls) = self.open_calls() else { return };
        let Some(Stage::Deciding(decision)) = calls.get(&resolved.call).map(|open| &open.stage) else {
            return;
        };
        let decision = decision.clone();
        let stage = match resolved.resolution {
            Resolution::Approved => Stage::Judged(decision),
            Resolution::Rejected | Resolution::Expired => Stage::Rejected(decision, resolved.clone()),
            // What comes of the call is in the same append.
            Resolution::Superseded | Resolution::Withdrawn => return,
        };
        calls.set(&resolved.call, stage);
    }

    fn start(&mut self, started: &CallStarted) -> bool {
        let Some(open) = self.open_call(&started.call) else { return false };
        match &open.stage {
            Stage::Judged(decision) | Stage::InDoubt(decision, _) => {
                open.stage = Stage::Started(decision.clone(), started.change.clone());
                true
            }
            Stage::Asked
            | Stage::Deciding(_)
            | Stage::Rejected(..)
            | Stage::Started(..)
            | Stage::Answered(_) => false,
        }
    }

    /// Whether the call had been started.
    fn answer(&mut self, result: &Arc<ToolResult>) -> bool {
        let Phase::Acting(calls) = &mut self.phase else { return false };
        let Some(was) = calls.answer(result) else { return false };
        let effect = match &was {
            Stage::Started(decision, _) | Stage::InDoubt(decision, _) => Some(decision.effect),
            Stage::Asked
            | Stage::Deciding(_)
            | Stage::Rejected(..)
            | Stage::Judged(_)
            | Stage::Answered(_) => None,
        };
        if let Some(open) = calls.get(&result.call) {
            self.repeats.take(&open.call, effect, result);
        }
        self.answered += 1;
        self.show_results();
        matches!(was, Stage::Started(..))
    }

    /// The model is shown results in the order in which it asked, whenever they came.
    fn show_results(&mut self) {
        if !matches!(&self.phase, Phase::Acting(calls) if calls.unanswered() == 0) {
            return;
        }
        if let Phase::Acting(calls) = std::mem::replace(&mut self.phase, Phase::Between) {
            calls.into_results().for_each(|result| self.remember(Message::Tool(result)));
        }
    }

    fn switch(&mut self, switched: &ModelSwitched, at: Timestamp) {
        self.replies += 1;
        self.usage += switched.usage.unwrap_or_default();
        self.models.push(switched.to.clone());
        // What one model does not bear, another may.
        (self.narrowed, self.answer_at_most, self.out) = (None, None, None);
        if let Phase::Thinking { attempt, tries, not_before } = &mut self.phase {
            (*attempt, *tries, *not_before) = (*attempt + 1, 0, at);
        }
        self.activity.end(at);
        self.activity.leave_out(switched.waited_us);
        self.activity.begin(at);
    }

    fn retry(&mut self, retry: &ModelRetry, at: Timestamp) {
        self.replies += 1;
        self.usage += retry.usage.unwrap_or_default();
        self.out = None;
        self.answer_at_most = retry.max_tokens.or(self.answer_at_most);
        self.activity.end(at);
        self.activity.leave_out(retry.waited_us);
        self.activity.begin(retry.not_before);
        if let Some(bytes) = retry.shown_at_most {
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            self.narrowed = Some(Narrowed { bytes, turn: self.turn });
            // Beside less there is room again.
            self.answer_at_most = None;
        }
        if let Phase::Thinking { attempt, tries, not_before } = &mut self.phase {
            *attempt = retry.attempt + 1;
            let in_its_slot = retry.not_before.since(at) <= retry::PATIENCE;
            *tries += u32::from(retry::uses_a_try(retry.class) && in_its_slot);
            *not_before = retry.not_before;
        }
    }

    /// What was started by somebody who is gone is in doubt, except a read, which may simply be run again.
    fn doubt(&mut self) {
        let Phase::Acting(calls) = &mut self.phase else { return };
        for open in calls.iter_mut() {
            let Stage::Started(decision, change) = &open.stage else { continue };
            match (decision.effect, change) {
                (EffectClass::Write, Some(change)) => {
                    open.stage = Stage::InDoubt(decision.clone(), change.clone())
                }
                (EffectClass::Read, _) => open.stage = Stage::Judged(decision.clone()),
                // The decision to restart answers these in the same append.
                (EffectClass::Write, None) | (EffectClass::Outside, _) => {}
            }
        }
    }
}
