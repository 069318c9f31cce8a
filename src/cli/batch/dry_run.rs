//! `herder batch --dry-run`: what would run, and nothing runs.

use std::path::Path;

use super::BatchArgs;
use crate::{
    app::{
        batch::{Journal, Options},
        input::InputTask,
    },
    cli::{Exit, render::counted, stdout::Output},
};

pub(super) async fn dry_run(
    args: &BatchArgs,
    folder: Option<&Path>,
    out: Option<&Path>,
    tasks: &[InputTask],
    chosen: &[usize],
    options: &Options,
) -> anyhow::Result<Exit> {
    let journal = Journal::peek(folder, out).await?;
    let plan = journal.plan(tasks, chosen, options)?;
    journal.state.close().await;
    let mut output = Output::stdout();
    let line = if args.json {
        serde_json::json!({
            "tasks": tasks.len(), "chosen": chosen.len(), "start": plan.start.len(),
            "resume": plan.resume.len(), "settled": plan.settled.len(), "restart": plan.abandon.len(),
        })
        .to_string()
    } else {
        format!(
            "{}, {} chosen: {} would start, {} would go on, {} have ended. Nothing was run.",
            counted(tasks.len(), "task"),
            chosen.len(),
            plan.start.len(),
            plan.resume.len(),
            plan.settled.len()
        )
    };
    let _open = output.line(&line)?;
    let _open = output.flush()?;
    Ok(Exit::Done)
}
