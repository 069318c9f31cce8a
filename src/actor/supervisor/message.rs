//! What the supervisor and its shards are told.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ractor::{ActorRef, RpcReplyPort};
use tokio::sync::oneshot;

use super::{
    AskError, SubmitError,
    accounts::Reserve,
    over::{Ended, Waiters},
    revival::{Death, Next},
};
use crate::{
    actor::executor::ExecutorMsg,
    domain::{
        budget::{Node, Reservation, Standing, UserBudget},
        event::{ParkReason, RunEnd},
        gate::{Gates, PauseMode, Scope},
        id::{BatchId, RunId, Seq},
        run::{Input, Run},
        time::Timestamp,
        usage::NanoUsd,
    },
    model::governor::Pledge,
    store::StoreError,
    tool::workspace::Workspace,
};

/// What the root of the supervision tree is told.
#[derive(Debug)]
pub enum RootMsg {
    /// From a submitter, who has handed the log its first fact: give it a slot when its turn comes.
    Admit(Admitted),
    /// From the task that waited for that fact to be on disk: the log did not take it.
    NotRecorded(RunId, StoreError),
    /// From the task that waited for something said to a run without a slot to be on disk: the log did not take it.
    NotTaken(RunId),
    /// From whoever wants a run that is of record to go on, wherever it is.
    Resume(RunId, Asker),
    /// From the task that read the log of a run that is to go on: here is where it stands.
    Read(RunId, Result<Stands, SubmitError>),
    /// From a run: it has ended, and the log says so.
    Ended(Ended),
    /// From the task that put away the own workspace of a run that has ended: now it is over.
    Closed(RunId),
    /// From a run: it is parked, and the log says so. It goes on when it is no longer held and there is a slot.
    Parked(Box<Run>),
    /// From a run: it asks another model from now on.
    Switched(Box<Run>),
    /// From a run of this batch, or of none: a request of it failed and is sent again.
    Retried(Option<BatchId>),
    /// From a run: it ended, but the log did not take it. The run is started again from the log.
    Lost(RunId, Arc<StoreError>),
    /// From a person: say something to a run, or end it. The reply port closes unanswered if there is no such run.
    Ask(RunId, Input, Reply),
    /// From a run: it is to end, by a limit of its own. It is given its time for it.
    Ending(RunId),
    /// From a timer: this run was told to end a while ago.
    CheckStuck(RunId),
    /// From a person: change how many runs have a slot.
    SetMaxLiveRuns(usize),
    /// From a person: whether runs start only as their models have places free.
    FollowModels(bool),
    /// From an account, which shut or opened, or from whoever has changed models: look again at who may go on.
    AccountChanged,
    /// From a model: it may have room for another run.
    Room,
    /// From a timer: the time may have come at which this run goes on.
    Due(RunId),
    /// Start no more runs; those that have a slot go on to their end.
    Close,
    /// Start no more runs, let those that run end their turn, then stop.
    Drain(Duration, RpcReplyPort<()>),
    /// The time for draining is up, or nobody wants to wait for it.
    Interrupt,
    /// From a timer: whoever has not stopped by now is left to the next start.
    LeaveBehind,
    /// From the task that waited for the jobs of a dead executor: they have all ended.
    ExecutorGone,
    /// From a person: shut a gate. Answered with whether that changed anything.
    Shut(Scope, PauseMode, RpcReplyPort<bool>),
    /// From a person: open a gate. Answered with whether that changed anything.
    Open(Scope, RpcReplyPort<bool>),
    /// From a person: which gates are shut.
    Gates(RpcReplyPort<Gates>),
    /// From a person: how much is going on.
    Load(RpcReplyPort<Load>),
    /// From a request: it is about to cost something.
    Reserve(Box<Reserve>),
    /// From a request that is over: what it came to, or nothing if nobody knows, or if it was not sent.
    Settle(Reservation, Option<NanoUsd>),
    /// From whoever has read the log: so much was spent before.
    Spent(Node, NanoUsd),
    /// From a person: so much may be spent there.
    SetCap(Node, Option<NanoUsd>),
    /// From whoever has counted for it: nothing more is to come there.
    Forget(Node),
    /// From a person: so much may be spent by users.
    SetBudgets(Vec<UserBudget>),
    /// From a person: how the accounts stand.
    Accounts(RpcReplyPort<Vec<(Node, Standing)>>),
}

