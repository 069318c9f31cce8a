//! The daemon in three lines, and what nobody is to overlook under them.

use ratatui::{
    style::Style,
    text::{Line, Span},
};

use super::{
    super::{
        state::{Link, State},
        words::{age, cut, grouped, money, since},
    },
    fitting,
};
use crate::{
    cli::{progress::short, waits},
    daemon::wire::{GateKind, PauseMode, Status},
};

/// Columns of the bar that shows how many slots are taken.
const BAR: u16 = 10;

pub(super) fn lines(state: &State, columns: u16, rows: u16) -> Vec<Line<'static>> {
    let mut lines = one_line(state, columns);
    let Some(status) = &state.status else { return lines };
    let faults = lines.split_off(1);
    lines.push(load(state, status, columns));
    if rows >= 12 {
        lines.push(rates(state, status, columns));
    }
    lines.extend(gates(state, status, columns));
    lines.extend(provider(state, status, columns));
    lines.extend(faults);
    lines
}

/// What daemon it is, and under it that it is gone, if it is.
pub(super) fn one_line(state: &State, columns: u16) -> Vec<Line<'static>> {
    let theme = state.theme;
    let mut lines = Vec::new();
    match &state.status {
        Some(status) => {
            let phase = if status.phase == "ready" { theme.good() } else { theme.notable() };
            lines.push(fitting(
                [
                    vec![
                        Span::styled(format!("herder {} ", status.version), theme.bold()),
                        Span::styled(status.phase.clone(), phase),
                    ],
                    vec![Span::raw(format!("up {}", since(&status.started_at, state.now)))],
                    vec![Span::styled(status.state.clone(), theme.dim())],
                    vec![Span::styled(format!("pid {}", status.pid), theme.dim())],
                    status.rss_bytes.map_or_else(Vec::new, |bytes| {
                        vec![Span::styled(format!("{}B", short(bytes)), theme.dim())]
                    }),
                ],
                columns,
            ));
        }
        None => lines.push(Line::styled(" herder", theme.bold())),
    }
    match &state.link {
        Link::Up => {}
        Link::Connecting => lines.push(Line::styled(" asking the daemon …", theme.dim())),
        Link::Down { error, since } => {
            let gone = age(state.now.since(*since));
            let error = error.lines().next().unwrap_or_default();
            let text = format!(" trying again for {gone}: {error}");
            lines.push(Line::styled(cut(&text, columns.into()), theme.bad()));
        }
    }
    lines
}

fn load(state: &State, status: &Status, columns: u16) -> Line<'static> {
    let theme = state.theme;
    let (load, max) = (&status.load, status.max_live_runs.max(1));
    let full = if load.live >= max { theme.notable() } else { theme.good() };
    let held = if load.held > 0 { theme.held() } else { Style::new() };
    let waiting = if load.calls_waiting > 0 { theme.notable() } else { Style::new() };
    let (taken, free) = bar(load.live, max, BAR);
    fitting(
        [
            vec![
                Span::raw("live "),
                Span::styled(taken, full),
                Span::styled(free, theme.dim()),
                Span::styled(format!(" {}", grouped(load.live)), theme.bold()),
                Span::raw(format!("/{}", grouped(max))),
            ],
            vec![Span::raw(format!("queued {}", grouped(load.queued)))],
            vec![Span::styled(format!("held {}", grouped(load.held)), held)],
            vec![
                Span::styled(format!("thinking {}", grouped(load.thinking)), theme.model()),
                Span::styled(format!("  acting {}", grouped(load.acting)), theme.good()),
            ],
            vec![
                Span::raw(format!("calls {}", grouped(load.calls_running))),
                Span::styled(format!("  waiting {}", grouped(load.calls_waiting)), waiting),
            ],
        ],
        columns,
    )
}

fn rates(state: &State, status: &Status, columns: u16) -> Line<'static> {
    let (rates, used) = (&status.rates, &status.open_usage);
    let ended = status.runs.ended.iter().map(|(outcome, count)| {
        let style = if outcome == "done" { state.theme.good() } else { state.theme.dim() };
        Span::styled(format!("{outcome} {}  ", grouped(*count)), style)
    });
    // Nothing is spent where no price is known.
    let spent = rates.usd_per_min;
    let spent = if spent > 0.0 { format!("  {}/min", money(spent)) } else { String::new() };
    fitting(
        [
            vec![Span::raw(format!("{:.1} turns/s", rates.turns_per_s))],
            vec![Span::raw(format!("{} tokens/s", short(whole(rates.tokens_per_s))))],
            vec![Span::raw(status.open_cost_usd.map_or_else(
                || format!("{} tokens", short(used.input + used.output)),
                |cost| format!("{}  {} tokens", money(cost), short(used.input + used.output)),
            ))],
            vec![Span::raw(format!("{:.0} runs/min{spent}", rates.runs_per_min))],
            ended.collect(),
        ],
        columns,
    )
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "shown to people, never negative"
)]
const fn whole(rate: f64) -> u64 {
    rate as u64
}

/// What is paused.
fn gates(state: &State, status: &Status, columns: u16) -> Option<Line<'static>> {
    if status.paused.is_empty() {
        return None;
    }
    let paused = status.paused.iter().map(|gate| {
        let name = gate.name.as_deref().unwrap_or_default();
        let what = match gate.kind {
            GateKind::All => "everything".to_owned(),
            GateKind::Batch => {
                let batch = state.batches.iter().find(|batch| batch.id == name);
                format!("batch {}", batch.map_or(name, |batch| &batch.name))
            }
            GateKind::Model => format!("model {name}"),
        };
        match gate.mode {
            PauseMode::Hold => what,
            PauseMode::Soft => format!("{what} (what is live goes on)"),
        }
    });
    let text = format!(" PAUSED  {} ", paused.collect::<Vec<_>>().join(" · "));
    Some(Line::styled(cut(&text, columns.into()), state.theme.gate()))
}

/// Calls that people are to decide about, accounts that are shut, and budgets.
fn provider(state: &State, status: &Status, columns: u16) -> Option<Line<'static>> {
    let shut =
        status.shut.iter().map(|latch| format!("{}: {}", latch.account, waits::latched(latch, state.now)));
    let spent = status.budgets.iter().filter(|budget| budget.cap_usd.is_some());
    let spent = spent.map(|budget| waits::budget(budget, state.now));
    let asked = status.load.approvals;
    let asked = (asked > 0).then(|| format!("{} for approval", waits_of(asked)));
    let is_blocked = asked.is_some() || !status.shut.is_empty();
    let text = asked.into_iter().chain(shut).chain(spent).collect::<Vec<_>>().join(" · ");
    let style = if !is_blocked { state.theme.dim() } else { state.theme.notable() };
    (!text.is_empty()).then(|| Line::styled(cut(&format!(" {text}"), columns.into()), style))
}

fn waits_of(calls: u64) -> String {
    if calls == 1 { "1 call waits".to_owned() } else { format!("{} calls wait", grouped(calls)) }
}

/// A bar, as its full and its empty part.
pub(super) fn bar(part: u64, of: u64, columns: u16) -> (String, String) {
    let columns = u64::from(columns);
    let mut full = part.min(of) * columns / of.max(1);
    // Something is never shown as nothing.
    if part > 0 {
        full = full.max(1);
    }
    let times = |count: u64| usize::try_from(count).unwrap_or_default();
    ("█".repeat(times(full)), "░".repeat(times(columns - full)))
}
