//! Runs as a table, with the columns that there is room for.

use ratatui::{
    Frame,
    layout::Rect,
    style::Style,
    text::{Line, Span},
    widgets::Paragraph,
};

use super::{
    super::{
        state::{Pane, Sort, State, name},
        words::{age, cut, grouped, money, since, width},
    },
    Theme, pane_title,
};
use crate::{
    cli::progress::short,
    daemon::wire::{CallView, RunView},
    domain::time::Timestamp,
};

/// A column: what it is called, how wide it is, and the width of screen from which it is there.
pub(in crate::cli::top) struct Column {
    pub(in crate::cli::top) title: &'static str,
    wide: Wide,
    from: u16,
    sort: Option<Sort>,
    pub(in crate::cli::top) text: fn(&RunView, Timestamp) -> String,
}

enum Wide {
    Left(usize),
    Right(usize),
    /// It shares what is left, by this weight.
    Rest(usize),
}

pub(in crate::cli::top) const COLUMNS: &[Column] = &[
    Column { title: "RUN", wide: Wide::Left(8), from: 0, sort: None, text: |run, _| tail(&run.id) },
    Column { title: "TASK", wide: Wide::Rest(3), from: 0, sort: Some(Sort::Task), text: |run, _| task(run) },
    Column {
        title: "MODEL",
        wide: Wide::Left(16),
        from: 110,
        sort: Some(Sort::Model),
        text: |run, _| run.model.clone(),
    },
    Column {
        title: "PHASE",
        wide: Wide::Left(8),
        from: 0,
        sort: Some(Sort::State),
        text: |run, _| phase(run).0.to_owned(),
    },
    Column { title: "AT WORK ON", wide: Wide::Rest(4), from: 76, sort: None, text: |run, _| at_work_on(run) },
    Column {
        title: "TURN",
        wide: Wide::Right(4),
        from: 0,
        sort: Some(Sort::Turn),
        text: |run, _| run.turns.to_string(),
    },
    Column {
        title: "CALLS",
        wide: Wide::Right(5),
        from: 90,
        sort: Some(Sort::Calls),
        text: |run, _| run.calls.to_string(),
    },
    Column {
        title: "TOKENS",
        wide: Wide::Right(6),
        from: 50,
        sort: Some(Sort::Tokens),
        text: |run, _| short(run.usage.input + run.usage.output),
    },
    Column {
        title: "COST",
        wide: Wide::Right(7),
        from: 70,
        sort: Some(Sort::Cost),
        text: |run, _| run.cost_usd.map_or_else(|| "-".to_owned(), money),
    },
    Column {
        title: "AGE",
        wide: Wide::Right(6),
        from: 0,
        sort: Some(Sort::Age),
        text: |run, now| since(run.started_at.as_ref().unwrap_or(&run.submitted_at), now),
    },
];

pub(super) fn draw(frame: &mut Frame<'_>, state: &State, area: Rect) {
    let Some(rows) = usize::from(area.height).checked_sub(2) else { return };
    let columns = sized(area.width);
    let mut lines = vec![pane_title(state, Pane::Runs, &title(state), area.width), head(state, &columns)];
    if state.runs.is_empty() && state.status.is_some() {
        lines.push(Line::styled(format!(" {}", nothing(state)), state.theme.dim()));
    }
    // The selection stays in the middle while the list moves under it.
    let first = state.at.saturating_sub(rows / 2).min(state.runs.len().saturating_sub(rows));
    for (at, run) in state.runs.iter().enumerate().skip(first).take(rows) {
        let cells = columns.iter().map(|(column, columns)| {
            let style = if column.title == "PHASE" { state.theme.standing(run) } else { Style::new() };
            Span::styled(fit(column, &(column.text)(run, state.now), *columns), style)
        });
        let line = Line::from(cells.collect::<Vec<_>>());
        let chosen = at == state.at && state.pane != Pane::Batches;
        lines.push(if chosen { line.style(state.theme.selected()) } else { line.style(faded(state, run)) });
    }
    frame.render_widget(Paragraph::new(lines), area);
}

/// Rows of runs that wait stand back.
fn faded(state: &State, run: &RunView) -> Style {
    match run.state {
        crate::daemon::wire::RunState::Queued => state.theme.dim(),
        crate::daemon::wire::RunState::Running
        | crate::daemon::wire::RunState::Paused
        | crate::daemon::wire::RunState::Ended => Style::new(),
    }
}

fn title(state: &State) -> String {
    let shown = state.runs.len() as u64;
    let mut title = if shown == state.open {
        format!("runs {}", grouped(shown))
    } else {
        format!("runs {} of {}", grouped(shown), grouped(state.open))
    };
    if let Some((_, batch)) = &state.only {
        title.push_str(&format!(" of batch {batch}"));
    }
    if !state.filter.is_empty() {
        title.push_str(&format!(" with \"{}\"", state.filter));
    }
    let order = if state.reversed { " reversed" } else { "" };
    format!("{title}, by {}{order}", state.sort.name())
}

