//! Which runs are meant: one language for every command that lists runs or acts on many.
//!
//! The daemon narrows what it is asked for; a state folder has nobody to ask, so its runs are narrowed here, by the same
//! words.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::label;
use crate::{
    clock::rfc3339,
    daemon::{
        client::Route,
        wire::{RunState, RunView},
    },
    domain::{batch::RetryFailed, outcome::Outcome, time::Timestamp},
};

/// What narrows runs. Each flag narrows further.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct FilterArgs {
    #[command(flatten)]
    pub origin: OriginArgs,
    /// Only runs that ended like this: an outcome, or a detail of one
    #[arg(long, value_name = "OUTCOME", value_parser = outcome, help_heading = "Which runs")]
    pub outcome: Option<String>,
    /// Only runs that stand like this
    #[arg(long, value_name = "HOW", value_delimiter = ',', help_heading = "Which runs")]
    pub standing: Vec<StandingArg>,
}

/// What narrows runs by what they are from the first, whatever becomes of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct OriginArgs {
    /// Only runs with this name and value; may be given more than once
    #[arg(long = "label", short = 'l', value_name = "NAME=VALUE", value_parser = label, help_heading = "Which runs")]
    pub labels: Vec<(String, String)>,
    /// Only runs of this batch: its name, its id, or the beginning of it
    #[arg(long, value_name = "BATCH", help_heading = "Which runs")]
    pub batch: Option<String>,
    /// Only runs that ask this model
    #[arg(long, value_name = "NAME", help_heading = "Which runs")]
    pub model: Option<String>,
    /// Only attempts at the task with this id
    #[arg(long, value_name = "ID", help_heading = "Which runs")]
    pub task: Option<String>,
    /// Only runs submitted since: so long ago, as 90s, 10m, 1h30m or 7d, or at a time, as 2026-11-30T08:00:00Z
    #[arg(long, value_name = "TIME", value_parser = since, help_heading = "Which runs")]
    pub since: Option<Since>,
}

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StandingArg {
    Queued,
    Running,
    Paused,
    Ended,
}

impl StandingArg {
    const fn state(self) -> RunState {
        match self {
            Self::Queued => RunState::Queued,
            Self::Running => RunState::Running,
            Self::Paused => RunState::Paused,
            Self::Ended => RunState::Ended,
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Ended => "ended",
        }
    }
}

/// A point in time as people say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// So long ago.
    Ago(Duration),
    /// Then.
    At(Timestamp),
}

impl Since {
    /// The point itself.
    pub fn point(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Ago(time) => {
                let micros = i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
                Timestamp::from_micros(now.as_micros().saturating_sub(micros))
            }
            Self::At(point) => point,
        }
    }
}

impl FilterArgs {
    /// Whether nothing is narrowed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The batch, if nothing else is narrowed: then the batch itself is meant, tasks that have not started included.
    pub fn whole_batch(&self) -> Option<&str> {
        let mut others = self.clone();
        others.origin.batch = None;
        self.origin.batch.as_deref().filter(|_| others.is_empty())
    }

    /// The model, if nothing else is narrowed: then the model itself is meant, runs to come included.
    pub fn whole_model(&self) -> Option<&str> {
        let mut others = self.clone();
        others.origin.model = None;
        self.origin.model.as_deref().filter(|_| others.is_empty())
    }

    /// The same narrowed to runs that stand like one of these, where it was not said.
    #[must_use]
    pub fn standing_or(self, standing: &[StandingArg]) -> Self {
        if self.standing.is_empty() { Self { standing: standing.to_vec(), ..self } } else { self }
    }

    /// The request for the runs that are meant.
    pub fn route(&self, now: Timestamp) -> Route {
        let states: Vec<&str> = self.standing.iter().map(|standing| standing.as_str()).collect();
        let route = Route::to(["v1", "runs"])
            .with_some("state", (!states.is_empty()).then(|| states.join(",")))
            .with_some("outcome", self.outcome.as_deref());
        self.origin.narrow(route, now)
    }

    /// Whether a run's log has to be read to say whether it is meant.
    pub(in crate::cli) fn needs_log(&self) -> bool {
        !self.origin.labels.is_empty() || !self.standing.is_empty() || self.origin.model.is_some()
    }

    /// Whether an outcome is meant.
    pub(in crate::cli) fn admits_outcome(&self, outcome: Option<Outcome>) -> bool {
        self.outcome.as_deref().is_none_or(|wanted| {
            outcome.is_some_and(|outcome| outcome.as_str() == wanted || outcome.detail() == Some(wanted))
        })
    }

