//! Writing what stands beside the log: what is known of a run without reading it, batches, snapshots, settings and
//! who changed what.
//!
//! Each change is part of a transaction of the writer's, and knows nothing of the others in it.

use rusqlite::{OptionalExtension, Transaction, params};

use super::append::Milestone;
use crate::{
    domain::id::{BatchId, Pos, RunId, Seq},
    store::{AuditRecord, BatchRecord, TaskRecord},
};

/// Puts down a run that is new and was not submitted, under its number.
pub(super) fn insert_run(change: &Transaction<'_>, number: u64, run: RunId) -> rusqlite::Result<()> {
    change
        .prepare_cached("INSERT INTO run (pos, id) VALUES (?1, ?2)")?
        .execute(params![number, run.as_bytes()])?;
    Ok(())
}

/// Changes what is known of a run for something that happened to it.
pub(super) fn reach(
    change: &Transaction<'_>,
    number: u64,
    run: RunId,
    milestone: &Milestone,
) -> rusqlite::Result<()> {
    match milestone {
        // A run that is submitted is new: its row is written once, not put down first and then filled.
        Milestone::Submitted { at, spec, about, labels } => {
            let submission = spec.submission.as_ref();
            change
                .prepare_cached(
                    "INSERT OR REPLACE INTO run (pos, id, batch, task_id, attempt, submitted_at, standing, about, model,
                         labels, priority, predecessor, submission_key, submission_digest, owner)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'open', ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
                )?
                .execute(params![
                    number,
                    run.as_bytes(),
                    spec.batch.as_ref().map(BatchId::as_bytes),
                    spec.task_id,
                    spec.attempt,
                    at.as_micros(),
                    about,
                    spec.model,
                    labels,
                    spec.priority,
                    spec.predecessor.as_ref().map(RunId::as_bytes),
                    submission.map(|one| &one.key),
                    submission.map(|one| &one.digest),
                    spec.owner,
                ])?
        }
        Milestone::Ended { at, outcome, end } => change
            .prepare_cached(
                "UPDATE run SET ended_at = ?2, end = ?3, standing = ?4, detail = ?5 WHERE pos = ?1",
            )?
            .execute(params![number, at.as_micros(), end, outcome.as_str(), outcome.detail()])?,
    };
    Ok(())
}

pub(super) fn save_checkpoint(
    change: &Transaction<'_>,
    run: RunId,
    through: Seq,
    state: &[u8],
) -> rusqlite::Result<()> {
    change
        .prepare_cached(
            "INSERT INTO checkpoint (run, through, state) VALUES (?1, ?2, ?3)
             ON CONFLICT (run) DO UPDATE SET through = excluded.through, state = excluded.state",
        )?
        .execute(params![run.as_bytes(), through.get(), state])?;
    Ok(())
}

pub(super) fn record_batch(
    change: &Transaction<'_>,
    batch: &BatchRecord,
    tasks: &[TaskRecord],
) -> rusqlite::Result<()> {
    let id = batch.id.as_bytes();
    change
        .prepare_cached(
            "INSERT INTO batch (batch, name, created_at, options) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (batch) DO UPDATE SET name = excluded.name, options = excluded.options",
        )?
        .execute(params![id, batch.name, batch.created_at.as_micros(), batch.options])?;
    let mut record = change.prepare_cached(
        "INSERT INTO task (batch, task_id, hash) VALUES (?1, ?2, ?3)
         ON CONFLICT (batch, task_id) DO UPDATE SET hash = excluded.hash",
    )?;
    for task in tasks {
        record.execute(params![id, task.task_id, task.hash])?;
    }
    Ok(())
}

/// The setting that has the place of the last fact before something was forgotten: no place is used twice.
pub(super) const LAST_FORGOTTEN: &str = "log.last-forgotten";

/// Takes away what there is of these batches and runs, but for what is open; `last` is the place of the last fact.
pub(super) fn forget(
    change: &Transaction<'_>,
    batches: &[BatchId],
    runs: &[RunId],
    last: Pos,
) -> rusqlite::Result<()> {
    save_setting(change, LAST_FORGOTTEN, Some(&last.to_string()))?;
    let mut ended = change.prepare_cached("SELECT pos FROM run WHERE id = ?1 AND ended_at IS NOT NULL")?;
    for run in runs {
        let Some(number) = ended.query_row([run.as_bytes()], |row| row.get::<_, i64>(0)).optional()? else {
            continue;
        };
        for by_number in ["DELETE FROM append WHERE run = ?1", "DELETE FROM run WHERE pos = ?1"] {
            change.prepare_cached(by_number)?.execute([number])?;
        }
        for by_id in ["DELETE FROM checkpoint WHERE run = ?1", "DELETE FROM damaged WHERE run = ?1"] {
            change.prepare_cached(by_id)?.execute([run.as_bytes()])?;
        }
    }
    for batch in batches {
        let open = "SELECT EXISTS (SELECT 1 FROM run WHERE batch = ?1 AND standing = 'open')";
        if change.prepare_cached(open)?.query_row([batch.as_bytes()], |row| row.get(0))? {
            continue;
        }
        for by_batch in ["DELETE FROM task WHERE batch = ?1", "DELETE FROM batch WHERE batch = ?1"] {
            change.prepare_cached(by_batch)?.execute([batch.as_bytes()])?;
        }
    }
    Ok(())
}

pub(super) fn save_setting(
    change: &Transaction<'_>,
    name: &str,
    value: Option<&str>,
) -> rusqlite::Result<()> {
    match value {
        Some(value) => change
            .prepare_cached(
                "INSERT INTO setting (name, value) VALUES (?1, ?2)
                 ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            )?
            .execute([name, value])?,
        None => change.prepare_cached("DELETE FROM setting WHERE name = ?1")?.execute([name])?,
    };
    Ok(())
}

pub(super) fn record_audit(change: &Transaction<'_>, record: &AuditRecord) -> rusqlite::Result<()> {
    let AuditRecord { at, uid, user, client, verb, target, changed, detail } = record;
    change
        .prepare_cached(
            "INSERT INTO audit (at, uid, user, client, verb, target, changed, detail)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?
        .execute(params![at.as_micros(), uid, user, client, verb, target, changed, detail])?;
    Ok(())
}
