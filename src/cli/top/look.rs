//! Looks at the daemon again and again, one question at a time, and never for more than a page of runs.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{Notify, mpsc, watch},
    time::{Instant, sleep, timeout},
};

use super::state::{Look, Message, Query};
use crate::daemon::{
    client::{Client, ClientError, Route},
    wire::{BatchList, BatchState, RunList, Status},
};

/// Between two looks: usually, and at a daemon that takes long to answer.
const EVERY: Duration = Duration::from_millis(500);
const SELDOM: Duration = Duration::from_secs(1);

/// An answer that takes longer than this takes long.
const LONG: Duration = Duration::from_millis(250);

/// A look that takes longer than this has failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Looks until nobody listens any more. A new question, or `now`, cuts the pause short.
pub(super) async fn keep_looking(
    client: Client,
    mut query: watch::Receiver<Query>,
    now: Arc<Notify>,
    out: mpsc::Sender<Message>,
) {
    loop {
        let begun = Instant::now();
        let asked = query.borrow_and_update().clone();
        let message = match timeout(PATIENCE, look(&client, &asked)).await {
            Ok(Ok(look)) => Message::Looked(Box::new(look)),
            Ok(Err(error)) => Message::Missed(error.to_string()),
            Err(_) => Message::Missed(format!("the daemon at {} does not answer", client.place())),
        };
        if out.send(message).await.is_err() {
            return;
        }
        let pause = if begun.elapsed() > LONG { SELDOM } else { EVERY };
        tokio::select! {
            () = sleep(pause) => {}
            () = now.notified() => {}
            changed = query.changed() => if changed.is_err() { return },
        }
    }
}

/// One look. What goes on comes first; what waits fills the page up.
pub(super) async fn look(client: &Client, query: &Query) -> Result<Look, ClientError> {
    let status: Status = client.get(&Route::to(["v1", "status"])).await?;
    let runs = |state: &str, limit: u32| {
        Route::to(["v1", "runs"])
            .with("state", state)
            .with("limit", limit)
            .with_some("batch", query.batch.as_deref())
    };
    let mut list: RunList = client.get(&runs("running,paused", query.limit)).await?;
    let room = u32::try_from(list.runs.len()).map_or(0, |taken| query.limit.saturating_sub(taken));
    if room > 0 && (status.load.queued > 0 || list.runs.is_empty()) {
        let queued: RunList = client.get(&runs("queued", room)).await?;
        list.runs.extend(queued.runs);
        list.counts.open += queued.counts.open;
    } else if query.batch.is_none() {
        list.counts.open += status.load.queued;
    }
    let batches = if status.open_batches > 0 {
        let mut list: BatchList = client.get(&Route::to(["v1", "batches"])).await?;
        list.batches.retain(|batch| matches!(batch.state, BatchState::Open | BatchState::Paused));
        list.batches
    } else {
        Vec::new()
    };
    Ok(Look { status, batches, runs: list })
}
