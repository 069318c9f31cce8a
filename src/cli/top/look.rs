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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cli::{
            fake::asked::{Fake, unknown},
            top::{
                action::{Action, Target, Verb},
                samples,
            },
        },
        daemon::wire::{ApiError, Code},
    };

    const QUERY: Query = Query { limit: 3, batch: None };

    /// Two runs that go on, of one daemon with ten thousand that wait.
    fn many(asked: &str, _: usize) -> Result<String, ApiError> {
        let page = |count: usize, open: u64| Ok(samples::page(count, open));
        match asked {
            "GET /v1/status" => Ok(samples::status_json(2, 10_000)),
            "GET /v1/runs?state=running%2Cpaused&limit=3" => page(2, 2),
            "GET /v1/runs?state=queued&limit=1" => page(1, 10_000),
            "GET /v1/batches" => Ok(samples::batches_json()),
            "POST /v1/pause {\"mode\":\"hold\"}" => Ok(r#"{"changed": false}"#.to_owned()),
            "POST /v1/runs/r1/cancel {\"mode\":\"hold\"}" => {
                Err(ApiError::new(Code::Ended, "run r1 has ended"))
            }
            _ => unknown(asked),
        }
    }

    #[tokio::test]
    async fn what_waits_fills_the_page_up_and_no_more_is_asked_for() {
        let fake = Fake::start(many);
        let look = look(&fake.client(), &QUERY).await.expect("a look");
        assert_eq!((look.runs.runs.len(), look.runs.counts.open), (3, 10_002));
        assert_eq!(look.batches.len(), 2);
        assert_eq!(fake.asked().len(), 4);
    }

    #[tokio::test]
    async fn a_daemon_that_is_gone_is_told_and_looked_for_again() {
        let fake = Fake::start(|_, _| Err(ApiError::new(Code::Unavailable, "the daemon is stopping")));
        let (_ask, query) = watch::channel(QUERY);
        let (out, mut messages) = mpsc::channel(1);
        let _looking = tokio_util::task::AbortOnDropHandle::new(tokio::spawn(keep_looking(
            fake.client(),
            query,
            Arc::new(Notify::new()),
            out,
        )));
        for _ in 0..2 {
            let message = timeout(Duration::from_secs(30), messages.recv()).await.expect("in time");
            assert!(matches!(message, Some(Message::Missed(error)) if error == "the daemon is stopping"));
        }
    }

    #[tokio::test]
    async fn an_order_is_answered_in_one_sentence() {
        let fake = Fake::start(many);
        let pause = Action::Order { verb: Verb::Pause, target: Target::All };
        assert_eq!(pause.perform(&fake.client()).await, Ok("everything was paused already".to_owned()));
        let target = Target::Run { id: "r1".to_owned(), name: "parse".to_owned() };
        let cancel = Action::Order { verb: Verb::Cancel, target };
        assert_eq!(
            cancel.perform(&fake.client()).await,
            Err("cancel run parse: run r1 has ended".to_owned())
        );
    }
}
