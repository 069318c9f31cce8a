//! `herder steer` and `herder follow-up`: something is said to a run.

use clap::Args;

use super::{Context, Exit, asking, stdout::Output};
use crate::daemon::{
    client::Route,
    wire::{Changed, Say},
};

pub(super) const STEER: &str = "Say something to a run before its next turn

The model reads it with its next request. Refused, if the run has ended or is ending.";

pub(super) const STEER_AFTER: &str = "EXAMPLES
  herder steer task-17 \"Leave the tests as they are\"
  herder steer task-17 \"Try the other file\" --turn 4          only if it is still in its fourth turn";

pub(super) const FOLLOW_UP: &str = "Say something to a run once it has answered

Where the run would end, the model reads it and goes on. Refused, if the run has ended or is ending.";

pub(super) const FOLLOW_UP_AFTER: &str = "EXAMPLES
  herder follow-up task-17 \"Now write a test for it\"";

/// Flags of both commands.
#[derive(Clone, Debug, Args)]
pub struct SayArgs {
    /// The run: its id, the beginning of one, or a task's id
    #[arg(value_name = "RUN")]
    pub run: String,
    /// What is said
    #[arg(value_name = "TEXT")]
    pub text: String,
    /// Only if the run is in this turn
    #[arg(long, value_name = "N")]
    pub turn: Option<u32>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// When it is heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// Before the next turn.
    Steer,
    /// Where the run would end.
    FollowUp,
}

/// Runs one of the commands.
pub(crate) async fn main(args: SayArgs, when: When, context: Context) -> anyhow::Result<Exit> {
    let verb = match when {
        When::Steer => "steer",
        When::FollowUp => "follow-up",
    };
    let say = Say { text: args.text, expected_turn: args.turn };
    let client = asking::client(&context)?;
    let changed: Changed = client.post(&Route::to(["v1", "runs", &args.run, verb]), &say).await?;
    let mut out = Output::stdout();
    if args.json {
        let _open = out.json(&changed)?;
    }
    let _open = out.flush()?;
    Ok(Exit::Done)
}
