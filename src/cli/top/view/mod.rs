//! Draws the state. Reads it, changes nothing, and gives way in small terminals: columns, panes and words go before
//! anything is broken.

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    text::{Line, Span},
    widgets::{Block, Clear, Paragraph},
};

use super::{
    action::Verb,
    keys::HELP,
    state::{Pane, Prompt, Screen, State, name},
    words::{cut, width},
};

mod batches;
mod details;
mod header;
pub(super) mod runs;
mod theme;

pub(super) use theme::Theme;

/// Rows below which there are no details, since the list needs them.
const ROOM_FOR_DETAILS: u16 = 19;

pub(super) fn draw(frame: &mut Frame<'_>, state: &State) {
    let area = frame.area();
    match state.screen {
        Screen::List => list(frame, state, area),
        Screen::Log => log(frame, state, area),
    }
    if state.prompt == Some(Prompt::Help) {
        help(frame, state, area);
    }
}

fn list(frame: &mut Frame<'_>, state: &State, area: Rect) {
    let header = header::lines(state, area.width, area.height);
    let batches = batches::height(state, area.height);
    let details = if area.height < ROOM_FOR_DETAILS { 0 } else { area.height / 3 };
    let [top, middle, list, below, foot] = Layout::vertical([
        Constraint::Length(u16::try_from(header.len()).unwrap_or(u16::MAX)),
        Constraint::Length(batches),
        Constraint::Min(2),
        Constraint::Length(details),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(header), top);
    batches::draw(frame, state, middle);
    runs::draw(frame, state, list);
    if details > 0 {
        details::draw(frame, state, below);
    }
    footer(frame, state, foot);
}

/// The log of one run, over the whole screen.
fn log(frame: &mut Frame<'_>, state: &State, area: Rect) {
    let [top, middle, foot] =
        Layout::vertical([Constraint::Length(2), Constraint::Min(1), Constraint::Length(1)]).areas(area);
    let mut head = header::one_line(state, area.width);
    head.truncate(1);
    head.push(details::title(state, area.width));
    frame.render_widget(Paragraph::new(head), top);
    details::log(frame, state, middle);
    footer(frame, state, foot);
}

/// What is asked, what came of it, or what can be done.
fn footer(frame: &mut Frame<'_>, state: &State, area: Rect) {
    let theme = state.theme;
    let columns = usize::from(area.width);
    let line = match (&state.prompt, &state.notice) {
        (Some(Prompt::Confirm(action)), _) => {
            Line::styled(pad(&format!(" {action}? y/n"), columns), theme.asked())
        }
        (Some(Prompt::Steer { name, text, .. }), _) => {
            typed(frame, state, area, &format!(" say to {}: ", cut(name, columns / 3)), text)
        }
        (Some(Prompt::Filter { .. }), _) => typed(frame, state, area, " filter: ", &state.filter),
        (Some(Prompt::Help) | None, Some((Ok(done), _))) => {
            Line::styled(cut(&format!(" {done}"), columns), theme.good())
        }
        (Some(Prompt::Help) | None, Some((Err(error), _))) => {
            Line::styled(cut(&format!(" {error}"), columns), theme.bad())
        }
        (Some(Prompt::Help) | None, None) => keys(state, columns),
    };
    frame.render_widget(Paragraph::new(line), area);
}

/// A line that is being typed; its end stays in sight, with the cursor.
fn typed(frame: &mut Frame<'_>, state: &State, area: Rect, asked: &str, text: &str) -> Line<'static> {
    let room = usize::from(area.width).saturating_sub(width(asked) + 1);
    let mut shown = text;
    while width(shown) > room {
        shown = &shown[shown.chars().next().map_or(0, char::len_utf8)..];
    }
    let line =
        Line::from(vec![Span::styled(asked.to_owned(), state.theme.asked()), Span::raw(shown.to_owned())]);
    let column = u16::try_from(width(asked) + width(shown)).unwrap_or(u16::MAX);
    frame.set_cursor_position((area.x + column.min(area.width.saturating_sub(1)), area.y));
    line
}

/// As many keys as there is room for.
fn keys(state: &State, columns: usize) -> Line<'static> {
    let pause = if state.toggle() == Some(Verb::Resume) { "resume" } else { "pause" };
    let keys: &[(&str, &str)] = match state.screen {
        Screen::List => &[
            ("?", "help"),
            ("q", "quit"),
            ("enter", "follow"),
            ("c", "cancel"),
            ("p", pause),
            ("s", "steer"),
            ("/", "filter"),
            ("o", "sort"),
            ("tab", "pane"),
            ("P", "pause all"),
            ("R", "resume all"),
        ],
        Screen::Log => &[
            ("esc", "back"),
            ("?", "help"),
            ("↑↓", "scroll"),
            ("end", "newest"),
            ("c", "cancel"),
            ("p", pause),
            ("s", "steer"),
        ],
    };
    let mut spans = Vec::new();
    let mut taken = 0;
    for (key, what) in keys {
        let wide = width(key) + what.len() + 4;
        if taken + wide > columns {
            break;
        }
        taken += wide;
        spans.push(Span::styled(format!(" {key} "), state.theme.key()));
        spans.push(Span::styled(format!("{what}  "), state.theme.dim()));
    }
    Line::from(spans)
}

fn help(frame: &mut Frame<'_>, state: &State, area: Rect) {
    let wide = HELP.iter().map(|(_, what)| what.len() + 19).max().unwrap_or_default();
    let wide = u16::try_from(wide).unwrap_or(u16::MAX).min(area.width);
    let high = u16::try_from(HELP.len() + 2).unwrap_or(u16::MAX).min(area.height);
    let place = Rect {
        x: area.x + (area.width - wide) / 2,
        y: area.y + (area.height - high) / 2,
        width: wide,
        height: high,
    };
    let lines: Vec<Line<'_>> = HELP
        .iter()
        .map(|(key, what)| {
            Line::from(vec![Span::styled(format!(" {key:<14} "), state.theme.bold()), Span::raw(*what)])
        })
        .collect();
    // Of a wide character that the edge cuts through, neither half stays.
    let left = place.x.saturating_sub(1);
    frame.render_widget(Clear, Rect { x: left, width: place.right() - left, ..place });
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" keys ")), place);
}

