//! The time in which a request or a tool of a run is at work.

use std::time::Duration;

use crate::domain::time::Timestamp;

/// Sums the time in which a request or a tool is at work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Activity {
    pub(super) total: Duration,
    pub(super) busy: u32,
    pub(super) since: Timestamp,
}

impl Activity {
    pub(super) fn begin(&mut self, at: Timestamp) {
        if self.busy == 0 {
            self.since = at;
        }
        self.busy += 1;
    }

    pub(super) fn end(&mut self, at: Timestamp) {
        if self.busy == 1 {
            self.total += at.since(self.since);
        }
        self.busy = self.busy.saturating_sub(1);
    }

    /// Nothing is at work, and nothing has been.
    pub(super) fn call_off(&mut self) {
        self.busy = 0;
    }

    /// It came to this.
    pub(super) fn end_at(&mut self, total_us: u64) {
        (self.total, self.busy) = (Duration::from_micros(total_us), 0);
    }

    /// So much of it was spent waiting after all.
    pub(super) fn leave_out(&mut self, waited_us: u64) {
        self.total = self.total.saturating_sub(Duration::from_micros(waited_us));
    }

    pub(super) fn stop(&mut self, at: Timestamp) {
        if self.busy > 0 {
            self.busy = 1;
            self.end(at);
        }
    }
}
