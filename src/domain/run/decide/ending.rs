//! The ways out of a run.

use std::sync::Arc;

use super::{Draft, micros};
use crate::domain::{
    call::Failure,
    event::{CancelRequested, Event, RunEnd, TurnEnd},
    form::bare_json,
    message::Message,
    outcome::{Breakage, Outcome},
    run::{OpenCall, Phase, Refused, Run, Stage},
};

pub(super) const ABORTED: &str = "aborted before start: the run was ended";

pub(super) const UNKNOWN: &str = "outcome unknown: interrupted. The call had started; whether it took effect is not \
known, and it was not repeated. Check before you do it again.";

impl Draft<'_> {
    /// Asks for the end. What has not started never will; what has is waited for.
    pub(super) fn end_early(&mut self, outcome: Outcome) -> Result<(), Refused> {
        if self.run.ending.is_some() {
            return Err(Refused::Ending);
        }
        self.lose_request();
        self.push(Event::CancelRequested(CancelRequested { outcome }));
        match &self.run.phase {
            Phase::Acting(calls) => {
                self.abort_unstarted(calls);
                if !calls.iter().any(OpenCall::is_started) {
                    self.finish_turn(outcome, None);
                }
            }
            Phase::Thinking { .. } => self.finish_turn(outcome, None),
            Phase::New | Phase::Queued | Phase::Between | Phase::Ended(_) => self.end(outcome, None),
        }
        Ok(())
    }

    fn abort_unstarted(&mut self, calls: &[OpenCall]) {
        for open in calls {
            match &open.stage {
                Stage::Asked | Stage::Deciding(_) | Stage::Rejected(..) | Stage::Judged(_) => {
                    self.withdraw(open);
                    self.refuse(&open.call.id, Failure::AbortedBeforeStart, ABORTED);
                }
                Stage::InDoubt(..) => self.refuse(&open.call.id, Failure::OutcomeUnknown, UNKNOWN),
                Stage::Started(..) | Stage::Answered(_) => {}
            }
        }
    }

    /// Ends at once, whatever runs.
    pub(super) fn give_up(&mut self, breakage: Breakage, error: String) {
        let outcome = Outcome::Failed(breakage);
        match &self.run.phase {
            Phase::Acting(calls) => {
                self.abort_unstarted(calls);
                for open in calls.iter().filter(|open| open.is_started()) {
                    self.refuse(&open.call.id, Failure::OutcomeUnknown, UNKNOWN);
                }
                self.finish_turn(outcome, Some(error));
            }
            Phase::Thinking { .. } => self.finish_turn(outcome, Some(error)),
            Phase::New | Phase::Queued | Phase::Between | Phase::Ended(_) => self.end(outcome, Some(error)),
        }
    }

    pub(super) fn finish_turn(&mut self, outcome: Outcome, error: Option<String>) {
        self.push(Event::TurnEnd(TurnEnd { calls: self.batch_size() }));
        self.end(outcome, error);
    }

    /// The one way out: every run ends here.
    pub(super) fn end(&mut self, outcome: Outcome, error: Option<String>) {
        let run = self.run;
        let text = self.text.take().or_else(|| run.last_text()).unwrap_or_default();
        let has_form =
            outcome == Outcome::Done && run.spec.as_ref().is_some_and(|spec| spec.response_format.is_some());
        let text = if has_form { bare_json(&text).into() } else { text };
        let started = run.started_at.unwrap_or(self.now);
        let end = RunEnd {
            outcome,
            text,
            error,
            turns: self.turn,
            calls: self.answered,
            usage: self.usage,
            queued_us: micros(started.since(run.submitted_at)),
            duration_us: micros(self.wall),
            active_us: micros(self.active),
        };
        self.push(Event::RunEnd(Box::new(end)));
    }
}

impl Run {
    fn last_text(&self) -> Option<Arc<str>> {
        let before = self.spec.as_ref().map_or(0, |spec| spec.before.len());
        self.history.iter().skip(before).rev().find_map(|message| match message {
            Message::Assistant(reply) => Some(reply.text.clone()).filter(|text| !text.trim().is_empty()),
            Message::System(_) | Message::User(_) | Message::Tool(_) => None,
        })
    }
}
