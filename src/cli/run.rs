//! `herder run`: one task, watched from here.

use std::path::PathBuf;

use clap::Args;

use super::{
    Context, Exit,
    args::{TaskArgs, WorkArgs},
};
use crate::config::Flag;

pub(super) const ABOUT: &str = "Run one task and print what the model says at the end

What happens is shown on stderr; stdout has the last answer, or with --json every event, one a line. The run is kept: see \
`herder ls` and `herder show`.";

pub(super) const AFTER: &str = "EXAMPLES
  herder run \"Fix the failing test in src/parse.rs\" --model openai:gpt-5
  herder run \"List the open questions in notes/\" --policy read-only --quiet
  herder run \"Say hello\" --script replies.json             no model, no key, no network

EXIT CODES
  0  done
  1  any other outcome
  2  bad usage or configuration; nothing ran
  130, 143  ended by SIGINT or SIGTERM";

/// Flags of `herder run`.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// What to do; - reads it from stdin
    #[arg(value_name = "TASK")]
    pub text: String,
    /// Print every event as JSON, one a line
    #[arg(long)]
    pub json: bool,
    /// Show nothing but the result
    #[arg(long, short)]
    pub quiet: bool,
    /// Replay the model's replies from this file, a JSON list
    #[arg(long, value_name = "FILE")]
    pub script: Option<PathBuf>,

    #[command(flatten)]
    pub task: TaskArgs,
    #[command(flatten)]
    pub work: WorkArgs,
}

impl RunArgs {
    pub(super) fn flags(&self) -> Vec<Flag> {
        let mut flags = Vec::new();
        self.task.flags(&mut flags);
        self.work.flags(&mut flags);
        flags
    }
}

/// Runs the command.
#[expect(clippy::unused_async, reason = "every command has one shape")]
pub(crate) async fn main(args: RunArgs, context: Context) -> anyhow::Result<Exit> {
    drop((args, context));
    anyhow::bail!("run is not wired")
}
