//! Admits runs, hands out slots, ends runs early, and keeps them going when their actors die.
//!
//! The root owns admission; shards own the lives of runs. [`Supervisor`] is the handle that everything outside uses.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::FutureExt as _;
use ractor::{Actor, ActorRef, RpcReplyPort};
use tokio::sync::oneshot;

use super::{Services, executor};
use crate::{
    domain::{
        event::{Envelope, Event, Fact, RunEnd},
        gate::{Gates, PauseMode, Scope},
        id::{BatchId, CallId, RunId, Seq},
        outcome::Outcome,
        run::{Input, Phase, Refused, Run},
        task::TaskSpec,
        time::Timestamp,
    },
    store::{StoreError, Ticket},
};

mod message;
mod revival;
mod root;
mod settle;
mod shard;
mod slotless;
#[cfg(test)]
mod tests;

use message::Reply;
pub use message::{Admitted, Ended, Load, Place, RootMsg};
use root::Root;

/// The handle of a running supervision tree.
#[derive(Clone)]
pub struct Supervisor {
    root: ActorRef<RootMsg>,
    services: Arc<Services>,
}

/// A run that was submitted.
#[derive(Debug)]
pub struct Submitted {
    /// Its name.
    pub run: RunId,
    /// Told when it is over. Closed if herder stops before it started.
    pub done: oneshot::Receiver<Ended>,
}

/// Why a task was not taken on.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    #[error("the task cannot be taken on: {0}")]
    Refused(#[from] Refused),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("herder is stopping")]
    Stopping,
}

/// Why something asked of a run did not happen.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    #[error("{0}")]
    Refused(#[from] Refused),
    #[error("no such run is live")]
    NoSuchRun,
}

impl Supervisor {
    /// Starts the tree.
    ///
    /// # Errors
    /// An actor could not be spawned.
    pub async fn start(services: Arc<Services>) -> Result<Self, ractor::SpawnErr> {
        let (root, _) = Actor::spawn(None, Root { services: services.clone() }, ()).await?;
        Ok(Self { root, services })
    }

    /// What the tree works with.
    pub const fn services(&self) -> &Arc<Services> {
        &self.services
    }

    /// Takes a task on as `run`, a name that is new. Returns once the task is on disk.
    ///
    /// # Errors
    /// The task is refused, or the log did not take it; then nothing is run.
    pub async fn submit(&self, run: RunId, spec: Arc<TaskSpec>) -> Result<Submitted, SubmitError> {
        let (state, ticket) = self.record(run, spec)?;
        self.services.store.durable(ticket).await?;
        self.admit(state)
    }

    /// Takes a task on as [`Self::submit`] does, without waiting for the disk: for a submitter that can ask again. The run
    /// does nothing that lasts before its task is on disk.
    ///
    /// # Errors
    /// The task is refused, or the log is closed.
    pub fn submit_soon(&self, run: RunId, spec: Arc<TaskSpec>) -> Result<Submitted, SubmitError> {
        let (state, _) = self.record(run, spec)?;
        self.admit(state)
    }

    fn record(&self, run: RunId, spec: Arc<TaskSpec>) -> Result<(Run, Ticket), SubmitError> {
        let mut state = Run::new(run);
        let facts = state.decide(Input::Submit(spec), self.services.clock.now())?;
        let ticket = self.services.store.append(run, Seq::START, &facts)?;
        for fact in &facts {
            state.evolve(fact);
        }
        Ok((state, ticket))
    }

    /// Takes up a run that is of record. One that has ended is over at once.
    ///
    /// # Errors
    /// There is no such run, the log cannot be read, or herder is stopping.
    pub async fn resume(&self, run: RunId) -> Result<Submitted, SubmitError> {
        let log = self.services.store.read(run, Seq::START).await?;
        let state = Run::replay(run, log.iter().map(|envelope| &envelope.fact));
        match state.phase() {
            Phase::New => Err(Refused::OutOfTurn.into()),
            Phase::Ended(_) => Ok(over(run, log)),
            Phase::Queued | Phase::Between | Phase::Thinking { .. } | Phase::Acting(_) => self.admit(state),
        }
    }

