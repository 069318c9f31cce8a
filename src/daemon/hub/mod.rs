//! Events as streams for clients: what is in the log, then what comes, each event once and in order.
//!
//! One task follows the log for all of them. It feeds the [`Board`] and hands each event to the readers that are to have
//! it, over bounded queues, encoded once; it never waits for a reader, so nothing that a client does holds up another
//! one, a run or the log. Knows nothing of HTTP beyond the text of server-sent events.

mod filter;
mod frame;
mod queue;
mod registry;
mod stream;
#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tokio::sync::{
    broadcast::{self, error::RecvError},
    watch,
};
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

pub use filter::{Filter, Kinds, UnknownKind};
pub use frame::EventJson;
pub use registry::Deltas;
pub use stream::EventStream;

use self::{
    frame::End,
    registry::{Registry, Subscription},
};
use super::board::Board;
use crate::{
    actor::Live,
    domain::{
        event::{Event, RunEnd},
        id::{Pos, RunId, Seq},
    },
    store::{EventStore, StoreError, feed::Feed},
};

/// A run that ended, and how.
pub type Ended = (RunId, Box<RunEnd>);

/// A call that people are asked about: its run, and the number of the approval.
pub type Asked = (RunId, u32);

/// Ends, and approvals, that whoever acts on them may be behind.
const ENDS: usize = 1_024;

/// How long a log that cannot be read is left alone.
const PAUSE: Duration = Duration::from_secs(1);

/// Streams of events. Those that are open end when this is dropped.
pub struct Hub {
    shared: Arc<Shared>,
    _closes: DropGuard,
}

/// What every stream works with.
struct Shared {
    store: Arc<dyn EventStore>,
    live: broadcast::Sender<Live>,
    board: Arc<Board>,
    registry: Arc<Registry>,
    ends: broadcast::Sender<Ended>,
    asked: broadcast::Sender<Asked>,
    /// The place of the last event that the board has taken in.
    seen: watch::Sender<Pos>,
    closing: CancellationToken,
}

impl Hub {
    /// Reads the logs of the open runs, then follows the log until `closing` is cancelled or the log is closed.
    ///
    /// # Errors
    /// The log cannot be read.
    pub async fn start(
        store: Arc<dyn EventStore>,
        live: broadcast::Sender<Live>,
        closing: &CancellationToken,
    ) -> Result<Self, StoreError> {
        // From here on, though the board is read later: it knows what it has taken in.
        let head = *store.watch().borrow();
        let feed = Feed::all(Arc::clone(&store), head);
        let board = Arc::new(Board::default());
        board.load(&*store).await?;
        let closing = closing.child_token();
        let shared = Arc::new(Shared {
            store,
            live,
            board,
            registry: Arc::new(Registry::new(head)),
            ends: broadcast::Sender::new(ENDS),
            asked: broadcast::Sender::new(ENDS),
            seen: watch::Sender::new(head),
            closing,
        });
        tokio::spawn(follow(Arc::clone(&shared), feed));
        let _closes = shared.closing.clone().drop_guard();
        Ok(Self { shared, _closes })
    }

    /// The open runs at a glance.
    pub fn board(&self) -> &Arc<Board> {
        &self.shared.board
    }

    /// Waits until what is durable now is on the board, but no longer than a log may be left alone that cannot be read.
    pub async fn caught_up(&self) {
        let head = *self.shared.store.watch().borrow();
        let mut seen = self.shared.seen.subscribe();
        let reached = seen.wait_for(|seen| *seen >= head);
        // The board is shown as it is then.
        let _ = timeout(PAUSE, self.shared.closing.run_until_cancelled(reached)).await;
    }

    /// The ends of runs from now on, for whoever acts on them in this process.
    pub fn ends(&self) -> broadcast::Receiver<Ended> {
        self.shared.ends.subscribe()
    }

    /// The calls that people are asked about from now on, likewise.
    pub fn asked(&self) -> broadcast::Receiver<Asked> {
        self.shared.asked.subscribe()
    }

    /// Streams that are open and have caught up.
    pub fn followers(&self) -> usize {
        self.shared.registry.followers()
    }

    /// The events of one run after `after`, with its `seq` as their id, until the run ends.
    pub fn run(&self, run: RunId, after: Seq, deltas: Deltas) -> EventStream {
        let filter = Filter { runs: BTreeSet::from([run]), ..Filter::default() };
        EventStream::new(Arc::clone(&self.shared), stream::Cursor::Run(run, after), filter, deltas)
    }

    /// The events of all runs after `after` that `filter` lets through, with their `pos` as their id.
    pub fn all(&self, after: Pos, filter: Filter, deltas: Deltas) -> EventStream {
        EventStream::new(Arc::clone(&self.shared), stream::Cursor::All(after), filter, deltas)
    }
}

async fn follow(shared: Arc<Shared>, mut feed: Feed) {
    loop {
        let page = tokio::select! {
            page = feed.next() => page,
            () = shared.closing.cancelled() => Err(StoreError::Closed),
        };
        match page {
            Ok(page) => {
                for envelope in &page {
                    let batch = shared.board.fold(envelope);
                    if let Event::RunEnd(end) = &envelope.fact.event {
                        // Nobody may want to hear of it.
                        let _ = shared.ends.send((envelope.run, end.clone()));
                    }
                    if let Event::ApprovalRequested(request) = &envelope.fact.event {
                        let _ = shared.asked.send((envelope.run, request.approval));
                    }
                    shared.registry.publish(envelope, batch);
                }
                if let Some(last) = page.last() {
                    shared.seen.send_replace(last.pos);
                }
                // A log in memory always has the next page ready.
                tokio::task::yield_now().await;
            }
            Err(error @ StoreError::Unavailable(_)) => {
                tracing::warn!(error = %error, "log not readable, trying again");
                tokio::time::sleep(PAUSE).await;
            }
            Err(error @ StoreError::Damaged { pos, run, .. }) => {
                tracing::error!(error = %error, "an append is not readable, passed over");
                shared.registry.fail(run, &End::from(&error));
                // Each place of an append leads to all of it, so it is behind only when its last one is.
                let behind = pos.max(shared.seen.borrow().plus(1));
                shared.seen.send_replace(behind);
                feed = Feed::all(Arc::clone(&shared.store), behind);
            }
            Err(error) => {
                if !matches!(error, StoreError::Closed) {
                    tracing::error!(error = %error, "log not followed any more");
                }
                return shared.registry.close(&End::from(&error));
            }
        }
    }
}

impl Shared {
    fn subscribe(self: &Arc<Self>, filter: &Filter, deltas: Deltas) -> Subscription {
        let (subscription, starts_relay) = self.registry.subscribe(filter, deltas);
        if starts_relay {
            // Subscribed before this returns, so what is spoken from now on is not missed.
            tokio::spawn(relay(Arc::clone(self), self.live.subscribe()));
        }
        subscription
    }
}

/// Hands spoken text on as long as somebody wants it. One receiver for all readers: a word wakes only those it is for.
async fn relay(shared: Arc<Shared>, mut live: broadcast::Receiver<Live>) {
    loop {
        let received = tokio::select! {
            received = live.recv() => received,
            () = shared.closing.cancelled() => return,
        };
        let is_wanted = match received {
            Ok(live) => shared.registry.speak(&live, || shared.board.get(live.run).and_then(|run| run.batch)),
            Err(RecvError::Lagged(count)) => shared.registry.miss(count),
            Err(RecvError::Closed) => false,
        };
        if !is_wanted {
            return;
        }
    }
}
