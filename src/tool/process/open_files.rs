//! How many files may be open at once: for herder as many as the system grants, since each run and command takes some.
//!
//! Commands keep the limit that herder was started with: a program that uses `select` fails on larger descriptors.

use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The soft limit that this process was started with, once it has been raised.
static STARTED_WITH: OnceLock<Option<u64>> = OnceLock::new();

/// Raises this process's limit as far as it goes. Where that is refused, the old one does until it is reached.
pub fn raise_open_files() {
    STARTED_WITH.get_or_init(|| {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).ok().and(current)
    });
}

/// The limit for commands; none if it is this process's own.
pub(super) fn of_commands() -> Option<u64> {
    STARTED_WITH.get().copied().flatten()
}
