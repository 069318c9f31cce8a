//! What runs came to, by group.

use std::collections::BTreeMap;

use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    Desk,
    list::{refuse, time},
    view::tokens,
};
use crate::{
    clock::rfc3339,
    daemon::wire::{ApiError, StatsList, StatsRow},
    domain::usage::Usage,
    store::{RunFilter, RunRecord},
};

/// Runs read at once: many are gone through, few are held.
const PAGE: usize = 2_000;

/// What is summed up, and how.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct StatsQuery {
    /// The group: model, batch, user, outcome, day, or label:NAME; by itself model.
    #[param(pattern = "^(model|batch|user|outcome|day|label:.+)$", example = "label:team")]
    pub by: Option<String>,
    /// Only runs of this batch.
    pub batch: Option<String>,
    /// Only runs that were submitted then or later, in RFC 3339.
    #[param(format = DateTime)]
    pub since: Option<String>,
    /// Only runs that were submitted before then, in RFC 3339.
    #[param(format = DateTime)]
    pub until: Option<String>,
}

/// How runs are grouped.
enum By {
    Model,
    Batch,
    User,
    Outcome,
    Day,
    Label(String),
}

impl By {
    fn read(text: &str) -> Result<Self, ApiError> {
        match (text, text.strip_prefix("label:")) {
            ("model", _) => Ok(Self::Model),
            ("batch", _) => Ok(Self::Batch),
            ("user", _) => Ok(Self::User),
            ("outcome", _) => Ok(Self::Outcome),
            ("day", _) => Ok(Self::Day),
            (_, Some(name)) if !name.is_empty() => Ok(Self::Label(name.to_owned())),
            (_, Some(_) | None) => Err(refuse(
                "by",
                &format!("{text:?} is none; want model, batch, user, outcome, day or label:NAME"),
            )),
        }
    }

    fn group(&self, record: &RunRecord) -> String {
        let asked = record.asked.as_deref();
        match self {
            Self::Model => asked.map(|asked| asked.model.to_string()).unwrap_or_default(),
            Self::Batch => record.batch.map(|batch| batch.to_string()).unwrap_or_default(),
            Self::User => asked.and_then(|asked| asked.owner.as_deref()).unwrap_or_default().to_owned(),
            Self::Outcome => {
                record.end.as_ref().map_or_else(|| "open".to_owned(), |end| end.outcome.as_str().to_owned())
            }
            Self::Day => rfc3339(record.submitted_at).chars().take(10).collect(),
            Self::Label(name) => asked.and_then(|asked| asked.labels.get(name)).cloned().unwrap_or_default(),
        }
    }
}

#[derive(Default)]
struct Sum {
    runs: u64,
    ended: BTreeMap<String, u64>,
    turns: u64,
    calls: u64,
    usage: Usage,
    took_ms: Vec<u64>,
}

impl Sum {
    fn add(&mut self, record: &RunRecord) {
        self.runs += 1;
        let Some(end) = record.end.as_deref() else { return };
        *self.ended.entry(end.outcome.as_str().to_owned()).or_default() += 1;
        self.turns += u64::from(end.turns);
        self.calls += u64::from(end.calls);
        self.usage += end.usage;
        self.took_ms.push(end.duration_us / 1_000);
    }

    fn row(mut self, group: String) -> StatsRow {
        self.took_ms.sort_unstable();
        // The nearest rank: of one run, that run's.
        let rank =
            |percent: usize| self.took_ms.get((self.took_ms.len() * percent).div_ceil(100).saturating_sub(1));
        StatsRow {
            group,
            runs: self.runs,
            p50_ms: rank(50).copied(),
            p99_ms: rank(99).copied(),
            ended: self.ended,
            turns: self.turns,
            calls: self.calls,
            usage: tokens(self.usage),
            cost_usd: self.usage.cost.map(|cost| cost.usd()),
        }
    }
}

impl Desk {
    /// Sums runs up. Goes through all that match; of those that are open only their number counts.
    ///
    /// # Errors
    /// A parameter is none, or the log cannot be read.
    pub async fn stats(&self, query: &StatsQuery) -> Result<StatsList, ApiError> {
        let named = query.by.as_deref().unwrap_or("model");
        let by = By::read(named)?;
        let batch = match &query.batch {
            Some(name) => Some(self.find_batch(name)?),
            None => None,
        };
        let mut filter = RunFilter {
            batch,
            since: time("since", query.since.as_deref())?,
            until: time("until", query.until.as_deref())?,
            limit: Some(PAGE),
            ..RunFilter::default()
        };
        let mut sums: BTreeMap<String, Sum> = BTreeMap::new();
        loop {
            let page = self.store().runs(filter.clone()).await?;
            for record in &page {
                sums.entry(by.group(record)).or_default().add(record);
            }
            match page.first() {
                Some(oldest) if page.len() == PAGE => filter.before = Some(oldest.run),
                Some(_) | None => break,
            }
        }
        let rows = sums.into_iter().map(|(group, sum)| sum.row(group)).collect();
        Ok(StatsList { by: named.to_owned(), rows })
    }
}
