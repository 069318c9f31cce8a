//! Holds back runs that wait for a slot while the log takes nothing: what they do could not be put on record.

use ractor::ActorRef;
use tokio::sync::watch;

use super::message::RootMsg;
use crate::store::{EventStore, health::Health};

/// How the log stands, as the root sees it.
pub(super) struct LogRoom(watch::Receiver<Health>);

impl LogRoom {
    /// Has the root look again whenever the log stands otherwise than before.
    pub(super) fn watch(store: &dyn EventStore, root: &ActorRef<RootMsg>) -> Self {
        let (mut health, root) = (store.health(), root.clone());
        let seen = Self(health.clone());
        tokio::spawn(async move {
            // Ends with the log, or at the first news after the root's end.
            while health.changed().await.is_ok() && root.cast(RootMsg::Room).is_ok() {}
        });
        seen
    }

    pub(super) fn is_there(&self) -> bool {
        !self.0.borrow().is_stuck()
    }
}
