//! Lists of runs: filtered, a page at a time, with whole counts.

use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    Desk,
    view::{standing, view},
};
use crate::{
    app::batches::FindError,
    clock::from_rfc3339,
    daemon::wire::{ApiError, Code, Counts, RunList, RunState, labels, outcome_or_detail},
    domain::{
        batch::RetryFailed,
        glance::Glance,
        id::{BatchId, RunId},
        outcome::Outcome,
        time::Timestamp,
    },
    store::{RunCounts, RunFilter},
};

/// Runs on one page, if nobody says how many, and at most.
const PAGE: (usize, usize) = (100, 1_000);

/// Which runs are listed. What is absent does not narrow.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RunQuery {
    /// Only those that stand there: queued, running, paused, ended; several with commas between.
    #[param(
        pattern = "^(queued|running|paused|ended)(,(queued|running|paused|ended))*$",
        example = "queued,running"
    )]
    pub state: Option<String>,
    /// Only those that ended so: an outcome, or a detail of one.
    #[param(schema_with = outcome_or_detail)]
    pub outcome: Option<String>,
    /// Only those of this batch: its id, a unique beginning of it, or its name.
    pub batch: Option<String>,
    /// Only those that ask this model.
    pub model: Option<String>,
    /// Only those of this task id.
    pub task_id: Option<String>,
    /// Only those with this label, as `team=search`; may come more than once.
    #[param(style = Form, explode, schema_with = labels)]
    pub label: Vec<String>,
    /// Only those that were submitted then or later, in RFC 3339.
    #[param(format = DateTime)]
    pub since: Option<String>,
    /// Only those that were submitted before then, in RFC 3339.
    #[param(format = DateTime)]
    pub until: Option<String>,
    /// At most so many, the newest.
    #[param(minimum = 1, maximum = 1000)]
    #[serde(deserialize_with = "super::given")]
    pub limit: Option<usize>,
    /// Only those before this run: its id, as `next` of the page after.
    #[param(format = "uuid")]
    pub before: Option<String>,
}

/// Which states are asked for.
struct States(Vec<RunState>);

impl States {
    fn read(text: Option<&str>) -> Result<Self, ApiError> {
        let Some(text) = text else { return Ok(Self(Vec::new())) };
        let state = |word: &str| {
            serde_json::from_value(word.trim().into()).map_err(|_| {
                refuse("state", &format!("{word:?} is none; want some of queued, running, paused, ended"))
            })
        };
        Ok(Self(text.split(',').map(state).collect::<Result<_, _>>()?))
    }

    fn has(&self, state: RunState) -> bool {
        self.0.is_empty() || self.0.contains(&state)
    }

    /// Whether only runs that have ended are wanted, or only those that have not.
    fn ended(&self) -> Option<bool> {
        let open = [RunState::Queued, RunState::Running, RunState::Paused];
        let (ended, open) = (self.has(RunState::Ended), open.iter().any(|state| self.has(*state)));
        if ended == open { None } else { Some(ended) }
    }

    /// Whether some open runs are wanted and some are not: the log alone does not tell them apart.
    fn splits_open(&self) -> bool {
        let open = [RunState::Queued, RunState::Running, RunState::Paused];
        let wanted = open.iter().filter(|state| self.has(**state)).count();
        (1..open.len()).contains(&wanted)
    }
}

impl Desk {
    /// A page of runs.
    ///
    /// # Errors
    /// A parameter is none, or the log cannot be read.
    pub async fn list(&self, query: &RunQuery) -> Result<RunList, ApiError> {
        let states = States::read(query.state.as_deref())?;
        let limit = query.limit.unwrap_or(PAGE.0);
        if limit == 0 || limit > PAGE.1 {
            return Err(refuse("limit", &format!("want 1 to {}", PAGE.1)));
        }
        let filter = RunFilter { ended: states.ended(), ..self.filter(query)? };
        // What was answered for is listed.
        self.hub.caught_up().await;
        if states.splits_open() {
            let RunFilter { batch, before, .. } = filter;
            let of_batch = RunFilter { ended: Some(false), batch, before, ..RunFilter::default() };
            return if filter == of_batch {
                self.list_from_board(&states, batch, before, limit).await
            } else {
                self.list_by_standing(&states, filter, limit).await
            };
        }
        let of_all = RunFilter { before: None, ..filter.clone() };
        let counts = if of_all == RunFilter::default() {
            self.hub.board().counts()
        } else {
            self.store().count(of_all).await?
        };
        // One more than the page: it tells whether there is a page before this one.
        let mut records = self.store().runs(RunFilter { limit: Some(limit + 1), ..filter }).await?;
        let surplus = records.len().saturating_sub(limit);
        records.drain(..surplus);
        let next = (surplus > 0).then(|| records.first().map(|record| record.run.to_string())).flatten();
        let keepers = self.keepers().await;
        let runs = records.iter().map(|record| self.view(record, &keepers)).collect();
        Ok(RunList { runs, next, counts: counted(counts) })
    }

