//! `herder config`: the configuration in force, each value with its source.

use clap::Args;

use super::{Context, Exit, stdout::Output};

pub(super) const ABOUT: &str = "Print the configuration in force, and where each value comes from

Layers, each over the one before: built in, the user's file ($XDG_CONFIG_HOME/herder/config.toml), --config FILE, \
variables, flags. A variable is HERDER_, the section, two underscores and the key: HERDER_SUPERVISOR__MAX_LIVE_RUNS=20 \
is max_live_runs of [supervisor]. Its value is TOML, plain text where text is wanted, or a list as a,b,c. OPENAI_BASE_URL, \
OPENAI_API_KEY, ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY are honoured. Secrets are not printed.";

pub(super) const AFTER: &str = "EXAMPLES
  herder config
  herder config --config team.toml > effective.toml
  herder config --json | jq -r '.sources[\"supervisor.max_live_runs\"]'";

/// Flags of `herder config`.
#[derive(Clone, Debug, Args)]
pub struct ConfigArgs {
    /// Print JSON: `config` with the values, `sources` with the source of each
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub(crate) fn main(args: &ConfigArgs, context: &Context) -> anyhow::Result<Exit> {
    let mut out = Output::stdout();
    let _open = if args.json {
        out.line(&format!("{:#}", context.effective.to_json()))?
    } else {
        out.line(context.effective.to_toml().trim_end())?
    };
    let _open = out.flush()?;
    Ok(Exit::Done)
}
