//! Single runs: submitted, ended, paused, spoken to.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::{By, Desk, keys};
use crate::{
    actor::supervisor::{AskError, SubmitError},
    app::{
        batches::Which,
        conversation::chat_completions,
        input::{self, InputError, Rules},
        state::new_run,
    },
    daemon::wire::{ApiError, Changed, Code, Requeued, RunDetail, RunPatch, Say, Submitted},
    domain::{
        event::InputKind,
        id::{CallId, RunId, Seq},
        outcome::Outcome,
        run::{Input, Refused, Run},
        task::{Submission, TaskSpec},
        usage::Limits,
    },
    store::{RunFilter, RunRecord},
};

impl Desk {
    /// Takes one task on, as a line of a batch would say it. Answered once it is on disk.
    ///
    /// # Errors
    /// The task has mistakes, its key was used for another, or nothing is taken on now.
    pub async fn submit(&self, text: &[u8], key: Option<&str>, by: &By) -> Result<Submitted, ApiError> {
        self.open()?;
        let _alone = match key {
            Some(key) => self.keys.hold(check_key(key)?).await,
            None => None,
        };
        let digest = hex(&Sha256::digest(text));
        if let Some(key) = key
            && let Some(known) = self.submitted_with(key).await?
        {
            return again(&known, &digest);
        }
        let config = self.config();
        let spec = self.with_rules(&config, |rules| input::one(text, rules))??;
        self.herder.add_model()(&config, &spec.model).map_err(|error| invalid(&error))?;
        let submission = key.map(|key| Submission { key: key.into(), digest: digest.into() });
        let run = new_run();
        self.herder.supervisor.submit(run, Arc::new(TaskSpec { submission, ..spec })).await?;
        self.audit(by, "submit", run.to_string(), true, None);
        Ok(Submitted { id: run.to_string(), changed: true, tasks: 1 })
    }

    async fn submitted_with(&self, key: &str) -> Result<Option<RunRecord>, ApiError> {
        let filter = RunFilter { key: Some(key.to_owned()), limit: Some(1), ..RunFilter::default() };
        Ok(self.store().runs(filter).await?.pop())
    }

