//! Going on from wherever a log ends.
//!
//! A read runs again, a change of one file is looked at first, and what else had started is never repeated.

use super::{
    Draft,
    approval::denial,
    ending::{ABORTED, UNKNOWN},
};
use crate::domain::{
    call::{EffectClass, Failure},
    event::{Event, Resolution, Restart, RestartCause, Resumed, Unparked},
    message::Message,
    outcome::Breakage,
    run::{OpenCall, Phase, Stage},
};

const ELSEWHERE: &str = "not executed: the run was taken to another place before it started. Ask again if it is still to be done.";

/// How often herder may die in one turn of a run before the run is held to be the reason.
const CRASHES: u32 = 5;

impl Draft<'_> {
    pub(super) fn restart(&mut self, cause: RestartCause, error: Option<String>) {
        // Nothing of the run was at work since its last sign of life.
        self.active = self.run.active(self.run.alive_at);
        match cause {
            RestartCause::Process | RestartCause::Import => self.wall = self.run.wall(self.run.alive_at),
            RestartCause::Actor => {}
        }
        self.lose_request();
        self.push(Event::Restart(Restart { cause, error }));
        if cause == RestartCause::Import {
            return self.arrive();
        }
        if cause == RestartCause::Process && self.run.living && self.run.crashes + 1 >= CRASHES {
            let error = format!("herder died {CRASHES} times in one turn of this run");
            return self.give_up(Breakage::RestartLimit, error);
        }
        // One without a slot does so when it has one again.
        if self.run.parked.is_none() || self.run.ending.is_some() {
            self.pick_up();
        }
    }

    /// Has nothing of what was about to be done elsewhere be done here: whoever wrote the file could say that it was allowed.
    fn arrive(&mut self) {
        if self.run.parked.is_some() {
            // What is paused stays parked; whoever takes it here pauses it anew.
            if self.run.paused {
                self.push(Event::Resumed(Resumed {}));
            }
            self.push(Event::Unparked(Unparked {}));
        }
        let Phase::Acting(calls) = &self.run.phase else { return self.pick_up() };
        for open in calls.iter() {
            match &open.stage {
                Stage::Answered(_) => {}
                Stage::Asked | Stage::Deciding(_) | Stage::Judged(_) | Stage::Rejected(..) => {
                    self.withdraw(open);
                    self.refuse(&open.call.id, Failure::AbortedBeforeStart, ELSEWHERE);
                }
                Stage::Started(..) | Stage::InDoubt(..) => {
                    self.refuse(&open.call.id, Failure::OutcomeUnknown, UNKNOWN);
                }
            }
        }
        self.batch_answered();
    }

    /// Does what the last append did not come to.
    pub(super) fn pick_up(&mut self) {
        match &self.run.phase {
            Phase::New | Phase::Queued | Phase::Ended(_) => {}
            Phase::Thinking { .. } => {
                if let Some(outcome) = self.run.ending {
                    self.finish_turn(outcome, None);
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
            Some(Message::Assistant(reply)) if reply.calls.is_empty() => self.follow_up(),
            Some(Message::Assistant(_) | Message::Tool(_) | Message::User(_) | Message::System(_)) | None => {
                self.next_turn(None);
            }
        }
    }

    /// Whether it is of record that the call may run, or that somebody is asked. A log may end before, if it was cut off.
    fn is_judged(&self, open: &OpenCall) -> bool {
        let asked = open.asked.as_ref().and_then(|asked| self.run.approval(asked.approval));
        let resolution = asked.map(|asked| asked.resolved.as_ref().map(|resolved| resolved.resolution));
        match open.stage {
            Stage::Asked => false,
            Stage::Deciding(_) => resolution == Some(None),
            Stage::Judged(_) => matches!(resolution, None | Some(Some(Resolution::Approved))),
            Stage::Rejected(..) | Stage::Started(..) | Stage::InDoubt(..) | Stage::Answered(_) => true,
        }
    }

    /// Answers the calls that nobody can or will run again.
    fn settle(&mut self, calls: &[OpenCall]) {
        let ending = self.run.ending.is_some();
        let mut open = false;
        for call in calls {
            match &call.stage {
                Stage::Answered(_) => {}
                Stage::Asked | Stage::Deciding(_) | Stage::Judged(_) if !self.is_judged(call) => {
                    let why = "not executed: interrupted before it was judged";
                    self.refuse(&call.call.id, Failure::AbortedBeforeStart, why);
                }
                Stage::Deciding(_) | Stage::Rejected(..) | Stage::Judged(_) if ending => {
                    self.withdraw(call);
                    self.refuse(&call.call.id, Failure::AbortedBeforeStart, ABORTED);
                }
                Stage::Rejected(_, resolved) => {
                    let why = denial(resolved).unwrap_or_default();
                    self.refuse(&call.call.id, Failure::Denied, &why);
                }
                Stage::Asked | Stage::Deciding(_) | Stage::Judged(_) => open = true,
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
}
