//! What the system says of this process and its files.

use std::path::Path;

use crate::app::state::log_bytes;

/// What the system says. What it does not say is absent.
pub(super) struct Facts {
    /// Bytes of memory held.
    pub(super) rss_bytes: Option<u64>,
    /// Bytes of the log's files.
    pub(super) log_bytes: Option<u64>,
}

pub(super) fn facts(state: &Path) -> Facts {
    Facts { rss_bytes: rss(), log_bytes: log_bytes(state) }
}

fn rss() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
