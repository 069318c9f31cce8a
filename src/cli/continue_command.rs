//! `herder continue`: a new run that goes on from one that has ended.

use std::path::PathBuf;

use clap::Args;

use super::{
    Context, Exit, UsageError, asking,
    run::task_text,
    submit::{self, StayArgs},
};
use crate::{
    app::input,
    daemon::{client::Route, wire::Continue},
};

pub(super) const ABOUT: &str = "Go on from a run that has ended, with something new to say

A new run begins with all that was said in the old one, the tools and rules of the old one, and its limits anew. The old one \
stays as it is. To a run that has not ended say it with `herder follow-up`.";

pub(super) const AFTER: &str = "EXAMPLES
  herder continue 0198f2 \"Now the tests, please.\" --follow
  herder continue task-17 \"Go on.\" --max-turns 20      after it ran out of turns

EXIT CODES, with --wait or --follow
  0  the run is done
  1  any other outcome";

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
    /// Said twice with one key, it is taken on once
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    #[command(flatten)]
    pub stay: StayArgs,
    /// Replay the model's replies from this file, a JSON list
    #[arg(long, value_name = "FILE")]
    pub script: Option<PathBuf>,
}

/// Runs the command.
pub(crate) async fn main(args: ContinueArgs, context: Context) -> anyhow::Result<Exit> {
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

/// So many more turns, as `20` or `+20`.
fn turns(text: &str) -> Result<u32, UsageError> {
    let turns = text.strip_prefix('+').unwrap_or(text).parse().ok().filter(|turns| *turns > 0);
    turns.ok_or_else(|| {
        UsageError(format!("--max-turns: {text:?} is no number of turns; want one, as 20 or +20"))
    })
}
