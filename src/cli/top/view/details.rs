//! The selected run: what it is about, what it holds or waits for, and the end of its log.

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    text::{Line, Span},
    widgets::Paragraph,
};

use super::{
    super::{
        state::{Pane, State},
        words::{cut, money},
    },
    called, fitting, pane_title,
    runs::{call, phase_span, tail, waited},
};
use crate::cli::progress::short;

pub(super) fn draw(frame: &mut Frame<'_>, state: &State, area: Rect) {
    let Some(run) = &state.selected else {
        let title = pane_title(state, Pane::Details, "no run selected", area.width);
        return frame.render_widget(Paragraph::new(title), area);
    };
    let theme = state.theme;
    let title = format!("{} {}", tail(&run.id), called(state, 60));
    let mut lines = vec![pane_title(state, Pane::Details, &title, area.width)];
    let labels =
        run.labels.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ");
    let mut facts = vec![
        vec![phase_span(run, theme)],
        vec![Span::raw(run.model.clone())],
        vec![Span::raw(waited(run, state.now))],
        vec![Span::raw(format!("{} in, {} out", short(run.usage.input), short(run.usage.output)))],
    ];
    facts.extend(run.cost_usd.map(|cost| vec![Span::raw(money(cost))]));
    if !labels.is_empty() {
        facts.push(vec![Span::styled(labels, theme.dim())]);
    }
    lines.push(fitting(facts, area.width));
    let columns = usize::from(area.width).saturating_sub(1);
    if run.task_id.is_some() && area.height > 8 {
        lines.push(Line::styled(format!(" {}", cut(&run.about, columns)), theme.dim()));
    }
    let most = usize::from(area.height / 3);
    for open in run.open_calls.iter().take(most) {
        let style = if open.waits { theme.notable() } else { theme.good() };
        lines.push(Line::styled(format!(" {}", cut(&call(open), columns)), style));
    }
    let high = u16::try_from(lines.len()).unwrap_or(u16::MAX);
    let [top, below] = Layout::vertical([Constraint::Length(high), Constraint::Min(0)]).areas(area);
    frame.render_widget(Paragraph::new(lines), top);
    log(frame, state, below);
}

/// The end of the selected run's log, or the part that was scrolled to.
pub(super) fn log(frame: &mut Frame<'_>, state: &State, area: Rect) {
    let inner = Rect { x: area.x + 1, width: area.width.saturating_sub(1), ..area };
    if !state.log.begun {
        let line = Line::styled("reading its log …", state.theme.dim());
        return frame.render_widget(Paragraph::new(line), inner);
    }
    let lines = state.log.lines(inner.width.into(), inner.height.into(), state.theme);
    frame.render_widget(Paragraph::new(lines), inner);
}

/// What run it is and where it stands, over its log.
pub(super) fn title(state: &State, columns: u16) -> Line<'static> {
    let Some(run) = &state.selected else { return Line::default() };
    let gone = !state.runs.iter().any(|other| other.id == run.id);
    let standing = if gone { Span::raw("") } else { phase_span(run, state.theme) };
    let scrolled = if state.log.scroll > 0 { format!("{} rows up", state.log.scroll) } else { String::new() };
    fitting(
        [
            vec![Span::styled(format!("{} {}", tail(&run.id), called(state, 40)), state.theme.focus())],
            vec![standing],
            vec![Span::styled(scrolled, state.theme.notable())],
        ],
        columns,
    )
}
