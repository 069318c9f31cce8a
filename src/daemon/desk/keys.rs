//! One submission at a time with one key, so that two of them make one.

use std::hash::{BuildHasher as _, RandomState};

use tokio::sync::{Mutex, MutexGuard};

/// Locks for keys. Keys that share one wait for each other, which costs them a moment.
const LOCKS: usize = 64;

/// The longest key: more names nothing that a person or a program made up with care.
pub(super) const LONGEST: usize = 256;

pub(super) struct Keys {
    locks: Vec<Mutex<()>>,
    hasher: RandomState,
}

impl Default for Keys {
    fn default() -> Self {
        Self { locks: (0..LOCKS).map(|_| Mutex::default()).collect(), hasher: RandomState::new() }
    }
}

impl Keys {
    /// Waits until nobody else is at work on this key.
    pub(super) async fn hold(&self, key: &str) -> Option<MutexGuard<'_, ()>> {
        let place = usize::try_from(self.hasher.hash_one(key) % LOCKS as u64).unwrap_or_default();
        match self.locks.get(place) {
            Some(lock) => Some(lock.lock().await),
            None => None,
        }
    }
}
