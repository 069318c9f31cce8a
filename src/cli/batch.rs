//! `herder batch`: many tasks in parallel, one line of results each.

use std::{num::NonZeroUsize, path::PathBuf};

use clap::{Args, ValueEnum};

use super::{
    Context, Exit,
    args::{TaskArgs, WorkArgs},
    progress::ProgressMode,
};
use crate::{
    config::Flag,
    domain::batch::{Halt, RetryFailed},
};

pub(super) const ABOUT: &str = "Run many tasks in parallel, one line of results each

IN has one JSON object a line: `id` and `task`, and optionally model, system, workspace, tools, limits, facts, priority, \
labels, meta, params, script. A line without an id is named by its place (line-7). Everything is checked before anything \
runs.

OUT gets a line when a task has ended: id, run, attempt, outcome, detail, text, turns, calls, usage, cost_usd, queued_ms, \
duration_ms, active_ms, error, labels, meta, model. Beside it, OUT.state is the journal: give the same command again, and \
what is done stays done, what was interrupted goes on, what has not started starts.";

pub(super) const AFTER: &str = "EXAMPLES
  herder batch tasks.jsonl -o out.jsonl -j 50 --model openai:gpt-5
  herder batch tasks.jsonl -o out.jsonl --first 3            try the first three tasks
  herder batch tasks.jsonl -o out.jsonl --retry-failed       one more attempt at what is not done
  herder batch tasks.jsonl -o out.jsonl --halt soon,fail=10%
  generate | herder batch - --state run1 | jq -r .text

EXIT CODES
  0  every task is done
  1  some are not
  2  bad usage, configuration or input; nothing ran
  3  halted by --halt
  4  the journal does not fit the input
  6  another version of herder wrote the journal
  130, 143  ended by SIGINT or SIGTERM: once drains, twice stops now; the same command continues";

/// Flags of `herder batch`.
#[derive(Clone, Debug, Args)]
pub struct BatchArgs {
    /// The tasks, one JSON object a line; - is stdin
    #[arg(value_name = "IN")]
    pub input: PathBuf,
    /// Where results go; - is stdout, and needs --state to be continued later
    #[arg(long, short, value_name = "OUT", default_value = "-")]
    pub output: PathBuf,
    /// Runs that are live at once
    #[arg(long, short, value_name = "N")]
    pub jobs: Option<NonZeroUsize>,
    /// Check everything, say what would run, and run nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Tell progress and the summary as JSON, a line each, on stderr
    #[arg(long)]
    pub json: bool,
    /// How progress is shown, on stderr
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub progress: ProgressMode,

    #[command(flatten)]
    pub task: TaskArgs,

    /// Only the first N tasks
    #[arg(long, value_name = "N", help_heading = "Which tasks, and when")]
    pub first: Option<usize>,
    /// Only the task with this id; may be given more than once
    #[arg(long, value_name = "ID", help_heading = "Which tasks, and when")]
    pub only: Vec<String>,
    /// Start tasks in an order that is drawn by --seed
    #[arg(long, help_heading = "Which tasks, and when")]
    pub shuffle: bool,
    /// The seed of --shuffle
    #[arg(
        long,
        value_name = "N",
        default_value = "0",
        requires = "shuffle",
        help_heading = "Which tasks, and when"
    )]
    pub seed: u64,
    /// Run each task N times, as ID#1, ID#2 and so on
    #[arg(
        long,
        value_name = "N",
        default_value = "1",
        value_parser = clap::value_parser!(u32).range(1..),
        help_heading = "Which tasks, and when"
    )]
    pub repeat: u32,
    /// Stop when N tasks, or N% of all, have ended otherwise than done: soon,fail=N or now,fail=N%
    #[arg(long, value_name = "WHEN", help_heading = "Which tasks, and when")]
    pub halt: Option<Halt>,

    /// Further attempts at a task that failed in a way that may pass
    #[arg(long, value_name = "N", default_value = "0", help_heading = "Again")]
    pub retries: u32,
    /// Give tasks that are not done another attempt, all or those with this outcome or detail
    #[arg(
        long,
        value_name = "CLASS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "all",
        value_parser = retry_failed,
        help_heading = "Again"
    )]
    pub retry_failed: Option<RetryFailed>,
    /// Start tasks again whose line has changed
    #[arg(long, help_heading = "Again")]
    pub restart_stale: bool,

    /// Write results in the order of the input instead of as they come
    #[arg(long, help_heading = "Results")]
    pub keep_order: bool,
    /// Put more into each result
    #[arg(long, value_name = "WHAT", value_delimiter = ',', help_heading = "Results")]
    pub include: Vec<Include>,

    #[command(flatten)]
    pub work: WorkArgs,
}

/// What a result may have besides the usual.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Include {
    /// The whole conversation, in the form of Chat Completions
    Messages,
}

impl BatchArgs {
    pub(super) fn flags(&self) -> Vec<Flag> {
        let mut flags = Vec::new();
        self.task.flags(&mut flags);
        self.work.flags(&mut flags);
        let jobs = self.jobs.map(|jobs| i64::try_from(jobs.get()).unwrap_or(i64::MAX));
        flags.extend(jobs.map(|jobs| Flag::new("--jobs", &["supervisor", "max_live_runs"], jobs)));
        flags
    }
}

fn retry_failed(class: &str) -> Result<RetryFailed, String> {
    if class == "all" {
        return Ok(RetryFailed::All);
    }
    let names = || RetryFailed::names().collect::<Vec<_>>().join(", ");
    RetryFailed::named(class).ok_or_else(|| format!("want nothing, or one of {}", names()))
}

/// Runs the command.
#[expect(clippy::unused_async, reason = "every command has one shape")]
pub(crate) async fn main(args: BatchArgs, context: Context) -> anyhow::Result<Exit> {
    drop((args, context));
    anyhow::bail!("batch is not wired")
}