    /// Whether a run is meant, as far as its log has to be read for that.
    pub(in crate::cli) fn admits(&self, run: &RunView) -> bool {
        self.origin.labels.iter().all(|(name, value)| run.labels.get(name) == Some(value))
            && (self.standing.is_empty()
                || self.standing.iter().any(|standing| standing.state() == run.state))
            && self.origin.model.as_ref().is_none_or(|model| run.model == *model)
    }
}

impl OriginArgs {
    /// Whether nothing is narrowed.
    pub(in crate::cli) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// A request narrowed to what is of the runs that are meant.
    pub(in crate::cli) fn narrow(&self, route: Route, now: Timestamp) -> Route {
        let route = route
            .with_some("batch", self.batch.as_deref())
            .with_some("model", self.model.as_deref())
            .with_some("task_id", self.task.as_deref())
            .with_some("since", self.since.map(|since| rfc3339(since.point(now))));
        let labels = self.labels.iter().map(|(name, value)| format!("{name}={value}"));
        labels.fold(route, |route, label| route.with("label", label))
    }
}

fn outcome(text: &str) -> Result<String, String> {
    let names = || std::iter::once(Outcome::Done.as_str()).chain(RetryFailed::names());
    match names().find(|name| *name == text) {
        Some(name) => Ok(name.to_owned()),
        None => Err(format!("want one of {}", names().collect::<Vec<_>>().join(", "))),
    }
}

pub(in crate::cli) fn since(text: &str) -> Result<Since, String> {
    let days = text.strip_suffix('d').and_then(|days| days.parse::<u32>().ok());
    if let Some(days) = days {
        return Ok(Since::Ago(Duration::from_secs(u64::from(days) * 24 * 3_600)));
    }
    if let Ok(time) = super::duration(text) {
        return Ok(Since::Ago(time));
    }
    let point = text.parse::<jiff::Timestamp>();
    point.map(|point| Since::At(Timestamp::from_micros(point.as_microsecond()))).map_err(|_| {
        "want a length of time, as 10m, 1h30m or 7d, or a time, as 2026-11-30T08:00:00Z".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        filter: FilterArgs,
    }

    fn filter(line: &str) -> FilterArgs {
        Line::try_parse_from(std::iter::once("x").chain(line.split_whitespace())).expect("read").filter
    }

    const NOW: Timestamp = Timestamp::from_micros(1_764_489_600_000_000);

    #[test]
    fn each_flag_is_a_parameter_of_the_request() {
        let line = "-l team=a -l b=c=d --outcome auth --standing queued,paused --batch B --model m --task t --since 1h";
        let want = Route::to(["v1", "runs"])
            .with("state", "queued,paused")
            .with("outcome", "auth")
            .with("batch", "B")
            .with("model", "m")
            .with("task_id", "t")
            .with("since", "2025-11-30T07:00:00.000000Z")
            .with("label", "team=a")
            .with("label", "b=c=d");
        assert_eq!(filter(line).route(NOW), want);
        assert_eq!(filter("").route(NOW), Route::to(["v1", "runs"]));
    }

    #[test]
    fn a_batch_is_meant_as_a_whole_if_nothing_else_is_narrowed() {
        assert_eq!(filter("--batch B").whole_batch(), Some("B"));
        assert_eq!(filter("--batch B -l a=b").whole_batch(), None);
        assert_eq!(filter("--model m").whole_model(), Some("m"));
        assert_eq!(filter("--model m --since 1h").whole_model(), None);
        assert!(filter("").is_empty() && !filter("--since 1h").is_empty());
    }

    #[test]
    fn what_is_said_of_the_standing_is_not_widened() {
        let ended = [StandingArg::Ended];
        assert_eq!(filter("--standing queued").standing_or(&ended).standing, [StandingArg::Queued]);
        assert_eq!(filter("").standing_or(&ended).standing, ended);
    }

    #[test]
    fn a_time_is_a_point_or_so_long_ago() {
        let hour = Duration::from_secs(3_600);
        assert_eq!(since("1h30m"), Ok(Since::Ago(hour + hour / 2)));
        assert_eq!(since("7d"), Ok(Since::Ago(hour * 24 * 7)));
        assert_eq!(since("2025-11-30T08:00:00Z"), Ok(Since::At(NOW)));
        assert!(since("yesterday").is_err());
    }
}