    /// Lends what tasks are completed with and checked by.
    pub(super) fn with_rules<T>(
        &self,
        config: &crate::config::Config,
        work: impl FnOnce(Rules<'_>) -> T,
    ) -> Result<T, ApiError> {
        let toolbox = &self.herder.supervisor.services().toolbox;
        let model = |name: &str| config.check_model(name);
        let tool = |name: &str| input::known_tool(toolbox, name);
        Ok(work(Rules { defaults: &config.defaults, model: &model, tool: &tool }))
    }

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
    pub async fn say(&self, name: &str, when: InputKind, say: Say, by: &By) -> Result<Changed, ApiError> {
        let record = self.find(name).await?;
        let input = Input::Say { when, text: say.text.into(), expected_turn: say.expected_turn };
        let seq = self.tell(&record, input).await?;
        let verb = match when {
            InputKind::Steer => "steer",
            InputKind::FollowUp => "follow-up",
        };
        Ok(self.changed(by, verb, record.run, Some(seq.get())))
    }

    /// Ends one call of a run; the run goes on.
    ///
    /// # Errors
    /// There is no such run, or no such call in it, or it has its result.
    pub async fn cancel_call(&self, name: &str, call: &str, by: &By) -> Result<Changed, ApiError> {
        let record = self.find(name).await?;
        let asked = self.herder.supervisor.cancel_call(record.run, CallId::new(call)).await;
        asked.map_err(|error| match error {
            AskError::Refused(Refused::UnknownCall) => {
                ApiError::new(Code::UnknownCall, format!("run {} has no open call {call:?}", record.run))
            }
            error @ (AskError::Refused(_) | AskError::NotLive | AskError::NoSuchRun) => self.refusal(error),
        })?;
        self.audit(by, "cancel-call", format!("{} {call}", record.run), true, None);
        Ok(Changed { changed: true, seq: None })
    }

    /// Gives a task whose run has ended another attempt.
    ///
    /// # Errors
    /// There is no such run, or it has not ended.
    pub async fn requeue(&self, name: &str, by: &By) -> Result<Requeued, ApiError> {
        self.open()?;
        let record = self.find(name).await?;
        // Two at once make one.
        let _alone = self.keys.hold(&record.run.to_string()).await;
        if let Some(next) = self.successor(record.run).await? {
            return Ok(Requeued { id: next.to_string(), changed: false });
        }
        if record.end.is_none() {
            return Err(ApiError::new(
                Code::NotEnded,
                format!("run {} has not ended; cancel it first, or wait", record.run),
            ));
        }
        let run = match record.batch {
            Some(batch) if self.batches.get(batch).await.is_ok() => {
                self.batches.requeue(batch, Which::Run(record.run)).await?
            }
            Some(_) | None => self.another_attempt(&record).await?,
        };
        self.audit(by, "requeue", record.run.to_string(), true, Some(run.to_string()));
        Ok(Requeued { id: run.to_string(), changed: true })
    }

    async fn successor(&self, run: RunId) -> Result<Option<RunId>, ApiError> {
        let filter = RunFilter { predecessor: Some(run), limit: Some(1), ..RunFilter::default() };
        Ok(self.store().runs(filter).await?.pop().map(|record| record.run))
    }

    async fn another_attempt(&self, record: &RunRecord) -> Result<RunId, ApiError> {
        let spec = self.spec(record.run).await?;
        self.herder.add_model()(&self.config(), &spec.model).map_err(|error| invalid(&error))?;
        let run = new_run();
        let spec = TaskSpec {
            attempt: spec.attempt + 1,
            predecessor: Some(record.run),
            // The key stands for the first attempt.
            submission: None,
            ..(*spec).clone()
        };
        self.herder.supervisor.submit(run, Arc::new(spec)).await?;
        Ok(run)
    }

    /// What was asked of a run.
    async fn spec(&self, run: RunId) -> Result<Arc<TaskSpec>, ApiError> {
        let log = self.store().read(run, Seq::START).await?;
        let state = Run::replay(run, log.iter().map(|envelope| &envelope.fact));
        state.spec().cloned().ok_or_else(|| {
            ApiError::new(Code::Internal, format!("the log of run {run} does not begin with its task"))
        })
    }

    /// Changes the limits of a run that has not ended.
    ///
    /// # Errors
    /// There is no such run, or it has ended.
    pub async fn retune(&self, name: &str, patch: &RunPatch, by: &By) -> Result<Changed, ApiError> {
        let record = self.find(name).await?;
        let RunPatch { max_turns, max_tool_calls, max_total_tokens, wall_time_s } = *patch;
        let limits = Limits { max_turns, max_tool_calls, max_total_tokens, wall_time_s, ..Limits::default() };
        if max_turns == Some(0) {
            return Err(ApiError::new(Code::BadRequest, "max_turns: is 0; want at least 1"));
        }
        let seq = unless(self.tell(&record, Input::SetLimits(limits)).await, &[Refused::Unchanged])?;
        Ok(self.changed(by, "set", record.run, seq))
    }

    /// A run with everything that is asked for it alone.
    ///
    /// # Errors
    /// There is no such run, or its log cannot be read.
    pub async fn show(&self, name: &str, with_messages: bool) -> Result<RunDetail, ApiError> {
        let record = self.find(name).await?;
        let log = self.store().read(record.run, Seq::START).await?;
        let state = Run::replay(record.run, log.iter().map(|envelope| &envelope.fact));
        let spec = state.spec().ok_or_else(|| {
            ApiError::new(
                Code::Internal,
                format!("the log of run {} does not begin with its task", record.run),
            )
        })?;
        Ok(RunDetail {
            run: self.view(&record),
            task: spec.task.to_string(),
            workspace: spec.workspace.to_string(),
            max_turns: spec.limits.turns(),
            events: state.seq().get(),
            text: record.end.as_ref().map(|end| end.text.to_string()),
            messages: with_messages.then(|| chat_completions(spec, state.history())),
        })
    }

    /// Tells a run something that it has not ended for. One that nobody has taken up is taken up first.
    async fn tell(&self, record: &RunRecord, input: Input) -> Result<Seq, ApiError> {
        if record.end.is_some() {
            return Err(self.refusal(Refused::Ended.into()));
        }
        let supervisor = &self.herder.supervisor;
        match supervisor.ask(record.run, input.clone()).await {
            Err(AskError::NoSuchRun) => {}
            asked => return asked.map_err(|error| self.refusal(error)),
        }
        // It has ended meanwhile, or its batch cannot be gone on with.
        self.open()?;
        let _submitted = supervisor.resume(record.run).await?;
        supervisor.ask(record.run, input).await.map_err(|error| match error {
            AskError::NoSuchRun => self.refusal(Refused::Ended.into()),
            error @ (AskError::Refused(_) | AskError::NotLive) => self.refusal(error),
        })
    }

    fn refusal(&self, error: AskError) -> ApiError {
        let message = error.to_string();
        match error {
            AskError::NoSuchRun => ApiError::new(Code::Ended, "the run has ended"),
            AskError::NotLive => ApiError::new(Code::UnknownCall, message),
            AskError::Refused(refused) => ApiError::new(refused_as(refused), message),
        }
    }
}

/// A refusal of a run by its code.
const fn refused_as(refused: Refused) -> Code {
    match refused {
        Refused::Ended => Code::Ended,
        Refused::Ending => Code::Ending,
        Refused::OtherTurn { .. } => Code::OtherTurn,
        Refused::UnknownCall => Code::UnknownCall,
        Refused::Empty => Code::InvalidInput,
        Refused::Paused
        | Refused::NotPaused
        | Refused::Unchanged
        | Refused::StaleRequest
        | Refused::CallStarted
        | Refused::OutOfTurn => Code::Busy,
    }
}

/// Where the change is of record; nothing if it was so already, which these refusals say.
fn unless(told: Result<Seq, ApiError>, so_already: &[Refused]) -> Result<Option<u64>, ApiError> {
    match told {
        Ok(seq) => Ok(Some(seq.get())),
        Err(error) if so_already.iter().any(|refused| refused.to_string() == error.message) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What an earlier submission with the same key is answered with.
fn again(known: &RunRecord, digest: &str) -> Result<Submitted, ApiError> {
    let submission = known.asked.as_ref().and_then(|asked| asked.submission.as_ref());
    if submission.is_some_and(|submission| *submission.digest == *digest) {
        return Ok(Submitted { id: known.run.to_string(), changed: false, tasks: 1 });
    }
    Err(ApiError::new(
        Code::KeyReused,
        format!(
            "the key was used for run {}, which was asked for something else; use another key",
            known.run
        ),
    ))
}

pub(super) fn check_key(key: &str) -> Result<&str, ApiError> {
    if key.is_empty() || key.len() > keys::LONGEST {
        let what = format!("idempotency-key: want 1 to {} characters", keys::LONGEST);
        return Err(ApiError::new(Code::BadRequest, what));
    }
    Ok(key)
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn invalid(error: &impl std::error::Error) -> ApiError {
    let causes = std::iter::successors(error.source(), |error| error.source());
    let message = causes.fold(error.to_string(), |message, cause| format!("{message}: {cause}"));
    ApiError::new(Code::InvalidInput, message)
}

impl From<SubmitError> for ApiError {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::Refused(refused) => Self::new(refused_as(refused), error.to_string()),
            SubmitError::Store(error) => error.into(),
            SubmitError::Stopping => Self::new(Code::Unavailable, "the daemon is stopping"),
        }
    }
}

impl From<InputError> for ApiError {
    fn from(error: InputError) -> Self {
        match error {
            InputError::Read { .. } => invalid(&error),
            InputError::Mistakes { told, more } => {
                let count = told.len() + more;
                let message = match (count, told.first()) {
                    (1, Some(mistake)) => mistake.clone(),
                    _ => format!("the input has {count} mistakes"),
                };
                let mistakes = if count == 1 { Vec::new() } else { told };
                Self { mistakes, ..Self::new(Code::InvalidInput, message) }
            }
        }
    }
}
