//! Taking a batch on: all of its input is checked, then all that is needed to go on with it is put on disk.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::Arc,
};

use futures_util::Stream;
use uuid::Uuid;

use super::{
    Batches, ControlError, SubmitError,
    entry::{Entry, Work},
    lines::{Book, Lines, ReadError},
    record::{Record, ranges},
    spool::{self, SpoolError, Spooled},
    status::BatchState,
    undisturbed,
};
use crate::{
    app::{
        batch::{History, Tasks, in_order, submit_asked},
        input::Selection,
    },
    crash::{self, Point},
    domain::{
        batch::{Halt, Plan, RetryFailed, StaleLines, Start},
        id::BatchId,
        outcome::Outcome,
        usage::NanoUsd,
    },
    store::TaskRecord,
};

/// A batch as it is asked for.
#[derive(Clone, Debug, Default)]
pub struct SubmitBatch {
    /// What it is called; `batch` by itself.
    pub name: Option<String>,
    /// Names this submission: given again, it is answered again. With another input, it extends the batch.
    pub key: Option<String>,
    /// The user who submits it.
    pub owner: Option<Arc<str>>,
    pub options: BatchOptions,
}

impl SubmitBatch {
    /// What goes for all of its tasks: labels, whose they are, and whether their costs are limited.
    fn terms(&self) -> (BTreeMap<String, String>, Option<Arc<str>>, bool) {
        (self.options.labels.clone(), self.owner.clone(), self.options.max_cost.is_some())
    }
}

/// How a batch is run.
#[derive(Clone, Debug)]
pub struct BatchOptions {
    /// Runs that may be in flight at once; by itself as many as may be live.
    pub concurrency: Option<NonZeroUsize>,
    /// What all of its attempts together may cost.
    pub max_cost: Option<NanoUsd>,
    /// New attempts that a task gets by itself.
    pub retries: u32,
    /// When to give up. Runs that are to stop now are cancelled.
    pub halt: Option<Halt>,
    /// Of a batch that has ended: which of its tasks get another attempt.
    pub retry_failed: RetryFailed,
    /// Of a batch that has ended: what becomes of a task whose line changed.
    pub stale_lines: StaleLines,
    /// Labels of each of its tasks; a line's own come first.
    pub labels: BTreeMap<String, String>,
    /// Only tasks of these ids are worked on, the others stay as they are; empty: all.
    pub only: Vec<String>,
    /// Of those at most this many, the first ones.
    pub first: Option<usize>,
}

impl Default for BatchOptions {
    fn default() -> Self {
        Self {
            concurrency: None,
            max_cost: None,
            retries: 0,
            halt: None,
            retry_failed: RetryFailed::None,
            stale_lines: StaleLines::Refuse,
            labels: BTreeMap::new(),
            only: Vec::new(),
            first: None,
        }
    }
}

impl BatchOptions {
    /// The places of the tasks that are to be worked on.
    fn places(&self, tasks: &dyn Tasks) -> Result<Vec<usize>, SubmitError> {
        let ids: Vec<&str> = (0..tasks.count()).filter_map(|place| Some(&**tasks.id(place)?)).collect();
        let selection = Selection { only: self.only.clone(), first: self.first, shuffle: None };
        selection.among(&ids).map_err(SubmitError::NoSuchTask)
    }
}

/// A batch that is on record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submitted {
    pub id: BatchId,
    /// Whether this submission did anything; one that is given again does nothing.
    pub changed: bool,
    pub tasks: usize,
}

impl Batches {
    /// Takes a batch on, or extends the one of its key; returns once it is on disk. The input is JSON lines, in pieces of
    /// any size.
    ///
    /// # Errors
    /// The input breaks off, has mistakes or does not fit the batch of its key; then nothing is run.
    pub async fn submit<C: AsRef<[u8]>>(
        &self,
        batch: SubmitBatch,
        input: impl Stream<Item = io::Result<C>> + Send,
    ) -> Result<Submitted, SubmitError> {
        let spooled = Spooled::take_in(&self.0.folder, input).await?;
        if let Some(answered) = self.answered(&batch, &spooled.digest).await {
            if let Some(cap) = batch.options.max_cost {
                let raised = self.set_max_cost(answered.id, Some(cap)).await;
                raised.map_err(|error| match error {
                    ControlError::Store(error) => error.into(),
                    ControlError::Unread(error) => error.into(),
                    ControlError::Unpriced(error) => error.into(),
                    ControlError::NoSuchBatch(_) => SubmitError::Stopping,
                })?;
            }
            return Ok(answered);
        }
        let (path, digest) = (spooled.path().to_owned(), spooled.digest.clone());
        // What was checked once is not checked again: what its finished lines name may be gone.
        let read = if self.is_known(&batch, &digest).await { Lines::index } else { Lines::read };
        let tasks = match self.read(path, digest, batch.terms(), read).await {
            Ok(tasks) if tasks.count() == 0 => return Err(SubmitError::Empty),
            Ok(tasks) => tasks,
            Err(ReadError::Input(error)) => return Err(error.into()),
            Err(error @ (ReadError::Open { .. } | ReadError::Damaged { .. })) => {
                let (path, source) = (self.0.folder.clone(), io::Error::other(error));
                return Err(SpoolError::Disk { path, source }.into());
            }
        };
        let batches = self.clone();
        undisturbed(async move { batches.take_on(batch, spooled, tasks).await }).await
    }

