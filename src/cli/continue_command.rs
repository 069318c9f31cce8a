//! `herder continue`: a new run that goes on from one that has ended, at the daemon or in a state folder.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{
    Context, Exit, UsageError,
    args::AskArgs,
    asking,
    run::{self, Asks, Shown, task_text},
    start::caller,
    submit::{self, StayArgs},
};
use crate::{
    app::{
        continued::{self, Continuation, ContinueError},
        herder::{Herder, People},
        input,
        state::{State, find, read_run},
    },
    config::Flag,
    daemon::{client::Route, wire::Continue},
};

pub(super) const ABOUT: &str = "Go on from a run that has ended, with something new to say

A new run begins with all that was said in the old one, the tools and rules of the old one, and its limits anew. The old one \
stays as it is. To a run that has not ended say it with `herder follow-up`.

The daemon runs it, and this command returns once it is taken on. With --state it is run here, as `herder run` does it, beside \
the old one in that folder: what happens is shown on stderr (not with --wait), stdout has the last answer, or with --json every \
event.";

pub(super) const AFTER: &str = "EXAMPLES
  herder continue 0198f2 \"Now the tests, please.\" --follow
  herder continue task-17 \"Go on.\" --max-turns 20      after it ran out of turns
  herder continue task-17 \"Now the tests.\" --state out.jsonl.state --policy trusted

EXIT CODES
  0  the new run is taken on; with --wait, --follow or --state: it is done
  1  the old run has not ended; with --wait, --follow or --state: any other outcome
  2  bad usage, or an unknown run or model
  5  no daemon answers
  130, 143  ended by SIGINT or SIGTERM";

/// Flags of `herder continue`.
#[derive(Clone, Debug, Args)]
pub struct ContinueArgs {
    /// The run: its id, the beginning of one, or its task's id
    pub run: String,
    /// What the model is told; - reads it from stdin
    #[arg(value_name = "TEXT")]
    pub text: String,
    /// Turns that it may take; by itself as many as the one before
    #[arg(long, value_name = "N")]
    pub max_turns: Option<String>,
    /// The model to ask; by itself the one that was asked last
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Said twice with one key, it is taken on once, by the daemon
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    #[command(flatten)]
    pub stay: StayArgs,
    /// Replay the model's replies from this file, a JSON list
    #[arg(long, value_name = "FILE")]
    pub script: Option<PathBuf>,
    #[command(flatten)]
    pub asks: AskArgs,
}

impl ContinueArgs {
    pub(super) fn flags(&self) -> Vec<Flag> {
        let mut flags = Vec::new();
        self.asks.flags(&mut flags);
        flags
    }
}

/// Runs the command.
pub(crate) async fn main(args: ContinueArgs, context: Context) -> anyhow::Result<Exit> {
    if let Some(folder) = context.state.clone() {
        return here(args, &folder, &context).await;
    }
    if args.asks.park || args.asks.approval_timeout.is_some() {
        let what =
            "--park, --approval-timeout: the daemon asks people as its own [approvals] says; leave them out";
        return Err(UsageError(what.to_owned()).into());
    }
    let script = args.script.as_deref().map(input::read_script).transpose().map_err(UsageError)?;
    let script = script.map(serde_json::to_value).transpose()?;
    let next = Continue {
        text: task_text(&args.text)?,
        max_turns: args.max_turns.as_deref().map(turns).transpose()?,
        model: args.model,
        script,
    };
    let client = asking::client(&context)?;
    let route = Route::to(["v1", "runs", &args.run, "continue"]);
    // One of its own makes it safe to say it again if the daemon goes away before it has answered.
    let key = args.key.unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
    let body = serde_json::to_vec(&next)?;
    let submitted =
        asking::submit(&client, &route, "application/json", Some(&key), || body.clone().into()).await?;
    submit::stay(&client, &submitted, args.stay).await
}

/// Goes on with a run of this folder, in this process.
async fn here(args: ContinueArgs, folder: &Path, context: &Context) -> anyhow::Result<Exit> {
    if args.key.is_some() {
        let what = "--key: only a daemon keeps keys; with --state the run is begun here, leave it out";
        return Err(UsageError(what.to_owned()).into());
    }
    let next = Continuation {
        text: task_text(&args.text)?,
        max_turns: args.max_turns.as_deref().map(turns).transpose()?,
        model: args.model.map(Into::into),
        script: args.script.as_deref().map(input::read_script).transpose().map_err(UsageError)?,
    };
    // Looked at before it is written to: no folder is made for a run that is not there.
    let state = State::to_read(folder)?;
    let record = find(&*state.store, &args.run).await?;
    let (before, _) = read_run(&*state.store, record.run).await?;
    state.close().await;
    let mut spec = continued::task(&before, next).map_err(|error| match error {
        ContinueError::NotEnded(_) => anyhow::Error::new(error),
        ContinueError::Empty | ContinueError::NoTurns => UsageError(error.to_string()).into(),
    })?;
    spec.owner = caller();
    Herder::check(&context.config, [&*spec.model])?;
    if context.config.limits_costs() || spec.limits.max_cost_usd.is_some() {
        Herder::check_prices(&context.config, [&*spec.model])?;
    }
    if args.asks.park {
        let workspace = spec.isolate.is_none().then(|| Path::new(&*spec.workspace));
        Herder::check_answers(&context.config, People::Asked, folder, workspace)?;
    }
    let shown = Shown { json: args.stay.json, quiet: args.stay.wait && !args.stay.follow };
    run::work(spec, folder, shown, Asks::of(shown, args.asks.park, &context.config), context).await
}

/// So many more turns, as `20` or `+20`.
fn turns(text: &str) -> Result<u32, UsageError> {
    let turns = text.strip_prefix('+').unwrap_or(text).parse().ok().filter(|turns| *turns > 0);
    turns.ok_or_else(|| {
        UsageError(format!("--max-turns: {text:?} is no number of turns; want one, as 20 or +20"))
    })
}
