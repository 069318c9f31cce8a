//! What a run actor is told.

use ractor::ActorRef;
use tokio::sync::oneshot;

use crate::{
    actor::{executor::ExecutorMsg, supervisor::Reply},
    domain::{event::FileChange, id::CallId, run::Input, usage::Usage},
    model::governor::Permit,
    store::{StoreError, Ticket},
};

/// What a run actor is told. An ask carries a reply port; a report does not.
#[derive(Debug)]
pub enum RunMsg {
    /// From the supervisor, at first: begin, or go on from the log.
    Begin(Input),
    /// From a person or the supervisor; answered once the facts are on disk.
    Ask(Input, Reply),
    /// From work this run started. The sender of a result is told when the log has been handed it.
    Report(Input, Option<oneshot::Sender<()>>),
    /// From a request of this run: what came of it, and its place, for the turn's next request.
    Asked(Input, Option<Permit>),
    /// From the open request: it is about to go out, and may use this up. Answered with the ticket of the fact that it does.
    Departs {
        /// The turn that asks.
        turn: u32,
        /// The request of the turn.
        attempt: u32,
        /// The most that can come of it.
        usage: Usage,
        /// Dropped unanswered if it may not.
        go: oneshot::Sender<Ticket>,
    },
    /// From a job that holds its locks: may it go ahead? Answered with the ticket of the fact that it does.
    Granted {
        /// The call.
        call: CallId,
        /// What it is about to change.
        change: Option<FileChange>,
        /// Dropped unanswered if it may not.
        go: oneshot::Sender<Ticket>,
    },
    /// From the executor's supervisor: there is another executor, which knows of none of this run's calls.
    Executor(ActorRef<ExecutorMsg>),
    /// From a timer of this run: see whether a limit of time is reached.
    CheckTime,
    /// From the supervisor: stop where you are as soon as a turn has ended.
    Drain,
    /// From the supervisor: stop where you are as soon as what runs has stopped.
    Interrupt,
    /// From the supervisor: send no further request.
    Hold,
    /// From the supervisor: requests may be sent again.
    GoOn,
    /// From this run: it has come to where it is held.
    Park,
    /// From a task that waited for the disk: the log says that the run is parked.
    HandOver,
    /// From the supervisor, which has the run itself now: nothing more will come.
    Leave,
    /// From a task that waited for the disk in vain.
    StoreFailed(StoreError),
}
