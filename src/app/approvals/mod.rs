//! Approvals by the names that people give them, and answers to them.
//!
//! An answer reaches a run by whoever has its log: the supervisor of a process that is at work, else whoever has the folder to
//! write to. Which of the two makes no difference to what comes to be of record. Knows nothing of who may answer.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use super::state::{self, FindError};
use crate::{
    clock::{Clock, rfc3339},
    domain::{
        call::{EffectClass, ToolCall},
        event::{ApprovalResolved, Envelope, Event, Grant, Resolution},
        id::{RunId, Seq},
        message::Message,
        policy::{Policy, Subject, Verdict},
        run::{Answer, Approval, Refused, Run},
        time::Timestamp,
    },
    store::{EventStore, RunRecord, StoreError},
    tool::{toolbox::Toolbox, workspace::Workspaces},
};

mod spool;
mod taking;
#[cfg(test)]
mod tests;

pub use spool::{Spool, Spooled, remove, runtime_folder};

/// Characters of a run's id that may be enough to name it, each up to a place where people pause.
const SHORT_IDS: [usize; 4] = [8, 13, 18, 23];

/// An approval of record, with the run that it is of.
#[derive(Clone, Debug)]
pub struct Found {
    /// The run as the store knows it.
    pub record: RunRecord,
    /// Its log.
    pub log: Vec<Envelope>,
    /// The run as that says.
    pub run: Run,
    /// The approval's number in the run.
    pub number: u32,
}

/// Why a name stands for no approval.
#[derive(Debug, thiserror::Error)]
pub enum NameError {
    #[error("{0:?} names no approval; want RUN.N, as task-17.1; `herder approvals` lists what there is")]
    Malformed(String),
    #[error("run {run} has no approval {number}; {}", asked(*.count))]
    Unknown { run: RunId, number: u32, count: usize },
    #[error(transparent)]
    Run(#[from] FindError),
}

fn asked(count: usize) -> String {
    match count {
        0 => "nobody was asked about any of its calls".to_owned(),
        1 => "it has approval 1 alone".to_owned(),
        count => format!("it has 1 to {count}"),
    }
}

/// What somebody says of a call, before it is known whether that makes sense for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// It may run, and further calls of the run that fit this pattern.
    Approve { for_run: Option<String> },
    /// It may not, for this reason.
    Reject { reason: Option<String> },
}

/// Why an answer was not taken.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// A pattern that is none.
    #[error("--for-run {pattern:?}: {what}")]
    Pattern { pattern: String, what: String },
    /// There is another answer, in words.
    #[error("{0}")]
    Resolved(String),
    #[error("{0}")]
    Refused(Refused),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Splits `RUN.N`.
///
/// # Errors
/// It is no such name.
pub fn split(name: &str) -> Result<(&str, u32), NameError> {
    let malformed = || NameError::Malformed(name.to_owned());
    let (run, number) = name.rsplit_once('.').ok_or_else(malformed)?;
    match number.parse() {
        Ok(number) if !run.is_empty() && number > 0 => Ok((run, number)),
        Ok(_) | Err(_) => Err(malformed()),
    }
}

/// Finds an approval by its name: its run's id, a unique beginning of that or its task's id, and its number.
///
/// # Errors
/// There is none, or the beginning is that of several.
pub async fn find(store: &dyn EventStore, name: &str) -> Result<Found, NameError> {
    let (run, number) = split(name)?;
    let record = state::find(store, run).await?;
    let found = Found::read(store, record, number).await.map_err(FindError::from)?;
    match found.approval() {
        Some(_) => Ok(found),
        None => Err(NameError::Unknown { run: found.run.id(), number, count: found.run.approvals().len() }),
    }
}

/// The name of a run in those of its approvals, by which [`find`] finds them: its task's id where that stands for this run, else
/// as much of its own id as no other begins with.
///
/// # Errors
/// The store cannot be read.
pub async fn name_of_run(store: &dyn EventStore, run: &Run) -> Result<String, StoreError> {
    let is_this = |found: Result<RunRecord, FindError>| match found {
        Ok(record) => Ok(record.run == run.id()),
        Err(FindError::None(_) | FindError::Many { .. }) => Ok(false),
        Err(FindError::Store(error)) => Err(error),
    };
    if let Some(task) = run.spec().and_then(|spec| spec.task_id.as_deref())
        && is_this(state::find(store, task).await)?
    {
        return Ok(task.to_owned());
    }
    let id = run.id().to_string();
    for length in SHORT_IDS {
        let beginning = id.get(..length).unwrap_or(&id);
        if is_this(state::find(store, beginning).await)? {
            return Ok(beginning.to_owned());
        }
    }
    Ok(id)
}

