//! Takes old runs off the record, with what they left in the state folder.
//!
//! Runs of a batch go together, once all of it has ended: what is of record of a batch says which of its tasks need not run
//! again. The record goes first and the files after it, a bounded number of runs at a time; cut short anywhere, what is left
//! is whole, and the next time finishes.

mod batch;
mod files;
#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, path::PathBuf, sync::Arc};

use serde::{Deserialize, Serialize};

use self::files::Files;
use super::batches::Batches;
use crate::{
    crash::{self, Point},
    domain::{
        id::{BatchId, RunId},
        outcome::Outcome,
        time::Timestamp,
    },
    store::{EventStore, RunFilter, RunRecord, StoreError},
    tool::isolate::Isolation,
};

/// Runs that go at once: whoever appends meanwhile waits for so many.
const CHUNK: usize = 500;

/// Records that are read at once: each holds the whole answer of its run.
const PAGE: usize = 500;

/// Which runs go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Those that ended before then.
    pub before: Timestamp,
    /// But not those that did not end as done, nor batches in which a task did not.
    pub keep_failed: bool,
}

/// Whether anything is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// It is only said what would go.
    Look,
    Remove,
}

/// What went, or would go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pruned {
    /// Runs, those of batches included.
    pub runs: u64,
    /// Batches.
    pub batches: u64,
    /// Batches that are old and stay, since not all of their tasks have ended.
    pub unfinished: u64,
}

/// Where runs are.
#[derive(Clone)]
pub struct Place {
    /// The folder that the log lies in.
    pub folder: PathBuf,
    /// Those who may be at work on batches of the log, if anybody is.
    pub batches: Option<Batches>,
    /// What puts workspaces of runs' own away; without it they stay.
    pub isolation: Option<Arc<Isolation>>,
}

/// Removes what is old, or tells what would be removed.
///
/// # Errors
/// The log cannot be read or written.
pub async fn prune(
    store: &dyn EventStore,
    place: &Place,
    terms: Terms,
    act: Act,
) -> Result<Pruned, StoreError> {
    let files = Files::of(&place.folder).await;
    let mut pruned = Pruned::default();
    let records = store.batches().await?;
    let known: BTreeSet<BatchId> = records.iter().map(|record| record.id).collect();
    for record in &records {
        let held = match (&place.batches, act) {
            (Some(batches), Act::Remove) => match batches.hold_ended(record.id).await {
                Some(held) => Some(held),
                // It has yet to end.
                None => continue,
            },
            (Some(_), Act::Look) | (None, _) => None,
        };
        let runs = match batch::judge(store, record, terms).await? {
            batch::Verdict::Goes(runs) => runs,
            batch::Verdict::Unfinished => {
                pruned.unfinished += 1;
                continue;
            }
            batch::Verdict::Stays => continue,
        };
        pruned.batches += 1;
        pruned.runs += runs.len() as u64;
        if act == Act::Remove {
            // Without its record a batch does not go on, whatever is left of its runs.
            let (first, rest) = runs.split_at(runs.len().min(CHUNK));
            forget(store, place, &files, Some(record.id), first).await?;
            if let Some(held) = held {
                held.forget().await;
            }
            for chunk in rest.chunks(CHUNK) {
                forget(store, place, &files, None, chunk).await?;
            }
        }
    }
    let singles = singles(store, &known, terms).await?;
    pruned.runs += singles.len() as u64;
    if act == Act::Remove {
        for chunk in singles.chunks(CHUNK) {
            forget(store, place, &files, None, chunk).await?;
        }
        sweep(store, &files, terms).await?;
    }
    Ok(pruned)
}

async fn forget(
    store: &dyn EventStore,
    place: &Place,
    files: &Files,
    batch: Option<BatchId>,
    runs: &[RunId],
) -> Result<(), StoreError> {
    crash::point(Point::BeforePrune);
    store.durable(store.forget(batch.into_iter().collect(), runs.to_vec())?).await?;
    crash::point(Point::AfterForget);
    if let Some(isolation) = &place.isolation {
        for run in runs {
            isolation.discard(*run).await;
        }
    }
    files.remove(batch, runs).await;
    crash::point(Point::AfterPrune);
    Ok(())
}

/// Runs that are of no batch of record, and old.
async fn singles(
    store: &dyn EventStore,
    known: &BTreeSet<BatchId>,
    terms: Terms,
) -> Result<Vec<RunId>, StoreError> {
    let mut filter = RunFilter { ended: Some(true), limit: Some(PAGE), ..RunFilter::default() };
    let mut singles = Vec::new();
    loop {
        let page = store.runs(filter.clone()).await?;
        filter.before = page.first().map(|record| record.run);
        let goes = |record: &&RunRecord| {
            record.batch.is_none_or(|batch| !known.contains(&batch))
                && is_old(record, terms)
                && (!terms.keep_failed || is_done(record))
        };
        singles.extend(page.iter().filter(goes).map(|record| record.run));
        if page.len() < PAGE {
            return Ok(singles);
        }
    }
}

fn is_old(record: &RunRecord, terms: Terms) -> bool {
    record.ended_at.is_some_and(|ended| ended < terms.before)
}

fn is_done(record: &RunRecord) -> bool {
    record.end.as_ref().is_some_and(|end| end.outcome == Outcome::Done)
}

/// Removes old outputs of runs that are not of record: of those whose end was cut short.
async fn sweep(store: &dyn EventStore, files: &Files, terms: Terms) -> Result<(), StoreError> {
    for chunk in files.spilled_before(terms.before).chunks(CHUNK) {
        let filter = RunFilter { among: Some(chunk.to_vec()), ..RunFilter::default() };
        let known: BTreeSet<RunId> = store.runs(filter).await?.iter().map(|record| record.run).collect();
        let unknown: Vec<RunId> = chunk.iter().filter(|run| !known.contains(run)).copied().collect();
        files.remove(None, &unknown).await;
    }
    Ok(())
}
