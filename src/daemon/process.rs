//! What the system says of this process and its files.

use std::path::Path;

/// What the system says. What it does not say is absent.
pub(super) struct Facts {
    /// Bytes of memory held.
    pub(super) rss_bytes: Option<u64>,
    /// Bytes of the log's files.
    pub(super) log_bytes: Option<u64>,
}

pub(super) fn facts(state: &Path) -> Facts {
    let sizes = ["log.db", "log.db-wal"].iter().filter_map(|name| state.join(name).metadata().ok());
    let sizes: Vec<u64> = sizes.map(|facts| facts.len()).collect();
    Facts { rss_bytes: rss(), log_bytes: (!sizes.is_empty()).then(|| sizes.iter().sum()) }
}

fn rss() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