/// Parts of a line beside each other, from the left, as many as there is room for.
fn fitting<'a>(parts: impl IntoIterator<Item = Vec<Span<'a>>>, columns: u16) -> Line<'a> {
    let mut line: Vec<Span<'a>> = Vec::new();
    let mut taken = 0;
    for part in parts {
        let wide: usize = part.iter().map(Span::width).sum();
        let gap = if line.is_empty() { 1 } else { 3 };
        if taken + gap + wide > usize::from(columns) && !line.is_empty() {
            break;
        }
        line.push(Span::raw(" ".repeat(gap)));
        line.extend(part);
        taken += gap + wide;
    }
    Line::from(line)
}

/// A text that takes the whole row, so that its background does.
fn pad(text: &str, columns: usize) -> String {
    let text = cut(text, columns);
    let missing = columns.saturating_sub(width(&text));
    format!("{text}{}", " ".repeat(missing))
}

/// A title of a pane, bright where the keys go.
fn pane_title(state: &State, pane: Pane, text: &str, columns: u16) -> Line<'static> {
    let style = if state.pane == pane { state.theme.focus() } else { state.theme.dim() };
    let text = cut(text, usize::from(columns));
    let rule = usize::from(columns).saturating_sub(width(&text) + 4);
    Line::from(vec![
        Span::styled("─ ", state.theme.dim()),
        Span::styled(text, style),
        Span::styled(format!(" {}", "─".repeat(rule + 1)), state.theme.dim()),
    ])
}

/// What the selected run is called, in so many columns.
fn called(state: &State, columns: usize) -> String {
    state.selected.as_ref().map_or_else(String::new, |run| cut(name(run), columns))
}
