//! Following a log: what is in it, then what comes, each fact once and in order.
//!
//! A feed is a cursor. The store's watch only says that there is more; the facts are read, a page at a time, when
//! they are asked for. So a slow reader costs the store nothing, and loses nothing.

use std::sync::Arc;

use tokio::sync::watch;

use super::{EventStore, StoreError};
use crate::domain::{
    event::Envelope,
    id::{Pos, RunId, Seq},
};

/// Facts read at once: enough to keep up, few enough to hold.
const PAGE: usize = 256;

#[derive(Clone, Copy, Debug)]
enum Cursor {
    All(Pos),
    Run(RunId, Seq),
}

/// Follows a log from a place onwards.
pub struct Feed {
    store: Arc<dyn EventStore>,
    more: watch::Receiver<Pos>,
    cursor: Cursor,
}

impl Feed {
    /// Follows all runs after `after`.
    pub fn all(store: Arc<dyn EventStore>, after: Pos) -> Self {
        Self::new(store, Cursor::All(after))
    }

    /// Follows one run after `after`.
    pub fn run(store: Arc<dyn EventStore>, run: RunId, after: Seq) -> Self {
        Self::new(store, Cursor::Run(run, after))
    }

    fn new(store: Arc<dyn EventStore>, cursor: Cursor) -> Self {
        let more = store.watch();
        Self { store, more, cursor }
    }

    /// The next facts, at least one; waits until there are some. May be dropped at any time and called again.
    ///
    /// # Errors
    /// What the store says; [`StoreError::Closed`] once it is closed. After an error the feed stands where it stood.
    pub async fn next(&mut self) -> Result<Vec<Envelope>, StoreError> {
        loop {
            // Before the read: what comes during it is news.
            self.more.mark_unchanged();
            let page = match self.cursor {
                Cursor::All(after) => self.store.read_all(after, PAGE).await?,
                Cursor::Run(run, after) => self.store.read(run, after).await?,
            };
            if let Some(last) = page.last() {
                self.cursor = match self.cursor {
                    Cursor::All(_) => Cursor::All(last.pos),
                    Cursor::Run(run, _) => Cursor::Run(run, last.seq),
                };
                return Ok(page);
            }
            self.more.changed().await.map_err(|_| StoreError::Closed)?;
        }
    }
}
