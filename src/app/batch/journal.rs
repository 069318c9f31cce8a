//! The journal of a batch that is run by itself: a state that holds this batch and nothing else.

use std::path::{Path, PathBuf};

use super::{
    BatchError, Options,
    history::History,
    lost::{Lost, lost},
    place::OutPlace,
};
use crate::{
    app::{
        input::InputTask,
        state::{State, StateError, check_not_emptied, is_emptied, log_bytes},
    },
    clock::Clock,
    config::Durability,
    domain::{batch::Plan, id::BatchId},
    store::{BatchRecord, RunFilter, folder::LOG, sqlite::OpenError},
};

/// An open journal.
pub struct Journal {
    /// The state that it is.
    pub state: State,
    /// The batch in it.
    pub batch: BatchId,
    /// What is of record of it, as of the opening of the journal.
    pub(super) history: History,
    /// Where the results go, without links.
    pub(super) out: Option<PathBuf>,
    /// What is kept of record of that: of its first start.
    place: Option<OutPlace>,
    name: String,
    is_new: bool,
}

/// What is read again of the options of record.
#[derive(serde::Deserialize)]
struct Kept {
    #[serde(default)]
    out: Option<OutPlace>,
}

/// Where a batch's journal lies by itself: OUT's full name plus `.state`.
pub fn beside(out: &Path) -> PathBuf {
    let mut name = out.as_os_str().to_owned();
    name.push(".state");
    PathBuf::from(name)
}

/// Whether there can be a file of results in this place.
///
/// # Errors
/// What is there instead, or what is missing.
pub fn check_place(out: &Path) -> Result<(), BatchError> {
    let refuse = |what| Err(BatchError::OutPlace { out: out.display().to_string(), what });
    match out.metadata() {
        Ok(facts) if facts.is_dir() => return refuse("is a folder; name a file for the results"),
        // It would be replaced, which does no good to a device.
        Ok(facts) if !facts.is_file() => return refuse("is no regular file; name one, or - for stdout"),
        Ok(_) | Err(_) => {}
    }
    if out.parent().is_some_and(|folder| !folder.as_os_str().is_empty() && !folder.is_dir()) {
        return refuse("its folder does not exist; create it, or name a file in another");
    }
    Ok(())
}

/// Whether OUT can be a file of results. Those that were not made from a journal are not written over.
fn check_out(folder: Option<&Path>, out: Option<&Path>) -> Result<(), BatchError> {
    out.map_or(Ok(()), check_place)?;
    match folder {
        // There was a journal, or there would be no results.
        Some(folder) if is_emptied(folder) => {
            check_not_emptied(folder).map_err(StateError::Log)?;
            if out.is_some_and(has_content) && log_bytes(folder).unwrap_or_default() == 0 {
                return Err(StateError::Log(OpenError::Gone { path: folder.join(LOG) }).into());
            }
            Ok(())
        }
        Some(folder) if !folder.join(LOG).exists() => check_out_is_empty(folder, out),
        Some(_) | None => Ok(()),
    }
}

fn has_content(out: &Path) -> bool {
    out.metadata().is_ok_and(|facts| facts.len() > 0)
}

fn check_out_is_empty(folder: &Path, out: Option<&Path>) -> Result<(), BatchError> {
    match out {
        Some(out) if has_content(out) => Err(BatchError::OutWithoutJournal {
            out: out.display().to_string(),
            journal: folder.display().to_string(),
        }),
        Some(_) | None => Ok(()),
    }
}

async fn check_nothing_lost(out: &Path, journal: &str, history: &History) -> Result<(), BatchError> {
    let name = out.display().to_string();
    match lost(out.to_owned(), history).await {
        Ok(Lost { count: 0, .. }) => Ok(()),
        Ok(Lost { tasks, count }) => {
            let more = if count > tasks.len() { ", ..." } else { "" };
            let tasks = format!("{}{more}", tasks.join(", "));
            Err(BatchError::Lost { out: name, journal: journal.to_owned(), tasks, count })
        }
        Err(source) => Err(BatchError::OutUnread { out: name, source }),
    }
}

