//! Waits for runs to end, for no longer than a call may take.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::show;
use crate::daemon::{
    client::{Client, Route},
    wire::RunDetail,
};

/// The longest wait. Many clients give a call up after a minute.
pub(super) const LONGEST: Duration = Duration::from_secs(50);

/// Between two looks: at first, and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

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
    let end = Instant::now() + time.min(LONGEST);
    let mut pause = PAUSE.0;
    let mut seen: Vec<Option<RunDetail>> = vec![None; names.len()];
    loop {
        for (name, seen) in names.iter().zip(&mut seen) {
            if !seen.as_ref().is_some_and(has_ended) {
                let route = Route::to(["v1", "runs", name]);
                *seen = Some(client.get(&route).await.map_err(|error| error.to_string())?);
            }
        }
        let ended = seen.iter().flatten().filter(|run| has_ended(run)).count();
        let over = match until {
            Until::All => ended == names.len(),
            Until::Any => ended > 0,
        };
        let now = Instant::now();
        if over || now >= end {
            return Ok(answer(&seen, names.len() - ended, over));
        }
        sleep(pause.min(end - now)).await;
        pause = (pause * 2).min(PAUSE.1);
    }
}

const fn has_ended(run: &RunDetail) -> bool {
    run.run.outcome.is_some()
}

fn answer(seen: &[Option<RunDetail>], open: usize, over: bool) -> Value {
    let runs: Vec<Value> = match seen {
        // Of one, nobody asks for the result after it.
        [Some(one)] if has_ended(one) => vec![show::result(one)],
        _ => seen.iter().flatten().map(|run| show::run(&run.run)).collect(),
    };
    let mut answer = json!({ "runs": runs, "not_ended": open });
    if !over {
        answer["note"] = format!("{open} not ended yet; call herder_wait again").into();
    }
    answer
}
