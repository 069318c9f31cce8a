//! How far a batch is: counted here, shown as a bar on a terminal and as a line each ten seconds elsewhere.
//!
//! The counting knows no clock: whoever tells it something says when. Everything is shown on stderr.

use std::{
    collections::VecDeque,
    io::{self, IsTerminal, Write},
    time::Duration,
};

use clap::ValueEnum;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde_json::json;

mod numbers;

pub(super) use numbers::{clock, short, took};

use super::waits;
use crate::domain::{
    outcome::Outcome,
    usage::{NanoUsd, Usage},
};

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProgressMode {
    /// A bar on a terminal, else lines
    Auto,
    /// A bar
    Bar,
    /// A line each ten seconds
    Lines,
    /// Not at all
    None,
}

/// Ends that the rate is reckoned from are not older than this.
const WINDOW: Duration = Duration::from_secs(60);
/// Time between two lines.
const LINE_INTERVAL: Duration = Duration::from_secs(10);
/// Time between two changes of a bar.
const BAR_INTERVAL: Duration = Duration::from_millis(100);

/// The counts of a batch. Times are measured from its start.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    total: usize,
    running: usize,
    /// By outcome, in the order of [`Outcome::NAMES`].
    ended: [usize; Outcome::NAMES.len()],
    usage: Usage,
    /// The most that all may cost, and what was spent of it.
    budget: Option<(NanoUsd, NanoUsd)>,
    retries: u64,
    /// How many runs wait without a slot, and what for.
    waits: Vec<(usize, String)>,
    /// Why nothing goes on at all.
    trouble: Option<String>,
    recent: VecDeque<Duration>,
}

impl Progress {
    /// A batch of this many tasks, none of which has started.
    pub fn new(total: usize) -> Self {
        Self { total, ..Self::default() }
    }

    /// A task had ended before this start of the batch.
    pub fn settled(&mut self, outcome: Outcome) {
        self.count(outcome);
    }

    /// So many runs have a slot.
    pub const fn set_running(&mut self, running: usize) {
        self.running = running;
    }

    /// So many requests failed and were sent again; whoever counts may begin anew.
    pub fn set_retries(&mut self, retries: u64) {
        self.retries = self.retries.max(retries);
    }

    /// So many runs wait without a slot, and what for.
    pub fn set_waits(&mut self, waits: Vec<(usize, String)>) {
        self.waits = waits;
    }

    /// Nothing goes on for this reason; or it does.
    pub fn set_trouble(&mut self, trouble: Option<String>) {
        self.trouble = trouble;
    }

    /// Of so much that may be spent so much is.
    pub const fn set_budget(&mut self, cap: NanoUsd, spent: NanoUsd) {
        self.budget = Some((cap, spent));
    }

    /// So much was used up, all together.
    pub const fn set_used(&mut self, usage: Usage) {
        self.usage = usage;
    }

    /// A request used this up.
    pub fn used(&mut self, usage: Usage) {
        self.usage += usage;
    }

    /// A task ended.
    pub fn ended(&mut self, outcome: Outcome, at: Duration) {
        self.running = self.running.saturating_sub(1);
        self.count(outcome);
        self.recent.push_back(at);
        while self.recent.front().is_some_and(|first| at.saturating_sub(*first) > WINDOW) {
            self.recent.pop_front();
        }
    }

    /// A task that had ended so has come to another end since.
    pub fn ended_anew(&mut self, before: Outcome, outcome: Outcome) {
        if let Some(count) = self.counted(before) {
            *count = count.saturating_sub(1);
        }
        self.count(outcome);
    }

    fn count(&mut self, outcome: Outcome) {
        if let Some(count) = self.counted(outcome) {
            *count += 1;
        }
    }

    fn counted(&mut self, outcome: Outcome) -> Option<&mut usize> {
        let place = Outcome::NAMES.iter().position(|name| *name == outcome.as_str())?;
        self.ended.get_mut(place)
    }

    /// Tasks that have ended.
    pub fn ended_count(&self) -> usize {
        self.ended.iter().sum()
    }

    /// Tasks that have neither ended nor a slot, and are not known to wait for something else than one.
    pub fn queued(&self) -> usize {
        let waiting = self.waits.iter().map(|(runs, _)| runs).sum::<usize>();
        self.total.saturating_sub(self.ended_count() + self.running + waiting)
    }

    /// Ends a second, of late.
    #[expect(clippy::cast_precision_loss, reason = "shown to people, with few digits")]
    pub fn rate(&self, now: Duration) -> f64 {
        let recent = self.recent.iter().filter(|at| now.saturating_sub(**at) <= WINDOW).count();
        let seconds = now.min(WINDOW).as_secs_f64();
        if seconds > 0.0 { recent as f64 / seconds } else { 0.0 }
    }

