//! Who changed what, and when: one record for each change that somebody asked for.
//!
//! Knows nothing of who may do what; it is written by whoever answers the request.

use crate::domain::time::Timestamp;

/// One change that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRecord {
    /// When it was asked for.
    pub at: Timestamp,
    /// The user id that asked, as the system vouches for it.
    pub uid: Option<u32>,
    /// That user's name.
    pub user: Option<String>,
    /// What asked, in its own words.
    pub client: Option<String>,
    /// What was to be done.
    pub verb: String,
    /// What it was to be done to: a run, a batch, or words for more.
    pub target: String,
    /// Whether it made a difference.
    pub changed: bool,
    /// More about it.
    pub detail: Option<String>,
}

/// Which records are asked for. What is absent does not narrow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Only those of then or later.
    pub since: Option<Timestamp>,
    /// Only those of before then.
    pub until: Option<Timestamp>,
    /// Only those of the user of this name.
    pub user: Option<String>,
    /// Only those of this user id.
    pub uid: Option<u32>,
    /// Only those that did this.
    pub verb: Option<String>,
    /// Only those that did it to this.
    pub target: Option<String>,
    /// At most this many, the newest.
    pub limit: Option<usize>,
}

impl AuditFilter {
    /// Whether a record matches; `limit` is not its business.
    pub(super) fn admits(&self, record: &AuditRecord) -> bool {
        self.since.is_none_or(|since| record.at >= since)
            && self.until.is_none_or(|until| record.at < until)
            && self.user.as_ref().is_none_or(|user| record.user.as_ref() == Some(user))
            && self.uid.is_none_or(|uid| record.uid == Some(uid))
            && self.verb.as_ref().is_none_or(|verb| record.verb == *verb)
            && self.target.as_ref().is_none_or(|target| record.target == *target)
    }
}
