//! Colours, and what stands in for them where nobody wants any.

use ratatui::style::{Color, Modifier, Style};

use crate::{
    cli::render::Tone,
    daemon::wire::{RunState, RunView},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli::top) struct Theme {
    colored: bool,
}

impl Theme {
    pub(in crate::cli::top) const COLORED: Self = Self { colored: true };
    pub(in crate::cli::top) const PLAIN: Self = Self { colored: false };

    const fn color(self, color: Color) -> Style {
        if self.colored { Style::new().fg(color) } else { Style::new() }
    }

    pub(super) const fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    pub(super) const fn bold(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub(super) const fn good(self) -> Style {
        self.color(Color::Green)
    }

    pub(super) const fn bad(self) -> Style {
        self.color(Color::Red).add_modifier(Modifier::BOLD)
    }

    pub(super) const fn notable(self) -> Style {
        self.color(Color::Yellow)
    }

    /// What is held.
    pub(super) const fn held(self) -> Style {
        self.color(Color::Magenta)
    }

    /// A pause of many runs, which nobody is to overlook.
    pub(super) const fn gate(self) -> Style {
        self.held().add_modifier(Modifier::REVERSED)
    }

    pub(super) const fn model(self) -> Style {
        self.color(Color::Cyan)
    }

    pub(super) const fn focus(self) -> Style {
        self.color(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    pub(super) const fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    pub(super) const fn key(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    pub(super) const fn asked(self) -> Style {
        self.color(Color::Yellow).add_modifier(Modifier::REVERSED)
    }

    pub(in crate::cli::top) const fn of(self, tone: Tone) -> Style {
        match tone {
            Tone::Dim => self.dim(),
            Tone::Good => self.good(),
            Tone::Bad => self.bad(),
            Tone::Notable => self.notable(),
            Tone::Usual => Style::new(),
        }
    }

    /// How a run's standing is shown.
    pub(super) fn standing(self, run: &RunView) -> Style {
        match run.state {
            RunState::Queued | RunState::Ended => self.dim(),
            RunState::Paused => self.held(),
            RunState::Running if run.open_calls.iter().any(|call| call.waits) => self.notable(),
            RunState::Running if run.phase.starts_with("thinking") => self.model(),
            RunState::Running => self.good(),
        }
    }
}
