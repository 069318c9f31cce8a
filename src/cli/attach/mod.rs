//! `herder batch --daemon`: the daemon runs the batch, this writes its results and shows how far it is.
//!
//! The journal is the daemon's. A batch is known by where its results go, so that the same command attaches to the batch
//! again; what it writes is made anew from what the daemon has of record, and each result is written once, however often the
//! connection or the daemon itself went away meanwhile.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use futures_util::stream;
use sha2::{Digest, Sha256};

use super::{
    Context, Exit, MisfitError, UsageError, asking,
    batch::{BatchArgs, Include, chosen, out, tasks},
    render::counted,
    stdout::Output,
    task_line::{line, refuse, refuse_settings, with_flags},
};
use crate::{
    app::{
        batch::{beside, check_place},
        input::InputTask,
    },
    daemon::{
        client::{Client, ClientError, Route},
        wire::{Code, Submitted},
    },
    domain::{admission::Slots, batch::RetryFailed, usage::NanoUsd},
};

mod follow;
mod latest;
mod shown;
mod stopping;
#[cfg(test)]
mod tests;

use follow::{Attached, Batch};
use stopping::Stopping;

/// Runs the command.
pub(super) async fn main(args: BatchArgs, context: Context) -> anyhow::Result<Exit> {
    refuse_foreground(&args, &context)?;
    let tasks = with_flags(&args.task, |rules| tasks(&args, rules))?;
    let chosen = chosen(&args, &tasks)?;
    let out = out(&args)?;
    if let Some(out) = &out {
        check_out(out)?;
    }
    if args.dry_run {
        return dry_run(&args, &tasks, &chosen);
    }
    let client = asking::client(&context)?;
    let input = Arc::new((tasks, chosen));
    let submitted = submit(&client, &args, out.as_deref(), &input).await?;
    if args.detach {
        let mut out = Output::stdout();
        let _open = if args.json { out.json(&submitted)? } else { out.line(&submitted.id)? };
        let _open = out.flush()?;
        return Ok(Exit::Done);
    }
    let stopping = Stopping::watch()?;
    let batch = Batch {
        id: submitted.id,
        name: args.input.display().to_string(),
        tasks: input.0.iter().map(|task| task.id.clone()).collect(),
        chosen: input.1.clone(),
        out,
        keep_order: args.keep_order,
        with_messages: args.include.contains(&Include::Messages),
    };
    // What is left of the tasks are their names.
    drop(input);
    let shown = shown::Shown::new(args.progress, args.json, &context.screen, batch.chosen.len());
    Attached::new(client, batch, shown, stopping).watch().await
}

/// Refuses flags that only a batch in this process can heed.
fn refuse_foreground(args: &BatchArgs, context: &Context) -> Result<(), UsageError> {
    refuse_settings(&args.task, context)?;
    let given = [
        ("--state", context.state.is_some()),
        ("--durability", args.work.keep.durability.is_some()),
        ("--drain", args.work.keep.drain.is_some()),
        ("--metrics", args.work.metrics.is_some()),
    ];
    refuse(given, "is the daemon's own setting; leave it out with --daemon")
}

/// Whether OUT is free, or has results of a batch of the daemon's.
fn check_out(out: &Path) -> anyhow::Result<()> {
    check_place(out)?;
    let journal = beside(out);
    if journal.join("log.db").exists() {
        let (out, journal) = (out.display(), journal.display());
        return Err(MisfitError(format!(
            "{out}: a batch without --daemon writes it, and {journal} is its journal; leave --daemon out, or name another OUT"
        ))
        .into());
    }
    if !holds_results(out) {
        let out = out.display();
        return Err(UsageError(format!(
            "{out}: has content that is no result of a batch; move it away or name another OUT"
        ))
        .into());
    }
    Ok(())
}

/// Whether a file is not there, or empty, or begins with a result.
fn holds_results(out: &Path) -> bool {
    use std::io::{BufRead, BufReader};
    let Ok(file) = std::fs::File::open(out) else { return true };
    let mut first = Vec::new();
    match BufReader::new(file).read_until(b'\n', &mut first) {
        Ok(0) | Err(_) => true,
        Ok(_) => follow::ResultHead::of(&first).is_some(),
    }
}

