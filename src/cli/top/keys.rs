//! What each key does, by what is on the screen.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::{
    action::{Action, Target, Verb},
    state::{Effect, Pane, Prompt, Screen, State, name},
};
use crate::daemon::wire::{BatchState, RunState};

/// A line that a person types is not longer than this.
const TYPED: usize = 4_000;

/// Which way a cursor goes.
#[derive(Clone, Copy)]
enum Step {
    Up(usize),
    Down(usize),
    First,
    Last,
}

impl Step {
    fn from(self, at: usize) -> usize {
        match self {
            Self::Up(by) => at.saturating_sub(by),
            Self::Down(by) => at.saturating_add(by),
            Self::First => 0,
            Self::Last => usize::MAX,
        }
    }
}

impl State {
    pub(super) fn key(&mut self, key: KeyEvent) -> Option<Effect> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match (key.code, control) {
            (KeyCode::Char('c'), true) => return Some(Effect::Quit),
            (KeyCode::Char('z'), true) => return Some(Effect::Suspend),
            _ => {}
        }
        match self.prompt.take() {
            Some(prompt) => self.answer(prompt, key.code, control),
            None => self.command(key.code, control),
        }
    }

    /// Text from the clipboard belongs to a line that is being typed, and is no command.
    pub(super) fn paste(&mut self, pasted: &str) {
        let text = match &mut self.prompt {
            Some(Prompt::Steer { text, .. }) => text,
            Some(Prompt::Filter { .. }) => &mut self.filter,
            Some(Prompt::Help | Prompt::Confirm(_)) | None => return,
        };
        let room = TYPED.saturating_sub(text.chars().count());
        text.extend(pasted.chars().map(|c| if c.is_control() { ' ' } else { c }).take(room));
        self.arrange();
    }

    /// A key for what is asked.
    fn answer(&mut self, prompt: Prompt, code: KeyCode, control: bool) -> Option<Effect> {
        match prompt {
            Prompt::Help => None,
            Prompt::Confirm(action) => matches!(code, KeyCode::Char('y' | 'Y')).then_some(Effect::Do(action)),
            Prompt::Steer { run, name, mut text } => match edit(&mut text, code, control) {
                Typed::Goes => {
                    self.prompt = Some(Prompt::Steer { run, name, text });
                    None
                }
                Typed::Done if text.trim().is_empty() => None,
                Typed::Done => Some(Effect::Do(Action::Steer { run, name, text })),
                Typed::Left => None,
            },
            Prompt::Filter { before } => {
                match edit(&mut self.filter, code, control) {
                    Typed::Goes => self.prompt = Some(Prompt::Filter { before }),
                    Typed::Done => {}
                    Typed::Left => self.filter = before,
                }
                self.arrange();
                None
            }
        }
    }

    /// A key when nothing is asked.
    fn command(&mut self, code: KeyCode, control: bool) -> Option<Effect> {
        let page = usize::from(self.size.1 / 2).max(1);
        match (code, control) {
            (KeyCode::Char('q'), false) => return Some(Effect::Quit),
            (KeyCode::Esc, _) => self.leave(),
            (KeyCode::Up | KeyCode::Char('k'), false) => self.step(Step::Up(1)),
            (KeyCode::Down | KeyCode::Char('j'), false) => self.step(Step::Down(1)),
            (KeyCode::PageUp, _) | (KeyCode::Char('u'), true) => self.step(Step::Up(page)),
            (KeyCode::PageDown, _) | (KeyCode::Char('d'), true) => self.step(Step::Down(page)),
            (KeyCode::Home | KeyCode::Char('g'), _) => self.step(Step::First),
            (KeyCode::End | KeyCode::Char('G'), _) => self.step(Step::Last),
            (KeyCode::Enter, _) | (KeyCode::Char('f'), false) => self.open(),
            (KeyCode::Char('?'), _) => self.prompt = Some(Prompt::Help),
            (KeyCode::Char('c'), false) => {
                let target = self.target()?;
                self.prompt = Some(Prompt::Confirm(Action::Order { verb: Verb::Cancel, target }));
            }
            (KeyCode::Char('p'), false) => return self.order(self.toggle()?),
            (KeyCode::Char('r'), false) => return self.order(Verb::Resume),
            (KeyCode::Char('P'), _) => {
                let action = Action::Order { verb: Verb::Pause, target: Target::All };
                self.prompt = Some(Prompt::Confirm(action));
            }
            (KeyCode::Char('R'), _) => {
                return Some(Effect::Do(Action::Order { verb: Verb::Resume, target: Target::All }));
            }
            (KeyCode::Char('s'), false) => {
                let run = self.selected.as_ref()?;
                self.prompt = Some(Prompt::Steer {
                    run: run.id.clone(),
                    name: name(run).to_owned(),
                    text: String::new(),
                });
            }
            (KeyCode::Char('/'), _) if self.screen == Screen::List => {
                self.prompt = Some(Prompt::Filter { before: self.filter.clone() });
            }
            (KeyCode::Char('o'), false) => {
                self.sort = self.sort.next();
                self.arrange();
            }
            (KeyCode::Char('O'), _) => {
                self.reversed = !self.reversed;
                self.arrange();
            }
            (KeyCode::Tab, _) if self.screen == Screen::List => self.next_pane(),
            _ => {}
        }
        None
    }

    fn step(&mut self, step: Step) {
        match (self.screen, self.pane) {
            (Screen::Log, _) | (Screen::List, Pane::Details) => match step {
                // The log is read from its end.
                Step::Up(by) => self.log.scroll = self.log.scroll.saturating_add(by),
                Step::Down(by) => self.log.scroll = self.log.scroll.saturating_sub(by),
                Step::First => self.log.scroll = usize::MAX,
                Step::Last => self.log.scroll = 0,
            },
            (Screen::List, Pane::Runs) => self.select(step.from(self.at)),
            (Screen::List, Pane::Batches) => {
                self.batch_at = step.from(self.batch_at).min(self.batches.len().saturating_sub(1));
            }
        }
        if self.log.scroll > 0 {
            let seen = match self.screen {
                Screen::Log => self.size.1.saturating_sub(3),
                Screen::List => self.size.1 / 3,
            };
            self.log.scroll = self.log.scroll.min(self.log.rows().saturating_sub(seen.into()));
        }
    }

    /// Into what is selected: a batch's runs, a run's log.
    fn open(&mut self) {
        match (self.screen, self.pane) {
            (Screen::List, Pane::Batches) => {
                self.only = self.selected_batch().map(|batch| (batch.id.clone(), batch.name.clone()));
                self.pane = Pane::Runs;
            }
            (Screen::List, Pane::Runs | Pane::Details) if self.selected.is_some() => {
                self.screen = Screen::Log
            }
            (Screen::List, Pane::Runs | Pane::Details) => {}
            (Screen::Log, _) => self.log.scroll = 0,
        }
    }

    /// Out of it again; out of everything, the screen ends.
    fn leave(&mut self) {
        if self.screen == Screen::Log {
            self.screen = Screen::List;
            self.log.scroll = 0;
        } else if !self.filter.is_empty() {
            self.filter.clear();
        } else {
            self.only = None;
        }
        self.arrange();
    }

    fn next_pane(&mut self) {
        self.pane = match self.pane {
            Pane::Batches => Pane::Runs,
            Pane::Runs => Pane::Details,
            Pane::Details if self.batches.is_empty() => Pane::Runs,
            Pane::Details => Pane::Batches,
        };
        self.log.scroll = 0;
    }

    fn target(&self) -> Option<Target> {
        if self.screen == Screen::List && self.pane == Pane::Batches {
            let batch = self.selected_batch()?;
            return Some(Target::Batch { id: batch.id.clone(), name: batch.name.clone() });
        }
        let run = self.selected.as_ref()?;
        Some(Target::Run { id: run.id.clone(), name: name(run).to_owned() })
    }

    fn order(&self, verb: Verb) -> Option<Effect> {
        Some(Effect::Do(Action::Order { verb, target: self.target()? }))
    }

    /// What `p` does to what is selected.
    pub(super) fn toggle(&self) -> Option<Verb> {
        let paused = if self.screen == Screen::List && self.pane == Pane::Batches {
            self.selected_batch()?.state == BatchState::Paused
        } else {
            self.selected.as_ref()?.state == RunState::Paused
        };
        Some(if paused { Verb::Resume } else { Verb::Pause })
    }
}

