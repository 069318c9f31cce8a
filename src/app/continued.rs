//! A run that goes on from one that has ended: with all that was said in it, and something new.

use std::sync::Arc;

use crate::domain::{run::Run, script::Script, task::TaskSpec};

/// What is new about it.
#[derive(Clone, Debug, Default)]
pub struct Continuation {
    /// What is said now.
    pub text: String,
    /// Turns that it may take; absent: as many as the one before.
    pub max_turns: Option<u32>,
    /// The model that is asked; absent: the one that the run before asked last.
    pub model: Option<Arc<str>>,
    /// What the scripted model says; absent: what the run before left of its script.
    pub script: Option<Script>,
}

/// Why there is no such run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContinueError {
    #[error("run {0} has not ended; `herder follow-up` says something to it")]
    NotEnded(crate::domain::id::RunId),
    #[error("text: is empty; want what the model is to be told")]
    Empty,
    #[error("max_turns: is 0; want 1 or more")]
    NoTurns,
}

/// The task of the run that goes on from `run`. It has the same limits anew, and is of no batch.
///
/// # Errors
/// The run has not ended, nothing is said, or it may take no turn.
pub fn task(run: &Run, next: Continuation) -> Result<TaskSpec, ContinueError> {
    let Some(spec) = run.spec().filter(|_| run.outcome().is_some()) else {
        return Err(ContinueError::NotEnded(run.id()));
    };
    if next.text.trim().is_empty() {
        return Err(ContinueError::Empty);
    }
    if next.max_turns == Some(0) {
        return Err(ContinueError::NoTurns);
    }
    let mut limits = spec.limits;
    limits.max_turns = next.max_turns.or(limits.max_turns);
    Ok(TaskSpec {
        task: next.text.into(),
        task_id: None,
        batch: None,
        attempt: 1,
        predecessor: None,
        parent: Some(run.id()),
        before: run.history().to_vec(),
        model: next.model.or_else(|| run.model().cloned()).unwrap_or_else(|| spec.model.clone()),
        submission: None,
        limits,
        script: next.script.or_else(|| left_over(run, spec)),
        ..TaskSpec::clone(spec)
    })
}

fn left_over(run: &Run, spec: &TaskSpec) -> Option<Script> {
    let Script(replies) = spec.script.as_ref()?;
    let used = usize::try_from(run.replies()).unwrap_or(usize::MAX).min(replies.len());
    Some(Script(replies.get(used..).unwrap_or_default().into()))
}