    /// The batch of the key that a submission has, if there is one.
    async fn of_key(&self, batch: &SubmitBatch) -> Option<Arc<Entry>> {
        let id = *self.0.keys.lock().await.get(batch.key.as_ref()?)?;
        self.entry(id).ok()
    }

    async fn is_known(&self, batch: &SubmitBatch, digest: &str) -> bool {
        match self.of_key(batch).await {
            Some(entry) => entry.work.lock().await.record.digest == digest,
            None => false,
        }
    }

    /// The answer to a submission that was answered before, and asks for nothing else.
    async fn answered(&self, batch: &SubmitBatch, digest: &str) -> Option<Submitted> {
        let entry = self.of_key(batch).await?;
        let work = entry.work.lock().await;
        let is_of_all = batch.options.only.is_empty() && batch.options.first.is_none();
        if !is_of_all || work.record.chosen.is_some() {
            return None;
        }
        let id = entry.id;
        let is_same = work.record.digest == digest;
        let goes_on = match work.record.state {
            BatchState::Open => work.driver.is_some(),
            BatchState::Cancelled | BatchState::Ended => batch.options.retry_failed == RetryFailed::None,
        };
        let tasks = entry.status.borrow().counts.tasks;
        (is_same && goes_on).then_some(Submitted { id, changed: false, tasks })
    }

    /// Reads an input; `labels` go before those of the configuration, and its tasks are those of `owner`.
    pub(super) async fn read(
        &self,
        path: PathBuf,
        digest: String,
        (labels, owner, is_limited): (BTreeMap<String, String>, Option<Arc<str>>, bool),
        read: fn(&Path, &str, Book) -> Result<Lines, ReadError>,
    ) -> Result<Lines, ReadError> {
        let book =
            Book::new(self.config(), self.0.supervisor.services().clone(), self.0.add_model.clone(), labels)
                .of(owner)
                .limited(is_limited);
        let at = path.clone();
        // Never closed; held to the end of the reading, though whoever waits for it may have gone.
        let place = self.0.reading.clone().acquire_owned().await;
        let read = tokio::task::spawn_blocking(move || {
            let read = read(&path, &digest, book);
            drop(place);
            read
        })
        .await;
        read.unwrap_or_else(|error| Err(ReadError::Open { path: at, source: io::Error::other(error) }))
    }

    async fn take_on(
        &self,
        batch: SubmitBatch,
        spooled: Spooled,
        tasks: Lines,
    ) -> Result<Submitted, SubmitError> {
        let mut keys = self.0.keys.lock().await;
        if self.0.closing.is_cancelled() {
            return Err(SubmitError::Stopping);
        }
        let known = batch.key.as_ref().and_then(|key| keys.get(key));
        if let Some(entry) = known.and_then(|id| self.entry(*id).ok()) {
            drop(keys);
            return self.extend(entry, batch, spooled, tasks).await;
        }
        let (id, key, name) = (BatchId::new(Uuid::now_v7()), batch.key.clone(), batch.name.clone());
        let count = tasks.count();
        let places = batch.options.places(&tasks)?;
        let record = Record { chosen: ranges(&places, count), ..self.record(batch, &spooled.digest) };
        let name = name.unwrap_or_else(|| "batch".to_owned());
        let entry = Arc::new(Entry::new(id, name, self.0.clock.now(), record.clone()));
        let history = History::default();
        let mut work = entry.work.lock().await;
        self.put_on_disk(&entry, &mut work, record, spooled, history.changed(&tasks, &places)).await?;
        self.insert(&entry);
        if let Some(key) = key {
            keys.insert(key, id);
        }
        let terms = (StaleLines::Refuse, RetryFailed::None, 0);
        let plan =
            history.plan(&tasks, &places, terms).map_err(|source| SubmitError::Misfit { id, source })?;
        let waiting = in_order(&plan, &tasks);
        self.count_spent(&entry, &work).await?;
        self.set_off(&entry, &mut work, tasks, &history, &plan, waiting);
        crash::point(Point::Submitted);
        Ok(Submitted { id, changed: true, tasks: count })
    }

