//! `herder models`: the models that can be asked, and a check of one.

mod check;
mod list;

use clap::{Args, Subcommand};

use super::{Context, Exit, UsageError};

pub(super) const ABOUT: &str = "List the models that runs can ask, or check one

A model is SERVER:NAME, as openai:gpt-5, or the name of a [models.NAME] table of the configuration. What is known of the usual \
ones (their addresses, windows and prices) is built in; a models.toml beside your own config.toml replaces single figures of \
it. With a daemon, its models are first: their open runs, requests that are under way and that wait, and what keeps runs from \
asking, as an account that is used up (`herder resume --model MODEL` opens it).

KEY says whether the key of a model is there (of the daemon's models, whether the daemon has it); the key itself is shown nowhere.";

pub(super) const AFTER: &str = "EXAMPLES
  herder models
  herder models anthropic
  herder models --json | jq -r 'select(.key == \"found\") | .name'
  herder models check openai:gpt-5
  herder models check local --timeout 5m --json";

/// Flags of `herder models`.
#[derive(Clone, Debug, Args)]
#[command(subcommand_precedence_over_arg = true)]
pub struct ModelsArgs {
    #[command(subcommand)]
    pub verb: Option<Verb>,
    /// Only models with this in their name, provider or address
    #[arg(value_name = "FILTER")]
    pub filter: Option<String>,
    /// Print JSON, one model a line
    #[arg(long)]
    pub json: bool,
}

/// What else can be done with models.
#[derive(Clone, Debug, Subcommand)]
pub enum Verb {
    #[command(about = super::short(check::ABOUT), long_about = check::ABOUT, after_long_help = check::AFTER)]
    Check(check::CheckArgs),
}

/// Runs the command.
pub(crate) async fn main(args: ModelsArgs, context: Context) -> anyhow::Result<Exit> {
    match args.verb {
        Some(Verb::Check(_)) if args.filter.is_some() => {
            Err(UsageError("a filter means nothing to a check; leave it out".to_owned()).into())
        }
        Some(Verb::Check(check)) => {
            let json = args.json || check.json;
            check::main(check::CheckArgs { json, ..check }, context).await
        }
        None => list::main(&args, &context).await,
    }
}
