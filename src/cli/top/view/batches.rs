//! Batches that are being worked on, a row each with how far it is.

use ratatui::{
    Frame,
    layout::Rect,
    text::{Line, Span},
    widgets::Paragraph,
};

use super::{
    super::{
        state::{Pane, State},
        words::{cut, grouped, money, width},
    },
    fitting,
    header::bar,
    pane_title,
};
use crate::daemon::wire::{BatchState, BatchView};

/// Rows of batches at most; more scroll.
const ROWS: usize = 5;

/// Columns of a name, and of the bar.
const NAME: usize = 20;
const BAR: u16 = 20;

/// Rows that the pane takes.
pub(super) fn height(state: &State, rows: u16) -> u16 {
    if state.batches.is_empty() || rows < 14 {
        return 0;
    }
    let most = if rows < 24 { 2 } else { ROWS };
    u16::try_from(state.batches.len().min(most) + 1).unwrap_or_default()
}

pub(super) fn draw(frame: &mut Frame<'_>, state: &State, area: Rect) {
    let Some(rows) = area.height.checked_sub(1).filter(|rows| *rows > 0) else { return };
    let rows = usize::from(rows);
    let count = state.batches.len();
    let first = state.batch_at.saturating_sub(rows - 1).min(count.saturating_sub(rows));
    let mut lines = vec![pane_title(state, Pane::Batches, &format!("batches {count}"), area.width)];
    for (at, batch) in state.batches.iter().enumerate().skip(first).take(rows) {
        let line = row(state, batch, area.width);
        let chosen = state.pane == Pane::Batches && at == state.batch_at;
        lines.push(if chosen { line.style(state.theme.selected()) } else { line });
    }
    frame.render_widget(Paragraph::new(lines), area);
}

fn row(state: &State, batch: &BatchView, columns: u16) -> Line<'static> {
    let theme = state.theme;
    let done = batch.ended.get("done").copied().unwrap_or_default();
    let ended: u64 = batch.ended.values().sum();
    let other = ended - done;
    let name = cut(&batch.name, NAME);
    let padding = " ".repeat(NAME - width(&name));
    let (full, empty) = bar(ended, batch.tasks, if columns < 80 { BAR / 2 } else { BAR });
    let (style, word) = match batch.state {
        BatchState::Open => (theme.good(), "open"),
        BatchState::Paused => (theme.held(), "paused"),
        BatchState::Ended => (theme.dim(), "ended"),
        BatchState::Cancelled => (theme.notable(), "cancelled"),
        BatchState::Halted => (theme.bad(), "halted"),
        BatchState::Broken => (theme.bad(), "broken"),
    };
    let percent = ended * 100 / batch.tasks.max(1);
    let progress = vec![
        Span::styled(format!("{name}{padding} "), theme.bold()),
        Span::styled(full, style),
        Span::styled(empty, theme.dim()),
        Span::raw(format!(" {percent:>3}%")),
    ];
    let mut parts = vec![
        progress,
        vec![Span::styled(word, style)],
        vec![Span::raw(format!("{}/{}", grouped(ended), grouped(batch.tasks)))],
        vec![Span::raw(format!("{} live", grouped(batch.running)))],
    ];
    if other > 0 {
        parts.push(vec![Span::styled(format!("{} not done", grouped(other)), theme.bad())]);
    }
    parts.extend(batch.cost_usd.map(|cost| vec![Span::raw(money(cost))]));
    parts.extend(batch.error.as_ref().map(|error| vec![Span::styled(error.clone(), theme.bad())]));
    fitting(parts, columns)
}