    fn record(&self, batch: SubmitBatch, digest: &str) -> Record {
        let SubmitBatch { key, owner, options, .. } = batch;
        Record {
            key,
            digest: digest.to_owned(),
            retries: options.retries,
            halt: options.halt,
            concurrency: options.concurrency.unwrap_or_else(|| self.config().supervisor.max_live_runs.most()),
            max_cost: options.max_cost,
            owner,
            labels: options.labels,
            state: BatchState::Open,
            chosen: None,
            excused: 0,
            starts_nothing: false,
            summary: None,
        }
    }

    /// Goes on with a batch that is at rest, by an input that fits what is of record.
    async fn extend(
        &self,
        entry: Arc<Entry>,
        batch: SubmitBatch,
        spooled: Spooled,
        tasks: Lines,
    ) -> Result<Submitted, SubmitError> {
        let id = entry.id;
        entry.check()?;
        let mut work = entry.work.lock().await;
        if self.entry(id).is_err() {
            // It was taken off the record meanwhile, so this is a new one.
            drop(work);
            return Box::pin(self.take_on(batch, spooled, tasks)).await;
        }
        let count = tasks.count();
        let places = batch.options.places(&tasks)?;
        let unchanged = Submitted { id, changed: false, tasks: count };
        let BatchOptions { retry_failed, stale_lines, retries, .. } = batch.options;
        let is_same = work.record.digest == spooled.digest;
        let is_open = work.record.state == BatchState::Open;
        let is_at_rest = work.driver.is_none();
        let chosen = ranges(&places, count);
        let is_repeated = is_same && chosen == work.record.chosen && retry_failed == RetryFailed::None;
        if is_repeated && (!is_open || !is_at_rest) {
            return Ok(unchanged);
        }
        if !is_at_rest {
            let under_way: BTreeSet<usize> = work.record.places(count).into_iter().collect();
            let is_under_way = is_same && is_open && places.iter().all(|place| under_way.contains(place));
            return if is_under_way { Ok(unchanged) } else { Err(SubmitError::Busy { id }) };
        }
        let store = &*self.0.store;
        let history = History::read(store, id).await?;
        let plan = history.plan(&tasks, &places, (stale_lines, retry_failed, retries));
        let mut plan: Plan = plan.map_err(|source| SubmitError::Misfit { id, source })?;
        if is_same && !is_open && plan.start.is_empty() && plan.resume.is_empty() {
            return Ok(unchanged);
        }
        for run in &plan.abandon {
            // One that is worked on may yet be ending; what follows it is another run.
            self.end_run(*run).await?;
        }
        {
            let is_changed = history.is_of_a_changed_line(&tasks);
            let is_asked = |start: &Start| is_changed(start) || is_asked_by_a_person(start);
            submit_asked(store, id, &tasks, &mut plan, is_asked, &*self.0.clock).await?;
        }
        if let Some(name) = batch.name.clone() {
            work.name = name;
        }
        // What goes on after an end is another try, which earlier failures do not end.
        let excused = if is_open { work.record.excused } else { standing_failures(&history, &tasks, &plan) };
        let record = Record { chosen, excused, ..self.record(batch, &spooled.digest) };
        let replaced = work.record.digest.clone();
        self.put_on_disk(&entry, &mut work, record, spooled, history.changed(&tasks, &places)).await?;
        if !is_same {
            // What stays is swept at the next start.
            let _ = std::fs::remove_file(spool::path(&self.0.folder, id, &replaced));
        }
        let waiting = in_order(&plan, &tasks);
        self.count_spent(&entry, &work).await?;
        self.set_off(&entry, &mut work, tasks, &history, &plan, waiting);
        Ok(Submitted { id, changed: true, tasks: count })
    }

    /// The input first: a row of the log never names one that is not there.
    async fn put_on_disk(
        &self,
        entry: &Entry,
        work: &mut Work,
        record: Record,
        spooled: Spooled,
        tasks: Vec<TaskRecord>,
    ) -> Result<(), SubmitError> {
        spooled.keep(self.0.folder.clone(), entry.id).await?;
        entry.write(&*self.0.store, work, record, tasks).await?;
        Ok(())
    }
}

/// Tasks that have failed and are not done again.
fn standing_failures(history: &History, tasks: &Lines, plan: &Plan) -> usize {
    let again: BTreeSet<usize> =
        plan.start.iter().map(|one| one.task).chain(plan.resume.iter().map(|one| one.task)).collect();
    let has_failed = |place: &usize| {
        let latest = tasks.id(*place).and_then(|id| history.latest(id));
        latest.and_then(|latest| latest.end).is_some_and(|(_, outcome)| outcome != Outcome::Done)
    };
    (0..tasks.count()).filter(|place| !again.contains(place)).filter(has_failed).count()
}

/// Another attempt at an ended task that does not follow by itself: whoever asked for it has been told that it will be.
fn is_asked_by_a_person(start: &Start) -> bool {
    start.predecessor.is_some() && start.made == 0
}
