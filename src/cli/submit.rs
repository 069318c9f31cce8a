//! `herder submit`: one task for the daemon.

use std::path::PathBuf;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use super::{
    Context, Exit,
    args::TaskArgs,
    asking, logs,
    run::task_text,
    start::say,
    stdout::Output,
    task_line::{line, refuse_settings, with_flags},
    wait,
};
use crate::{
    app::input,
    daemon::{
        client::{Client, Route},
        wire::{RunDetail, Submitted},
    },
    domain::{outcome::Outcome, task::TaskSpec},
};

pub(super) const ABOUT: &str = "Submit one task to the daemon and print the id of its run

The run goes on without this command. What no flag says, the daemon's configuration does.";

pub(super) const AFTER: &str = "EXAMPLES
  herder submit \"Fix the failing test in src/parse.rs\" --model openai:gpt-5
  herder submit \"List the open questions\" --follow            show what happens until it has ended
  run=$(herder submit - < task.txt) && herder wait $run

EXIT CODES, with --wait or --follow
  0  the run is done
  1  any other outcome";

/// Flags of `herder submit`.
#[derive(Clone, Debug, Args)]
pub struct SubmitArgs {
    /// What to do; - reads it from stdin
    #[arg(value_name = "TASK")]
    pub text: String,
    /// The task's own id, to find it by
    #[arg(long, value_name = "ID")]
    pub id: Option<String>,
    /// Submitted twice with one key, the task is taken on once
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    #[command(flatten)]
    pub stay: StayArgs,
    /// Replay the model's replies from this file, a JSON list
    #[arg(long, value_name = "FILE")]
    pub script: Option<PathBuf>,

    #[command(flatten)]
    pub task: TaskArgs,
}

/// Whether to stay with a run that was submitted, and what is told of it.
#[derive(Clone, Copy, Debug, Args)]
pub struct StayArgs {
    /// Return when the run has ended
    #[arg(long)]
    pub wait: bool,
    /// Show what happens until the run has ended
    #[arg(long, short)]
    pub follow: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub(crate) async fn main(args: SubmitArgs, context: Context) -> anyhow::Result<Exit> {
    refuse_settings(&args.task, &context)?;
    let client = asking::client(&context)?;
    let text = task_text(&args.text)?;
    let spec = with_flags(&args.task, |rules| input::single(&text, args.script.as_deref(), rules))?;
    let body = line(&TaskSpec { task_id: args.id.map(Into::into), ..spec })?;
    // One of its own makes it safe to submit again if the daemon goes away before it has answered.
    let key = args.key.unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
    let route = Route::to(["v1", "runs"]);
    let submitted =
        asking::submit(&client, &route, "application/json", Some(&key), || body.clone().into()).await?;
    stay(&client, &submitted, args.stay).await
}

/// Says what was submitted, and stays with its run to the end if that is wanted.
pub(super) async fn stay(
    client: &Client,
    submitted: &Submitted,
    StayArgs { wait, follow, json }: StayArgs,
) -> anyhow::Result<Exit> {
    // Whoever has read the id may leave at once.
    let stays = wait || follow;
    let leave = stays.then(|| signal(SignalKind::interrupt())).transpose()?;
    let mut out = Output::stdout();
    let _open = if json { out.json(submitted)? } else { out.line(&submitted.id)? };
    let _open = out.flush()?;
    let Some(mut leave) = leave else { return Ok(Exit::Done) };
    let attached = attached(client, &submitted.id, follow, json);
    tokio::select! {
        exit = attached => exit,
        _ = leave.recv() => {
            say(&format!("run {0} goes on; `herder logs -f {0}` shows it", submitted.id));
            Ok(Exit::Interrupted)
        }
    }
}

/// Stays with the run to its end.
async fn attached(client: &Client, run: &str, follow: bool, json: bool) -> anyhow::Result<Exit> {
    let detail: RunDetail = client.get(&Route::to(["v1", "runs", run])).await?;
    let detail = [detail];
    if follow {
        logs::show(client, &detail, true, json).await?;
    }
    let [detail] = detail;
    let RunDetail { run, .. } = wait::run(client, detail).await?;
    if !follow {
        let mut out = Output::stdout();
        let _open = if json { out.json(&run)? } else { out.line(&wait::line(&run))? };
        let _open = out.flush()?;
    }
    let done = run.outcome.as_deref() == Some(Outcome::Done.as_str());
    Ok(if done { Exit::Done } else { Exit::NotDone })
}
