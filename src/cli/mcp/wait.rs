//! Waits for runs to end, for no longer than a call may take.
//!
//! A run's log is read when the waiting begins and when it is over; meanwhile its events are followed.

use std::time::Duration;

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::show;
use crate::{
    cli::wait,
    daemon::{
        client::{Client, ClientError, Route},
        wire::RunDetail,
    },
};

/// The longest wait. Many clients give a call up after a minute.
pub(super) const LONGEST: Duration = Duration::from_secs(50);

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    All,
    Any,
}

/// Waits, and tells of each run how it ended or where it stands.
pub(super) async fn wait(
    client: &Client,
    names: &[String],
    time: Duration,
    until: Until,
) -> Result<Value, String> {
    let runs = followed(client, names, time.min(LONGEST), until).await.map_err(|error| error.to_string())?;
    let ended = runs.iter().filter(|run| has_ended(run)).count();
    Ok(answer(&runs, runs.len() - ended, is_over(ended, runs.len(), until)))
}

/// The runs as they are once enough of them have ended, or the time is over.
async fn followed(
    client: &Client,
    names: &[String],
    time: Duration,
    until: Until,
) -> Result<Vec<RunDetail>, ClientError> {
    let look = |name: &str| {
        let route = Route::to(["v1", "runs", name]);
        async move { client.get::<RunDetail>(&route).await }
    };
    let mut runs = Vec::with_capacity(names.len());
    for name in names {
        runs.push(look(name).await?);
    }
    let mut ended = runs.iter().filter(|run| has_ended(run)).count();
    if is_over(ended, runs.len(), until) {
        return Ok(runs);
    }
    let mut open: FuturesUnordered<_> = (0..)
        .zip(&runs)
        .filter(|(_, run)| !has_ended(run))
        .map(|(place, run)| (place, run.clone()))
        .map(|(place, run): (usize, _)| async move { (place, wait::run(client, run).await) })
        .collect();
    let waiting = async {
        while !is_over(ended, runs.len(), until)
            && let Some((place, run)) = open.next().await
        {
            runs[place] = run?;
            ended += 1;
        }
        Ok(())
    };
    // That the time is over is no error.
    timeout(time, waiting).await.unwrap_or(Ok(()))?;
    drop(open);
    for run in runs.iter_mut().filter(|run| !has_ended(run)) {
        *run = look(&run.run.id).await?;
    }
    Ok(runs)
}

const fn is_over(ended: usize, runs: usize, until: Until) -> bool {
    match until {
        Until::All => ended == runs,
        Until::Any => ended > 0,
    }
}

const fn has_ended(run: &RunDetail) -> bool {
    run.run.outcome.is_some()
}

fn answer(runs: &[RunDetail], open: usize, over: bool) -> Value {
    let shown: Vec<Value> = match runs {
        // Of one, nobody asks for the result after it.
        [one] if has_ended(one) => vec![show::result(one)],
        _ => runs.iter().map(|run| show::run(&run.run)).collect(),
    };
    let mut answer = json!({ "runs": shown, "not_ended": open });
    if !over {
        answer["note"] = format!("{open} not ended yet; call herder_wait again").into();
    }
    answer
}
