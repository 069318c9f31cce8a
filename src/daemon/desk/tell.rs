//! Speaking to runs: ending, holding, steering and retuning them, and looking at one.

use std::sync::Arc;

use super::{By, Desk, batches::dollars, submit::check_key};
use crate::{
    actor::supervisor::AskError,
    app::{
        approvals::name_of_run,
        conversation::chat_completions,
        state::{read_run, rest_lost},
    },
    daemon::wire::{ApiError, Changed, Code, RunDetail, RunPatch, Say, approvals, requests},
    domain::{
        event::InputKind,
        id::{CallId, Seq},
        outcome::Outcome,
        run::{Input, OpenCall, Phase, Refused, Stage},
        usage::Limits,
    },
    store::RunRecord,
};

/// Why something said to a run did not come to it.
pub(super) enum Untold {
    /// The run refuses.
    Refused(Refused),
    /// It cannot be reached.
    Error(ApiError),
}

impl Desk {
    /// Ends a run as cancelled.
    ///
    /// # Errors
    /// There is no such run.
    pub async fn cancel(&self, name: &str, by: &By) -> Result<Changed, ApiError> {
        let record = self.find(name).await?;
        let told = self.tell(&record, Input::End(Outcome::Cancelled)).await;
        let seq = unless(told, &[Refused::Ended, Refused::Ending])?;
        Ok(self.changed(by, "cancel", record.run, seq))
    }

    /// Holds a run before its next request.
    ///
    /// # Errors
    /// There is no such run, or it has ended or is ending.
    pub async fn pause(&self, name: &str, by: &By) -> Result<Changed, ApiError> {
        let record = self.find(name).await?;
        let seq = unless(self.tell(&record, Input::Pause).await, &[Refused::Paused])?;
        Ok(self.changed(by, "pause", record.run, seq))
    }

    /// Lets a paused run go on.
    ///
    /// # Errors
    /// There is no such run, or it has ended or is ending.
    pub async fn resume(&self, name: &str, by: &By) -> Result<Changed, ApiError> {
        let record = self.find(name).await?;
        let seq = unless(self.tell(&record, Input::Resume).await, &[Refused::NotPaused])?;
        Ok(self.changed(by, "resume", record.run, seq))
    }

    /// Says something to a run.
    ///
    /// # Errors
    /// There is no such run, or it does not hear it.
    pub async fn say(
        &self,
        name: &str,
        when: InputKind,
        say: Say,
        key: Option<&str>,
        by: &By,
    ) -> Result<Changed, ApiError> {
        let record = self.find(name).await?;
        let key = key.map(check_key).transpose()?.map(Arc::from);
        let input = Input::Say { when, text: say.text.into(), expected_turn: say.expected_turn, key };
        let seq = unless(self.tell(&record, input).await, &[Refused::Unchanged])?;
        let verb = match when {
            InputKind::Steer => "steer",
            InputKind::FollowUp => "follow-up",
        };
        Ok(self.changed(by, verb, record.run, seq))
    }

    /// Ends one call of a run; the run goes on.
    ///
    /// # Errors
    /// There is no such run, or no such call in it, or it has its result; or the run has no slot, so that nothing can happen to
    /// the call now.
    pub async fn cancel_call(&self, name: &str, call: &str, by: &By) -> Result<Changed, ApiError> {
        let record = self.find(name).await?;
        let call = CallId::new(call);
        match self.tell(&record, Input::CancelCall(call.clone())).await {
            Ok(_) => {}
            Err(Untold::Refused(Refused::UnknownCall)) => {
                return Err(self.not_cancelled(&record, &call).await);
            }
            Err(untold) => return Err(untold.into()),
        }
        self.audit(by, "cancel-call", format!("{} {call}", record.run), true, None);
        Ok(Changed { changed: true, seq: None })
    }

    /// Why a call could not be ended: it is not open, or its run is not at work on it.
    async fn not_cancelled(&self, record: &RunRecord, call: &CallId) -> ApiError {
        let (run, _) = match read_run(&**self.store(), record.run).await {
            Ok(read) => read,
            Err(error) => return error.into(),
        };
        let is_open = |open: &OpenCall| open.call.id == *call && !matches!(open.stage, Stage::Answered(_));
        if matches!(run.phase(), Phase::Acting(calls) if calls.iter().any(is_open)) {
            let what = "has no slot now, so nothing of it is under way; try again once it has one, or cancel the run";
            return ApiError::new(Code::Busy, format!("run {} {what}", record.run));
        }
        let call = call.as_str();
        ApiError::new(Code::UnknownCall, format!("run {} has no open call {call:?}", record.run))
    }

