//! What the executor is told.

use std::sync::Arc;

use ractor::{ActorRef, RpcReplyPort};
use tokio_util::sync::CancellationToken;

use crate::{
    actor::run::RunMsg,
    domain::{
        call::{Access, ToolCall},
        event::{ApprovalRequested, Decision, FileChange},
        id::{CallId, RunId},
        schedule::Ticket,
        time::Timestamp,
    },
    tool::{Tool, workspace::Workspace},
};

/// What the executor is told. Producers are bounded: a run has a slot, and no more calls open than one answer asks for.
#[derive(Debug)]
pub enum ExecutorMsg {
    /// From a run: queue these calls, in this order, in one step.
    Submit(Vec<Job>),
    /// From a job: it ended, and the log has its result. Its locks and its permit are free.
    Finished(Ticket),
    /// From a job: what it touches has moved. It waits again, on its new keys.
    Moved(Ticket, Box<Job>),
    /// From a run, or from its supervisor when its actor has died: those of its calls that wait are no longer wanted.
    Withdraw(RunId),
    /// From a run: this one of its calls, if it waits, is no longer wanted.
    WithdrawCall(RunId, CallId),
    /// From a person: change how many calls may run at once.
    SetPermits(usize),
    /// How much is going on.
    Ask(RpcReplyPort<Load>),
    /// What each waiting call of a run waits for.
    Why(RunId, RpcReplyPort<Vec<Waiting>>),
}

/// How much is going on in the executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Calls that wait for their locks or a permit.
    pub waiting: usize,
    /// Calls that hold theirs.
    pub running: usize,
}

/// A call that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The call.
    pub call: CallId,
    /// The run and call that it waits for; absent: only for a permit.
    pub behind: Option<(RunId, CallId)>,
}

/// A call on its way through the executor.
pub struct Job {
    /// The run.
    pub run: RunId,
    /// The task's own name, if it has one.
    pub task_id: Option<Arc<str>>,
    /// Who is told.
    pub report_to: ActorRef<RunMsg>,
    /// What was asked.
    pub call: ToolCall,
    /// What was decided.
    pub decision: Arc<Decision>,
    /// What it touches.
    pub access: Arc<[Access]>,
    /// What a person has approved of: if it is anything else by now, it is asked about again.
    pub approved: Option<Arc<ApprovalRequested>>,
    /// It may have been made already: whether this change is there is looked at first.
    pub doubt: Option<FileChange>,
    /// Who does it.
    pub tool: Arc<dyn Tool>,
    /// Where.
    pub workspace: Arc<Workspace>,
    /// Fires when the call is to end: alone, or since its run ends early or is gone.
    pub cancel: CancellationToken,
    /// When the executor took it: the order of these is the order of the queue.
    pub queued_at: Timestamp,
    /// How often what it touches had moved.
    pub moves: u8,
    /// What its work is traced in.
    pub span: tracing::Span,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job").field("run", &self.run).field("call", &self.call.id).finish_non_exhaustive()
    }
}