    fn admit(&self, state: Run) -> Result<Submitted, SubmitError> {
        let run = state.id();
        let (tell, done) = oneshot::channel();
        let admitted = Admitted { run: Box::new(state), done: tell };
        self.root.cast(RootMsg::Admit(admitted)).map_err(|_| SubmitError::Stopping)?;
        Ok(Submitted { run, done })
    }

    /// Says something to a live run, or ends it; returns once that is on disk, with its place in the log.
    ///
    /// # Errors
    /// There is no such live run, or it refuses.
    pub async fn ask(&self, run: RunId, input: Input) -> Result<Seq, AskError> {
        let (tell, answer) = oneshot::channel();
        self.root.cast(RootMsg::Ask(run, input, tell.into())).map_err(|_| AskError::NoSuchRun)?;
        Ok(answer.await.map_err(|_| AskError::NoSuchRun)??)
    }

    /// Ends a run as cancelled.
    ///
    /// # Errors
    /// There is no such live run, or it is ending already.
    pub async fn cancel(&self, run: RunId) -> Result<Seq, AskError> {
        self.ask(run, Input::End(Outcome::Cancelled)).await
    }

    /// Has a run held before its next request; returns once that is on disk. The turn under way ends as it would, then the
    /// run gives its slot up.
    ///
    /// # Errors
    /// There is no such run, it is ending, or it is paused already.
    pub async fn pause(&self, run: RunId) -> Result<Seq, AskError> {
        self.ask(run, Input::Pause).await
    }

    /// Has a paused run go on as soon as there is a slot and no gate is shut; returns once that is on disk.
    ///
    /// # Errors
    /// There is no such run, it is ending, or it is not paused.
    pub async fn unpause(&self, run: RunId) -> Result<Seq, AskError> {
        self.ask(run, Input::Resume).await
    }

    /// Ends one call of a live run, which goes on. Returns once it is of record that a call that waited will not start;
    /// one that runs is told to stop, and its result says so.
    ///
    /// # Errors
    /// There is no such live run, or no such call of it is open.
    pub async fn cancel_call(&self, run: RunId, call: CallId) -> Result<(), AskError> {
        self.ask(run, Input::CancelCall(call)).await.map(drop)
    }

    /// Holds all runs of a scope; says whether that changed anything. Not of record: whoever wants it to last says it
    /// again at the next start, before any run is taken up.
    pub async fn hold(&self, scope: Scope, mode: PauseMode) -> bool {
        self.query(|reply| RootMsg::Shut(scope, mode, reply)).await
    }

    /// Has the runs of a scope go on that nothing else holds; says whether that changed anything.
    pub async fn release(&self, scope: Scope) -> bool {
        self.query(|reply| RootMsg::Open(scope, reply)).await
    }

    /// What is held as a whole.
    pub async fn gates(&self) -> Gates {
        self.query(RootMsg::Gates).await
    }

    /// Where a run is; nowhere, if it has ended or was not taken up.
    pub async fn place(&self, run: RunId) -> Option<Place> {
        self.query(|reply| RootMsg::Place(run, reply)).await
    }

    /// Ends all runs, or those of one batch, as cancelled.
    pub fn cancel_all(&self, batch: Option<BatchId>) {
        // Fails only if the tree is down, and the runs with it.
        let _ = self.root.cast(RootMsg::EndAll(batch, Outcome::Cancelled));
    }

    /// How much is going on; nothing, once the tree is down.
    pub async fn load(&self) -> Load {
        self.query(RootMsg::Load).await
    }

    /// Asks the root; the answer of a tree that is down is empty.
    async fn query<T: Default>(&self, ask: impl FnOnce(RpcReplyPort<T>) -> RootMsg) -> T {
        let (tell, answer) = oneshot::channel();
        let _ = self.root.cast(ask(tell.into()));
        answer.await.unwrap_or_default()
    }

