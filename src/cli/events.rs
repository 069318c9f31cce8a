//! `herder events`: the events of record, of one run or of all.

use clap::Args;

use super::{Context, Exit};

pub(super) const ABOUT: &str = "Print the events of a run, or of all runs, in the order of the log

With --json an event is one line: v, pos, run, seq, at, turn, kind, data.";

pub(super) const AFTER: &str = "EXAMPLES
  herder events task-17 --state out.jsonl.state
  herder events --all --follow --json | jq -c 'select(.kind == \"run_end\")'";

/// Flags of `herder events`.
#[derive(Clone, Debug, Args)]
pub struct EventsArgs {
    /// The run: its id, the beginning of one, or a task's id
    #[arg(value_name = "RUN", required_unless_present = "all", conflicts_with = "all")]
    pub run: Option<String>,
    /// Those of all runs
    #[arg(long)]
    pub all: bool,
    /// Print JSON, one event a line
    #[arg(long)]
    pub json: bool,
    /// Go on as more events come; of one run, until it ends
    #[arg(long, short)]
    pub follow: bool,
}

/// Runs the command.
#[expect(clippy::unused_async, reason = "every command has one shape")]
pub(crate) async fn main(args: EventsArgs, context: Context) -> anyhow::Result<Exit> {
    drop((args, context));
    anyhow::bail!("events is not wired")
}
