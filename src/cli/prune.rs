//! `herder prune`: takes old runs off the record, and gives their room back.

use std::{path::Path, sync::Arc};

use clap::Args;

use super::{Context, Exit, asking, progress::short, start::say, stdout::Output, table::grouped};
use crate::{
    app::{
        isolation,
        prune::{Act, Place, Pruned, Terms, prune},
        state::{State, StateError, log_bytes},
    },
    clock::{Clock, SystemClock},
    config::Age,
    daemon::{
        client::{Client, Route},
        wire,
    },
    domain::time::Timestamp,
    store::folder::StateFolder,
};

pub(super) const ABOUT: &str = "Remove old runs, and what they left in the state folder

A run goes if it ended that long ago; one that has not ended never does. Runs of a batch go together, once all of its tasks have \
ended: until then they say what need not run again. After that its results file cannot be made anew. Runs that were continued \
from one that goes have all they need.

The folder is that of --state, else the daemon's, else the one that `herder run` uses. Nobody else may work in it, but a daemon \
that works there is asked to do it. It keeps the room that is free then and uses it again; without one the log is made smaller. A \
daemon can do the same by itself: see [retention] in its configuration.

What users have spent of their budgets, and statistics, count what is of record.";

pub(super) const AFTER: &str = "EXAMPLES
  herder prune --older-than 30d --dry-run
  herder prune --older-than 30d --keep-failed
  herder prune --older-than 12h --state out.jsonl.state
  herder export --all --state out.jsonl.state -o kept.jsonl && herder prune --older-than 0s --state out.jsonl.state

EXIT CODES
  0  what is old is gone, be it nothing
  1  it could not be done, or not wholly; the same again goes on
  2  it is no state folder, or another process than the daemon works in it
  6  a later version of herder wrote it";

/// Flags of `herder prune`.
#[derive(Clone, Debug, Args)]
pub struct PruneArgs {
    /// Runs that ended so long ago, as 30d, 12h or 90m
    #[arg(long, value_name = "TIME")]
    pub older_than: Age,
    /// But not those that did not end as done, nor batches in which a task did not
    #[arg(long)]
    pub keep_failed: bool,
    /// Only say what would go
    #[arg(long)]
    pub dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub(crate) async fn main(args: PruneArgs, context: Context) -> anyhow::Result<Exit> {
    let report = match (&context.state, asking::daemon(&context).await) {
        (None, Some(_)) => ask(&asking::client(&context)?, &args).await?,
        (Some(folder), Some(status)) if holds(status.pid, folder) => {
            ask(&asking::client_at(&context)?, &args).await?
        }
        (None, None) if context.socket.is_some() => ask(&asking::client(&context)?, &args).await?,
        (Some(_), _) | (None, None) => in_folder(&context.state_folder()?, &args, &context).await?,
    };
    let mut out = Output::stdout();
    let _open = if args.json { out.json(&report)? } else { out.line(&shown(&report))? };
    let _open = out.flush()?;
    Ok(Exit::Done)
}

/// Whether this process works in the folder.
fn holds(pid: u32, folder: &Path) -> bool {
    StateFolder::holder(folder).ok().flatten().is_some_and(|holder| holder.pid() == Some(pid))
}

async fn ask(client: &Client, args: &PruneArgs) -> anyhow::Result<wire::PruneReport> {
    let older_than_s = u32::try_from(args.older_than.0.as_secs()).unwrap_or(u32::MAX);
    let prune = wire::Prune { older_than_s, keep_failed: args.keep_failed, dry_run: args.dry_run };
    Ok(client.post(&Route::to(["v1", "prune"]), &prune).await?)
}

async fn in_folder(folder: &Path, args: &PruneArgs, context: &Context) -> anyhow::Result<wire::PruneReport> {
    // One that is not there is not made.
    StateFolder::open_for_reading(folder).map_err(StateError::Folder)?;
    let (state, act) = if args.dry_run {
        (State::to_read(folder)?, Act::Look)
    } else {
        (State::to_write(folder, context.config.store.durability)?, Act::Remove)
    };
    let age = i64::try_from(args.older_than.0.as_micros()).unwrap_or(i64::MAX);
    let before = Timestamp::from_micros(SystemClock.now().as_micros().saturating_sub(age));
    let terms = Terms { before, keep_failed: args.keep_failed };
    let isolation = Some(Arc::new(isolation::isolation(&context.config, &state)));
    let place = Place { folder: folder.to_owned(), batches: None, isolation };
    let mut health = state.store.health();
    let pruned = tokio::select! {
        pruned = prune(&*state.store, &place, terms, act) => Ok(pruned?),
        // A daemon waits for room. Here nobody would know for what.
        Ok(health) = health.wait_for(|health| health.is_stuck()) => Err(health.trouble().unwrap_or_default()),
    };
    let Pruned { runs, batches, unfinished } = match pruned {
        Ok(pruned) => pruned,
        Err(trouble) => {
            state.close().await;
            anyhow::bail!("{trouble}; make a little room first, then do the same again");
        }
    };
    if act == Act::Look || runs + batches == 0 {
        state.close().await;
    } else if let Err(error) = state.close_compact().await {
        let error = anyhow::Error::from(error);
        say(&format!("the log's file could not be made smaller, its room is used again: {error:#}"));
    }
    let dry_run = args.dry_run;
    Ok(wire::PruneReport { dry_run, runs, batches, unfinished, log_bytes: log_bytes(folder) })
}

fn shown(report: &wire::PruneReport) -> String {
    let count = |count: u64, one: &str, many: &str| {
        format!("{} {}", grouped(count), if count == 1 { one } else { many })
    };
    let mut told = vec![count(report.runs, "run", "runs"), count(report.batches, "batch", "batches")];
    if report.unfinished > 0 {
        let batches = count(report.unfinished, "old batch stays", "old batches stay");
        told.push(format!("{batches}, since not all tasks have ended"));
    }
    let log = report.log_bytes.map_or_else(String::new, |bytes| format!("; the log has {}B", short(bytes)));
    let verb = if report.dry_run { "would remove" } else { "removed" };
    format!("{verb} {}{log}", told.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_is_told_in_one_line() {
        let report =
            wire::PruneReport { runs: 1_412, batches: 1, log_bytes: Some(38_000_000), ..Default::default() };
        assert_eq!(shown(&report), "removed 1,412 runs, 1 batch; the log has 38MB");
        let looked = wire::PruneReport { dry_run: true, runs: 1, unfinished: 2, ..Default::default() };
        assert_eq!(
            shown(&looked),
            "would remove 1 run, 0 batches, 2 old batches stay, since not all tasks have ended"
        );
    }
}
