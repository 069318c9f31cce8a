//! Admits runs, hands out slots, ends runs early, and keeps them going when their actors die.
//!
//! The root owns admission; shards own the lives of runs. [`Supervisor`] is the handle that everything outside uses.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::FutureExt as _;
use ractor::{Actor, ActorRef, RpcReplyPort};
use tokio::sync::{broadcast, oneshot, watch};

use super::{Services, executor};
use crate::{
    domain::{
        budget::{Node, Standing, UserBudget},
        event::{Event, Fact, RunEnd},
        gate::{Gates, PauseMode, Scope},
        id::{CallId, RunId, Seq},
        outcome::Outcome,
        run::{Input, Run},
        task::TaskSpec,
        time::Timestamp,
        usage::NanoUsd,
    },
    store::StoreError,
};

mod accounts;
mod arrival;
mod closing;
mod error;
mod held;
mod leftovers;
mod live;
mod lives;
mod message;
mod notice;
mod over;
mod provider;
mod revival;
mod room;
mod root;
mod settle;
mod shard;
mod slotless;
#[cfg(test)]
mod tests;
mod workspace;

pub use accounts::Reserve;
pub use error::{AskError, SubmitError};
pub use held::HeldByBatch;
pub use leftovers::end_leftovers;
pub use message::{Admitted, Asker, Load, Reply, RootMsg, Stands, Wait};
pub use notice::Notice;
use notice::Notices;
pub use over::{Ended, Unended, Waiters};
pub use provider::{Blocked, Shut};
use root::Root;

/// The handle of a running supervision tree.
#[derive(Clone)]
pub struct Supervisor {
    root: ActorRef<RootMsg>,
    services: Arc<Services>,
    blocked: watch::Receiver<Option<Blocked>>,
    held: watch::Receiver<HeldByBatch>,
    notices: Notices,
}

/// A run that was submitted.
#[derive(Debug)]
pub struct Submitted {
    /// Its name.
    pub run: RunId,
    /// Told when it is over. Closed if the whole tree is down, which is no more than [`Unended::Stopped`].
    pub done: oneshot::Receiver<Ended>,
}

/// Whether the task of a run that was taken on is on disk.
type Recorded = oneshot::Receiver<Result<(), StoreError>>;

impl Supervisor {
    /// Starts the tree.
    ///
    /// # Errors
    /// An actor could not be spawned.
    pub async fn start(services: Arc<Services>) -> Result<Self, ractor::SpawnErr> {
        let (tell, blocked) = watch::channel(None);
        let (tell_held, held) = watch::channel(HeldByBatch::new());
        let notices = Notices::default();
        let root =
            Root { services: services.clone(), blocked: tell, held: tell_held, notices: notices.clone() };
        let (root, _) = Actor::spawn(None, root, ()).await?;
        Ok(Self { root, services, blocked, held, notices })
    }

    /// What the tree works with.
    pub const fn services(&self) -> &Arc<Services> {
        &self.services
    }

    /// Takes a task on as `run`, a name that is new. Returns once the task is on disk; it may go on at the next start only,
    /// if herder is stopping. Who stops waiting for it does not undo it.
    ///
    /// # Errors
    /// The task is refused, or the log did not take it; then nothing is run.
    pub async fn submit(&self, run: RunId, spec: Arc<TaskSpec>) -> Result<Submitted, SubmitError> {
        let (submitted, recorded) = self.take_on(run, spec)?;
        // Never told only if the process is about to end.
        recorded.await.unwrap_or(Err(StoreError::Closed))?;
        Ok(submitted)
    }

    /// Takes a task on as [`Self::submit`] does, without waiting for the disk: for a submitter that can ask again. The run
    /// does nothing that lasts before its task is on disk; if it does not get there, `done` says so.
    ///
    /// # Errors
    /// The task is refused, or the log is closed.
    pub fn submit_soon(&self, run: RunId, spec: Arc<TaskSpec>) -> Result<Submitted, SubmitError> {
        self.take_on(run, spec).map(|(submitted, _)| submitted)
    }

    /// Hands the task to the log and the run to the root. Nothing is awaited in between: what is to be of record is in
    /// somebody's hands, whatever becomes of the submitter.
    fn take_on(&self, run: RunId, spec: Arc<TaskSpec>) -> Result<(Submitted, Recorded), SubmitError> {
        let mut state = Run::new(run);
        let facts = state.decide(Input::Submit(spec), self.services.clock.now())?;
        let ticket = self.services.store.append(run, Seq::START, &facts)?;
        facts.iter().for_each(|fact| state.evolve(fact));
        let (tell, done) = oneshot::channel();
        let admitted = Admitted { run: Box::new(state), done: Waiters::from_iter([tell]) };
        // Fails only if the tree is down: the run goes on at the next start.
        let _ = self.root.cast(RootMsg::Admit(admitted));
        let (root, store) = (self.root.clone(), self.services.store.clone());
        let (report, recorded) = oneshot::channel();
        tokio::spawn(async move {
            let stored = store.durable(ticket).await;
            if let Err(error) = &stored {
                let _ = root.cast(RootMsg::NotRecorded(run, error.clone()));
            }
            // The submitter may not wait for it.
            let _ = report.send(stored);
        });
        Ok((Submitted { run, done }, recorded))
    }

