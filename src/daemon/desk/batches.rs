//! Batches: taken on, ended, paused, read.

use std::{io, num::NonZeroUsize, sync::Arc};

use axum::body::Bytes;
use futures_util::{Stream, StreamExt as _};

use super::{
    By, Desk,
    list::refuse,
    submit::{check_key, invalid},
    view::tokens,
};
use crate::{
    actor::supervisor::Wait,
    app::batches::{
        self, BatchState as State, ControlError, NoSuchBatch, Reading, RequeueError, ResultsError,
        SpoolError, SubmitBatch, SubmitError, Unread,
    },
    clock::rfc3339,
    daemon::wire::{
        ApiError, BatchList, BatchOptions, BatchPatch, BatchState, BatchView, BatchWait, Changed, Code,
        PauseMode, Submitted,
    },
    domain::{
        batch::{RetryFailed, StaleLines},
        gate::Scope,
        outcome::{Limit, Outcome},
        usage::NanoUsd,
    },
};

impl Desk {
    /// Takes a batch on. Answered once all of it is on disk.
    ///
    /// # Errors
    /// The input has mistakes or breaks off, or does not fit the batch of its key; then nothing is run.
    pub async fn submit_batch(
        self: &Arc<Self>,
        options: BatchOptions,
        key: Option<&str>,
        input: impl Stream<Item = io::Result<Bytes>> + Send,
        by: &By,
    ) -> Result<Submitted, ApiError> {
        self.open()?;
        let key = key.map(check_key).transpose()?.map(str::to_owned);
        let name = options.name.clone();
        let owner = by.user.as_deref().map(Into::into);
        let batch = SubmitBatch { name, key, owner, options: read_options(options)? };
        let submitted = self.batches.submit(batch, input).await?;
        if submitted.changed {
            self.watch_batch(submitted.id);
        }
        self.audit(by, "submit", submitted.id.to_string(), submitted.changed, None);
        let tasks = u64::try_from(submitted.tasks).unwrap_or(u64::MAX);
        Ok(Submitted { id: submitted.id.to_string(), changed: submitted.changed, tasks })
    }

    /// Every batch, oldest first.
    pub async fn list_batches(&self) -> BatchList {
        let gates = self.gates().await;
        let held = |id: &str| gates.iter().any(|gate| gate.name.as_deref() == Some(id));
        let list = self.batches.list().await;
        BatchList { batches: list.into_iter().map(|status| view(status, held)).collect() }
    }

    /// How far a batch is.
    ///
    /// # Errors
    /// There is no such batch.
    pub async fn show_batch(&self, name: &str) -> Result<BatchView, ApiError> {
        let status = self.batches.get(self.find_batch(name)?).await?;
        let gates = self.gates().await;
        Ok(view(status, |id| gates.iter().any(|gate| gate.name.as_deref() == Some(id))))
    }

    /// Changes how a batch is worked on.
    ///
    /// # Errors
    /// There is no such batch, or a value is none.
    pub async fn retune_batch(&self, name: &str, patch: &BatchPatch, by: &By) -> Result<Changed, ApiError> {
        let id = self.find_batch(name)?;
        let concurrency = patch.concurrency.map(concurrency).transpose()?;
        let max_cost = patch.max_cost_usd.map(dollars).transpose()?;
        let mut changed = false;
        if let Some(runs) = concurrency {
            changed |= self.batches.set_concurrency(id, runs).await?;
        }
        if max_cost.is_some() {
            changed |= self.batches.set_max_cost(id, max_cost).await?;
        }
        let told = concurrency.map(|runs| format!("concurrency={runs}"));
        let told = told.into_iter().chain(max_cost.map(|cost| format!("max_cost_usd={}", cost.usd())));
        let told: Vec<_> = told.collect();
        self.audit(by, "set", id.to_string(), changed, (!told.is_empty()).then(|| told.join(" ")));
        Ok(Changed { changed, seq: None })
    }

    /// Ends a batch and its runs as cancelled.
    ///
    /// # Errors
    /// There is no such batch.
    pub async fn cancel_batch(&self, name: &str, by: &By) -> Result<Changed, ApiError> {
        let id = self.find_batch(name)?;
        let changed = self.batches.cancel(id).await?;
        self.audit(by, "cancel", id.to_string(), changed, None);
        Ok(Changed { changed, seq: None })
    }

    /// Pauses a batch: none of its tasks starts, and unless it is to be soft its runs are held.
    ///
    /// # Errors
    /// There is no such batch.
    pub async fn pause_batch(&self, name: &str, mode: PauseMode, by: &By) -> Result<Changed, ApiError> {
        let id = self.find_batch(name)?;
        self.shut(Scope::Batch(id), mode, by).await
    }

    /// Lets a batch go on.
    ///
    /// # Errors
    /// There is no such batch.
    pub async fn resume_batch(&self, name: &str, by: &By) -> Result<Changed, ApiError> {
        let id = self.find_batch(name)?;
        self.release(Scope::Batch(id), by).await
    }

    /// The result lines of a batch, as they come if they are followed.
    ///
    /// # Errors
    /// There is no such batch.
    pub async fn results(
        &self,
        name: &str,
        how: Reading,
    ) -> Result<impl Stream<Item = io::Result<Bytes>> + Send + use<>, ApiError> {
        let id = self.find_batch(name)?;
        let lines = self.batches.results(id, how).await?;
        Ok(lines.map(|line| line.map(Bytes::from).map_err(io::Error::other)))
    }
}

