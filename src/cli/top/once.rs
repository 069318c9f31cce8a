//! The screen as plain text, once, for scripts: every column is there, however wide the terminal is.

use comfy_table::{ContentArrangement, Table, presets};

use super::{
    state::State,
    view::runs::COLUMNS,
    words::{cut, grouped, money, since},
};
use crate::cli::progress::short;

/// Columns of a terminal that a cell has at most.
const CELL: usize = 48;

/// Everything that one look gave.
pub(super) fn frame(state: &State) -> String {
    let Some(status) = &state.status else { return String::new() };
    let load = &status.load;
    let mut parts = vec![
        format!("herder {} {}, up {}", status.version, status.phase, since(&status.started_at, state.now)),
        format!("{}/{} live", grouped(load.live), grouped(status.max_live_runs)),
        format!("{} queued", grouped(load.queued)),
        format!("{} held", grouped(load.held)),
        format!("{:.1} turns/s", status.rates.turns_per_s),
        format!("{} tokens", short(status.open_usage.input + status.open_usage.output)),
    ];
    parts.extend(status.open_cost_usd.map(money));
    if !status.paused.is_empty() {
        parts.push("paused".to_owned());
    }
    let mut text = parts.join(", ");
    for batch in &state.batches {
        let ended: u64 = batch.ended.values().sum();
        text.push_str(&format!(
            "\nbatch {}: {}/{} ended, {} live",
            batch.name, ended, batch.tasks, batch.open
        ));
    }
    if state.runs.is_empty() {
        return text;
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(COLUMNS.iter().map(|column| column.title));
    for run in &state.runs {
        let cells = COLUMNS.iter().map(|column| cut(&(column.text)(run, state.now), CELL));
        table.add_row(cells.collect::<Vec<_>>());
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    format!("{text}\n\n{}", table.trim_fmt())
}
