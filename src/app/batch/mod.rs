//! A batch: the tasks of one input, their runs in one journal, one result line for each.
//!
//! The journal is the truth and the results are derived from it, so the same command goes on wherever an earlier one
//! stopped. Input is read and checked, and compared with the journal, before anything runs or changes.

use std::{path::PathBuf, sync::Arc, time::Duration};

use crate::{
    actor::supervisor::{Blocked, SubmitError},
    domain::{
        batch::{Halt, Misfit, RetryFailed, StaleLines},
        id::RunId,
        outcome::Outcome,
        usage::{NanoUsd, Usage},
    },
};

mod course;
mod drive;
mod history;
mod journal;
mod line;
mod lost;
mod place;
mod rebuild;
mod results;
mod stopper;
mod submission;
mod tasks;

pub(in crate::app) use course::{Asked, Course, Host, Reached, Terms};
pub use drive::Batch;
pub(in crate::app) use history::{Attempt, History, abandon, end_of, submit_asked};
pub use journal::{Journal, beside, check_place};
pub use line::ResultLine;
pub use results::Results;
pub use stopper::{Stop, Stopper};
pub(in crate::app) use submission::{How, Next, Over, in_order};
pub(in crate::app) use tasks::{LineLost, Tasks, Wanted};

/// How a batch is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// What the batch is called in its journal: for a file, its name.
    pub name: String,
    /// Where the results go; absent: to the standard output.
    pub out: Option<PathBuf>,
    /// Runs that have a slot at once.
    pub concurrency: usize,
    /// New attempts that a task gets by itself.
    pub retries: u32,
    /// Which ended tasks get another attempt now.
    pub retry_failed: RetryFailed,
    /// What becomes of a task whose line changed.
    pub stale_lines: StaleLines,
    /// When to give up on the whole batch.
    pub halt: Option<Halt>,
    /// Results in the order of the input.
    pub keep_order: bool,
    /// Results with the whole conversation.
    pub with_messages: bool,
    /// Runs that ask people about calls wait for them, and the batch ends once nothing else is left; else those calls are
    /// denied.
    pub parks: bool,
    /// How long runs may go on after the first signal.
    pub drain: Duration,
    /// What all of its attempts together may cost.
    pub max_cost: Option<NanoUsd>,
}

/// What happens in a batch, for whoever shows it.
#[derive(Clone, Debug)]
pub enum Event {
    /// A run ended, and another attempt at its task will follow after this long.
    Retrying(Outcome, Usage, Duration),
    /// A task is settled.
    Settled(Outcome, Usage),
    /// A run could not be worked on, for this reason; its task is not finished.
    Left(RunId, Arc<SubmitError>),
    /// No new task starts any more.
    Stopping,
}

/// What came of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Chosen tasks by the outcome of their latest attempt.
    pub settled: Vec<Outcome>,
    /// Chosen tasks that have not ended: they go on, or start, when the batch is run again.
    pub unfinished: usize,
    /// Those of them that were not started for want of money.
    pub unaffordable: usize,
    /// Too many tasks were not done.
    pub halted: bool,
    /// Requests that failed and were sent again, as far as that is known at the end.
    pub retries: u64,
    /// Those of them that wait for people to decide about calls.
    pub undecided: usize,
    /// What kept all that is unfinished from going on, if it was something that only people can do.
    pub blocked: Option<Blocked>,
}

impl Report {
    /// Whether every chosen task is done.
    pub fn all_done(&self) -> bool {
        self.unfinished == 0 && self.settled.iter().all(|outcome| *outcome == Outcome::Done)
    }
}

/// Why a batch cannot be run. Nothing was run.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    #[error(transparent)]
    State(#[from] super::state::StateError),
    #[error("{journal}: the journal does not fit the input")]
    Misfit { journal: String, source: Misfit },
    #[error("{journal}: holds runs of another kind than this batch's ({what}); name another OUT or --state")]
    OtherBatch { journal: String, what: String },
    #[error("{out}: {what}")]
    OutPlace { out: String, what: &'static str },
    #[error(
        "{out}: has content but no journal beside it that knows of it ({journal}); move it away, name another OUT, or give --daemon if that is how it came to be"
    )]
    OutWithoutJournal { out: String, journal: String },
    #[error(
        "{out}: tells ends of tasks that {journal} does not know of ({tasks}; {count} in all): the journal has lost what came last, and nothing was done; put it back from a copy, or move {out} away to have those tasks done again"
    )]
    Lost { out: String, journal: String, tasks: String, count: usize },
    #[error(
        "{out}: leads to {real} now, which it did not when the batch was started; if the results are to go there, name that file itself"
    )]
    OutLeadsElsewhere { out: String, real: String },
    #[error(transparent)]
    Start(#[from] super::herder::StartError),
    #[error(transparent)]
    Store(#[from] crate::store::StoreError),
    #[error("{out}: cannot be read")]
    OutUnread { out: String, source: std::io::Error },
    #[error("{out}: cannot be written")]
    Out { out: String, source: std::io::Error },
}
