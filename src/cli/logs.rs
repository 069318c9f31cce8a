//! `herder logs`: what runs and their tools say, for people.

use std::{io, ops::ControlFlow};

use clap::Args;
use futures_util::future::join_all;
use tokio::sync::mpsc;

use super::{
    Context, Exit, asking, paint,
    stdout::Output,
    talk::{Heads, Talk},
};
use crate::daemon::{
    client::{Client, ClientError, Event, Route},
    wire::RunDetail,
};

pub(super) const ABOUT: &str = "Print what runs said and what their tools did

With -f the model's words are shown as they come, until every run has ended. With --json: the events of record, one a line.";

pub(super) const AFTER: &str = "EXAMPLES
  herder logs task-17
  herder logs -f task-17
  herder logs -f task-1 task-2 task-3";

/// Flags of `herder logs`.
#[derive(Clone, Debug, Args)]
pub struct LogsArgs {
    /// The runs: an id, the beginning of one, or a task's id
    #[arg(value_name = "RUN", required = true)]
    pub runs: Vec<String>,
    /// Go on until the runs have ended
    #[arg(long, short)]
    pub follow: bool,
    /// Print the events as JSON, one a line
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub(crate) async fn main(args: LogsArgs, context: Context) -> anyhow::Result<Exit> {
    let client = asking::client(&context)?;
    let mut runs = Vec::new();
    for name in &args.runs {
        runs.push(client.get::<RunDetail>(&Route::to(["v1", "runs", name])).await?);
    }
    tokio::select! {
        shown = show(&client, &runs, args.follow, args.json) => shown.map(|()| Exit::Done),
        _ = tokio::signal::ctrl_c() => Ok(Exit::Interrupted),
    }
}

/// Shows runs: to their ends, or as far as they are.
pub(super) async fn show(
    client: &Client,
    runs: &[RunDetail],
    follow: bool,
    json: bool,
) -> anyhow::Result<()> {
    let heads = if runs.len() > 1 { Heads::Run } else { Heads::None };
    let mut shown = Shown { json, out: Output::stdout(), talk: Talk::new(paint(&io::stdout()), heads) };
    if !follow {
        for run in runs {
            let mut events = Events::of(client, run, false, Some(run.events));
            while let Some(event) = events.next().await? {
                if shown.take(&event)?.is_break() {
                    return Ok(());
                }
            }
        }
        return Ok(());
    }
    // Two that speak at once cannot be followed word by word.
    let live = !json && heads == Heads::None;
    // A few for each run, so that a slow terminal holds the runs' streams back and not memory.
    let (tell, mut told) = mpsc::channel(64);
    let following = join_all(runs.iter().map(|run| {
        let (mut events, tell) = (Events::of(client, run, live, None), tell.clone());
        async move {
            while let Some(event) = events.next().await? {
                if tell.send(event).await.is_err() {
                    break;
                }
            }
            Ok::<_, ClientError>(())
        }
    }));
    drop(tell);
    let writing = async {
        while let Some(event) = told.recv().await {
            if shown.take(&event)?.is_break() {
                break;
            }
        }
        // Whoever still sends learns that nobody takes it.
        drop(told);
        Ok::<_, io::Error>(())
    };
    let (followed, written) = tokio::join!(following, writing);
    written?;
    followed.into_iter().collect::<Result<Vec<()>, _>>()?;
    Ok(())
}

/// The events of one run.
struct Events {
    follower: crate::daemon::client::Follower,
    /// The last one that is wanted.
    last: Option<u64>,
    over: bool,
}

impl Events {
    fn of(client: &Client, run: &RunDetail, live: bool, last: Option<u64>) -> Self {
        let route = Route::to(["v1", "runs", &run.run.id, "events"]).with_some("live", live.then_some(true));
        Self { follower: client.follow(route, None), last, over: last == Some(0) }
    }

    async fn next(&mut self) -> Result<Option<Event>, ClientError> {
        if self.over {
            return Ok(None);
        }
        let event = self.follower.next().await?;
        let id = event.as_ref().and_then(|event| event.id);
        self.over = event.is_none() || self.last.is_some_and(|last| id.is_some_and(|id| id >= last));
        Ok(event)
    }
}

struct Shown {
    json: bool,
    out: Output,
    talk: Talk,
}

impl Shown {
    fn take(&mut self, event: &Event) -> io::Result<ControlFlow<()>> {
        match (self.json, event.id) {
            (false, _) => self.out.text(&self.talk.text(event)),
            (true, Some(_)) => self.out.text(&format!("{}\n", event.data)),
            (true, None) => Ok(ControlFlow::Continue(())),
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::{Router, routing::get};
    use serde_json::json;

    use super::*;
    use crate::cli::fake::Fake;

    #[tokio::test]
    async fn without_following_only_what_there_was_at_first_is_shown() {
        let events = |count: u64| {
            (1..=count).map(|id| format!("id: {id}\nevent: turn_start\ndata: {{}}\n\n")).collect::<String>()
        };
        let three = move || async move { events(3) };
        let fake = Fake::start(Router::new().route("/v1/runs/r/events", get(three)));
        let run = json!({"id": "r", "attempt": 1, "about": "", "model": "m", "labels": {}, "priority": 0, "state": "running",
            "phase": "", "turns": 0, "calls": 0, "submitted_at": "", "said": "", "task": "", "workspace": "/", "max_turns": 1,
            "usage": {"input": 0, "output": 0, "cached": 0, "estimated": false}, "events": 2});
        let run: RunDetail = serde_json::from_value(run).expect("a run");
        for (last, want) in [(0, 0), (2, 2)] {
            let mut events = Events::of(&fake.client(), &run, false, Some(last));
            let mut seen = 0;
            while let Some(event) = events.next().await.expect("an event") {
                assert_eq!(event.name, "turn_start");
                seen += 1;
            }
            assert_eq!(seen, want);
        }
    }
}
