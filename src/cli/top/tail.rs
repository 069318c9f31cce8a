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
    task: Option<AbortOnDropHandle<()>>,
}

impl Tail {
    pub(super) const fn new(client: Client, out: mpsc::Sender<Message>) -> Self {
        Self { client, out, run: None, task: None }
    }

    /// Follows this run from now on, or none.
    pub(super) fn follow(&mut self, run: Option<&str>) {
        if self.run.as_deref() == run {
            return;
        }
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