/// How much is going on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Runs that have a slot.
    pub live: usize,
    /// Runs that wait for one.
    pub queued: usize,
    /// Runs that are paused or behind a gate, and neither have a slot nor wait for one.
    pub held: usize,
    /// Live runs by batch.
    pub by_batch: BTreeMap<Option<BatchId>, usize>,
    /// What runs that are held by no person wait for.
    pub waits: Vec<Wait>,
    /// Requests that failed and were sent again, by batch, since this process began.
    pub retries: BTreeMap<Option<BatchId>, u64>,
}

/// Runs of a batch, or of none, that wait for the same without a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The batch.
    pub batch: Option<BatchId>,
    /// What they wait for.
    pub reason: ParkReason,
    /// When the first of them goes on by itself, if any does.
    pub until: Option<Timestamp>,
    /// How many they are.
    pub runs: usize,
}

/// A run that is to have a slot.
#[derive(Debug)]
pub struct Admitted {
    /// The run as its log says.
    pub run: Box<Run>,
    /// Told when it is over.
    pub done: Waiters,
}

/// Whoever wants a run to go on.
#[derive(Debug)]
pub struct Asker {
    /// Told when it is over.
    pub done: oneshot::Sender<Ended>,
    /// Told whether it was taken up.
    pub taken_up: oneshot::Sender<Result<(), SubmitError>>,
}

/// Where a run that was read from its log stands.
#[derive(Debug)]
pub enum Stands {
    /// It goes on from here.
    Open(Box<Run>),
    /// It has ended.
    Over(Arc<RunEnd>),
}

/// What a shard, which holds the lives of some of the runs, is told.
#[derive(Debug)]
pub(super) enum ShardMsg {
    /// Give this run an actor. The pledge counts it as one that is about to ask.
    Start(Box<Run>, Option<Pledge>),
    /// Pass this on to the run; it is answered by the run, or by closing the port.
    Ask(RunId, Input, Reply),
    /// The run has no actor any more, and the words say why: start it again. It got its slot when its log stood there.
    Lost(RunId, Seq, String),
    /// The run has ended and is of no more concern.
    Forget(RunId),
    /// The run is parked, and the root has it: give back whatever was asked of it and not taken.
    Parked(RunId),
    /// Have the run send no further request.
    Hold(RunId),
    /// The run may send requests again.
    GoOn(RunId),
    /// From a task that opened the run's workspace, which may have taken long: now it can have its actor.
    Opened(Box<Opened>),
    /// From a task that read the run's log again: here is where it stands.
    Revived(Box<Revived>),
    /// The run did not end when it was told to: kill its actor and end it as stuck.
    Kill(RunId),
    /// Stop at the end of the turn.
    Drain,
    /// Stop as soon as what runs has stopped.
    Interrupt,
    /// There is another executor.
    Executor(ActorRef<ExecutorMsg>),
}

/// A run whose workspace was opened.
#[derive(Debug)]
pub(super) struct Opened {
    /// The run.
    pub run: Run,
    /// Which of the run's lives asked for it; a stale one is dropped.
    pub life: u64,
    /// How its last actor ended, if it had one.
    pub death: Option<Death>,
    /// The workspace, or why it is not to be had.
    pub workspace: Result<Arc<Workspace>, String>,
}

/// A run that was read from its log after its actor had died.
#[derive(Debug)]
pub(super) struct Revived {
    /// The run.
    pub run: Run,
    /// Which of the run's lives this is to be; a stale one is dropped.
    pub life: u64,
    /// What is done.
    pub next: Next,
}

/// How far herder's own stop has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stopping {
    /// It is not stopping.
    #[default]
    No,
    /// Nothing starts any more; what is live goes on.
    Closed,
    /// Runs stop at the end of their turn.
    Draining,
    /// Runs stop as soon as what they have under way has stopped.
    Interrupting,
}

/// Where an answer to something asked of a run goes.
pub type Reply = RpcReplyPort<Result<Seq, AskError>>;
