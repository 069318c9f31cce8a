//! `herder ls`: the runs of a state folder, the newest last.

use clap::{Args, builder::PossibleValuesParser};

use super::{Context, Exit, UsageError, standing::Standing, start::say, stdout::Output, table};
use crate::{
    domain::{id::BatchId, outcome::Outcome},
    store::{EventStore, RunFilter},
};

pub(super) const ABOUT: &str = "List runs, the newest last

STANDS is how a run ended or, of the 200 newest that have not, what they are at and what they wait for. Works also while the \
log is being written.";

pub(super) const AFTER: &str = "EXAMPLES
  herder ls --state out.jsonl.state
  herder ls --outcome failed --json | jq -r .run";

/// Flags of `herder ls`.
#[derive(Clone, Debug, Args)]
pub struct LsArgs {
    /// Only runs of this batch: its id, or its name
    #[arg(long, value_name = "BATCH")]
    pub batch: Option<String>,
    /// Only runs that ended like this
    #[arg(long, value_name = "OUTCOME", value_parser = PossibleValuesParser::new(Outcome::NAMES))]
    pub outcome: Option<String>,
    /// At most N runs, the newest
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Print JSON, one run a line
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub(crate) async fn main(args: LsArgs, context: Context) -> anyhow::Result<Exit> {
    let state = context.open_state()?;
    let batch = match &args.batch {
        Some(name) => Some(batch(&*state.store, name).await?),
        None => None,
    };
    // An outcome is narrowed here, so then the store cannot count.
    let limit = if args.outcome.is_some() { None } else { args.limit };
    let mut records = state.store.runs(RunFilter { batch, limit, ..RunFilter::default() }).await?;
    if let Some(outcome) = &args.outcome {
        records.retain(|record| record.end.as_ref().is_some_and(|end| end.outcome.as_str() == outcome));
        let surplus = records.len().saturating_sub(args.limit.unwrap_or(usize::MAX));
        records.drain(..surplus);
    }
    let standings = Standing::of_all(&*state.store, &records).await?;
    let mut out = Output::stdout();
    if args.json {
        for (record, standing) in records.iter().zip(&standings) {
            if out.json(&table::run_json(record, standing))?.is_break() {
                return Ok(Exit::Done);
            }
        }
    } else if records.is_empty() {
        say("no runs");
    } else {
        let _open = out.line(&table::runs(&records, &standings))?;
    }
    let _open = out.flush()?;
    state.close().await;
    Ok(Exit::Done)
}

/// A batch by its id or its name; of several with one name, the latest.
async fn batch(store: &dyn EventStore, name: &str) -> anyhow::Result<BatchId> {
    let batches = store.batches().await?;
    let found = batches.iter().rev().find(|batch| batch.name == name || batch.id.to_string() == name);
    found.map(|batch| batch.id).ok_or_else(|| {
        let known: Vec<&str> = batches.iter().map(|batch| &*batch.name).collect();
        let want = if known.is_empty() {
            "there are none here".to_owned()
        } else {
            format!("want one of: {}", known.join(", "))
        };
        UsageError(format!("there is no batch {name:?}; {want}")).into()
    })
}