impl Found {
    async fn read(store: &dyn EventStore, record: RunRecord, number: u32) -> Result<Self, StoreError> {
        let (run, log) = state::read_run(store, record.run).await?;
        Ok(Self { record, log, run, number })
    }

    /// The same as its log says by now.
    ///
    /// # Errors
    /// The log cannot be read.
    pub async fn again(&self, store: &dyn EventStore) -> Result<Self, StoreError> {
        Self::read(store, self.record.clone(), self.number).await
    }

    /// Its name by the run's id, which stands for no other.
    pub fn name(&self) -> String {
        format!("{}.{}", self.run.id(), self.number)
    }

    /// What was asked and answered.
    pub fn approval(&self) -> Option<&Approval> {
        self.run.approval(self.number)
    }

    /// What became of it last and when, once something has.
    pub fn resolution(&self) -> Option<(&Arc<ApprovalResolved>, Timestamp)> {
        self.log.iter().rev().find_map(|Envelope { fact, .. }| {
            let Event::ApprovalResolved(resolved) = &fact.event else { return None };
            (resolved.approval == self.number).then_some((resolved, fact.at))
        })
    }

    /// What was said, as the run takes it. Where no tools are at hand, what is shown of the call tells whether it is a command.
    ///
    /// # Errors
    /// A pattern that is none, or that the very call does not fit.
    pub fn answer(&self, said: &Said, tools: Option<&Toolbox>) -> Result<Answer, AnswerError> {
        let pattern = match said {
            Said::Approve { for_run: None } => return Ok(Answer::Approve(None)),
            Said::Approve { for_run: Some(pattern) } => pattern,
            Said::Reject { reason } => return Ok(Answer::Reject(reason.as_deref().map(Into::into))),
        };
        let tool = self.call().map(|call| call.name.clone()).unwrap_or_default();
        let grant = Grant { tool, pattern: pattern.as_str().into() };
        let command = self.command(tools);
        let wrong = |what| AnswerError::Pattern { pattern: pattern.clone(), what };
        let fits = match &command {
            Some(command) if grant.whole_line().is_some() => grant.is_exactly(command),
            Some(_) | None => {
                let policy = Policy::granting(&grant, command.is_some()).map_err(wrong)?;
                self.is_allowed(&policy, &grant, command.as_deref())
            }
        };
        match fits {
            true => Ok(Answer::Approve(Some(grant))),
            false => {
                let what = "the call that is approved does not fit it; give a pattern that it fits, or none";
                Err(wrong(what.to_owned()))
            }
        }
    }

    /// Whether the policy of a grant allows this very call.
    fn is_allowed(&self, policy: &Policy, grant: &Grant, command: Option<&str>) -> bool {
        let allows = |path: &str| {
            let (tool, effect) = (&*grant.tool, EffectClass::Outside);
            let subject = Subject { tool, effect, paths: &[path], command, arguments: None };
            policy.verdict(&subject) == Verdict::Allow
        };
        if command.is_some() {
            return allows("");
        }
        let touched = self.approval().map(|approval| &*approval.request.access).unwrap_or_default();
        !touched.is_empty() && touched.iter().all(|access| self.names(&access.path).any(&allows))
    }