    /// Takes up a run that is of record, or joins whoever did: all are told when it is over. One that has ended is over at
    /// once.
    ///
    /// # Errors
    /// There is no such run, the log cannot be read, or herder has stopped.
    pub async fn resume(&self, run: RunId) -> Result<Submitted, SubmitError> {
        let (tell, done) = oneshot::channel();
        let (answer, taken_up) = oneshot::channel();
        let asker = Asker { done: tell, taken_up: answer };
        self.root.cast(RootMsg::Resume(run, asker)).map_err(|_| SubmitError::Stopping)?;
        taken_up.await.map_err(|_| SubmitError::Stopping)??;
        Ok(Submitted { run, done })
    }

    /// Says something to a live run, or ends it; returns once that is on disk, with its place in the log.
    ///
    /// # Errors
    /// There is no such live run, it refuses, or the log does not take it.
    pub async fn ask(&self, run: RunId, input: Input) -> Result<Seq, AskError> {
        let (tell, answer) = oneshot::channel();
        self.root.cast(RootMsg::Ask(run, input, tell.into())).map_err(|_| AskError::NoSuchRun)?;
        answer.await.map_err(|_| AskError::NoSuchRun)?
    }

    /// Ends a run as cancelled.
    ///
    /// # Errors
    /// There is no such live run, it is ending already, or the log does not take it.
    pub async fn cancel(&self, run: RunId) -> Result<Seq, AskError> {
        self.ask(run, Input::End(Outcome::Cancelled)).await
    }

    /// Ends one call of a live run, which goes on. Returns once it is of record that a call that waited will not start;
    /// one that runs is told to stop, and its result says so.
    ///
    /// # Errors
    /// There is no such run, it has no slot, or no such call of it is open.
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

    /// Looks again at who may go on: models or their accounts have changed.
    pub fn look_again(&self) {
        let _ = self.root.cast(RootMsg::AccountChanged);
    }

    /// Says whether runs start only as their models have places free, up to the number that may have a slot.
    pub fn follow_models(&self, follows: bool) {
        let _ = self.root.cast(RootMsg::FollowModels(follows));
    }

    /// Waits until all that is left to do waits for a person to open an account, or the tree is down.
    pub async fn blocked(&self) -> Option<Blocked> {
        let mut blocked = self.blocked.clone();
        loop {
            blocked.wait_for(Option::is_some).await.ok()?;
            // What was said to the root before has its effect first.
            self.load().await;
            let still = blocked.borrow_and_update().clone();
            if still.is_some() {
                return still;
            }
        }
    }

    /// The runs that are kept from getting a slot, as they change.
    pub fn held(&self) -> watch::Receiver<HeldByBatch> {
        self.held.clone()
    }

    /// What comes up from now on. Lossy: who listens too slowly misses some.
    pub fn notices(&self) -> broadcast::Receiver<Notice> {
        self.notices.listen()
    }

    /// Sets how much may be spent there in all; nothing is no limit.
    pub fn set_cap(&self, node: Node, cap: Option<NanoUsd>) {
        let _ = self.root.cast(RootMsg::SetCap(node, cap));
    }

    /// Sets how much users may spend.
    pub fn set_budgets(&self, budgets: Vec<UserBudget>) {
        let _ = self.root.cast(RootMsg::SetBudgets(budgets));
    }

    /// Counts what was spent there before this process. To be said before a run of it is taken up.
    pub fn spent(&self, node: Node, amount: NanoUsd) {
        let _ = self.root.cast(RootMsg::Spent(node, amount));
    }

    /// Says that nothing more is to come there; if it does, what was spent before has to be said again.
    pub fn forget(&self, node: Node) {
        let _ = self.root.cast(RootMsg::Forget(node));
    }

    /// What is spent and reserved.
    pub async fn accounts(&self) -> Vec<(Node, Standing)> {
        self.query(RootMsg::Accounts).await
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
        let (end, answer) = match ended.unwrap_or_else(|_| Err((Unended::Left, panicked().into()))) {
            Ok((end, seq)) => (Ok(end), Ok(seq)),
            Err((unended, error)) => (Err(unended), Err(error)),
        };
        // Before the answer: whoever asks again comes after it.
        let _ = root.cast(RootMsg::Ended(Ended { run: id, end }));
        if let Some(reply) = reply {
            // The asker may have hung up.
            let _ = reply.send(answer);
        }
    });
}

async fn record_end(
    services: &Services,
    mut run: Run,
    inputs: Vec<Input>,
) -> Result<(Arc<RunEnd>, Seq), (Unended, AskError)> {
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
        let log = services.store.read(run.id(), Seq::START).await;
        let is_recorded = log.map_or(true, |log| !log.is_empty());
        let unended = if is_recorded { Unended::Left } else { Unended::NotRecorded(error.clone()) };
        return Err((unended, error.into()));
    }
    match facts.pop().map(|fact| fact.event) {
        Some(Event::RunEnd(end)) => Ok((Arc::new(*end), run.seq())),
        Some(_) | None => Err((Unended::Left, AskError::NoSuchRun)),
    }
}

fn panicked() -> StoreError {
    StoreError::Unavailable(Arc::new(std::io::Error::other("the event log panicked")))
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
