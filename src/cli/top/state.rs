//! What the screen shows, and how it changes: messages in, effects out.
//!
//! Pure: no terminal, no daemon, no clock. The same messages give the same screen, so a test can play any of it. What is
//! selected is remembered by id, so that a list that moves under the cursor never moves the cursor to another run.

use std::time::Duration;

use ratatui::crossterm::event::KeyEvent;

use super::{action::Action, log::Log, view::Theme};
use crate::{
    daemon::{
        client,
        wire::{BatchView, RunList, RunView, Status},
    },
    domain::time::Timestamp,
};

/// Runs that are asked for at first, and at most.
pub(super) const PAGE: (u32, u32) = (200, 1_000);

/// How near to the end of what was asked for the selection may come before more is.
const NEAR: usize = 20;

/// How long the outcome of an action is shown.
const NOTICE: Duration = Duration::from_secs(6);

/// Something happened.
#[derive(Debug)]
pub(super) enum Message {
    Key(KeyEvent),
    Pasted(String),
    Resized(u16, u16),
    /// Time went on.
    Tick(Timestamp),
    /// The daemon answered.
    Looked(Box<Look>),
    /// It did not.
    Missed(String),
    /// An event of the run that is followed.
    Event {
        run: String,
        event: client::Event,
    },
    /// There are no more of them: the run has ended, or why they cannot be had.
    FollowedOut {
        run: String,
        error: Option<String>,
    },
    /// What became of an action.
    Answered(Result<String, String>),
}

/// What one look at the daemon gave.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) status: Status,
    /// Those that are being worked on.
    pub(super) batches: Vec<BatchView>,
    pub(super) runs: RunList,
}

/// What is to be done outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Quit,
    Suspend,
    Do(Action),
}

/// What the daemon is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Query {
    pub(super) limit: u32,
    /// Only runs of this batch, by its id.
    pub(super) batch: Option<String>,
}

/// Whether the daemon answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Link {
    Connecting,
    Up,
    Down { error: String, since: Timestamp },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pane {
    Batches,
    Runs,
    Details,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Screen {
    /// Batches, runs and details.
    List,
    /// The log of one run alone.
    Log,
}

/// What is asked of the person; it takes every key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Prompt {
    Help,
    Confirm(Action),
    /// What is said to the run with this id.
    Steer {
        run: String,
        name: String,
        text: String,
    },
    /// The filter that was there before.
    Filter {
        before: String,
    },
}

/// The order of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    State,
    Age,
    Turn,
    Calls,
    Tokens,
    Cost,
    Task,
    Model,
}

impl Sort {
    pub(super) const ALL: [Self; 8] =
        [Self::State, Self::Age, Self::Turn, Self::Calls, Self::Tokens, Self::Cost, Self::Task, Self::Model];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Age => "age",
            Self::Turn => "turn",
            Self::Calls => "calls",
            Self::Tokens => "tokens",
            Self::Cost => "cost",
            Self::Task => "task",
            Self::Model => "model",
        }
    }

    pub(super) fn next(self) -> Self {
        let at = Self::ALL.iter().position(|sort| *sort == self).unwrap_or_default();
        Self::ALL[(at + 1) % Self::ALL.len()]
    }

    /// Names by the alphabet, the oldest and the largest first.
    fn compare(self, a: &RunView, b: &RunView) -> std::cmp::Ordering {
        let tokens = |run: &RunView| run.usage.input + run.usage.output;
        let first = match self {
            Self::State => rank(a).cmp(&rank(b)),
            Self::Age => a.submitted_at.cmp(&b.submitted_at),
            Self::Turn => b.turns.cmp(&a.turns),
            Self::Calls => b.calls.cmp(&a.calls),
            Self::Tokens => tokens(b).cmp(&tokens(a)),
            Self::Cost => b.cost_usd.unwrap_or(-1.0).total_cmp(&a.cost_usd.unwrap_or(-1.0)),
            Self::Task => name(a).cmp(name(b)),
            Self::Model => a.model.cmp(&b.model),
        };
        first.then_with(|| a.id.cmp(&b.id))
    }
}

/// What goes on comes before what waits.
const fn rank(run: &RunView) -> u8 {
    use crate::daemon::wire::RunState::{Ended, Paused, Queued, Running};
    match run.state {
        Running => 0,
        Paused => 1,
        Queued => 2,
        Ended => 3,
    }
}

/// What a person calls the run.
pub(super) fn name(run: &RunView) -> &str {
    run.task_id.as_deref().unwrap_or(&run.about)
}

/// Everything that is shown.
#[derive(Debug)]
pub(super) struct State {
    pub(super) theme: Theme,
    pub(super) now: Timestamp,
    pub(super) size: (u16, u16),
    pub(super) link: Link,
    pub(super) status: Option<Status>,
    pub(super) batches: Vec<BatchView>,
    /// The page, filtered and sorted.
    pub(super) runs: Vec<RunView>,
    /// The page as it came.
    page: Vec<RunView>,
    /// Open runs of which the page is a part.
    pub(super) open: u64,
    limit: u32,
    pub(super) sort: Sort,
    pub(super) reversed: bool,
    pub(super) filter: String,
    /// Only runs of this batch: its id and name.
    pub(super) only: Option<(String, String)>,
    pub(super) pane: Pane,
    pub(super) screen: Screen,
    pub(super) prompt: Option<Prompt>,
    pub(super) notice: Option<(Result<String, String>, Timestamp)>,
    /// The selected run, also after it has ended while its log is looked at.
    pub(super) selected: Option<RunView>,
    /// Its place when it was last in the list.
    pub(super) at: usize,
    pub(super) batch_at: usize,
    pub(super) log: Log,
    /// How often following has begun anew.
    pub(super) follows: u32,
}