    /// What a path may be called in the run's workspace: of one that has another real path, or is the run's own, it is not known
    /// here where it ends.
    fn names<'a>(&self, path: &'a str) -> impl Iterator<Item = &'a str> {
        let workspace = self.run.spec().map(|spec| &*spec.workspace).unwrap_or_default();
        let inside = path.strip_prefix(workspace).filter(|rest| rest.is_empty() || rest.starts_with('/'));
        let inside = inside.map(|rest| rest.trim_start_matches('/'));
        let ends = path.match_indices('/').filter_map(|(at, _)| path.get(at + 1..)).chain([path, ""]);
        let ends = inside.is_none().then_some(ends);
        inside.into_iter().chain(ends.into_iter().flatten())
    }

    /// The command line that is asked about, if it is one.
    fn command(&self, tools: Option<&Toolbox>) -> Option<String> {
        let call = self.call();
        if let Some((tool, call)) =
            tools.zip(call).and_then(|(tools, call)| Some((tools.get(&call.name)?, call)))
        {
            let arguments = serde_json::from_str(call.arguments.as_str()).ok()?;
            return tool.command(&arguments).map(str::to_owned);
        }
        let request = &self.approval()?.request;
        request.preview.as_deref().filter(|_| request.change.is_none()).map(str::to_owned)
    }

    fn call(&self) -> Option<&ToolCall> {
        let asked = &self.approval()?.request.call;
        let mut calls = self.run.history().iter().flat_map(|message| match message {
            Message::Assistant(reply) => reply.calls.as_slice(),
            Message::System(_) | Message::User(_) | Message::Tool(_) => &[],
        });
        calls.find(|call| call.id == *asked)
    }

    /// The pattern that fits just what this call is about: its command, or its file as it is called in the run's workspace.
    pub async fn exact_pattern(&self, tools: &Toolbox, workspaces: &Workspaces) -> Option<String> {
        if let Some(command) = self.command(Some(tools)) {
            return Some(Grant::exactly(&command));
        }
        let request = &self.approval()?.request;
        let change = request.change.as_ref().map(|change| &change.path);
        let path = change.or_else(|| request.access.first().map(|access| &access.path))?;
        let workspace = self.workspace(workspaces).await?;
        // What is touched is told by its real path.
        let workspace = tokio::fs::canonicalize(&workspace).await.unwrap_or(workspace);
        Some(globset::escape(Path::new(&**path).strip_prefix(workspace).ok()?.to_str()?))
    }

    async fn workspace(&self, workspaces: &Workspaces) -> Option<PathBuf> {
        let spec = self.run.spec()?;
        if spec.isolate.is_none() {
            return Some(PathBuf::from(&*spec.workspace));
        }
        workspaces.isolation()?.find(self.run.id()).await
    }

    /// Whether this answer is of record already. Nothing, if none is.
    ///
    /// # Errors
    /// There is another one.
    pub fn answered(&self, answer: &Answer, command: &str) -> Result<Option<Same>, AnswerError> {
        match self.run.resolved_before(self.number, answer, command) {
            None => Ok(None),
            Some(Refused::Unchanged) => Ok(Some(Same)),
            Some(refused) => Err(self.refused(refused)),
        }
    }

    /// Why an answer is not taken, in words that tell of the one that was.
    pub fn refused(&self, refused: Refused) -> AnswerError {
        let Refused::Resolved(how) = refused else { return AnswerError::Refused(refused) };
        let mut told = match how {
            Resolution::Approved | Resolution::Rejected => format!("it was {} already", how.as_str()),
            Resolution::Expired => "nobody answered in time, and the call is denied".to_owned(),
            Resolution::Superseded => {
                "what the call would do has changed, and it was asked about again".to_owned()
            }
            Resolution::Withdrawn => "the call was given up before anybody answered".to_owned(),
        };
        if let Some((resolved, at)) = self.resolution() {
            let by = resolved.by.as_ref().map_or_else(String::new, |by| format!(" by {by}"));
            let command = resolved.command.as_ref().map_or_else(String::new, |id| format!(" (command {id})"));
            told.push_str(&format!("{by} at {}{command}", rfc3339(at)));
        }
        AnswerError::Resolved(told)
    }

    /// Puts an answer on record of a run that nobody works on: whoever has the folder to write to. Returns once it is on disk.
    ///
    /// # Errors
    /// It is not taken.
    pub async fn resolve_unattended(
        &self,
        store: &dyn EventStore,
        clock: &dyn Clock,
        answer: Answer,
        (command, by): (Arc<str>, Option<Arc<str>>),
    ) -> Result<Seq, AnswerError> {
        let facts = self
            .run
            .resolve_unattended(self.number, answer, command, by, clock.now())
            .map_err(|refused| self.refused(refused))?;
        store.durable(store.append(self.run.id(), self.run.seq(), &facts)?).await?;
        Ok(self.run.seq().plus(u64::try_from(facts.len()).unwrap_or_default()))
    }
}

/// The same answer by the same name is of record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Same;
