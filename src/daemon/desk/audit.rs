//! Who asked for which change.

use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    Desk,
    list::{refuse, time},
};
use crate::{
    clock::rfc3339,
    daemon::wire::{ApiError, AuditEntry, AuditList},
    store::{AuditFilter, AuditRecord},
};

/// Entries that are listed, if nobody says how many, and at most.
const PAGE: (usize, usize) = (100, 10_000);

/// Which entries are listed. What is absent does not narrow.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AuditQuery {
    /// Only those of then or later, in RFC 3339.
    #[param(format = DateTime)]
    pub since: Option<String>,
    /// Only those of before then, in RFC 3339.
    #[param(format = DateTime)]
    pub until: Option<String>,
    /// Only those of this user, by name or number.
    pub user: Option<String>,
    /// Only this verb, as `cancel`.
    pub verb: Option<String>,
    /// Only what was asked of this run, batch or model.
    pub target: Option<String>,
    /// At most so many, the newest.
    #[param(minimum = 1, maximum = 10000)]
    #[serde(deserialize_with = "super::given")]
    pub limit: Option<usize>,
}

impl Desk {
    /// Changes that were asked for, oldest first.
    ///
    /// # Errors
    /// A parameter is none, or the log cannot be read.
    pub async fn audit_list(&self, query: &AuditQuery) -> Result<AuditList, ApiError> {
        let limit = query.limit.unwrap_or(PAGE.0);
        if limit == 0 || limit > PAGE.1 {
            return Err(refuse("limit", &format!("want 1 to {}", PAGE.1)));
        }
        let uid = query.user.as_deref().and_then(|user| user.parse().ok());
        let filter = AuditFilter {
            since: time("since", query.since.as_deref())?,
            until: time("until", query.until.as_deref())?,
            user: if uid.is_some() { None } else { query.user.clone() },
            uid,
            verb: query.verb.clone(),
            target: query.target.clone(),
            limit: Some(limit),
        };
        let entries = self.store().audit(filter).await?.into_iter().map(entry).collect();
        Ok(AuditList { entries })
    }
}

fn entry(record: AuditRecord) -> AuditEntry {
    let AuditRecord { at, uid, user, client, verb, target, changed, detail } = record;
    AuditEntry { at: rfc3339(at), uid, user, client, verb, target, changed, detail }
}
