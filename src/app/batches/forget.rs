//! A batch that is taken off the record: nobody goes on with it meanwhile, and nobody knows it afterwards.

use std::sync::Arc;

use tokio::sync::OwnedMutexGuard;

use super::{
    Batches,
    entry::{Entry, Work},
    status::BatchState,
};
use crate::domain::id::BatchId;

/// A batch that has ended, and stays so while this is held.
pub struct Held {
    batches: Batches,
    /// Nothing if the batch is not one of these.
    of: Option<(Arc<Entry>, OwnedMutexGuard<Work>)>,
}

impl Batches {
    /// Keeps a batch that has ended from going on; nothing if it has not, or is not understood. One that is none of these
    /// nobody goes on with.
    pub async fn hold_ended(&self, id: BatchId) -> Option<Held> {
        let Ok(entry) = self.entry(id) else { return Some(Held { batches: self.clone(), of: None }) };
        entry.check().ok()?;
        let work = entry.work.clone().lock_owned().await;
        let has_ended = match work.record.state {
            BatchState::Open => false,
            BatchState::Cancelled | BatchState::Ended => {
                work.record.summary.is_some() && work.driver.is_none()
            }
        };
        has_ended.then(|| Held { batches: self.clone(), of: Some((entry, work)) })
    }
}

impl Held {
    /// Knows the batch no more, since it is of record no more.
    pub async fn forget(self) {
        let Some((entry, work)) = self.of else { return };
        if let Some(key) = &work.record.key {
            let mut keys = self.batches.0.keys.lock().await;
            if keys.get(key) == Some(&entry.id) {
                keys.remove(key);
            }
        }
        self.batches.remove(entry.id);
    }
}
