//! `herder show`: one run in short, or its whole conversation.

use clap::Args;

use super::{Context, Exit};

pub(super) const ABOUT: &str = "Show one run: its task, how far it is, how it ended

RUN is a run's id, the beginning of one, or a task's id (its latest attempt). Works also while the log is being written.";

pub(super) const AFTER: &str = "EXAMPLES
  herder show task-17 --state out.jsonl.state
  herder show 0198c2a1 --messages --json                     the conversation, in the form of Chat Completions";

/// Flags of `herder show`.
#[derive(Clone, Debug, Args)]
pub struct ShowArgs {
    /// The run
    #[arg(value_name = "RUN")]
    pub run: String,
    /// Show the whole conversation
    #[arg(long)]
    pub messages: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
#[expect(clippy::unused_async, reason = "every command has one shape")]
pub(crate) async fn main(args: ShowArgs, context: Context) -> anyhow::Result<Exit> {
    drop((args, context));
    anyhow::bail!("show is not wired")
}
