//! Calls that a person decides about.
//!
//! What was approved is one call, once, on what it touched and changed when it was asked about. A call that would do
//! anything else by the time that it starts is asked about again. An answer is taken once: again by its own name it is the
//! same answer, by another it is one too many.

use std::sync::Arc;

use super::Draft;
use crate::domain::{
    call::{Access, Failure},
    event::{ApprovalRequested, ApprovalResolved, Event, Fact, Resolution},
    id::CallId,
    run::{Answer, Ask, OpenCall, Refused, Run, Stage},
    time::Timestamp,
};

/// How often a person is asked about one call that keeps being something else.
const TIMES: u32 = 3;

const UNANSWERED: &str = "denied: nobody approved of it in time";

impl Run {
    /// Why this answer is not taken, or not again, if the approval was resolved before.
    pub fn resolved_before(&self, approval: u32, answer: &Answer, command: &str) -> Option<Refused> {
        let approval = self.approval(approval)?;
        let resolved = approval.resolved.as_ref()?;
        // Also of one that was not used, since the call had become something else.
        let is_same = approval.answered.as_ref().is_some_and(|answered| {
            answered.command.as_deref() == Some(command)
                && match (answer, answered.resolution) {
                    (Answer::Approve(grant), Resolution::Approved) => *grant == answered.grant,
                    (Answer::Reject(reason), Resolution::Rejected) => *reason == answered.reason,
                    (Answer::Approve(_) | Answer::Reject(_), _) => false,
                }
        });
        Some(if is_same { Refused::Unchanged } else { Refused::Resolved(resolved.resolution) })
    }

    /// As [`Input::Resolve`](super::Input::Resolve), of a run that nobody works on: it hears of the answer when somebody does.
    ///
    /// # Errors
    /// There is no such approval, or it was resolved before.
    pub fn resolve_unattended(
        &self,
        approval: u32,
        answer: Answer,
        command: Arc<str>,
        by: Option<Arc<str>>,
        now: Timestamp,
    ) -> Result<Vec<Fact>, Refused> {
        let mut draft = Draft::of(self, now.max(self.last_at));
        let resolved = draft.answered(approval, answer, command, by)?;
        draft.push(Event::ApprovalResolved(Arc::new(resolved)));
        Ok(draft.facts)
    }

    /// Denies what people have yet to decide about, of a run that nobody works on yet and where nobody will be there to ask.
    pub fn deny_unattended(&self, now: Timestamp) -> Vec<Fact> {
        let mut draft = Draft::of(self, now.max(self.last_at));
        let open = self.open_approvals().filter(|_| self.ending.is_none());
        open.for_each(|asked| draft.push(resolution(asked, Resolution::Expired)));
        draft.facts
    }
}