fn read_options(options: BatchOptions) -> Result<batches::BatchOptions, ApiError> {
    let BatchOptions {
        name: _,
        concurrency: runs,
        max_cost_usd,
        retries,
        halt,
        retry_failed,
        restart_stale,
        only,
        first,
    } = options;
    let halt = halt.map(|halt| halt.parse().map_err(|what: String| refuse("halt", &what))).transpose()?;
    let retry_failed = match retry_failed.as_deref() {
        None => RetryFailed::None,
        Some("all") => RetryFailed::All,
        Some(class) => RetryFailed::named(class)
            .ok_or_else(|| refuse("retry_failed", "want all, or an outcome, or a detail of one"))?,
    };
    Ok(batches::BatchOptions {
        concurrency: runs.map(concurrency).transpose()?,
        max_cost: max_cost_usd.map(dollars).transpose()?,
        retries: retries.unwrap_or_default(),
        halt,
        retry_failed,
        stale_lines: if restart_stale == Some(true) { StaleLines::Restart } else { StaleLines::Refuse },
        only,
        first: first.map(|first| usize::try_from(first).unwrap_or(usize::MAX)),
        ..batches::BatchOptions::default()
    })
}

fn concurrency(runs: u32) -> Result<NonZeroUsize, ApiError> {
    let runs = usize::try_from(runs).ok().and_then(NonZeroUsize::new);
    runs.ok_or_else(|| refuse("concurrency", "is 0; want at least 1"))
}

pub(super) fn dollars(usd: f64) -> Result<NanoUsd, ApiError> {
    let amount = (usd.is_finite() && usd >= 0.0).then(|| NanoUsd::from_usd(usd));
    amount.ok_or_else(|| refuse("max_cost_usd", "want US dollars, 0 or more"))
}

fn view(status: batches::Status, held: impl Fn(&str) -> bool) -> BatchView {
    let id = status.id.to_string();
    let state = match status.state {
        State::Open if status.error.is_some() => BatchState::Broken,
        State::Open if held(&id) => BatchState::Paused,
        State::Open => BatchState::Open,
        State::Cancelled => BatchState::Cancelled,
        State::Ended if status.halted => BatchState::Halted,
        State::Ended => BatchState::Ended,
    };
    let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
    BatchView {
        id,
        name: status.name,
        state,
        created_at: rfc3339(status.created_at),
        tasks: count(status.counts.tasks),
        waiting: count(status.counts.waiting),
        open: count(status.counts.in_flight),
        running: count(status.running),
        waits: status.waits.into_iter().map(wait).collect(),
        retries: status.retries,
        max_cost_usd: status.max_cost.map(NanoUsd::usd),
        ended: status.counts.settled.into_iter().map(|(outcome, n)| (outcome, count(n))).collect(),
        concurrency: u32::try_from(status.concurrency).ok(),
        usage: tokens(status.counts.usage),
        cost_usd: status.counts.usage.cost.map(|cost| cost.usd()),
        waits_for: status.unaffordable.then(|| Outcome::Budget(Limit::Cost).to_string()),
        error: status.error,
    }
}

fn wait(Wait { reason, until, runs, .. }: Wait) -> BatchWait {
    BatchWait {
        reason: reason.into(),
        until: until.map(rfc3339),
        runs: u64::try_from(runs).unwrap_or(u64::MAX),
    }
}

impl From<SubmitError> for ApiError {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::Spool(SpoolError::BrokeOff(_)) => Self::new(Code::BadRequest, error.to_string()),
            SubmitError::Spool(SpoolError::Disk { .. }) => {
                Self { code: Code::StoreUnavailable, ..invalid(&error) }
            }
            SubmitError::Input(error) => error.into(),
            SubmitError::Empty | SubmitError::NoSuchTask(_) => invalid(&error),
            SubmitError::Unread(error) => error.into(),
            SubmitError::Misfit { .. } => Self { code: Code::Misfit, ..invalid(&error) },
            SubmitError::Busy { .. } => Self::new(Code::Busy, error.to_string()),
            SubmitError::Stopping => Self::new(Code::Unavailable, "the daemon is stopping"),
            SubmitError::Store(error) => error.into(),
        }
    }
}

impl From<Unread> for ApiError {
    fn from(error: Unread) -> Self {
        Self::new(Code::Internal, error.to_string())
    }
}

impl From<NoSuchBatch> for ApiError {
    fn from(error: NoSuchBatch) -> Self {
        Self::new(Code::UnknownBatch, error.to_string())
    }
}

impl From<ControlError> for ApiError {
    fn from(error: ControlError) -> Self {
        match error {
            ControlError::NoSuchBatch(error) => error.into(),
            ControlError::Unread(error) => error.into(),
            ControlError::Unpriced(error) => error.into(),
            ControlError::Store(error) => error.into(),
        }
    }
}

impl From<RequeueError> for ApiError {
    fn from(error: RequeueError) -> Self {
        match error {
            RequeueError::NoSuchBatch(error) => error.into(),
            RequeueError::NoSuchTask => Self::new(Code::UnknownRun, error.to_string()),
            RequeueError::Unsettled => Self::new(Code::NotEnded, error.to_string()),
            RequeueError::Unable(_) => Self::new(Code::Busy, error.to_string()),
            RequeueError::Stopping => Self::new(Code::Unavailable, "the daemon is stopping"),
            RequeueError::Submit(error) => error.into(),
            RequeueError::Store(error) => error.into(),
        }
    }
}

impl From<ResultsError> for ApiError {
    fn from(error: ResultsError) -> Self {
        match error {
            ResultsError::Store(error) => error.into(),
            ResultsError::NoResult(_) => Self::new(Code::Internal, error.to_string()),
            ResultsError::Unfinished => Self::new(Code::Unavailable, error.to_string()),
        }
    }
}
