//! Questions with a filter: which runs, how many, who changed what.
//!
//! No question reads a log, and one that names what few runs have looks at those alone.

use std::sync::Arc;

use rusqlite::{Connection, Row, params_from_iter, types::Value};
use serde::de::DeserializeOwned;

use crate::{
    domain::{
        event::DecodeError,
        id::{BatchId, Pos, RunId},
        task::Submission,
        time::Timestamp,
    },
    store::{
        Asked, AuditFilter, AuditRecord, Damage, RunCounts, RunFilter, RunRecord, StoreError,
        runs::OutcomeName,
    },
};

/// How a run stands that was submitted and has not ended; one that has stands as its outcome is called.
const OPEN: &str = "open";

/// Conditions that must all hold, with the values that they name.
#[derive(Default)]
struct Wanted {
    conditions: Vec<&'static str>,
    values: Vec<Value>,
}

impl Wanted {
    fn all(&mut self, condition: &'static str, values: impl IntoIterator<Item = Value>) {
        self.conditions.push(condition);
        self.values.extend(values);
    }

    /// Adds a condition on one value, if there is one.
    fn by<T: Into<Value>>(&mut self, condition: &'static str, value: Option<T>) {
        if let Some(value) = value {
            self.all(condition, [value.into()]);
        }
    }

    fn sql(&self) -> String {
        if self.conditions.is_empty() { "TRUE".to_owned() } else { self.conditions.join(" AND ") }
    }
}

/// A limit as the file's language has it: negative for none.
fn most(limit: Option<usize>) -> Value {
    limit.and_then(|limit| i64::try_from(limit).ok()).unwrap_or(-1).into()
}

/// Runs that match, oldest first.
pub(super) fn runs(db: &Connection, filter: &RunFilter) -> Result<Vec<RunRecord>, StoreError> {
    let Some((sql, values)) = select_runs(filter) else { return Ok(Vec::new()) };
    let mut select = db.prepare_cached(&sql)?;
    let mut rows = select.query(params_from_iter(values))?;
    let mut records = Vec::new();
    while let Some(row) = rows.next()? {
        records.push(record(row)?);
    }
    records.reverse();
    Ok(records)
}

/// How many runs match, by how they stand.
pub(super) fn count(db: &Connection, filter: &RunFilter) -> Result<RunCounts, StoreError> {
    let mut counts = RunCounts::default();
    let Some((sql, values)) = count_runs(filter) else { return Ok(counts) };
    let mut select = db.prepare_cached(&sql)?;
    let mut rows = select.query(params_from_iter(values))?;
    while let Some(row) = rows.next()? {
        let standing = row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?;
        counts.add((standing != OPEN).then_some(standing), row.get(1)?);
    }
    Ok(counts)
}

/// Asks for the runs that match, newest first; nothing if none can.
fn select_runs(filter: &RunFilter) -> Option<(String, Vec<Value>)> {
    let mut wanted = wanted("submitted_at IS NOT NULL", filter)?;
    wanted.by("pos < (SELECT pos FROM run WHERE id = ?)", filter.before.map(|run| run.as_bytes().to_vec()));
    let sql = format!(
        "SELECT pos, id, batch, task_id, attempt, submitted_at, end, ended_at, about, model, labels, priority,
             predecessor, submission_key, submission_digest, owner
         FROM run WHERE {} ORDER BY pos DESC LIMIT ?",
        wanted.sql()
    );
    wanted.values.push(most(filter.limit));
    Some((sql, wanted.values))
}

/// Asks how many runs match; nothing if none can.
fn count_runs(filter: &RunFilter) -> Option<(String, Vec<Value>)> {
    let wanted = wanted("standing IS NOT NULL", filter)?;
    let sql = format!("SELECT standing, count(*) FROM run WHERE {} GROUP BY standing", wanted.sql());
    Some((sql, wanted.values))
}

