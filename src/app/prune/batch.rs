//! Whether a batch may go: all of it has ended, nothing of it is to be tried again, and all of it is old.

use std::{collections::BTreeMap, sync::Arc};

use serde::Deserialize;

use super::{PAGE, Terms, is_old};
use crate::{
    app::batches::BatchState,
    domain::{batch::is_worth_a_retry, id::RunId, outcome::Outcome},
    store::{BatchRecord, EventStore, RunFilter, RunRecord, StoreError},
};

/// What becomes of a batch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It goes with these runs.
    Goes(Vec<RunId>),
    /// It is old, and tasks of it have yet to end.
    Unfinished,
    Stays,
}

/// What is of record of a batch, whoever ran it.
#[derive(Deserialize)]
struct Kept {
    /// Only a daemon's has one.
    state: Option<BatchState>,
    #[serde(default)]
    retries: u32,
}

/// The latest attempt at a task.
struct Latest {
    attempt: u32,
    run: RunId,
    outcome: Outcome,
}

pub(super) async fn judge(
    store: &dyn EventStore,
    batch: &BatchRecord,
    terms: Terms,
) -> Result<Verdict, StoreError> {
    // One that is not understood may be a later version's.
    let Ok(Kept { state, retries }) = serde_json::from_str(&batch.options) else {
        return Ok(Verdict::Stays);
    };
    let (mut runs, mut latest) = (Vec::new(), BTreeMap::new());
    let mut filter = RunFilter { batch: Some(batch.id), limit: Some(PAGE), ..RunFilter::default() };
    loop {
        // The newest first: most batches that stay are known by it.
        let page = store.runs(filter.clone()).await?;
        filter.before = page.first().map(|record| record.run);
        for record in &page {
            if !is_old(record, terms) {
                return Ok(Verdict::Stays);
            }
            runs.push(record.run);
            take_in(&mut latest, record);
        }
        if page.len() < PAGE {
            break;
        }
    }
    if runs.is_empty() && batch.created_at >= terms.before {
        return Ok(Verdict::Stays);
    }
    let has_ended = match state {
        Some(BatchState::Ended | BatchState::Cancelled) => true,
        Some(BatchState::Open) => false,
        None => {
            let tasks = store.tasks(batch.id).await?;
            let is_retried = |one: &Latest| one.attempt <= retries && is_worth_a_retry(one.outcome);
            tasks.iter().all(|task| latest.get(&task.task_id).is_some_and(|one| !is_retried(one)))
        }
    };
    if !has_ended {
        return Ok(Verdict::Unfinished);
    }
    if terms.keep_failed && latest.values().any(|one| one.outcome != Outcome::Done) {
        return Ok(Verdict::Stays);
    }
    Ok(Verdict::Goes(runs))
}

fn take_in(latest: &mut BTreeMap<Arc<str>, Latest>, record: &RunRecord) {
    let (Some(task), Some(end)) = (&record.task_id, &record.end) else { return };
    let (attempt, run) = (record.attempt, record.run);
    if latest.get(task).is_none_or(|known| (known.attempt, known.run) < (attempt, run)) {
        latest.insert(task.clone(), Latest { attempt, run, outcome: end.outcome });
    }
}