impl State {
    pub(super) fn new(theme: Theme, now: Timestamp) -> Self {
        Self {
            theme,
            now,
            size: (80, 24),
            link: Link::Connecting,
            status: None,
            batches: Vec::new(),
            runs: Vec::new(),
            page: Vec::new(),
            open: 0,
            limit: PAGE.0,
            sort: Sort::State,
            reversed: false,
            filter: String::new(),
            only: None,
            pane: Pane::Runs,
            screen: Screen::List,
            prompt: None,
            notice: None,
            selected: None,
            at: 0,
            batch_at: 0,
            log: Log::new(80),
            follows: 0,
        }
    }

    /// Takes a message in.
    pub(super) fn update(&mut self, message: Message) -> Option<Effect> {
        match message {
            Message::Key(key) => return self.key(key),
            Message::Pasted(text) => self.paste(&text),
            Message::Resized(width, height) => {
                self.size = (width, height);
                self.log.width = width.into();
            }
            Message::Tick(now) => {
                self.now = now;
                self.notice.take_if(|(_, since)| now.since(*since) > NOTICE);
            }
            Message::Looked(look) => self.looked(*look),
            Message::Missed(error) => {
                let since = match self.link {
                    Link::Down { since, .. } => since,
                    Link::Connecting | Link::Up => self.now,
                };
                self.link = Link::Down { error, since };
            }
            Message::Event { run, event } if self.followed() == Some(&*run) => self.log.take(&event),
            Message::FollowedOut { run, error } if self.followed() == Some(&*run) => self.log.end(error),
            // Of a run that was followed before.
            Message::Event { .. } | Message::FollowedOut { .. } => {}
            Message::Answered(answer) => self.notice = Some((answer, self.now)),
        }
        None
    }

    /// The run whose events are wanted.
    pub(super) fn followed(&self) -> Option<&str> {
        self.selected.as_ref().map(|run| &*run.id)
    }

    /// What the daemon is to be asked for.
    pub(super) fn query(&self) -> Query {
        // What is filtered here is looked for in as much as may be asked for.
        let limit = if self.filter.is_empty() { self.limit } else { PAGE.1 };
        Query { limit, batch: self.only.as_ref().map(|(id, _)| id.clone()) }
    }

    fn looked(&mut self, look: Look) {
        // With the daemon, the log of the selected run is to be had again.
        if matches!(self.link, Link::Down { .. }) && self.log.failed() {
            self.log = Log::new(self.size.0.into());
            self.follows += 1;
        }
        self.link = Link::Up;
        self.status = Some(look.status);
        let batch = self.selected_batch().map(|batch| batch.id.clone());
        self.batches = look.batches;
        let found = self.batches.iter().position(|other| Some(&other.id) == batch.as_ref());
        self.batch_at = found.unwrap_or(self.batch_at).min(self.batches.len().saturating_sub(1));
        if self.batches.is_empty() && self.pane == Pane::Batches {
            self.pane = Pane::Runs;
        }
        self.open = look.runs.counts.open;
        self.page = look.runs.runs;
        self.arrange();
    }

    /// Filters and sorts, and finds the selection again.
    pub(super) fn arrange(&mut self) {
        let filter = self.filter.to_lowercase();
        self.runs = self.page.iter().filter(|run| matches(run, &filter)).cloned().collect();
        let (sort, reversed) = (self.sort, self.reversed);
        self.runs.sort_by(|a, b| if reversed { sort.compare(b, a) } else { sort.compare(a, b) });
        let found = self
            .selected
            .as_ref()
            .and_then(|selected| self.runs.iter().position(|run| run.id == selected.id));
        match found {
            Some(at) => {
                self.at = at;
                self.selected = Some(self.runs[at].clone());
            }
            // Its log is being read: it stays until it is left.
            None if self.screen == Screen::Log => {}
            None => self.select(self.at),
        }
    }

    /// Selects the run at a place, or the last one.
    pub(super) fn select(&mut self, at: usize) {
        self.at = at.min(self.runs.len().saturating_sub(1));
        let run = self.runs.get(self.at).cloned();
        if run.as_ref().map(|run| &run.id) != self.selected.as_ref().map(|run| &run.id) {
            self.log = Log::new(self.size.0.into());
        }
        self.selected = run;
        if self.at + NEAR >= self.page.len() && self.page.len() as u64 >= self.limit.into() {
            self.limit = (self.limit * 2).min(PAGE.1);
        }
    }

    pub(super) fn selected_batch(&self) -> Option<&BatchView> {
        self.batches.get(self.batch_at)
    }
}

/// Whether each word of the filter, which is in lower case, is somewhere in what is known of the run.
fn matches(run: &RunView, filter: &str) -> bool {
    let known = [&run.id, &run.about, &run.model, &run.phase].map(|text| text.to_lowercase());
    let more = run.task_id.iter().chain(&run.batch).map(|text| text.to_lowercase());
    let labels = run.labels.iter().map(|(name, value)| format!("{name}={value}").to_lowercase());
    let known: Vec<String> = known.into_iter().chain(more).chain(labels).collect();
    filter.split_whitespace().all(|word| known.iter().any(|text| text.contains(word)))
}