    /// When the last task will have ended, at this rate.
    #[expect(clippy::cast_precision_loss, reason = "shown to people, with few digits")]
    pub fn eta(&self, now: Duration) -> Option<Duration> {
        let left = self.total.saturating_sub(self.ended_count());
        let rate = self.rate(now);
        (left > 0 && rate > 0.0).then(|| Duration::from_secs_f64((left as f64 / rate).min(1e9)))
    }

    /// Everything but the bar, as text.
    pub fn text(&self, now: Duration) -> String {
        let mut text = self.so_far(now);
        if let Some(eta) = self.eta(now) {
            text.push_str(&format!(", {} left", clock(eta)));
        }
        text
    }

    fn so_far(&self, now: Duration) -> String {
        let mut parts: Vec<String> = self.outcomes().map(|(name, count)| format!("{count} {name}")).collect();
        parts.push(format!("{} running", self.running));
        parts.push(format!("{} queued", self.queued()));
        parts.extend(self.trouble.clone());
        parts.extend(self.waits.iter().map(|(runs, what)| format!("{runs} waiting: {what}")));
        parts.extend((self.retries > 0).then(|| counted_retries(self.retries)));
        parts.push(format!("{} tokens in, {} out", short(self.usage.input), short(self.usage.output)));
        let spent = self.budget.map(|(cap, spent)| waits::spent(spent.usd(), Some(cap.usd())));
        parts.extend(spent.or_else(|| Some(waits::spent(self.usage.cost?.usd(), None))));
        parts.push(format!("{:.1}/min", self.rate(now) * 60.0));
        parts.join(", ")
    }

    /// As a line of its own.
    pub fn line(&self, now: Duration) -> String {
        self.titled(now, &self.text(now))
    }

    /// The line of somebody who goes away: how long what is left takes is not theirs to say.
    fn last_line(&self, now: Duration) -> String {
        self.titled(now, &self.so_far(now))
    }

    fn titled(&self, now: Duration, text: &str) -> String {
        format!("{} {}/{}: {text}", clock(now), self.ended_count(), self.total)
    }

    /// As data.
    pub fn json(&self, now: Duration) -> serde_json::Value {
        json!({
            "elapsed_ms": u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
            "total": self.total,
            "ended": self.ended_count(),
            "outcomes": self.outcomes().map(|(name, count)| (name.to_owned(), count.into()))
                .collect::<serde_json::Map<_, serde_json::Value>>(),
            "running": self.running,
            "queued": self.queued(),
            "waiting": self.waits.iter().map(|(runs, what)| json!({"runs": runs, "for": what})).collect::<Vec<_>>(),
            "trouble": self.trouble,
            "retries": self.retries,
            "input_tokens": self.usage.input,
            "output_tokens": self.usage.output,
            "cost_usd": self.usage.cost.map(|cost| cost.usd()),
            "spent_usd": self.budget.map(|(_, spent)| spent.usd()),
            "max_cost_usd": self.budget.map(|(cap, _)| cap.usd()),
            "per_minute": self.rate(now) * 60.0,
            "eta_ms": self.eta(now).map(|eta| u64::try_from(eta.as_millis()).unwrap_or(u64::MAX)),
        })
    }

    fn outcomes(&self) -> impl Iterator<Item = (&'static str, usize)> {
        Outcome::NAMES.iter().copied().zip(self.ended).filter(|(_, count)| *count > 0)
    }
}

fn counted_retries(count: u64) -> String {
    if count == 1 { "1 retry".to_owned() } else { format!("{count} retries") }
}

/// What is left at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    /// Too much had failed.
    pub halted: bool,
    /// Tasks that have not ended.
    pub unfinished: usize,
    /// Those of them that were not started for want of money.
    pub unaffordable: usize,
}

/// Shows progress on stderr.
#[derive(Debug)]
pub struct Reporter {
    shown: Shown,
    last: Duration,
}

#[derive(Debug)]
enum Shown {
    Bar(ProgressBar),
    Lines,
    Json,
    Nothing,
}

impl Reporter {
    /// Shows `progress` in the way asked for; on `screen`, if as a bar.
    pub fn new(mode: ProgressMode, as_json: bool, screen: &MultiProgress, total: usize) -> Self {
        let terminal = io::stderr().is_terminal();
        let shown = match (mode, as_json) {
            (ProgressMode::None, _) => Shown::Nothing,
            (ProgressMode::Auto | ProgressMode::Lines, true) => Shown::Json,
            (ProgressMode::Lines, false) => Shown::Lines,
            (ProgressMode::Auto, false) if !terminal => Shown::Lines,
            (ProgressMode::Auto, false) | (ProgressMode::Bar, _) => {
                let total = u64::try_from(total).unwrap_or(u64::MAX);
                let style = ProgressStyle::with_template("{elapsed} [{bar:24}] {pos}/{len} {wide_msg}")
                    .unwrap_or_else(|_| ProgressStyle::default_bar())
                    .progress_chars("=> ");
                Shown::Bar(screen.add(ProgressBar::new(total).with_style(style)))
            }
        };
        Self { shown, last: Duration::ZERO }
    }

