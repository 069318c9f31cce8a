//! Going on with what is of record when the daemon starts.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    sync::Arc,
};

use tokio::sync::OwnedMutexGuard;

use super::{
    Batches,
    board::{Board, Closed},
    entry::{Entry, Work},
    lines::{Lines, ReadError},
    spool,
    status::BatchState,
};
use crate::{
    app::batch::{History, Tasks, abandon, in_order},
    domain::{
        batch::{Misfit, RetryFailed, StaleLines},
        id::{BatchId, RunId},
    },
    store::{RunFilter, StoreError},
    tool::workspace::Told,
};

/// What was found on record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Open runs of batches, which go on by themselves, or are ended here.
    pub of_batches: Vec<RunId>,
    /// The other open runs: for the caller to resume.
    pub others: Vec<RunId>,
}

/// Why a batch does not go on.
#[derive(Debug, thiserror::Error)]
enum TakeUpError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("what is of record does not fit the input")]
    Misfit(#[from] Misfit),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Batches {
    /// Takes up every batch of record that has not ended, and returns once it is known which runs that concerns. Called
    /// once, before anything is submitted or resumed, and after what all open runs, single ones included, left in doubt
    /// has been settled.
    ///
    /// A batch that cannot go on says so in its status.
    ///
    /// # Errors
    /// The log cannot be read or written.
    pub async fn recover(&self) -> Result<Recovered, StoreError> {
        let records = self.0.store.batches().await?;
        let open = self.0.store.runs(RunFilter { ended: Some(false), ..RunFilter::default() }).await?;
        let mut keys = self.0.keys.lock().await;
        let entries: Vec<Arc<Entry>> = records.into_iter().filter_map(Entry::of).map(Arc::new).collect();
        let mut runs: BTreeMap<BatchId, Vec<RunId>> =
            entries.iter().map(|entry| (entry.id, Vec::new())).collect();
        let mut recovered = Recovered::default();
        for record in open {
            match record.batch.and_then(|batch| runs.get_mut(&batch)) {
                Some(of_batch) => {
                    of_batch.push(record.run);
                    recovered.of_batches.push(record.run);
                }
                None => recovered.others.push(record.run),
            }
        }
        let mut inputs = BTreeSet::new();
        for entry in entries {
            let work = entry.work.clone().lock_owned().await;
            if let Some(key) = work.record.key.clone() {
                keys.insert(key, entry.id);
            }
            inputs.insert(self.input(&entry, &work));
            self.insert(&entry);
            let open = runs.remove(&entry.id).unwrap_or_default();
            match work.record.state {
                BatchState::Open => drop(self.0.drivers.spawn(self.clone().take_up(entry, work))),
                BatchState::Cancelled | BatchState::Ended
                    if work.record.summary.is_none() || !open.is_empty() =>
                {
                    drop(self.0.drivers.spawn(self.clone().end_the_rest(entry, work, open)));
                }
                BatchState::Cancelled | BatchState::Ended => {}
            }
        }
        if let Err(error) = spool::sweep(&self.0.folder, &inputs) {
            tracing::warn!(%error, "inputs of no batch could not be removed");
        }
        Ok(recovered)
    }

    /// Tries again to go on with the batches that could not, as another configuration may let them. Returns once it is known
    /// whether they do.
    pub async fn take_up_the_rest(&self) {
        for entry in self.entries() {
            let work = entry.work.clone().lock_owned().await;
            let is_left = work.record.state == BatchState::Open && work.driver.is_none();
            if is_left && !self.0.closing.is_cancelled() {
                self.clone().take_up(entry, work).await;
            }
        }
    }

    fn input(&self, entry: &Entry, work: &Work) -> OsString {
        let path = spool::path(&self.0.folder, entry.id, &work.record.digest);
        path.file_name().map(ToOwned::to_owned).unwrap_or_default()
    }

    async fn take_up(self, entry: Arc<Entry>, mut work: OwnedMutexGuard<Work>) {
        if let Err(error) = self.try_to_take_up(&entry, &mut work).await {
            entry.fail(Told(&error).to_string());
        }
    }

    async fn try_to_take_up(&self, entry: &Arc<Entry>, work: &mut Work) -> Result<(), TakeUpError> {
        let history = History::read(&*self.0.store, entry.id).await?;
        // It is shown while the input is read, and if that is in vain.
        let board = Board::new(entry.status.clone(), history.ids(), &history, &BTreeSet::new());
        board.close(Closed::Unfinished);
        entry.set_board(Some(Arc::new(board)));
        let tasks = self.input_of(entry, work).await?;
        let everything: Vec<usize> = (0..tasks.count()).collect();
        let terms = (StaleLines::Refuse, RetryFailed::None, work.record.retries);
        let mut plan = history.plan(&tasks, &everything, terms)?;
        if work.record.starts_nothing {
            plan.start.clear();
        }
        let waiting = in_order(&plan, &tasks);
        self.set_off(entry, work, tasks, &history, &plan, waiting);
        Ok(())
    }

    /// The input of a batch, as it was submitted.
    pub(super) async fn input_of(&self, entry: &Entry, work: &Work) -> Result<Lines, ReadError> {
        let path = spool::path(&self.0.folder, entry.id, &work.record.digest);
        self.read(path, work.record.digest.clone(), work.record.labels.clone()).await
    }

    /// Ends a run that nobody works on, as cancelled; returns once it is on disk.
    ///
    /// # Errors
    /// The log does not take it.
    pub async fn abandon(&self, run: RunId) -> Result<(), StoreError> {
        abandon(&*self.0.store, run, &*self.0.clock).await
    }

    async fn end_the_rest(self, entry: Arc<Entry>, mut work: OwnedMutexGuard<Work>, open: Vec<RunId>) {
        if let Err(error) = self.try_to_end_the_rest(&entry, &mut work, open).await {
            entry.fail(Told(&error).to_string());
        }
    }

    /// Ends what is open of a batch that nobody drives, and puts on record what has come of it.
    pub(super) async fn try_to_end_the_rest(
        &self,
        entry: &Entry,
        work: &mut Work,
        open: Vec<RunId>,
    ) -> Result<(), StoreError> {
        for run in open {
            match abandon(&*self.0.store, run, &*self.0.clock).await {
                Ok(()) => {}
                Err(error @ StoreError::Damaged { .. }) => {
                    tracing::warn!(run.id = %run, %error, "a run of an ended batch stays open");
                }
                Err(error) => return Err(error),
            }
        }
        let history = History::read(&*self.0.store, entry.id).await?;
        drop(Board::new(entry.status.clone(), history.ids(), &history, &BTreeSet::new()));
        entry.set_board(None);
        let halted = work.record.summary.as_ref().is_some_and(|summary| summary.halted);
        self.end(entry, work, halted).await
    }
}
