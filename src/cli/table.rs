//! Runs as a table, and as lines of JSON.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde_json::{Value, json};

use super::{
    progress::{clock, short},
    render::rfc3339,
    standing::Standing,
};
use crate::store::RunRecord;

const TASK_WIDTH: usize = 40;
const STANDING_WIDTH: usize = 48;

/// A table for people, without lines to draw.
pub(super) fn runs(records: &[RunRecord], standings: &[Standing]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["RUN", "TASK", "TRY", "STANDS", "TURNS", "CALLS", "TOKENS", "COST", "TIME"]);
    for (record, standing) in records.iter().zip(standings) {
        let end = record.end.as_deref();
        let count = |count: Option<String>| count.unwrap_or_else(|| "-".to_owned());
        table.add_row([
            record.run.to_string(),
            cut(record.task_id.as_deref().unwrap_or("-"), TASK_WIDTH),
            record.attempt.to_string(),
            cut(&standing.phase, STANDING_WIDTH),
            count(end.map(|end| end.turns.to_string())),
            count(end.map(|end| end.calls.to_string())),
            count(end.map(|end| short(end.usage.total()))),
            count(end.and_then(|end| end.usage.cost).map(|cost| format!("${:.4}", cost.usd()))),
            count(end.map(|end| clock(std::time::Duration::from_micros(end.duration_us)))),
        ]);
    }
    for (place, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if !matches!(place, 0 | 1 | 3) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}

/// A run as data.
pub(super) fn run_json(record: &RunRecord, standing: &Standing) -> Value {
    let end = record.end.as_deref();
    json!({
        "run": record.run.to_string(),
        "batch": record.batch.map(|batch| batch.to_string()),
        "id": record.task_id,
        "attempt": record.attempt,
        "submitted_at": rfc3339(record.submitted_at),
        "ended_at": record.ended_at.map(rfc3339),
        "phase": standing.phase,
        "waits_for": standing.waits_for,
        "outcome": end.map(|end| end.outcome.as_str()),
        "detail": end.and_then(|end| end.outcome.detail()),
        "turns": end.map(|end| end.turns),
        "calls": end.map(|end| end.calls),
        "usage": end.map(|end| end.usage),
        "cost_usd": end.and_then(|end| end.usage.cost).map(|cost| cost.usd()),
        "duration_ms": end.map(|end| end.duration_us / 1_000),
        "error": end.and_then(|end| end.error.as_deref()),
    })
}

/// A text that leaves room for the rest.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(width - 1).collect();
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::domain::{event::RunEnd, id::RunId, time::Timestamp};

    fn record(number: u8, task: &str, end: Option<&str>) -> RunRecord {
        RunRecord {
            run: RunId::from_bytes([number; 16]),
            batch: None,
            task_id: Some(task.into()),
            attempt: number.into(),
            submitted_at: Timestamp::from_micros(1_764_489_600_000_000),
            end: end.map(|end| Arc::new(serde_json::from_str::<RunEnd>(end).expect("an end"))),
            ended_at: None,
            asked: None,
        }
    }

    const END: &str = r#"{"outcome": "budget", "detail": "turns", "turns": 12, "calls": 3,
        "usage": {"input": 12000, "output": 500, "cost": 1500000}, "queued_us": 1, "duration_us": 65000000, "active_us": 1}"#;

    #[test]
    fn an_open_run_has_dashes_and_a_long_name_is_cut() {
        let records = [record(1, "a", Some(END)), record(2, &"long".repeat(20), None)];
        insta::assert_snapshot!(runs(&records, &records.each_ref().map(Standing::at_a_glance)));
    }

    #[test]
    fn a_run_as_data_has_every_key() {
        let data = |record: &RunRecord| run_json(record, &Standing::at_a_glance(record));
        let value = data(&record(1, "a", Some(END)));
        assert_eq!(value["outcome"], "budget");
        assert_eq!(value["submitted_at"], "2025-11-30T08:00:00.000000Z");
        assert_eq!(value["cost_usd"], 0.0015);
        let open = data(&record(1, "a", None));
        let keys = |value: &Value| value.as_object().map(|map| map.keys().cloned().collect::<Vec<_>>());
        assert_eq!(keys(&value), keys(&open));
    }
}