fn dry_run(args: &BatchArgs, tasks: &[InputTask], chosen: &[usize]) -> anyhow::Result<Exit> {
    let mut out = Output::stdout();
    let line = if args.json {
        serde_json::json!({"tasks": tasks.len(), "chosen": chosen.len()}).to_string()
    } else {
        let tasks = counted(tasks.len(), "task");
        format!("{tasks}, {} chosen. Nothing was sent to the daemon.", chosen.len())
    };
    let _open = out.line(&line)?;
    let _open = out.flush()?;
    Ok(Exit::Done)
}

async fn submit(
    client: &Client,
    args: &BatchArgs,
    out: Option<&Path>,
    input: &Arc<(Vec<InputTask>, Vec<usize>)>,
) -> anyhow::Result<Submitted> {
    let route = Route::to(["v1", "batches"])
        .with("name", args.input.display())
        .with_some("concurrency", args.jobs.map(Slots::most))
        .with_some("max_cost_usd", args.max_cost.map(NanoUsd::usd))
        .with_some("retries", (args.retries > 0).then_some(args.retries))
        .with_some("halt", args.halt.map(|halt| halt.to_string()))
        .with_some("retry_failed", args.retry_failed.and_then(again))
        .with_some("restart_stale", args.restart_stale.then_some(true));
    let key = key(out, &args.input);
    let (tasks, chosen) = &**input;
    let order = Arc::new(in_order(tasks.len(), chosen));
    let route = route.with_some("first", (chosen.len() < tasks.len()).then_some(chosen.len()));
    // The lines may be many: each is written when it is sent.
    let body = || {
        let (input, order) = (input.clone(), order.clone());
        let lines = (0..order.len()).map(move |number| {
            let mut line = line(&input.0[order[number]].spec)?;
            line.push(b'\n');
            Ok::<_, io::Error>(line)
        });
        reqwest::Body::wrap_stream(stream::iter(lines))
    };
    let submitted = asking::submit(client, &route, "application/x-ndjson", key.as_deref(), body).await;
    submitted.map_err(|mut error| {
        if let ClientError::Refused(refusal) = &mut error
            && matches!(refusal.code, Code::Misfit | Code::Busy)
        {
            refusal.message = of_files(&refusal.message, out, &args.input);
        }
        error.into()
    })
}

/// The chosen lines, then the others: they are sent too, since a batch that lacks lines which are of record does not fit.
fn in_order(tasks: usize, chosen: &[usize]) -> Vec<usize> {
    let are_chosen: BTreeSet<usize> = chosen.iter().copied().collect();
    let others = (0..tasks).filter(|place| !are_chosen.contains(place));
    chosen.iter().copied().chain(others).collect()
}

/// What the daemon says of a batch, which it knows by its key, as a person knows it: by where its results go, or its
/// tasks come from.
fn of_files(message: &str, out: Option<&Path>, input: &Path) -> String {
    let batch = format!("the batch of {}", out.unwrap_or(input).display());
    message.replace("the batch of this key", &batch).replace("use another key", "name another OUT")
}

fn again(retry: RetryFailed) -> Option<&'static str> {
    match retry {
        RetryFailed::None => None,
        RetryFailed::All => Some("all"),
        RetryFailed::Class(class) => Some(class),
    }
}

/// What the batch is known by: where its results go or, if that is stdout, where its tasks come from. One from stdin to
/// stdout is known by nothing.
fn key(out: Option<&Path>, input: &Path) -> Option<String> {
    let (what, path) = match out {
        Some(out) => ("out", real(out)),
        None if input == Path::new("-") => return None,
        None => ("in", real(input)),
    };
    let digest = Sha256::digest(path.as_os_str().as_encoded_bytes());
    Some(format!("batch-{what}-{}", digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>()))
}

/// The real path of a file, though it may not be there yet.
fn real(path: &Path) -> PathBuf {
    let missing = || {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Some(folder.canonicalize().ok()?.join(path.file_name()?))
    };
    path.canonicalize().ok().or_else(missing).unwrap_or_else(|| path.to_owned())
}