    /// Changes how many runs have a slot at once.
    pub fn set_max_live_runs(&self, runs: usize) {
        let _ = self.root.cast(RootMsg::SetMaxLiveRuns(runs));
    }

    /// Starts no more runs. Those that have a slot go on to their end; what has none starts when herder starts again.
    pub fn close(&self) {
        let _ = self.root.cast(RootMsg::Close);
    }

    /// Starts no more runs, lets those that run end their turn for `patience`, interrupts the rest, and returns when
    /// all have stopped; the tree goes down with that. What did not end goes on at the next start.
    pub async fn drain(&self, patience: Duration) {
        let (tell, drained) = oneshot::channel();
        let _ = self.root.cast(RootMsg::Drain(patience, tell.into()));
        // Closed unanswered only if the tree is down.
        let _ = drained.await;
    }

    /// Cuts a drain short.
    pub fn interrupt(&self) {
        let _ = self.root.cast(RootMsg::Interrupt);
    }
}

/// A run that has ended, as if it just had.
fn over(run: RunId, mut log: Vec<Envelope>) -> Submitted {
    let last = log.pop().map(|envelope| envelope.fact.event);
    let end = last.and_then(|event| if let Event::RunEnd(end) = event { Some(Arc::new(*end)) } else { None });
    let (tell, done) = oneshot::channel();
    // The receiver is right here.
    let _ = tell.send(Ended { run, end });
    Submitted { run, done }
}

/// Has a run that has no actor end by these inputs, and tells the root and whoever asked once that is on disk.
fn end_without_actor(
    services: &Arc<Services>,
    root: &ActorRef<RootMsg>,
    run: Run,
    inputs: Vec<Input>,
    reply: Option<Reply>,
) {
    let (services, root, id) = (services.clone(), root.clone(), run.id());
    tokio::spawn(async move {
        // Whatever goes wrong, the run's slot is given back.
        let ended = AssertUnwindSafe(record_end(&services, run, inputs)).catch_unwind().await;
        let (end, seq) = ended.ok().flatten().unzip();
        if let (Some(seq), Some(reply)) = (seq, reply) {
            // The asker may have hung up.
            let _ = reply.send(Ok(seq));
        }
        let _ = root.cast(RootMsg::Ended(Ended { run: id, end }));
    });
}

async fn record_end(services: &Services, mut run: Run, inputs: Vec<Input>) -> Option<(Arc<RunEnd>, Seq)> {
    let head = run.seq();
    let mut facts = Vec::new();
    for input in inputs {
        // What one of them ended, the next has nothing to say about.
        facts.extend(told(&mut run, input, services.clock.now()));
    }
    let stored = match services.store.append(run.id(), head, &facts) {
        Ok(ticket) => services.store.durable(ticket).await,
        Err(error) => Err(error),
    };
    if let Err(error) = stored {
        tracing::error!(run.id = %run.id(), %error, "the end of a run could not be stored");
        return None;
    }
    if let Event::RunEnd(end) = facts.pop()?.event { Some((Arc::new(*end), run.seq())) } else { None }
}

/// Folds in what an input gives rise to, and returns it; nothing, if the run refuses.
fn told(run: &mut Run, input: Input, now: Timestamp) -> Vec<Fact> {
    let facts = run.decide(input, now).unwrap_or_default();
    facts.iter().for_each(|fact| run.evolve(fact));
    facts
}

/// Jobs of an executor that must have ended before another one starts.
type Jobs = tokio_util::task::TaskTracker;

async fn spawn_executor(
    services: &Arc<Services>,
    jobs: &Jobs,
    root: &ActorRef<RootMsg>,
) -> Result<ActorRef<executor::ExecutorMsg>, ractor::SpawnErr> {
    let actor = executor::Executor::new(services.clone(), jobs.clone());
    Ok(Actor::spawn_linked(None, actor, (), root.get_cell()).await?.0)
}
