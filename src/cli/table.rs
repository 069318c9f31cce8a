//! Rows as a table for people, without lines to draw.

use std::{collections::BTreeMap, time::Duration};

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use super::{
    progress::{short, took},
    render::one_line,
};
use crate::daemon::wire::{BatchView, Counts, PauseMode, RunView, StatsRow, Tokens};

const TASK_WIDTH: usize = 40;
const STANDING_WIDTH: usize = 52;

/// Where the texts of a column stand.
#[derive(Clone, Copy)]
pub(super) enum Side {
    Left,
    Right,
}
use Side::{Left, Right};

/// A table with these heads.
pub(super) fn table<const N: usize>(
    heads: [(&str, Side); N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(heads.map(|(head, _)| head));
    table.add_rows(rows);
    for (column, (_, side)) in table.column_iter_mut().zip(heads) {
        column.set_padding((0, 2));
        if let Right = side {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}

/// Runs.
pub(super) fn runs(runs: &[RunView]) -> String {
    let heads = [
        ("RUN", Left),
        ("TASK", Left),
        ("TRY", Right),
        ("STANDS", Left),
        ("TURNS", Right),
        ("CALLS", Right),
        ("TOKENS", Right),
        ("COST", Right),
        ("TIME", Right),
    ];
    table(
        heads,
        runs.iter().map(|run| {
            [
                run.id.clone(),
                one_line(run.task_id.as_deref().unwrap_or(&run.about), TASK_WIDTH),
                run.attempt.to_string(),
                one_line(&run.phase, STANDING_WIDTH),
                run.turns.to_string(),
                run.calls.to_string(),
                total(run.usage),
                cost(run.cost_usd),
                time(run.duration_ms),
            ]
        }),
    )
}

/// How many runs there are, and how many of them are shown.
pub(super) fn counts(counts: &Counts, shown: usize) -> String {
    let showing = match u64::try_from(shown) {
        Ok(shown) if shown < counts.total => format!("; showing {}", grouped(shown)),
        Ok(_) | Err(_) => String::new(),
    };
    let runs = if counts.total == 1 { "run" } else { "runs" };
    match counts.total {
        0 => "no runs".to_owned(),
        total => format!("{} {runs}: {}{showing}", grouped(total), counted_by_end(counts)),
    }
}

/// How many runs are open, and how many ended how.
pub(super) fn counted_by_end(counts: &Counts) -> String {
    let by_outcome = counts.ended.iter().map(|(outcome, count)| format!("{} {outcome}", grouped(*count)));
    let open = (counts.open > 0).then(|| format!("{} open", grouped(counts.open)));
    let parts: Vec<String> = open.into_iter().chain(by_outcome).collect();
    if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
}

/// Batches.
pub(super) fn batches(batches: &[BatchView]) -> String {
    let heads = [
        ("BATCH", Left),
        ("NAME", Left),
        ("STATE", Left),
        ("TASKS", Right),
        ("WAITING", Right),
        ("OPEN", Right),
        ("ENDED", Left),
        ("TOKENS", Right),
        ("COST", Right),
    ];
    table(
        heads,
        batches.iter().map(|batch| {
            [
                batch.id.clone(),
                one_line(&batch.name, TASK_WIDTH),
                word(&batch.state),
                batch.tasks.to_string(),
                batch.waiting.to_string(),
                batch.open.to_string(),
                outcomes(&batch.ended),
                total(batch.usage),
                cost(batch.cost_usd),
            ]
        }),
    )
}

/// What runs came to, by group.
pub(super) fn stats(by: &str, rows: &[StatsRow]) -> String {
    let by = by.to_uppercase();
    let heads = [
        (by.as_str(), Left),
        ("RUNS", Right),
        ("ENDED", Left),
        ("TURNS", Right),
        ("CALLS", Right),
        ("TOKENS", Right),
        ("COST", Right),
        ("P50", Right),
        ("P99", Right),
    ];
    table(
        heads,
        rows.iter().map(|row| {
            [
                name(&row.group),
                row.runs.to_string(),
                outcomes(&row.ended),
                row.turns.to_string(),
                row.calls.to_string(),
                total(row.usage),
                cost(row.cost_usd),
                time(row.p50_ms),
                time(row.p99_ms),
            ]
        }),
    )
}

/// A group by its name, if it has one.
fn name(group: &str) -> String {
    if group.is_empty() { dash() } else { one_line(group, TASK_WIDTH) }
}

/// How a pause is called.
pub(super) const fn pause(mode: PauseMode) -> &'static str {
    match mode {
        PauseMode::Soft => "soft",
        PauseMode::Hold => "held",
    }
}

/// A value of a closed set, as its JSON has it.
pub(super) fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        Ok(_) | Err(_) => dash(),
    }
}

pub(super) fn outcomes(ended: &BTreeMap<String, u64>) -> String {
    if ended.is_empty() {
        return dash();
    }
    ended.iter().map(|(outcome, count)| format!("{count} {outcome}")).collect::<Vec<_>>().join(", ")
}

pub(super) fn total(tokens: Tokens) -> String {
    short(tokens.input.saturating_add(tokens.output))
}

pub(super) fn cost(usd: Option<f64>) -> String {
    usd.map_or_else(dash, |usd| format!("${usd:.4}"))
}

fn time(millis: Option<u64>) -> String {
    millis.map_or_else(dash, |millis| took(Duration::from_millis(millis)))
}

fn dash() -> String {
    "-".to_owned()
}

/// A count with its thousands apart.
pub(super) fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(number: u8, more: serde_json::Value) -> RunView {
        let mut run = serde_json::json!({
            "id": uuid::Uuid::from_bytes([number; 16]).to_string(), "attempt": number, "about": "Do\nit", "model": "m",
            "labels": {}, "priority": 0, "state": "running", "phase": "thinking: waits for the model", "turns": 2,
            "calls": 1, "usage": {"input": 12000, "output": 500, "cached": 0, "estimated": false}, "submitted_at": "",
            "said": "",
        });
        if let (Some(run), serde_json::Value::Object(more)) = (run.as_object_mut(), more) {
            run.extend(more);
        }
        serde_json::from_value(run).expect("a run")
    }

    #[test]
    fn an_open_run_has_dashes_and_a_long_name_is_cut() {
        let ended = serde_json::json!({"phase": "budget: turns", "cost_usd": 0.0015, "duration_ms": 65_000,
            "task_id": "long".repeat(20)});
        insta::assert_snapshot!(runs(&[run(1, ended), run(2, serde_json::json!({}))]));
    }

    #[test]
    fn counts_tell_of_what_is_not_shown() {
        let ended = [("done".to_owned(), 9_000), ("failed".to_owned(), 880)].into();
        let all = Counts { total: 10_000, open: 120, ended };
        assert_eq!(counts(&all, 50), "10,000 runs: 120 open, 9,000 done, 880 failed; showing 50");
        let one = Counts { total: 1, open: 1, ended: BTreeMap::new() };
        assert_eq!(counts(&one, 1), "1 run: 1 open");
        assert_eq!(counts(&Counts::default(), 0), "no runs");
        assert_eq!(counted_by_end(&Counts::default()), "none");
    }

    #[test]
    fn thousands_stand_apart() {
        assert_eq!(
            [0, 999, 1_000, 12_345_678].map(grouped),
            ["0", "999", "1,000", "12,345,678"].map(str::to_owned)
        );
    }
}
