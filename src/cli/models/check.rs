//! `herder models check`: each finding as it is made.

use std::time::Duration;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    app::{
        check::{self, Finding, Standing},
        models::ModelSetup,
    },
    cli::{Context, Exit, UsageError, args::duration, stdout::Output, table},
    config::Provider,
};

pub(super) const ABOUT: &str = "Ask a model three small questions, and say what works

It is asked for words, for a call of a tool, and to go on with the call's result; that costs what a few hundred tokens cost. \
Each line is ok, missing (runs work without it) or failed, and says what to do about it. Ends with 0 if nothing \
failed, and with 1 if something did.";

pub(super) const AFTER: &str = "EXAMPLES
  herder models check openai:gpt-5
  herder models check local --config herder.toml
  herder models check local --json | jq -r 'select(.state != \"ok\") | .says'";

/// Flags of `herder models check`.
#[derive(Clone, Debug, Args)]
pub struct CheckArgs {
    /// The model: SERVER:NAME, or the name of a [models.NAME] table
    #[arg(value_name = "MODEL")]
    pub model: String,
    /// Time for the whole check, as 90s or 10m
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "60s")]
    pub timeout: Duration,
    /// Print JSON, one finding a line
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub(super) async fn main(args: CheckArgs, context: Context) -> anyhow::Result<Exit> {
    let config = context.config;
    // First of all, so that no signal is lost.
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let model = ModelSetup::default().model(&config, &args.model)?;
    let settings = config.describe(&args.model).map_err(UsageError)?;
    if settings.provider == Provider::Scripted {
        let what =
            format!("{} says what a task's script has it say; there is no server to check", args.model);
        return Err(UsageError(what).into());
    }
    let mut out = Output::stdout();
    let mut written = Ok(());
    let mut tell = |finding: Finding| {
        if written.is_ok() {
            let line = if args.json { out.json(&finding) } else { out.line(&line(&finding)) };
            written = line.and_then(|_| out.flush()).map(drop);
        }
    };
    let works = tokio::select! {
        works = check::check(&model, &settings, args.timeout, &mut tell) => works,
        Some(()) = interrupt.recv() => return Ok(Exit::Interrupted),
        Some(()) = terminate.recv() => return Ok(Exit::Terminated),
    };
    written?;
    Ok(if works { Exit::Done } else { Exit::NotDone })
}

fn line(finding: &Finding) -> String {
    let state = match finding.state {
        Standing::Ok => "ok",
        Standing::Missing => "missing",
        Standing::Failed => "FAILED",
    };
    format!("{state:8} {:12} {}", table::word(&finding.what), finding.says)
}
