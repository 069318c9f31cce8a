//! What people are asked about calls, and what they answer.

use std::sync::Arc;

use serde::Deserialize;
use utoipa::IntoParams;

use super::{By, Desk, RunQuery, list::refuse, submit::check_key, tell::Untold};
use crate::{
    app::{
        approvals::{self, AnswerError, NameError, Said},
        state::read_run,
    },
    daemon::wire::{
        AnswerBody, Answered, ApiError, ApprovalDetail, ApprovalList, Code, Verdict, approvals, labels,
    },
    domain::{
        glance::Glance,
        run::{Input, Refused},
    },
    store::{RunFilter, RunRecord, StoreError},
};

/// Runs whose approvals are on one page, if nobody says how many, and at most.
const PAGE: (usize, usize) = (100, 1_000);

/// Which approvals are listed. What is absent does not narrow.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ApprovalQuery {
    /// With those that are resolved, also of runs that have ended.
    pub all: bool,
    /// Only those of this run: its id, a unique beginning of it, or its task's id.
    pub run: Option<String>,
    /// Only those of this batch: its id, a unique beginning of it, or its name.
    pub batch: Option<String>,
    /// Only those of runs that ask this model.
    pub model: Option<String>,
    /// Only those of runs of this task id.
    pub task_id: Option<String>,
    /// Only those of runs with this label, as `team=search`; may come more than once.
    #[param(style = Form, explode, schema_with = labels)]
    pub label: Vec<String>,
    /// Only those of runs that were submitted then or later, in RFC 3339.
    #[param(format = DateTime)]
    pub since: Option<String>,
    /// Those of at most so many runs, the newest.
    #[param(minimum = 1, maximum = 1000)]
    #[serde(deserialize_with = "super::given")]
    pub limit: Option<usize>,
    /// Only those of runs before this one: its id, as `next` of the page after.
    #[param(format = "uuid")]
    pub before: Option<String>,
}

impl Desk {
    /// A page of approvals. Only logs of runs that have one are read, unless all are asked for.
    ///
    /// # Errors
    /// A parameter is none, or the log cannot be read.
    pub async fn approvals(&self, query: &ApprovalQuery) -> Result<ApprovalList, ApiError> {
        let limit = query.limit.unwrap_or(PAGE.0);
        if limit == 0 || limit > PAGE.1 {
            return Err(refuse("limit", &format!("want 1 to {}", PAGE.1)));
        }
        let filter = self.filter(&RunQuery {
            batch: query.batch.clone(),
            model: query.model.clone(),
            task_id: query.task_id.clone(),
            label: query.label.clone(),
            since: query.since.clone(),
            before: query.before.clone(),
            ..RunQuery::default()
        })?;
        // What was answered for is listed.
        self.hub.caught_up().await;
        let run = match &query.run {
            Some(name) => Some(self.find(name).await?.run),
            None => None,
        };
        let is_meant =
            |glance: &Glance| glance.approvals().next().is_some() && run.is_none_or(|run| run == glance.run);
        let among = if query.all { run.map(|run| vec![run]) } else { Some(self.hub.board().ids(is_meant)) };
        // One more than the page: it tells whether there is a page before this one.
        let filter = RunFilter { among, limit: Some(limit + 1), ..filter };
        let mut records = self.store().runs(filter).await?;
        let surplus = records.len().saturating_sub(limit);
        records.drain(..surplus);
        let next = (surplus > 0).then(|| records.first().map(|record| record.run.to_string())).flatten();
        let (mut listed, mut unread) = (Vec::new(), Vec::new());
        for RunRecord { run, .. } in records {
            let (state, log) = match read_run(&**self.store(), run).await {
                Ok(read) => read,
                // One run that cannot be read hides no other.
                Err(StoreError::Damaged { .. }) => {
                    unread.push(run.to_string());
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            if !state.approvals().is_empty() {
                let name = approvals::name_of_run(&**self.store(), &state).await?;
                let asked = approvals(&state, &name, &log).into_iter().map(|detail| detail.approval);
                listed.extend(asked.filter(|approval| query.all || approval.resolution.is_none()));
            }
        }
        Ok(ApprovalList { approvals: listed, next, unread })
    }

    /// One approval, with exactly what is approved.
    ///
    /// # Errors
    /// There is none of that name, or the log cannot be read.
    pub async fn approval(&self, name: &str) -> Result<ApprovalDetail, ApiError> {
        let found = approvals::find(&**self.store(), name).await?;
        let unknown = || ApiError::new(Code::UnknownApproval, format!("{name}: there is no such approval"));
        let name = approvals::name_of_run(&**self.store(), &found.run).await?;
        let detail = approvals(&found.run, &name, &found.log).into_iter().nth(place(found.number));
        detail.ok_or_else(unknown)
    }

    /// Answers an approval, once. The same answer by the same name again changes nothing.
    ///
    /// # Errors
    /// There is no such approval, there is another answer to it, or its run is about to end.
    pub async fn answer(&self, name: &str, body: AnswerBody, by: &By) -> Result<Answered, ApiError> {
        let found = approvals::find(&**self.store(), name).await?;
        let AnswerBody { answer: verdict, command_id, reason, for_run } = body;
        let command: Arc<str> =
            check_key(&command_id).map_err(|_| refuse("command_id", "want 1 to 256 characters"))?.into();
        let said = match (verdict, reason, for_run) {
            (Verdict::Approve, None, for_run) => Said::Approve { for_run },
            (Verdict::Reject, reason, None) => Said::Reject { reason },
            (Verdict::Approve, Some(_), _) => return Err(refuse("reason", "goes with `reject` alone")),
            (Verdict::Reject, _, Some(_)) => return Err(refuse("for_run", "goes with `approve` alone")),
        };
        let answer = found.answer(&said, Some(&self.herder.supervisor.services().toolbox))?;
        let seq = match found.answered(&answer, &command)? {
            Some(approvals::Same) => None,
            None => {
                let user = by.user.clone().or_else(|| by.uid.map(|uid| uid.to_string())).map(Arc::from);
                let input = Input::Resolve { approval: found.number, answer, command, by: user };
                match self.tell(&found.record, input).await {
                    Ok(seq) => Some(seq.get()),
                    Err(Untold::Refused(Refused::Unchanged)) => None,
                    // Somebody else was faster.
                    Err(Untold::Refused(refused)) => {
                        return Err(found.again(&**self.store()).await?.refused(refused).into());
                    }
                    Err(untold @ Untold::Error(_)) => return Err(untold.into()),
                }
            }
        };
        let verb = match verdict {
            Verdict::Approve => "approve",
            Verdict::Reject => "reject",
        };
        self.audit(by, verb, found.name(), seq.is_some(), None);
        Ok(Answered { id: found.name(), answer: verdict, command_id, changed: seq.is_some(), seq })
    }
}

fn place(number: u32) -> usize {
    usize::try_from(number.saturating_sub(1)).unwrap_or(usize::MAX)
}

impl From<NameError> for ApiError {
    fn from(error: NameError) -> Self {
        match error {
            NameError::Malformed(_) | NameError::Unknown { .. } => {
                Self::new(Code::UnknownApproval, error.to_string())
            }
            NameError::Run(error) => error.into(),
        }
    }
}

impl From<AnswerError> for ApiError {
    fn from(error: AnswerError) -> Self {
        match error {
            AnswerError::Pattern { what, .. } => refuse("for_run", &what),
            AnswerError::Resolved(told) => Self::new(Code::Resolved, told),
            AnswerError::Refused(refused) => Untold::Refused(refused).into(),
            AnswerError::Store(error) => error.into(),
        }
    }
}
