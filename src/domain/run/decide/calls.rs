//! Calls that start and end, and the results that they get.

use std::sync::Arc;

use super::{Draft, ending::UNKNOWN};
use crate::domain::{
    call::{Failure, ToolResult},
    event::{CallStarted, CommandGroup, Event, FileChange},
    id::CallId,
    run::{OpenCall, OpenCalls, Phase, Refused, Stage},
};

const CANCELLED: &str = "aborted before start: the call was cancelled";

impl<'a> Draft<'a> {
    pub(super) fn granted(&mut self, call: CallId, change: Option<FileChange>) -> Result<(), Refused> {
        if self.run.ending.is_some() {
            return Err(Refused::Ending);
        }
        let stage = self.open_calls()?.get(&call).map(|open| &open.stage);
        match stage {
            Some(Stage::Judged(_) | Stage::InDoubt(..)) => {
                self.push(Event::CallStarted(CallStarted { call, change }));
                Ok(())
            }
            Some(
                Stage::Asked
                | Stage::Deciding(_)
                | Stage::Rejected(..)
                | Stage::Started(..)
                | Stage::Answered(_),
            )
            | None => Err(Refused::UnknownCall),
        }
    }

    /// The call's processes are known.
    pub(super) fn grouped(&mut self, group: CommandGroup) -> Result<(), Refused> {
        match self.open_calls()?.get(&group.call) {
            Some(open) if open.is_started() => {
                self.push(Event::CommandGroup(group));
                Ok(())
            }
            Some(_) | None => Err(Refused::UnknownCall),
        }
    }

    /// Has the decision stand again.
    pub(super) fn not_made(&mut self, call: &CallId) -> Result<(), Refused> {
        let open = self.open_calls()?.get(call);
        match open.map(|open| &open.stage) {
            Some(Stage::InDoubt(decision, _)) => {
                self.push(Event::Decision(decision.clone()));
                Ok(())
            }
            Some(
                Stage::Asked
                | Stage::Deciding(_)
                | Stage::Rejected(..)
                | Stage::Judged(_)
                | Stage::Started(..)
                | Stage::Answered(_),
            )
            | None => Err(Refused::UnknownCall),
        }
    }

    pub(super) fn call_ended(&mut self, result: ToolResult) -> Result<(), Refused> {
        let calls = self.open_calls()?;
        if calls.get(&result.call).is_none_or(OpenCall::is_answered) {
            return Err(Refused::UnknownCall);
        }
        self.answer(calls, |draft| draft.result(result));
        Ok(())
    }

    /// Has a call that has not started never start.
    pub(super) fn cancel_call(&mut self, call: &CallId) -> Result<(), Refused> {
        let calls = self.open_calls()?;
        let open = calls.get(call);
        match open.map(|open| &open.stage) {
            Some(Stage::Asked | Stage::Deciding(_) | Stage::Rejected(..) | Stage::Judged(_)) => {
                open.into_iter().for_each(|open| self.withdraw(open));
                self.answer(calls, |draft| draft.refuse(call, Failure::AbortedBeforeStart, CANCELLED));
                Ok(())
            }
            Some(Stage::InDoubt(..)) => {
                self.answer(calls, |draft| draft.refuse(call, Failure::OutcomeUnknown, UNKNOWN));
                Ok(())
            }
            Some(Stage::Started(..)) => Err(Refused::CallStarted),
            Some(Stage::Answered(_)) | None => Err(Refused::UnknownCall),
        }
    }

    /// One of the open calls is answered, maybe the last.
    pub(super) fn answer(&mut self, calls: &OpenCalls, answer: impl FnOnce(&mut Self)) {
        answer(self);
        if self.batch.answered == calls.len() {
            self.batch_answered();
        }
    }

    /// The calls that something may happen to: nothing does as long as the run has no slot.
    pub(super) fn open_calls(&self) -> Result<&'a OpenCalls, Refused> {
        match &self.run.phase {
            Phase::Acting(calls) if self.run.parked.is_none() => Ok(calls),
            Phase::New
            | Phase::Queued
            | Phase::Between
            | Phase::Thinking { .. }
            | Phase::Acting(_)
            | Phase::Ended(_) => Err(Refused::UnknownCall),
        }
    }

    pub(super) fn refuse(&mut self, call: &CallId, failure: Failure, why: &str) {
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
        let result = Arc::new(result);
        self.answered += 1;
        self.batch.count(&result);
        self.push(Event::Result(result));
    }
}