impl Journal {
    /// Opens the journal in `folder`, or starts one; without a folder, one that goes with it.
    ///
    /// # Errors
    /// The folder is in use, or it holds something else than this batch, or OUT was not derived from it.
    pub async fn open(
        folder: Option<&Path>,
        out: Option<&Path>,
        durability: Durability,
    ) -> Result<Self, BatchError> {
        check_out(folder, out)?;
        let state = match folder {
            Some(folder) => State::to_write(folder, durability)?,
            None => State::passing()?,
        };
        Self::of(state, folder, out).await
    }

    /// Looks at the journal in `folder` without changing anything; if there is none, it is empty.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub async fn peek(folder: Option<&Path>, out: Option<&Path>) -> Result<Self, BatchError> {
        check_out(folder, out)?;
        let state = match folder {
            Some(folder) if folder.join(LOG).exists() => State::to_read(folder)?,
            Some(_) | None => State::in_memory(),
        };
        Self::of(state, folder, out).await
    }

    async fn of(mut state: State, folder: Option<&Path>, out: Option<&Path>) -> Result<Self, BatchError> {
        let name = folder.map_or_else(|| "the passing journal".to_owned(), |path| path.display().to_string());
        state.results = out.map(Path::to_owned);
        let batches = state.store.batches().await?;
        let other = |what: String| BatchError::OtherBatch { journal: name.clone(), what };
        let (batch, is_new) = match batches.as_slice() {
            [] if state
                .store
                .runs(RunFilter { limit: Some(1), ..RunFilter::default() })
                .await?
                .is_empty() =>
            {
                (BatchId::new(uuid::Uuid::now_v7()), true)
            }
            [] => return Err(other("runs that are of no batch".to_owned())),
            [one] => (one.id, false),
            many => return Err(other(format!("{} batches", many.len()))),
        };
        if let (true, Some(folder)) = (is_new, folder) {
            check_out_is_empty(folder, out)?;
        }
        let first = batches.first().and_then(|one| serde_json::from_str::<Kept>(&one.options).ok()?.out);
        let (at, now) = out.map(OutPlace::of).unzip();
        if let (false, Some(out), Some(now)) = (is_new, out, &now) {
            now.check(out, first.as_ref())?;
        }
        let history = History::read(&*state.store, batch).await?;
        if let (false, Some(out)) = (is_new, out) {
            check_nothing_lost(out, &name, &history).await?;
        }
        Ok(Self { state, batch, name, is_new, history, out: at, place: first.or(now) })
    }

    /// Compares the input with what is of record.
    ///
    /// # Errors
    /// Lines that changed, or are missing.
    pub fn plan(&self, tasks: &[InputTask], chosen: &[usize], options: &Options) -> Result<Plan, BatchError> {
        let terms = (options.stale_lines, options.retry_failed, options.retries);
        let plan = self.history.plan(&tasks, chosen, terms);
        plan.map_err(|source| BatchError::Misfit { journal: self.name.clone(), source })
    }

    /// Records the batch and its tasks; returns once that is on disk. A line that changed stays stale until its task is
    /// chosen.
    ///
    /// # Errors
    /// The log did not take it.
    pub async fn record(
        &mut self,
        tasks: &[InputTask],
        chosen: &[usize],
        options: &Options,
        clock: &dyn Clock,
    ) -> Result<(), BatchError> {
        let store = &self.state.store;
        let changed = self.history.changed(&tasks, chosen);
        if !self.is_new && changed.is_empty() {
            return Ok(());
        }
        let record = BatchRecord {
            id: self.batch,
            name: options.name.clone(),
            created_at: clock.now(),
            options: serde_json::json!({
                "retries": options.retries, "keep_order": options.keep_order, "out": self.place,
            })
            .to_string(),
        };
        let ticket = store.record_batch(record, changed)?;
        store.durable(ticket).await?;
        Ok(())
    }
}
