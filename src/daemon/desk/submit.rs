//! Taking single tasks on, and giving them another attempt.

use std::{path::Path, sync::Arc};

use axum::body::Bytes;
use sha2::{Digest as _, Sha256};

use super::{By, Desk, keys, tell::refused_as};
use crate::{
    actor::supervisor::SubmitError,
    app::{
        batches::Which,
        continued::{self, Continuation, ContinueError},
        input::{self, InputError, Rules},
        models::check_price,
        state::{new_run, read_run},
    },
    crash::{self, Point},
    daemon::wire::{ApiError, Code, Continue, Requeued, Submitted},
    domain::{
        id::RunId,
        script::Script,
        task::{Submission, TaskSpec},
    },
    store::{RunFilter, RunRecord},
};

impl Desk {
    /// Takes one task on, as a line of a batch would say it. Answered once it is on disk.
    ///
    /// # Errors
    /// The task has mistakes, its key was used for another, or nothing is taken on now.
    pub async fn submit(&self, text: Bytes, key: Option<&str>, by: &By) -> Result<Submitted, ApiError> {
        let digest = hex(&Sha256::digest(&text));
        self.submit_once("submit", key, digest, by, self.read(text)).await
    }

    /// Takes on what goes on from a run that has ended. Answered once it is on disk.
    ///
    /// # Errors
    /// There is no such run, it has not ended, or its key was used for something else.
    pub async fn go_on_from(
        &self,
        name: &str,
        next: Continue,
        key: Option<&str>,
        by: &By,
    ) -> Result<Submitted, ApiError> {
        let record = self.find(name).await?;
        let said = serde_json::to_vec(&(record.run.to_string(), &next)).map_err(|error| invalid(&error))?;
        let digest = hex(&Sha256::digest(said));
        self.submit_once("continue", key, digest, by, self.continuation(record.run, next)).await
    }

    async fn continuation(&self, run: RunId, next: Continue) -> Result<TaskSpec, ApiError> {
        let (before, _) = read_run(&**self.store(), run).await?;
        let Continue { text, max_turns, model, script } = next;
        let script = script.map(serde_json::from_value::<Script>).transpose();
        let script =
            script.map_err(|error| ApiError::new(Code::InvalidInput, format!("script: is none: {error}")))?;
        let model = model.map(Into::into);
        let spec = continued::task(&before, Continuation { text, max_turns, model, script })?;
        self.herder.add_model()(&self.config(), &spec.model).map_err(|error| invalid(&error))?;
        if self.config().limits_costs() || spec.limits.max_cost_usd.is_some() {
            check_price(&self.herder.supervisor.services().models, &spec.model).map_err(unpriced)?;
        }
        Ok(spec)
    }

    async fn submit_once(
        &self,
        verb: &'static str,
        key: Option<&str>,
        digest: String,
        by: &By,
        read: impl Future<Output = Result<TaskSpec, ApiError>>,
    ) -> Result<Submitted, ApiError> {
        self.open()?;
        let key = key.map(check_key).transpose()?;
        if let Some(known) = self.submitted_with(key).await? {
            return self.again(&known, &digest).await;
        }
        // Before the key is held: a folder that does not answer holds up no other.
        let spec = read.await?;
        let _alone = match key {
            Some(key) => self.keys.hold(key).await,
            None => None,
        };
        if let Some(known) = self.submitted_with(key).await? {
            return self.again(&known, &digest).await;
        }
        let submission = key.map(|key| Submission { key: key.into(), digest: digest.into() });
        let owner = by.user.as_deref().map(Into::into);
        let run = new_run();
        self.herder.supervisor.submit(run, Arc::new(TaskSpec { submission, owner, ..spec })).await?;
        crash::point(Point::Submitted);
        self.audit(by, verb, run.to_string(), true, None);
        Ok(Submitted { id: run.to_string(), changed: true, tasks: 1 })
    }

    async fn submitted_with(&self, key: Option<&str>) -> Result<Option<RunRecord>, ApiError> {
        let Some(key) = key else { return Ok(None) };
        let filter = RunFilter { key: Some(key.to_owned()), limit: Some(1), ..RunFilter::default() };
        Ok(self.store().runs(filter).await?.pop())
    }

    /// What an earlier submission with the same key is answered with. It may be of record and yet in nobody's hands, if the
    /// disk failed just then.
    async fn again(&self, known: &RunRecord, digest: &str) -> Result<Submitted, ApiError> {
        let submission = known.asked.as_ref().and_then(|asked| asked.submission.as_ref());
        if submission.is_none_or(|submission| *submission.digest != *digest) {
            let what = format!(
                "the key was used for run {}, which was asked for something else; use another key",
                known.run
            );
            return Err(ApiError::new(Code::KeyReused, what));
        }
        if known.end.is_none() {
            self.take_up_one(known).await?;
        }
        Ok(Submitted { id: known.run.to_string(), changed: false, tasks: 1 })
    }

    /// Off the async threads: folders are looked at, and may lie on a file system that does not answer.
    async fn read(&self, text: Bytes) -> Result<TaskSpec, ApiError> {
        let (config, services) = (self.config(), self.herder.supervisor.services().clone());
        let add_model = self.herder.add_model();
        let read = move || {
            let model = |name: &str| config.check_model(name);
            let tool = |name: &str| input::known_tool(&services.toolbox, name);
            let rules = Rules { defaults: &config.defaults, model: &model, tool: &tool };
            let spec = input::one(&text, rules)?;
            if spec.isolate.is_none() {
                let apart = services.workspaces.check_apart(Path::new(&*spec.workspace));
                apart.map_err(|error| ApiError::new(Code::InvalidInput, format!("workspace: {error}")))?;
            }
            add_model(&config, &spec.model).map_err(|error| invalid(&error))?;
            if config.limits_costs() || spec.limits.max_cost_usd.is_some() {
                check_price(&services.models, &spec.model).map_err(unpriced)?;
            }
            Ok(spec)
        };
        let read = tokio::task::spawn_blocking(read).await;
        read.unwrap_or_else(|error| Err(ApiError::new(Code::Internal, error.to_string())))
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
        if self.config().limits_costs() || spec.limits.max_cost_usd.is_some() {
            check_price(&self.herder.supervisor.services().models, &spec.model).map_err(unpriced)?;
        }
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

    /// Whether the costs of a run can be limited.
    pub(super) async fn check_price_of(&self, record: &RunRecord) -> Result<(), ApiError> {
        let model = match &record.asked {
            Some(asked) => asked.model.clone(),
            None => self.spec(record.run).await?.model.clone(),
        };
        // Without its model it does not go on, and costs nothing.
        let _ = self.herder.add_model()(&self.config(), &model);
        check_price(&self.herder.supervisor.services().models, &model).map_err(unpriced)
    }

    /// What was asked of a run.
    async fn spec(&self, run: RunId) -> Result<Arc<TaskSpec>, ApiError> {
        let (state, _) = read_run(&**self.store(), run).await?;
        state.spec().cloned().ok_or_else(|| {
            ApiError::new(Code::Internal, format!("the log of run {run} does not begin with its task"))
        })
    }
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

fn unpriced(what: String) -> ApiError {
    ApiError::new(Code::InvalidInput, format!("model: {what}"))
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

impl From<ContinueError> for ApiError {
    fn from(error: ContinueError) -> Self {
        let code = match error {
            ContinueError::NotEnded(_) => Code::NotEnded,
            ContinueError::Empty | ContinueError::NoTurns => Code::InvalidInput,
        };
        Self::new(code, error.to_string())
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
