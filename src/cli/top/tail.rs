//! Follows the events of the selected run, and of no other.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::{log::KEPT, state::Message};
use crate::daemon::{
    client::{Client, ClientError, Route},
    wire::RunDetail,
};

/// How long a run is selected before it is followed: whoever goes through a list looks at none of them.
const SETTLES: Duration = Duration::from_millis(150);

/// What is followed now.
#[derive(Debug)]
pub(super) struct Tail {
    client: Client,
    out: mpsc::Sender<Message>,
    run: Option<String>,
    time: u32,
    task: Option<AbortOnDropHandle<()>>,
}

impl Tail {
    pub(super) const fn new(client: Client, out: mpsc::Sender<Message>) -> Self {
        Self { client, out, run: None, time: 0, task: None }
    }

    /// Follows this run from now on, or none. Another time than before begins anew with it.
    pub(super) fn follow(&mut self, run: Option<&str>, time: u32) {
        if self.run.as_deref() == run && self.time == time {
            return;
        }
        self.time = time;
        self.run = run.map(str::to_owned);
        self.task = self.run.clone().map(|run| {
            let (client, out) = (self.client.clone(), self.out.clone());
            AbortOnDropHandle::new(tokio::spawn(async move {
                tokio::time::sleep(SETTLES).await;
                let error = follow(&client, &run, &out).await.err().map(|error| error.to_string());
                // Nobody listens once the screen is over.
                let _ = out.send(Message::FollowedOut { run, error }).await;
            }))
        });
    }
}

/// Hands on the newest events and those that come.
async fn follow(client: &Client, run: &str, out: &mpsc::Sender<Message>) -> Result<(), ClientError> {
    let detail: RunDetail = client.get(&Route::to(["v1", "runs", run])).await?;
    let after = detail.events.saturating_sub(KEPT as u64);
    let events = Route::to(["v1", "runs", run, "events"]).with("live", true);
    let mut events = client.follow(events, Some(after));
    while let Some(event) = events.next().await? {
        if out.send(Message::Event { run: run.to_owned(), event }).await.is_err() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::time::timeout;

    use super::*;
    use crate::{
        cli::{
            fake::asked::{Fake, unknown},
            top::samples,
        },
        daemon::wire::{ApiError, RunState},
    };

    /// A run with a long log, whose last event is its end.
    fn ending(asked: &str, _: usize) -> Result<String, ApiError> {
        match asked {
            "GET /v1/runs/r1" => {
                let run = samples::run(1, "t", RunState::Running, "thinking");
                let detail = RunDetail {
                    run,
                    task: String::new(),
                    parent: None,
                    workspace: String::new(),
                    isolate: None,
                    kept: None,
                    max_turns: 9,
                    events: 900,
                    text: None,
                    requests: Vec::new(),
                    approvals: Vec::new(),
                    messages: None,
                };
                Ok(json!(detail).to_string())
            }
            "GET /v1/runs/r1/events?live=true after 400" => {
                Ok("id: 401\nevent: run_end\ndata: {}\n\nevent: end\ndata: {\"code\": \"ended\"}\n\n"
                    .to_owned())
            }
            _ => unknown(asked),
        }
    }

    #[tokio::test]
    async fn the_newest_events_are_handed_on_until_the_run_has_ended() {
        let fake = Fake::start(ending);
        let (out, mut messages) = mpsc::channel(9);
        let mut tail = Tail::new(fake.client(), out);
        let mut next =
            async || timeout(Duration::from_secs(30), messages.recv()).await.expect("in time").expect("one");
        tail.follow(Some("r1"), 0);
        tail.follow(Some("r1"), 0);
        assert!(
            matches!(next().await, Message::Event { run, event } if run == "r1" && event.id == Some(401))
        );
        assert!(matches!(next().await, Message::FollowedOut { run, error: None } if run == "r1"));
        assert_eq!(fake.asked().len(), 2);
        for time in 0..2 {
            tail.follow(Some("r2"), time);
            assert!(matches!(next().await, Message::FollowedOut { run, error: Some(_) } if run == "r2"));
        }
    }
}
