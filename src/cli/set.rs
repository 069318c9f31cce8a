//! `herder set`: changes the daemon, a batch or a run while it is at work.

use clap::Args;
use serde_json::{Map, Value};

use super::{Context, Exit, UsageError, args::usd, asking, stdout::Output};
use crate::{
    daemon::{client::Route, wire::Changed},
    domain::usage::NanoUsd,
};

pub(super) const ABOUT: &str = "Change limits while the work goes on

Without RUN and --batch the daemon itself is changed, until it ends; what its configuration says is in force again at its next \
start. Keys of the daemon: max_live_runs, max_turns, drain_s. Of a batch: concurrency, max_cost_usd. Of a run: max_turns, \
max_tool_calls, max_total_tokens, wall_time_s, max_cost_usd. A batch that waits for a larger budget goes on with one.";

pub(super) const AFTER: &str = "EXAMPLES
  herder set max_live_runs=20
  herder set --batch tasks.jsonl concurrency=5
  herder set --batch tasks.jsonl --max-cost 20
  herder set task-17 max_turns=80 wall_time_s=3600";

const OF_DAEMON: &[&str] = &["max_live_runs", "max_turns", "drain_s"];
const OF_BATCH: &[&str] = &["concurrency", "max_cost_usd"];
const OF_RUN: &[&str] = &["max_turns", "max_tool_calls", "max_total_tokens", "wall_time_s", "max_cost_usd"];

/// What `--max-cost` is another way to say.
const MAX_COST: &str = "max_cost_usd";

pub(super) const USAGE: &str = "herder set [OPTIONS] [RUN | --batch <BATCH>] <KEY=VALUE>...";

/// Flags of `herder set`.
#[derive(Clone, Debug, Args)]
pub struct SetArgs {
    /// The run, if it is one, then what is changed
    #[arg(value_name = "KEY=VALUE", required_unless_present = "max_cost")]
    pub words: Vec<String>,
    /// The batch: its name or its id
    #[arg(long, value_name = "BATCH")]
    pub batch: Option<String>,
    /// Dollars that the run, or all of the batch, may cost
    #[arg(long, value_name = "USD", value_parser = usd)]
    pub max_cost: Option<NanoUsd>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub(crate) async fn main(args: SetArgs, context: Context) -> anyhow::Result<Exit> {
    let (route, patch) = patch(&args)?;
    let changed: Changed = asking::client(&context)?.patch(&route, &Value::Object(patch)).await?;
    let mut out = Output::stdout();
    let _open = match (args.json, changed.changed) {
        (true, _) => out.json(&changed)?,
        (false, true) => out.line("changed")?,
        (false, false) => out.line("was so already")?,
    };
    let _open = out.flush()?;
    Ok(Exit::Done)
}

/// What is changed of what.
fn patch(args: &SetArgs) -> Result<(Route, Map<String, Value>), UsageError> {
    let run = args.words.first().filter(|word| !word.contains('='));
    let (route, known) = match (run, &args.batch) {
        (None, None) => (Route::to(["v1", "config"]), OF_DAEMON),
        (None, Some(batch)) => (Route::to(["v1", "batches", batch]), OF_BATCH),
        (Some(run), None) => (Route::to(["v1", "runs", run]), OF_RUN),
        (Some(run), Some(_)) => {
            return Err(UsageError(format!("{run}: name a run or --batch, not both")));
        }
    };
    let mut patch = Map::new();
    for word in args.words.iter().skip(usize::from(run.is_some())) {
        let want = || format!("want KEY=NUMBER, KEY one of {}", known.join(", "));
        let (key, value) = word.split_once('=').ok_or_else(|| UsageError(format!("{word}: {}", want())))?;
        if !known.contains(&key) {
            return Err(UsageError(format!("{key}: cannot be changed here; {}", want())));
        }
        let wrong = || UsageError(format!("{word}: {}", want()));
        let number: Value = if key == MAX_COST {
            usd(value).map_err(|_| wrong())?.usd().into()
        } else {
            value.parse::<u64>().map_err(|_| wrong())?.into()
        };
        if patch.insert(key.to_owned(), number).is_some() {
            return Err(UsageError(format!("{key}: is there twice; say it once")));
        }
    }
    if let Some(cost) = args.max_cost {
        if !known.contains(&MAX_COST) {
            return Err(UsageError("--max-cost: name a run or --batch".to_owned()));
        }
        patch.insert(MAX_COST.to_owned(), cost.usd().into());
    }
    if patch.is_empty() {
        return Err(UsageError(format!(
            "nothing is changed; want KEY=NUMBER, KEY one of {}",
            known.join(", ")
        )));
    }
    Ok((route, patch))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patched(words: &[&str], batch: Option<&str>) -> Result<(Route, Value), String> {
        let words = words.iter().map(ToString::to_string).collect();
        let args = SetArgs { words, batch: batch.map(str::to_owned), max_cost: None, json: false };
        patch(&args).map(|(route, patch)| (route, Value::Object(patch))).map_err(|error| error.0)
    }

    #[test]
    fn the_first_word_without_a_value_names_the_run() {
        assert_eq!(
            patched(&["task-1", "max_turns=8", "wall_time_s=60"], None),
            Ok((Route::to(["v1", "runs", "task-1"]), json!({"max_turns": 8, "wall_time_s": 60})))
        );
        assert_eq!(
            patched(&["max_live_runs=8"], None),
            Ok((Route::to(["v1", "config"]), json!({"max_live_runs": 8})))
        );
        assert_eq!(
            patched(&["concurrency=8"], Some("B")),
            Ok((Route::to(["v1", "batches", "B"]), json!({"concurrency": 8})))
        );
    }

    #[test]
    fn what_cannot_be_changed_is_refused_with_what_can() {
        for (words, batch, want) in [
            (&["concurrency=8"][..], None, "want KEY=NUMBER, KEY one of max_live_runs, max_turns, drain_s"),
            (&["max_live_runs=many"], None, "max_live_runs=many: want"),
            (&["a"], None, "nothing is changed"),
            (&["a", "max_turns=1"], Some("B"), "not both"),
            (&["a", "max_turns=1", "max_turns=2"], None, "twice"),
        ] {
            let told = patched(words, batch).expect_err("refused");
            assert!(told.contains(want), "{words:?}: {told}");
        }
    }
}