/// What holds of a run that was submitted, as `submitted` says, and that the filter admits; nothing if it admits none.
fn wanted(submitted: &'static str, filter: &RunFilter) -> Option<Wanted> {
    let mut wanted = Wanted::default();
    wanted.all(submitted, []);
    let ids = |runs: &Vec<RunId>| serde_json::json!(runs).to_string();
    wanted.by("id IN (SELECT unhex(value, '-') FROM json_each(?))", filter.among.as_ref().map(ids));
    wanted.by("batch = ?", filter.batch.map(|batch| batch.as_bytes().to_vec()));
    wanted.by("task_id = ?", filter.task_id.clone());
    wanted.by("submission_key = ?", filter.key.clone());
    wanted.by("predecessor = ?", filter.predecessor.map(|run| run.as_bytes().to_vec()));
    wanted.by("model = ?", filter.model.clone());
    wanted.by("submitted_at >= ?", filter.since.map(Timestamp::as_micros));
    wanted.by("submitted_at < ?", filter.until.map(Timestamp::as_micros));
    match filter.ended {
        Some(true) => wanted.all("ended_at IS NOT NULL", []),
        Some(false) => wanted.by("standing = ?", Some(OPEN.to_owned())),
        None => {}
    }
    match filter.outcome.as_deref().map(OutcomeName::of) {
        Some(OutcomeName::Outcome(name)) => wanted.by("standing = ?", Some(name.to_owned())),
        Some(OutcomeName::Detail(name)) => wanted.by("detail = ?", Some(name.to_owned())),
        None => {}
    }
    for (name, value) in &filter.labels {
        wanted.all(
            "EXISTS (SELECT 1 FROM json_each(run.labels) WHERE key = ? AND value = ?)",
            [name.clone().into(), value.clone().into()],
        );
    }
    if let Some(prefix) = &filter.id_prefix {
        let (first, last) = RunFilter::ids(prefix)?;
        wanted.all("id BETWEEN ? AND ?", [first, last].map(|id| id.as_bytes().to_vec().into()));
    }
    Some(wanted)
}

fn record(row: &Row<'_>) -> Result<RunRecord, StoreError> {
    let run = RunId::from_bytes(row.get(1)?);
    let damaged = |source: DecodeError| {
        let pos = Pos::new(row.get(0).unwrap_or_default());
        StoreError::Damaged { pos, run, source: Arc::new(Damage::from(source)) }
    };
    let end = row.get_ref(6)?.as_blob_or_null().map_err(rusqlite::Error::from)?;
    Ok(RunRecord {
        run,
        batch: row.get::<_, Option<[u8; 16]>>(2)?.map(BatchId::from_bytes),
        task_id: row.get(3)?,
        attempt: row.get(4)?,
        submitted_at: Timestamp::from_micros(row.get(5)?),
        asked: asked(row, damaged)?.map(Arc::new),
        end: end.map(|end| read(end, "run_end").map_err(damaged)).transpose()?.map(Arc::new),
        ended_at: row.get::<_, Option<i64>>(7)?.map(Timestamp::from_micros),
    })
}

fn asked(row: &Row<'_>, damaged: impl Fn(DecodeError) -> StoreError) -> Result<Option<Asked>, StoreError> {
    let Some(model) = row.get(9)? else { return Ok(None) };
    let labels = row.get_ref(10)?.as_str_or_null().map_err(rusqlite::Error::from)?;
    let key: Option<Arc<str>> = row.get(13)?;
    let submission = key.zip(row.get(14)?).map(|(key, digest)| Submission { key, digest });
    Ok(Some(Asked {
        about: row.get(8)?,
        model,
        labels: labels
            .map(|labels| read(labels.as_bytes(), "submitted").map_err(damaged))
            .transpose()?
            .unwrap_or_default(),
        priority: row.get(11)?,
        predecessor: row.get::<_, Option<[u8; 16]>>(12)?.map(RunId::from_bytes),
        submission,
        owner: row.get(15)?,
    }))
}

/// Reads JSON that stands beside the log and came from an event of that kind.
fn read<T: DeserializeOwned>(json: &[u8], kind: &str) -> Result<T, DecodeError> {
    serde_json::from_slice(json).map_err(|source| DecodeError::Data { kind: kind.to_owned(), source })
}

