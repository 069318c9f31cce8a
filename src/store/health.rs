//! Whether a log takes what it is handed.

use crate::domain::time::Timestamp;

/// With less room than this a disk counts as full.
const FULL: u64 = 16 << 20;

/// How a log stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// It takes what it is handed.
    #[default]
    Well,
    /// It keeps what it is handed in memory and tries again: nothing becomes durable meanwhile, and nothing fails.
    Stuck {
        /// Since when.
        since: Timestamp,
        /// Bytes that are free where it lies, if the system says so.
        free_bytes: Option<u64>,
    },
}

impl Health {
    /// Whether nothing becomes durable.
    pub const fn is_stuck(self) -> bool {
        matches!(self, Self::Stuck { .. })
    }

    /// What is wrong, in words, if anything is.
    pub fn trouble(self) -> Option<String> {
        let Self::Stuck { free_bytes, .. } = self else { return None };
        Some(match free_bytes {
            Some(free) if free >= FULL => {
                format!("the log cannot be written, though {} MiB are free on its disk", free >> 20)
            }
            Some(_) | None => "the log's disk is full".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_disk_without_room_is_said_to_be_full() {
        let stuck = |free_bytes| Health::Stuck { since: Timestamp::default(), free_bytes }.trouble();
        assert_eq!(stuck(Some(4096)).as_deref(), Some("the log's disk is full"));
        assert_eq!(
            stuck(Some(2 << 30)).as_deref(),
            Some("the log cannot be written, though 2048 MiB are free on its disk")
        );
        assert_eq!(Health::Well.trouble(), None);
    }
}
