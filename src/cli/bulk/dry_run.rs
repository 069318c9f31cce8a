//! Says what would be done to what, and does nothing.

use super::{Target, Verb, matching};
use crate::{
    cli::{Exit, render::counted, start::say, stdout::Output, table},
    daemon::{
        client::{Client, Route},
        wire::{BatchView, RunDetail, Status},
    },
};

pub(super) async fn dry_run(client: &Client, verb: Verb, target: Target, json: bool) -> anyhow::Result<Exit> {
    let (runs, whole) = match &target {
        Target::Runs(names) => {
            let mut runs = Vec::new();
            for name in names {
                runs.push(client.get::<RunDetail>(&Route::to(["v1", "runs", name])).await?.run);
            }
            (runs, None)
        }
        Target::Matching(filter) => (matching(client, filter).await?, None),
        Target::Batch(name) => {
            let batch: BatchView = client.get(&Route::to(["v1", "batches", name])).await?;
            let what = format!("batch {}, {} open and {} waiting", batch.name, batch.open, batch.waiting);
            (Vec::new(), Some(what))
        }
        Target::Model(name) => (Vec::new(), Some(format!("every run that asks {name}"))),
        Target::All => {
            let status: Status = client.get(&Route::to(["v1", "status"])).await?;
            let what = format!("everything: {} open runs, {} batches", status.runs.open, status.open_batches);
            (Vec::new(), Some(what))
        }
    };
    let mut out = Output::stdout();
    if json {
        for run in &runs {
            let _open = out.json(run)?;
        }
    } else if !runs.is_empty() {
        let _open = out.line(&table::runs(&runs))?;
    }
    let _open = out.flush()?;
    let what = whole.unwrap_or_else(|| counted(runs.len(), "run"));
    say(&format!("would be {}: {what}; nothing was done", verb.past()));
    Ok(Exit::Done)
}
