//! What somebody may want to hear of at once, whichever run it came up in.

use std::sync::Arc;

use tokio::sync::broadcast;

use crate::{
    domain::budget::{Node, Standing},
    model::governor::Latched,
};

/// Notices that wait for a slow listener: far more than come up at once. Who misses some sees the same in the status.
const BACKLOG: usize = 64;

/// Something that came up.
#[derive(Clone, Debug)]
pub enum Notice {
    /// An account shut, or for another reason than before.
    AccountShut(Arc<str>, Latched),
    /// Most of a budget is spent. Told once of each.
    NearCap(Node, Standing),
}

/// Where notices are told.
#[derive(Clone, Debug)]
pub(super) struct Notices(broadcast::Sender<Notice>);

impl Default for Notices {
    fn default() -> Self {
        Self(broadcast::channel(BACKLOG).0)
    }
}

impl Notices {
    pub(super) fn tell(&self, notice: Notice) {
        // Nobody need listen.
        let _ = self.0.send(notice);
    }

    pub(super) fn listen(&self) -> broadcast::Receiver<Notice> {
        self.0.subscribe()
    }
}