    /// Shows how far things are, if it is time to. To be called on every change, and about once a second besides.
    pub fn show(&mut self, progress: &Progress, now: Duration) {
        let interval = if matches!(self.shown, Shown::Bar(_)) { BAR_INTERVAL } else { LINE_INTERVAL };
        if now.saturating_sub(self.last) < interval {
            return;
        }
        self.last = now;
        if let Shown::Bar(bar) = &self.shown {
            bar.set_position(u64::try_from(progress.ended_count()).unwrap_or(u64::MAX));
            bar.set_message(progress.text(now));
        } else {
            self.tell(progress, now);
        }
    }

    /// Shows the end.
    pub fn finish(&self, progress: &Progress, now: Duration, rest: Rest) {
        match &self.shown {
            Shown::Json => {
                let mut summary = progress.json(now);
                summary["halted"] = rest.halted.into();
                summary["unfinished"] = rest.unfinished.into();
                summary["not_started"] = rest.unaffordable.into();
                let _shown = writeln!(io::stderr(), "{summary}");
                return;
            }
            Shown::Bar(bar) => bar.finish_and_clear(),
            Shown::Lines => {}
            Shown::Nothing => return,
        }
        let kept_back = match rest.unaffordable {
            0 => String::new(),
            tasks => format!(", {tasks} not started (budget: cost)"),
        };
        let _shown = writeln!(io::stderr(), "{}{kept_back}", progress.last_line(now));
    }

    /// Whether a program reads along, so that words would only repeat the data.
    pub const fn is_json(&self) -> bool {
        matches!(self.shown, Shown::Json)
    }

    fn tell(&self, progress: &Progress, now: Duration) {
        let text = match self.shown {
            Shown::Bar(_) | Shown::Lines => progress.line(now),
            Shown::Json => progress.json(now).to_string(),
            Shown::Nothing => return,
        };
        // A batch goes on though nobody watches it.
        let _shown = writeln!(io::stderr(), "{text}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::outcome::Limit;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_line_tells_outcomes_queue_use_rate_and_what_is_left() {
        let mut progress = Progress::new(50);
        progress.settled(Outcome::Done);
        progress.set_running(11);
        progress.used(Usage {
            input: 1_234_567,
            output: 34_000,
            cost: Some(NanoUsd::new(431_000_000)),
            ..Usage::default()
        });
        progress.ended(Outcome::Done, at(10));
        progress.ended(Outcome::Budget(Limit::Turns), at(20));
        assert_eq!(
            progress.line(at(30)),
            "30s 3/50: 2 done, 1 budget, 9 running, 38 queued, 1.2M tokens in, 34k out, $0.43, 4.0/min, 11m45s left"
        );
        assert_eq!(progress.json(at(30))["outcomes"], json!({"budget": 1, "done": 2}));
    }

    #[test]
    fn what_waits_is_not_queued_and_money_is_told_with_its_limit() {
        let mut progress = Progress::new(20);
        progress.set_running(2);
        progress.set_waits(vec![(8, "rate limit until 14:05 UTC".to_owned()), (1, "key refused".to_owned())]);
        progress.set_retries(12);
        progress.set_budget(NanoUsd::from_usd(1.0), NanoUsd::from_usd(0.42));
        assert_eq!(
            progress.line(at(0)),
            "0s 0/20: 2 running, 9 queued, 8 waiting: rate limit until 14:05 UTC, 1 waiting: key refused, 12 retries, \
             0 tokens in, 0 out, $0.42 of $1.00, 0.0/min"
        );
        assert_eq!(progress.json(at(0))["waiting"][1], json!({"runs": 1, "for": "key refused"}));
    }

    #[test]
    fn the_rate_is_of_the_last_minute() {
        let mut progress = Progress::new(10);
        assert_eq!((progress.rate(at(0)), progress.eta(at(0))), (0.0, None));
        progress.ended(Outcome::Done, at(1));
        assert_eq!(progress.rate(at(4)), 0.25);
        assert_eq!(progress.rate(at(70)), 0.0);
        progress.ended(Outcome::Done, at(90));
        assert_eq!(progress.rate(at(90)), 1.0 / 60.0);
        assert_eq!(progress.eta(at(90)), Some(at(480)));
    }
}