const fn nothing(state: &State) -> &'static str {
    if state.filter.is_empty() {
        "nothing runs; `herder submit` gives the daemon something to do"
    } else {
        "nothing matches; esc shows everything"
    }
}

fn head(state: &State, columns: &[(&Column, usize)]) -> Line<'static> {
    let cells = columns.iter().map(|(column, columns)| {
        let sorted = column.sort == Some(state.sort);
        let style = if sorted { state.theme.focus() } else { state.theme.bold() };
        Span::styled(fit(column, column.title, *columns), style)
    });
    Line::from(cells.collect::<Vec<_>>())
}

/// The columns for a screen of this width, and how wide each is.
fn sized(screen: u16) -> Vec<(&'static Column, usize)> {
    let there = COLUMNS.iter().filter(|column| screen >= column.from);
    let fixed = |column: &Column| match column.wide {
        Wide::Left(columns) | Wide::Right(columns) => (columns, 0),
        Wide::Rest(weight) => (0, weight),
    };
    let (taken, weights) =
        there.clone().map(fixed).fold((0, 0), |sum, one| (sum.0 + one.0 + 1, sum.1 + one.1));
    let left = usize::from(screen).saturating_sub(taken);
    there
        .map(|column| match column.wide {
            Wide::Left(columns) | Wide::Right(columns) => (column, columns),
            Wide::Rest(weight) => (column, left * weight / weights.max(1)),
        })
        .collect()
}

/// A text in a column of this width, with the space before it.
fn fit(column: &Column, text: &str, columns: usize) -> String {
    let text = cut(text, columns);
    let space = " ".repeat(columns.saturating_sub(width(&text)));
    match column.wide {
        Wide::Right(_) => format!(" {space}{text}"),
        Wide::Left(_) | Wide::Rest(_) => format!(" {text}{space}"),
    }
}

/// The end of an id, which tells runs of one moment apart.
pub(in crate::cli::top) fn tail(id: &str) -> String {
    let skipped = id.chars().count().saturating_sub(8);
    id.chars().skip(skipped).collect()
}

fn task(run: &RunView) -> String {
    match &run.task_id {
        Some(id) if run.attempt > 1 => format!("{id} #{}  {}", run.attempt, run.about),
        Some(id) => format!("{id}  {}", run.about),
        None => name(run).to_owned(),
    }
}

/// The phase: its word, and the rest of it.
fn phase(run: &RunView) -> (&str, &str) {
    let (word, rest) = run.phase.split_once([':', ' ']).unwrap_or((&run.phase, ""));
    (word, rest.trim())
}

/// The open calls, what waits first, and what for; without any, the rest of the phase.
fn at_work_on(run: &RunView) -> String {
    let mut calls: Vec<&CallView> = run.open_calls.iter().collect();
    calls.sort_by_key(|call| !call.waits);
    if calls.is_empty() {
        return phase(run).1.to_owned();
    }
    // The path says more than how it is held; the details have both.
    let short = |access: &String| access.find('/').map_or(access.as_str(), |path| &access[path..]).to_owned();
    let shortened =
        |one: &CallView| call(&CallView { access: one.access.iter().map(short).collect(), ..one.clone() });
    calls.into_iter().map(shortened).collect::<Vec<_>>().join(", ")
}

pub(super) fn call(call: &CallView) -> String {
    match (call.waits, &*call.access) {
        (true, []) => format!("{} waits for a permit", call.tool),
        (true, access) => format!("{} waits for {}", call.tool, access.join(", ")),
        (false, []) => call.tool.clone(),
        (false, access) => format!("{} on {}", call.tool, access.join(", ")),
    }
}

/// How long a run has been there, for the details.
pub(super) fn waited(run: &RunView, now: Timestamp) -> String {
    let at = |text: &str| {
        text.parse::<jiff::Timestamp>().ok().map(|at| Timestamp::from_micros(at.as_microsecond()))
    };
    let queued = at(&run.submitted_at);
    let started = run.started_at.as_deref().and_then(at);
    match (queued, started) {
        (Some(queued), Some(started)) => {
            format!("{}, after {} in the queue", age(now.since(started)), age(started.since(queued)))
        }
        (Some(queued), None) => format!("{} in the queue", age(now.since(queued))),
        (None, _) => String::new(),
    }
}

/// What a theme makes of a run's phase, for whoever shows one elsewhere.
pub(super) fn phase_span(run: &RunView, theme: Theme) -> Span<'static> {
    Span::styled(run.phase.clone(), theme.standing(run))
}