/// The records of changes that match, oldest first.
pub(super) fn audit(db: &Connection, filter: &AuditFilter) -> Result<Vec<AuditRecord>, StoreError> {
    let mut wanted = Wanted::default();
    wanted.by("at >= ?", filter.since.map(Timestamp::as_micros));
    wanted.by("at < ?", filter.until.map(Timestamp::as_micros));
    wanted.by("user = ?", filter.user.clone());
    wanted.by("uid = ?", filter.uid);
    wanted.by("verb = ?", filter.verb.clone());
    wanted.by("target = ?", filter.target.clone());
    let sql = format!(
        "SELECT at, uid, user, client, verb, target, changed, detail FROM audit
         WHERE {} ORDER BY idx DESC LIMIT ?",
        wanted.sql()
    );
    wanted.values.push(most(filter.limit));
    let mut select = db.prepare_cached(&sql)?;
    let rows = select.query_map(params_from_iter(wanted.values), |row| {
        Ok(AuditRecord {
            at: Timestamp::from_micros(row.get(0)?),
            uid: row.get(1)?,
            user: row.get(2)?,
            client: row.get(3)?,
            verb: row.get(4)?,
            target: row.get(5)?,
            changed: row.get(6)?,
            detail: row.get(7)?,
        })
    })?;
    let mut records = rows.collect::<Result<Vec<_>, _>>()?;
    records.reverse();
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::{Durability, schema};

    #[test]
    fn no_question_about_runs_looks_at_more_rows_than_it_must() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.db");
        let db = schema::open_writer(&path, Durability::Process, std::time::Duration::ZERO).unwrap();
        let plan = |(sql, values): (String, Vec<Value>)| -> String {
            let mut explain = db.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let steps = explain.query_map(params_from_iter(values), |row| row.get::<_, String>(3)).unwrap();
            steps.map(Result::unwrap).collect::<Vec<_>>().join(", ")
        };
        let all = RunFilter::default;
        let batch = Some(BatchId::from_bytes([1; 16]));
        let run = Some(RunId::from_bytes([1; 16]));
        let key = || Some("k".to_owned());
        let outcome = |name: &str| RunFilter { outcome: Some(name.to_owned()), ..all() };
        let runs = [
            (all(), "SCAN run"),
            (RunFilter { batch, ..all() }, "SEARCH run USING INDEX run_batch (batch=?)"),
            (
                RunFilter { batch, task_id: Some("t".into()), ..all() },
                "SEARCH run USING INDEX run_task (task_id=?)",
            ),
            (RunFilter { ended: Some(false), ..all() }, "SEARCH run USING INDEX run_standing (standing=?)"),
            (
                RunFilter { id_prefix: Some("0".into()), ..all() },
                "SEARCH run USING INDEX sqlite_autoindex_run_1 (id>? AND id<?), USE TEMP B-TREE FOR ORDER BY",
            ),
            (
                RunFilter { among: Some(run.into_iter().collect()), ..all() },
                "SEARCH run USING INDEX sqlite_autoindex_run_1 (id=?), LIST SUBQUERY 1, \
                 SCAN json_each VIRTUAL TABLE INDEX 1:, USE TEMP B-TREE FOR ORDER BY",
            ),
            (RunFilter { key: key(), ..all() }, "SEARCH run USING INDEX run_submission (submission_key=?)"),
            (
                RunFilter { predecessor: run, ..all() },
                "SEARCH run USING INDEX run_predecessor (predecessor=?)",
            ),
            (outcome("failed"), "SEARCH run USING INDEX run_standing (standing=?)"),
            (outcome("stuck"), "SEARCH run USING INDEX run_detail (detail=?)"),
            (
                RunFilter { batch, ..outcome("done") },
                "SEARCH run USING INDEX run_batch_standing (batch=? AND standing=?)",
            ),
            (
                RunFilter { key: key(), ..outcome("done") },
                "SEARCH run USING INDEX run_submission (submission_key=?)",
            ),
            (
                RunFilter { before: run, ..all() },
                "SEARCH run USING INTEGER PRIMARY KEY (rowid<?), SCALAR SUBQUERY 1, \
                 SEARCH run USING COVERING INDEX sqlite_autoindex_run_1 (id=?)",
            ),
            (
                RunFilter { before: run, ended: Some(false), ..all() },
                "SEARCH run USING INDEX run_standing (standing=? AND rowid<?), SCALAR SUBQUERY 1, \
                 SEARCH run USING COVERING INDEX sqlite_autoindex_run_1 (id=?)",
            ),
        ];
        for (filter, expected) in runs {
            assert_eq!(plan(select_runs(&filter).unwrap()), expected, "{filter:?}");
        }
        let counts = [
            (all(), "SEARCH run USING COVERING INDEX run_standing (standing>?)"),
            (
                RunFilter { batch, ..all() },
                "SEARCH run USING COVERING INDEX run_batch_standing (batch=? AND standing>?)",
            ),
            (
                RunFilter { ended: Some(false), ..all() },
                "SEARCH run USING COVERING INDEX run_standing (standing=?)",
            ),
            (outcome("done"), "SEARCH run USING COVERING INDEX run_standing (standing=?)"),
        ];
        for (filter, expected) in counts {
            assert_eq!(plan(count_runs(&filter).unwrap()), expected, "{filter:?}");
        }
    }
}
