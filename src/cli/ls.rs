//! `herder ls`: the runs of a state folder, the newest last.

use clap::{Args, builder::PossibleValuesParser};

use super::{Context, Exit};
use crate::domain::outcome::Outcome;

pub(super) const ABOUT: &str = "List runs, the newest last";

pub(super) const AFTER: &str = "EXAMPLES
  herder ls --state out.jsonl.state
  herder ls --outcome failed --json | jq -r .run";

/// Flags of `herder ls`.
#[derive(Clone, Debug, Args)]
pub struct LsArgs {
    /// Only runs of this batch: its id, or its name
    #[arg(long, value_name = "BATCH")]
    pub batch: Option<String>,
    /// Only runs that ended like this
    #[arg(long, value_name = "OUTCOME", value_parser = PossibleValuesParser::new(Outcome::NAMES))]
    pub outcome: Option<String>,
    /// At most N runs, the newest
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Print JSON, one run a line
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
#[expect(clippy::unused_async, reason = "every command has one shape")]
pub(crate) async fn main(args: LsArgs, context: Context) -> anyhow::Result<Exit> {
    drop((args, context));
    anyhow::bail!("ls is not wired")
}
