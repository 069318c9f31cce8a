//! Tells other processes that this one works in a folder.
//!
//! The mutation queue orders the calls of one process; if another works in the same folder, a person is warned. A
//! process is no stranger to itself: it holds one lock a folder, however often it has the folder open.

use std::{
    fs::File,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rustix::fs::{FlockOperation, flock};

/// The lock on one folder, which this process may hold.
#[derive(Debug, Default)]
pub(super) struct Slot(Mutex<Holders>);

#[derive(Debug, Default)]
struct Holders {
    count: usize,
    lock: Option<File>,
}

impl Slot {
    /// Nothing that is done under it can leave it half changed.
    fn holders(&self) -> MutexGuard<'_, Holders> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A share in the lock; the last one gives it back.
#[derive(Debug)]
pub(super) struct Claim(Arc<Slot>);

impl Claim {
    /// Takes a share, and the lock if nobody here has one. Blocks while the file system does.
    pub(super) fn take(slot: &Arc<Slot>, folder: &str) -> Self {
        let mut holders = slot.holders();
        if holders.count == 0 {
            holders.lock = lock(folder);
        }
        holders.count += 1;
        Self(slot.clone())
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut holders = self.0.holders();
        holders.count -= 1;
        if holders.count == 0 {
            holders.lock = None;
        }
    }
}

fn lock(folder: &str) -> Option<File> {
    let file = File::open(folder).ok()?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        tracing::warn!(
            folder,
            "another process works in this workspace: its changes and ours are not in one queue"
        );
        // Shared, so that a third process notices when the first has gone.
        flock(&file, FlockOperation::NonBlockingLockShared).ok()?;
    }
    Some(file)
}