/// Where a line that is being typed stands.
enum Typed {
    Goes,
    Done,
    Left,
}

fn edit(text: &mut String, code: KeyCode, control: bool) -> Typed {
    match (code, control) {
        (KeyCode::Enter, _) => return Typed::Done,
        (KeyCode::Esc, _) => return Typed::Left,
        (KeyCode::Char('u'), true) => text.clear(),
        (KeyCode::Char('w'), true) => {
            let kept = text.trim_end().rfind(' ').map_or(0, |space| space + 1);
            text.truncate(kept);
        }
        (KeyCode::Backspace, _) | (KeyCode::Char('h'), true) => {
            text.pop();
        }
        (KeyCode::Char(c), false) if text.chars().count() < TYPED => text.push(c),
        _ => {}
    }
    Typed::Goes
}

/// Every key, for the help.
pub(super) const HELP: &[(&str, &str)] = &[
    ("↑ ↓ j k", "select, or scroll a log"),
    ("PgUp PgDn", "half a screen"),
    ("Home End", "the first and the last"),
    ("enter f", "follow a run's log; a batch's runs"),
    ("esc", "back"),
    ("tab", "batches, runs, details"),
    ("c", "cancel, once y is pressed"),
    ("p r", "pause or resume; resume"),
    ("P R", "pause everything; resume everything"),
    ("s", "steer: say something to the run"),
    ("/", "filter by words: task, model, phase, label"),
    ("o O", "sort by the next column; reverse"),
    ("q ctrl-c", "quit; runs go on"),
];