    /// Changes the limits of a run that has not ended.
    ///
    /// # Errors
    /// There is no such run, or it has ended.
    pub async fn retune(&self, name: &str, patch: &RunPatch, by: &By) -> Result<Changed, ApiError> {
        let record = self.find(name).await?;
        let RunPatch { max_turns, max_tool_calls, max_total_tokens, wall_time_s, max_cost_usd } = *patch;
        let max_cost_usd = max_cost_usd.map(dollars).transpose()?;
        let limits = Limits {
            max_turns,
            max_tool_calls,
            max_total_tokens,
            wall_time_s,
            max_cost_usd,
            ..Limits::default()
        };
        if max_turns == Some(0) {
            return Err(ApiError::new(Code::BadRequest, "max_turns: is 0; want at least 1"));
        }
        if max_cost_usd.is_some() && record.end.is_none() {
            self.check_price_of(&record).await?;
        }
        let seq = unless(self.tell(&record, Input::SetLimits(limits)).await, &[Refused::Unchanged])?;
        Ok(self.changed(by, "set", record.run, seq))
    }

    /// A run with everything that is asked for it alone.
    ///
    /// # Errors
    /// There is no such run, or its log cannot be read.
    pub async fn show(&self, name: &str, with_messages: bool) -> Result<RunDetail, ApiError> {
        self.hub.caught_up().await;
        let record = self.find(name).await?;
        let (state, log) = read_run(&**self.store(), record.run).await?;
        let spec = state.spec().ok_or_else(|| ApiError::new(Code::Internal, rest_lost(&record)))?;
        let name = name_of_run(&**self.store(), &state).await?;
        let kept = record.end.as_ref().and_then(|_| self.change(record.run)?.kept);
        Ok(RunDetail {
            isolate: Some(spec.isolate.as_str().to_owned()),
            kept,
            run: self.view(&record, &self.keepers().await),
            task: spec.task.to_string(),
            workspace: spec.workspace.to_string(),
            parent: spec.parent.map(|parent| parent.to_string()),
            max_turns: spec.limits.turns(),
            events: state.seq().get(),
            text: record.end.as_ref().map(|end| end.text.to_string()),
            requests: requests(&log),
            approvals: approvals(&state, &name, &log).into_iter().map(|detail| detail.approval).collect(),
            messages: with_messages.then(|| chat_completions(spec, state.history())),
        })
    }

    /// Tells a run something that it has not ended for. One that nobody has taken up is taken up first.
    pub(super) async fn tell(&self, record: &RunRecord, input: Input) -> Result<Seq, Untold> {
        if record.end.is_some() {
            return Err(Untold::Refused(Refused::Ended));
        }
        let supervisor = &self.herder.supervisor;
        match supervisor.ask(record.run, input.clone()).await {
            Err(AskError::NoSuchRun) => {}
            asked => return asked.map_err(Untold::from),
        }
        // It has ended meanwhile, or nobody could take it up.
        self.open()?;
        if let Err(why) = self.take_up_one(record).await {
            if !matches!(input, Input::End(_)) {
                return Err(why.into());
            }
            // To be ended it need not be able to go on.
            return Ok(self.abandon(record).await?);
        }
        match supervisor.ask(record.run, input).await {
            Err(AskError::NoSuchRun) if self.find(&record.run.to_string()).await?.end.is_none() => {
                // It was taken up and is not there: nothing is kept any more.
                Err(ApiError::new(Code::Unavailable, "the daemon is stopping").into())
            }
            asked => asked.map_err(Untold::from),
        }
    }

    /// Ends a run that nobody works on.
    async fn abandon(&self, record: &RunRecord) -> Result<Seq, ApiError> {
        self.batches.abandon(record.run).await?;
        let log = self.store().read(record.run, Seq::START).await?;
        Ok(log.last().map_or(Seq::START, |last| last.seq))
    }
}

/// Where a change is of record; nothing if it was so already, which these refusals say.
fn unless(told: Result<Seq, Untold>, so_already: &[Refused]) -> Result<Option<u64>, ApiError> {
    match told {
        Ok(seq) => Ok(Some(seq.get())),
        Err(Untold::Refused(refused)) if so_already.contains(&refused) => Ok(None),
        Err(untold) => Err(untold.into()),
    }
}

impl From<AskError> for Untold {
    fn from(error: AskError) -> Self {
        match error {
            AskError::Refused(refused) => Self::Refused(refused),
            AskError::NoSuchRun => Self::Refused(Refused::Ended),
            AskError::NotLive => Self::Refused(Refused::UnknownCall),
            AskError::Store(error) => Self::Error(error.into()),
        }
    }
}

impl From<ApiError> for Untold {
    fn from(error: ApiError) -> Self {
        Self::Error(error)
    }
}

impl From<Untold> for ApiError {
    fn from(untold: Untold) -> Self {
        match untold {
            Untold::Refused(refused) => Self::new(refused_as(refused), refused.to_string()),
            Untold::Error(error) => error,
        }
    }
}

/// A refusal of a run by its code.
pub(super) const fn refused_as(refused: Refused) -> Code {
    match refused {
        Refused::Ended => Code::Ended,
        Refused::Ending => Code::Ending,
        Refused::OtherTurn { .. } => Code::OtherTurn,
        Refused::UnknownCall => Code::UnknownCall,
        Refused::NoApproval => Code::UnknownApproval,
        Refused::Resolved(_) => Code::Resolved,
        Refused::Empty => Code::InvalidInput,
        Refused::Paused
        | Refused::NotPaused
        | Refused::Unchanged
        | Refused::StaleRequest
        | Refused::CallStarted
        | Refused::OutOfTurn => Code::Busy,
    }
}
