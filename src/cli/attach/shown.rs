//! Progress of a batch of the daemon's: ends as their results come, the rest as the daemon says.

use std::time::Instant;

use indicatif::MultiProgress;

use crate::{
    cli::{
        asking::WINDOW,
        progress::{Progress, ProgressMode, Reporter, Rest},
        render::counted,
        start::{Tell, say, say_json},
        waits,
    },
    clock::{Clock as _, SystemClock},
    daemon::wire::{BatchState, BatchView},
    domain::{
        outcome::Outcome,
        usage::{NanoUsd, Usage},
    },
};

/// What a person is shown.
pub(super) struct Shown {
    progress: Progress,
    reporter: Reporter,
    since: Instant,
    tell: Tell,
    screen: MultiProgress,
    is_away: bool,
    is_waiting: bool,
}

impl Shown {
    pub(super) fn new(mode: ProgressMode, json: bool, screen: &MultiProgress, total: usize) -> Self {
        Self {
            progress: Progress::new(total),
            reporter: Reporter::new(mode, json, screen, total),
            since: Instant::now(),
            tell: if json { say_json } else { say },
            screen: screen.clone(),
            is_away: false,
            is_waiting: false,
        }
    }

    /// A task had ended before this command looked.
    pub(super) fn settled(&mut self, outcome: Outcome) {
        self.progress.settled(outcome);
    }

    pub(super) fn ended(&mut self, outcome: Outcome) {
        let now = self.since.elapsed();
        self.progress.ended(outcome, now);
        self.reporter.show(&self.progress, now);
    }

    /// A task that had ended so was given another attempt, which has ended too.
    pub(super) fn ended_anew(&mut self, before: Outcome, outcome: Outcome) {
        self.progress.ended_anew(before, outcome);
        self.reporter.show(&self.progress, self.since.elapsed());
    }

    /// The daemon went away. Told once, until it is back.
    pub(super) fn away(&mut self) {
        if !std::mem::replace(&mut self.is_away, true) {
            let words = format!("the daemon went away; waits {} s for it", WINDOW.as_secs());
            self.screen.suspend(|| (self.tell)(&words));
        }
    }

    /// It has answered.
    pub(super) fn back(&mut self) {
        if std::mem::take(&mut self.is_away) {
            self.screen.suspend(|| (self.tell)("the daemon is back"));
        }
    }

    pub(super) fn view(&mut self, batch: &BatchView) {
        let waits = batch.waits_for.as_ref().filter(|_| batch.open == 0);
        if let Some(why) = waits.filter(|_| !self.is_waiting) {
            let (tasks, id) =
                (counted(usize::try_from(batch.waiting).unwrap_or(usize::MAX), "task"), &batch.id);
            let words = format!(
                "{tasks} not started ({why}); `herder set --batch {id} --max-cost USD` with more starts them"
            );
            self.screen.suspend(|| (self.tell)(&words));
        }
        self.is_waiting = waits.is_some();
        self.progress.set_running(usize::try_from(batch.running).unwrap_or(usize::MAX));
        let now = SystemClock.now();
        self.progress.set_waits(batch.waits.iter().map(|wait| waits::waiting_there(wait, now)).collect());
        self.progress.set_retries(batch.retries);
        if let Some(cap) = batch.max_cost_usd {
            let spent = batch.cost_usd.unwrap_or_default();
            self.progress.set_budget(NanoUsd::from_usd(cap), NanoUsd::from_usd(spent));
        }
        self.progress.set_used(Usage {
            input: batch.usage.input,
            output: batch.usage.output,
            cached: batch.usage.cached,
            estimated: batch.usage.estimated,
            cost: batch.cost_usd.map(NanoUsd::from_usd),
            ..Usage::default()
        });
        self.reporter.show(&self.progress, self.since.elapsed());
    }

    /// Shows the end of the batch.
    pub(super) fn finish(&mut self, batch: &BatchView, unfinished: usize, last_words: Option<&str>) {
        let rest = Rest { halted: batch.state == BatchState::Halted, unfinished, unaffordable: 0 };
        self.progress.set_running(0);
        self.reporter.finish(&self.progress, self.since.elapsed(), rest);
        if let Some(words) = last_words {
            (self.tell)(words);
        }
    }

    /// Shows how far the batch is that goes on unwatched.
    pub(super) fn leave(&self, unfinished: usize, last_words: &str) {
        self.reporter.finish(
            &self.progress,
            self.since.elapsed(),
            Rest { halted: false, unfinished, unaffordable: 0 },
        );
        (self.tell)(last_words);
    }

    /// Whether a program reads along, so that words would only repeat the data.
    pub(super) const fn is_json(&self) -> bool {
        self.reporter.is_json()
    }
}
