//! Going on with what is of record when the daemon starts.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    sync::{Arc, PoisonError},
    time::Duration,
};

use tokio::{
    sync::OwnedMutexGuard,
    time::{Instant, timeout_at},
};

use super::{
    Batches,
    board::{Board, Closed},
    entry::{Entry, Work},
    lines::{Lines, ReadError},
    record::Record,
    spool,
    status::BatchState,
};
use crate::{
    actor::{jitter, supervisor::AskError},
    app::batch::{History, Tasks, abandon, in_order},
    domain::{
        batch::{Misfit, RetryFailed, StaleLines, retry_delay},
        id::{BatchId, RunId},
    },
    store::{RunFilter, RunRecord, StoreError},
    tool::workspace::Told,
};

/// A run that was told to end and has not is told again after so long: that it has ended may never come to be of record.
const ASK_AGAIN: Duration = Duration::from_secs(1);

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
    /// Has the batches of record known: they can be asked for, and what is to change one waits until it is taken up.
    ///
    /// # Errors
    /// The log cannot be read.
    pub async fn load(&self) -> Result<(), StoreError> {
        let records = self.0.store.batches().await?;
        let mut keys = self.0.keys.lock().await;
        let mut loaded = Vec::new();
        for entry in records.into_iter().filter_map(Entry::of).map(Arc::new) {
            if self.entry(entry.id).is_ok() {
                continue;
            }
            let work = entry.work.clone().lock_owned().await;
            if let Some(key) = work.record.key.clone() {
                keys.insert(key, entry.id);
            }
            self.insert(&entry);
            loaded.push((entry, work));
        }
        self.0.loaded.lock().unwrap_or_else(PoisonError::into_inner).extend(loaded);
        Ok(())
    }

    /// Takes up every batch of record that has not ended, and returns once it is known which runs that concerns. Called
    /// once, before anything is submitted or resumed, and after what all open runs, single ones included, left in doubt
    /// has been settled.
    ///
    /// A batch that cannot go on says so in its status.
    ///
    /// # Errors
    /// The log cannot be read or written.
    pub async fn recover(&self) -> Result<Recovered, StoreError> {
        self.load().await?;
        let loaded = std::mem::take(&mut *self.0.loaded.lock().unwrap_or_else(PoisonError::into_inner));
        let open = self.0.store.runs(RunFilter { ended: Some(false), ..RunFilter::default() }).await?;
        let mut open_of: BTreeMap<BatchId, usize> = loaded.iter().map(|(entry, _)| (entry.id, 0)).collect();
        let mut recovered = Recovered::default();
        for record in open {
            match record.batch.and_then(|batch| open_of.get_mut(&batch)) {
                Some(open) => {
                    *open += 1;
                    recovered.of_batches.push(record.run);
                }
                None => recovered.others.push(record.run),
            }
        }
        let (mut inputs, mut unread) = (BTreeSet::new(), BTreeSet::new());
        for (entry, work) in loaded {
            if entry.check().is_err() {
                unread.insert(entry.id.to_string());
                continue;
            }
            inputs.insert(self.input(&entry, &work));
            let is_open = open_of.get(&entry.id).is_some_and(|open| *open > 0);
            match work.record.state {
                BatchState::Open => drop(self.0.drivers.spawn(self.clone().take_up(entry, work))),
                BatchState::Cancelled | BatchState::Ended if work.record.summary.is_none() || is_open => {
                    drop(self.0.drivers.spawn(self.clone().end_the_rest(entry, work)));
                }
                BatchState::Cancelled | BatchState::Ended => {}
            }
        }
        let folder = self.0.folder.clone();
        let swept = spool::blocking(move || spool::sweep(&folder, &inputs, &unread)).await;
        if let Err(error) = swept {
            tracing::warn!(%error, "inputs of no batch could not be removed");
        }
        Ok(recovered)
    }

    /// Tries again to go on with the batches that could not, as another configuration may let them. Whether they do shows in
    /// their status: what changes one next waits for that, the caller does not.
    pub fn take_up_the_rest(&self) {
        for entry in self.entries().into_iter().filter(|entry| entry.check().is_ok()) {
            // One that is being changed, or taken up, is in somebody's hands.
            let Ok(work) = entry.work.clone().try_lock_owned() else { continue };
            let is_left = work.record.state == BatchState::Open && work.driver.is_none();
            if is_left && !self.0.closing.is_cancelled() {
                self.0.drivers.spawn(self.clone().take_up(entry, work));
            }
        }
    }

    fn input(&self, entry: &Entry, work: &Work) -> OsString {
        let path = spool::path(&self.0.folder, entry.id, &work.record.digest);
        path.file_name().map(ToOwned::to_owned).unwrap_or_default()
    }

    async fn take_up(self, entry: Arc<Entry>, mut work: OwnedMutexGuard<Work>) {
        let mut tries = 0;
        while let Err(error) = self.try_to_take_up(&entry, &mut work).await {
            let passes = matches!(&error, TakeUpError::Store(error) if is_passing(error));
            if !(passes && self.rested(&mut tries).await) {
                return entry.fail(Told(&error).to_string());
            }
        }
    }

    async fn try_to_take_up(&self, entry: &Arc<Entry>, work: &mut Work) -> Result<(), TakeUpError> {
        let history = History::read(&*self.0.store, entry.id).await?;
        // It is shown while the input is read, and if that is in vain.
        let board =
            Board::new(entry.status.clone(), history.ids(), &history, &BTreeSet::new(), &entry.order());
        board.close(Closed::Unfinished);
        entry.set_board(Arc::new(board));
        let tasks = self.input_of(entry, work).await?;
        let terms = (StaleLines::Refuse, RetryFailed::None, work.record.retries);
        let mut plan = history.plan(&tasks, &work.record.places(tasks.count()), terms)?;
        if work.record.starts_nothing {
            plan.start.clear();
        }
        let waiting = in_order(&plan, &tasks);
        self.count_spent(entry, work).await?;
        self.set_off(entry, work, tasks, &history, &plan, waiting);
        Ok(())
    }

    /// The input of a batch, as it was submitted.
    pub(super) async fn input_of(&self, entry: &Entry, work: &Work) -> Result<Lines, ReadError> {
        let path = spool::path(&self.0.folder, entry.id, &work.record.digest);
        let Record { digest, labels, owner, max_cost, .. } = work.record.clone();
        self.read(path, digest, (labels, owner, max_cost.is_some()), Lines::index).await
    }

    /// Ends a run that nobody works on, as cancelled; returns once it is on disk.
    ///
    /// # Errors
    /// The log does not take it.
    pub async fn abandon(&self, run: RunId) -> Result<(), StoreError> {
        abandon(&*self.0.store, run, &*self.0.clock).await
    }

    async fn end_the_rest(self, entry: Arc<Entry>, mut work: OwnedMutexGuard<Work>) {
        let mut tries = 0;
        while let Err(error) = self.try_to_end_the_rest(&entry, &mut work).await {
            if !(is_passing(&error) && self.rested(&mut tries).await) {
                return entry.fail(Told(&error).to_string());
            }
        }
    }

    /// Ends what is open of a batch that nobody drives, and puts on record what has come of it; if herder stops before that,
    /// the next start does.
    pub(super) async fn try_to_end_the_rest(&self, entry: &Entry, work: &mut Work) -> Result<(), StoreError> {
        if !self.end_open(entry.id).await? {
            return Ok(());
        }
        let history = History::read(&*self.0.store, entry.id).await?;
        drop(Board::new(entry.status.clone(), history.ids(), &history, &BTreeSet::new(), &[]));
        let halted = work.record.summary.as_ref().is_some_and(|summary| summary.halted);
        self.end(entry, work, halted).await?;
        entry.put_board_away();
        Ok(())
    }

    /// Ends every open run of a batch that nobody drives. Tells whether they have ended: herder may stop before.
    pub(super) async fn end_open(&self, batch: BatchId) -> Result<bool, StoreError> {
        let mut log = self.0.store.watch();
        let (mut told, mut again) = (BTreeSet::new(), Instant::now() + ASK_AGAIN);
        loop {
            log.mark_unchanged();
            if Instant::now() >= again {
                (told, again) = (BTreeSet::new(), Instant::now() + ASK_AGAIN);
            }
            let open = RunFilter { batch: Some(batch), ended: Some(false), ..RunFilter::default() };
            let mut is_live = false;
            for RunRecord { run, .. } in self.0.store.runs(open).await? {
                is_live |= told.contains(&run) || self.end_run(run).await? && told.insert(run);
            }
            if !is_live {
                return Ok(true);
            }
            let changed = timeout_at(again, log.changed());
            match self.0.closing.run_until_cancelled(changed).await {
                Some(Ok(Ok(())) | Err(_)) => {}
                // Closed only with the log.
                None | Some(Ok(Err(_))) => return Ok(false),
            }
        }
    }

    /// Ends an open run: by whoever works on it, whose log it is; else on record alone. Tells whether it has yet to end.
    pub(super) async fn end_run(&self, run: RunId) -> Result<bool, StoreError> {
        match self.0.supervisor.cancel(run).await {
            Ok(_) | Err(AskError::Refused(_)) => return Ok(true),
            Err(AskError::Store(error)) => return Err(error),
            Err(AskError::NoSuchRun | AskError::NotLive) => {}
        }
        match abandon(&*self.0.store, run, &*self.0.clock).await {
            Err(error @ StoreError::Damaged { .. }) => {
                tracing::warn!(run.id = %run, %error, "a run of an ended batch stays open");
                Ok(false)
            }
            abandoned => abandoned.map(|()| false),
        }
    }

    /// Waits before what the log did not take is tried again; longer each time. Tells whether it is to be tried.
    pub(super) async fn rested(&self, tries: &mut u32) -> bool {
        *tries = tries.saturating_add(1);
        let rest = tokio::time::sleep(retry_delay(*tries, jitter()));
        self.0.closing.run_until_cancelled(rest).await.is_some()
    }
}

/// Whether the log may take the same another time.
pub(super) const fn is_passing(error: &StoreError) -> bool {
    match error {
        StoreError::Unavailable(_) => true,
        StoreError::Conflict { .. }
        | StoreError::Closed
        | StoreError::Damaged { .. }
        | StoreError::Malformed(_)
        | StoreError::Encode(_) => false,
    }
}