    /// Where open runs stand, the board knows. The log is asked for those of the page alone.
    async fn list_from_board(
        &self,
        states: &States,
        batch: Option<BatchId>,
        before: Option<RunId>,
        limit: usize,
    ) -> Result<RunList, ApiError> {
        let keepers = self.keepers().await;
        let is_in = |run: &Glance| batch.is_none_or(|batch| run.batch == Some(batch));
        let found = self.hub.board().ids(|run| is_in(run) && states.has(standing(run, &keepers)));
        let end = before.map_or(found.len(), |before| found.partition_point(|run| *run < before));
        let begin = end.saturating_sub(limit);
        let next = (begin > 0).then(|| found[begin].to_string());
        let page = RunFilter { among: Some(found[begin..end].to_vec()), ..RunFilter::default() };
        let mut runs: Vec<_> =
            self.store().runs(page).await?.iter().map(|record| self.view(record, &keepers)).collect();
        // Some have gone on meanwhile.
        runs.retain(|run| states.has(run.state));
        let open = u64::try_from(found.len()).unwrap_or(u64::MAX);
        Ok(RunList { runs, next, counts: counted(RunCounts { total: open, open, ..RunCounts::default() }) })
    }

    /// As [`Self::list_from_board`], with conditions that the board knows nothing of: all that are open and match otherwise are looked at.
    async fn list_by_standing(
        &self,
        states: &States,
        filter: RunFilter,
        limit: usize,
    ) -> Result<RunList, ApiError> {
        let keepers = self.keepers().await;
        let before = filter.before;
        let all = self.store().runs(RunFilter { before: None, ..filter }).await?;
        let board = self.hub.board();
        let mut runs = Vec::new();
        let mut counts = RunCounts::default();
        let mut listed = before.is_none();
        let mut next = None;
        for record in all.iter().rev() {
            let glance = board.get(record.run);
            let run = view(record, glance.as_deref(), &keepers);
            if states.has(run.state) {
                counts.total += 1;
                match record.end.as_deref() {
                    None => counts.open += 1,
                    Some(end) => *counts.ended.entry(end.outcome.as_str().to_owned()).or_default() += 1,
                }
                if listed && runs.len() < limit {
                    runs.push(run);
                } else if listed && next.is_none() {
                    next = runs.last().map(|run| run.id.clone());
                }
            }
            listed |= before == Some(record.run);
        }
        runs.reverse();
        Ok(RunList { runs, next, counts: counted(counts) })
    }

    /// What of a query the log can answer.
    pub(super) fn filter(&self, query: &RunQuery) -> Result<RunFilter, ApiError> {
        let batch = match &query.batch {
            Some(name) => Some(self.find_batch(name)?),
            None => None,
        };
        if let Some(outcome) = &query.outcome
            && !Outcome::NAMES.contains(&outcome.as_str())
            && RetryFailed::named(outcome).is_none()
        {
            let known = Outcome::NAMES.join(", ");
            return Err(refuse("outcome", &format!("{outcome:?} is none; want one of {known}, or a detail")));
        }
        let labels = query.label.iter().map(|label| match label.split_once('=') {
            Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
            Some(_) | None => Err(refuse("label", "want a name and a value, as team=search")),
        });
        let before = match &query.before {
            Some(run) => {
                Some(run.parse().map_err(|_| refuse("before", "want a run's id, as `next` of a page"))?)
            }
            None => None,
        };
        Ok(RunFilter {
            batch,
            outcome: query.outcome.clone(),
            task_id: query.task_id.clone(),
            labels: labels.collect::<Result<_, _>>()?,
            model: query.model.clone(),
            since: time("since", query.since.as_deref())?,
            until: time("until", query.until.as_deref())?,
            before,
            ..RunFilter::default()
        })
    }

    /// A batch by its id, its name (then the latest), or a unique beginning of its id.
    ///
    /// # Errors
    /// There is none, or several begin so.
    pub fn find_batch(&self, name: &str) -> Result<BatchId, ApiError> {
        self.batches.find(name).map_err(|error| match error {
            FindError::None(_) => ApiError::new(Code::UnknownBatch, error.to_string()),
            FindError::Many { .. } => ApiError::new(Code::Ambiguous, error.to_string()),
        })
    }
}

/// A parameter that is none.
pub(super) fn refuse(name: &str, what: &str) -> ApiError {
    ApiError::new(Code::BadRequest, format!("{name}: {what}"))
}

/// A point in time of a parameter.
pub(super) fn time(name: &str, text: Option<&str>) -> Result<Option<Timestamp>, ApiError> {
    let Some(text) = text else { return Ok(None) };
    match from_rfc3339(text) {
        Some(at) => Ok(Some(at)),
        None => Err(refuse(name, "want a time in RFC 3339, as 2026-11-30T12:00:00Z")),
    }
}

pub(super) fn counted(counts: RunCounts) -> Counts {
    let RunCounts { total, open, ended } = counts;
    Counts { total, open, ended }
}
