//! Calls that start and end, and the results that they get.

use std::sync::Arc;

use super::{Draft, ending::UNKNOWN};
use crate::domain::{
    call::{Failure, ToolResult},
    event::{CallStarted, Event, FileChange},
    id::CallId,
    run::{OpenCall, Phase, Refused, Stage},
};

const CANCELLED: &str = "aborted before start: the call was cancelled";

impl<'a> Draft<'a> {
    pub(super) fn granted(&mut self, call: CallId, change: Option<FileChange>) -> Result<(), Refused> {
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

    /// Has the decision stand again.
    pub(super) fn not_made(&mut self, call: &CallId) -> Result<(), Refused> {
        let open = self.open_calls()?.iter().find(|open| open.call.id == *call);
        match open.map(|open| &open.stage) {
            Some(Stage::InDoubt(decision, _)) => {
                self.push(Event::Decision(decision.clone()));
                Ok(())
            }
            Some(Stage::Asked | Stage::Judged(_) | Stage::Started(..) | Stage::Answered(_)) | None => {
                Err(Refused::UnknownCall)
            }
        }
    }

    pub(super) fn call_ended(&mut self, result: ToolResult) -> Result<(), Refused> {
        let calls = self.open_calls()?;
        if !calls.iter().any(|open| open.call.id == result.call && !open.is_answered()) {
            return Err(Refused::UnknownCall);
        }
        self.answer(calls, |draft| draft.result(result));
        Ok(())
    }

    /// Has a call that has not started never start.
    pub(super) fn cancel_call(&mut self, call: &CallId) -> Result<(), Refused> {
        let calls = self.open_calls()?;
        let open = calls.iter().find(|open| open.call.id == *call);
        match open.map(|open| &open.stage) {
            Some(Stage::Asked | Stage::Judged(_)) => {
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
    fn answer(&mut self, calls: &[OpenCall], answer: impl FnOnce(&mut Self)) {
        let last = calls.iter().filter(|open| !open.is_answered()).count() == 1;
        self.count_answered(calls);
        answer(self);
        if last {
            self.batch_answered();
        }
    }

    fn open_calls(&self) -> Result<&'a [OpenCall], Refused> {
        match &self.run.phase {
            Phase::Acting(calls) => Ok(calls),
            Phase::New | Phase::Queued | Phase::Between | Phase::Thinking { .. } | Phase::Ended(_) => {
                Err(Refused::UnknownCall)
            }
        }
    }

    pub(super) fn count_answered(&mut self, calls: &[OpenCall]) {
        for open in calls {
            if let Stage::Answered(result) = &open.stage {
                self.batch = (self.batch.0 + 1, self.batch.1 && result.terminate);
            }
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
        self.answered += 1;
        self.batch = (self.batch.0 + 1, self.batch.1 && result.terminate);
        self.push(Event::Result(Arc::new(result)));
    }
}