impl Draft<'_> {
    /// Has a person decide about a call that was judged so.
    pub(super) fn ask_people(&mut self, call: &CallId, rule: String, access: Vec<Access>, ask: Ask) {
        self.approvals += 1;
        let Ask { change, preview, expires_at } = ask;
        let (approval, call) = (self.approvals, call.clone());
        let request = ApprovalRequested { approval, call, rule, access, change, preview, expires_at };
        self.push(Event::ApprovalRequested(Arc::new(request)));
    }

    /// The call is not, or no longer, what was approved.
    pub(super) fn ask_again(
        &mut self,
        call: &CallId,
        access: Vec<Access>,
        rule: String,
        ask: Ask,
    ) -> Result<(), Refused> {
        if self.run.ending.is_some() {
            return Err(Refused::Ending);
        }
        let calls = self.open_calls()?;
        let open = calls.get(call).ok_or(Refused::UnknownCall)?;
        match &open.stage {
            Stage::Judged(_) => {}
            Stage::Asked
            | Stage::Deciding(_)
            | Stage::Rejected(..)
            | Stage::Started(..)
            | Stage::InDoubt(..)
            | Stage::Answered(_) => return Err(Refused::UnknownCall),
        }
        // What was approved will not be done, and the approval serves for nothing else.
        if let Some(asked) = &open.asked {
            self.push(resolution(asked, Resolution::Superseded));
        }
        if open.times_asked < TIMES {
            self.ask_people(call, rule, access, ask);
        } else {
            let why = format!("denied: {rule}, and what it would change keeps changing");
            self.answer(calls, |draft| draft.refuse(call, Failure::Denied, &why));
        }
        Ok(())
    }

    pub(super) fn resolve(
        &mut self,
        approval: u32,
        answer: Answer,
        command: Arc<str>,
        by: Option<Arc<str>>,
    ) -> Result<(), Refused> {
        let resolved = self.answered(approval, answer, command, by)?;
        self.settle_approval(resolved);
        Ok(())
    }

    fn answered(
        &self,
        approval: u32,
        answer: Answer,
        command: Arc<str>,
        by: Option<Arc<str>>,
    ) -> Result<ApprovalResolved, Refused> {
        let asked = self.run.approval(approval).ok_or(Refused::NoApproval)?;
        if let Some(refused) = self.run.resolved_before(approval, &answer, &command) {
            return Err(refused);
        }
        if self.run.ending.is_some() {
            return Err(Refused::Ending);
        }
        // Whoever is to say so may not have come to it.
        if asked.request.expires_at.is_some_and(|at| at <= self.now) {
            return Err(Refused::Resolved(Resolution::Expired));
        }
        let (resolution, reason, grant) = match answer {
            Answer::Approve(grant) => (Resolution::Approved, None, grant),
            Answer::Reject(reason) => (Resolution::Rejected, reason, None),
        };
        let (call, command) = (asked.request.call.clone(), Some(command));
        Ok(ApprovalResolved { approval, call, resolution, command, by, reason, grant })
    }

    /// Denies what nobody has answered in time.
    pub(super) fn expire(&mut self) -> Result<(), Refused> {
        let late = |at: Timestamp| at <= self.now;
        let expired: Vec<_> = self
            .run
            .open_approvals()
            .filter(|asked| asked.expires_at.is_some_and(late))
            .map(|asked| resolved(asked, Resolution::Expired))
            .collect();
        if expired.is_empty() {
            return Err(Refused::Unchanged);
        }
        expired.into_iter().for_each(|resolved| self.settle_approval(resolved));
        Ok(())
    }

    /// A run without a slot hears of it when it has one again.
    fn settle_approval(&mut self, resolved: ApprovalResolved) {
        let denial = denial(&resolved);
        let call = resolved.call.clone();
        self.push(Event::ApprovalResolved(Arc::new(resolved)));
        if let (Some(why), Ok(calls)) = (denial, self.open_calls())
            && self.run.parked.is_none()
        {
            self.answer(calls, |draft| draft.refuse(&call, Failure::Denied, &why));
        }
    }

    /// Nobody needs to decide about the call any more.
    pub(super) fn withdraw(&mut self, open: &OpenCall) {
        if let (Stage::Deciding(_), Some(asked)) = (&open.stage, &open.asked)
            && self.run.approval(asked.approval).is_some_and(|approval| approval.resolved.is_none())
        {
            self.push(resolution(asked, Resolution::Withdrawn));
        }
    }
}

fn resolution(asked: &ApprovalRequested, resolution: Resolution) -> Event {
    Event::ApprovalResolved(Arc::new(resolved(asked, resolution)))
}

fn resolved(asked: &ApprovalRequested, resolution: Resolution) -> ApprovalResolved {
    let (approval, call) = (asked.approval, asked.call.clone());
    ApprovalResolved { approval, call, resolution, command: None, by: None, reason: None, grant: None }
}

/// What a model is told of a call that a person, or the time, has decided against.
pub(super) fn denial(resolved: &ApprovalResolved) -> Option<String> {
    match resolved.resolution {
        Resolution::Rejected => Some(match &resolved.reason {
            None => "denied: a person rejected it".to_owned(),
            Some(reason) => format!("denied: a person rejected it: {reason}"),
        }),
        Resolution::Expired => Some(UNANSWERED.to_owned()),
        Resolution::Approved | Resolution::Superseded | Resolution::Withdrawn => None,
    }
}
