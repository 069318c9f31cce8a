//! How runs come to the root: as new ones, or from their logs.
//!
//! A run is with the root once, however often it is taken up; whoever takes it up is told when it is over. A log is read
//! only while the root does not have the run: nothing else writes to it then, so what is read is how the run stands.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;
use ractor::ActorRef;

use super::{
    AskError, SubmitError,
    leftovers::end_leftovers,
    message::{Admitted, Asker, Reply, RootMsg, ShardMsg, Stands},
    over::{Ended, Unended, Waiters},
    panicked,
    root::{Root, Tree},
    told,
};
use crate::{
    actor::Services,
    domain::{
        event::{Event, ParkReason, RestartCause},
        id::{RunId, Seq},
        run::{Input, Refused, Run},
    },
    store::StoreError,
};

/// A run whose log is read.
#[derive(Default)]
pub(super) struct Arriving {
    /// Who wants it to go on.
    askers: Vec<Asker>,
    /// Who waited for it already when it was here before.
    done: Waiters,
    /// What was asked of it meanwhile.
    pub(super) asked: Vec<(Input, Reply)>,
}

impl Root {
    pub(super) fn resume(&self, me: &ActorRef<RootMsg>, tree: &mut Tree, run: RunId, asker: Asker) {
        if let Some(done) = tree.waiters(run) {
            done.join(Waiters::from_iter([asker.done]));
            // Whoever asked may have gone; so with the others.
            return drop(asker.taken_up.send(Ok(())));
        }
        let is_read = tree.arriving.contains_key(&run);
        tree.arriving.entry(run).or_default().askers.push(asker);
        if !is_read {
            self.read(me, run);
        }
    }

    /// A run that has no slot was ahead of its log: it comes again, as the log says.
    pub(super) fn not_taken(&self, me: &ActorRef<RootMsg>, tree: &mut Tree, run: RunId) {
        if let Some(live) = tree.live.get_mut(&run) {
            // It got its slot meanwhile. Its actor gets nothing on record and is started again from the log, or parks there.
            live.head = Seq::START;
        } else if let Some(Admitted { done, .. }) = tree.take_slotless(run) {
            tree.arriving.entry(run).or_default().done.join(done);
            self.read(me, run);
        }
    }

    pub(super) fn arrived(
        &self,
        me: &ActorRef<RootMsg>,
        tree: &mut Tree,
        run: RunId,
        stands: Result<Stands, SubmitError>,
    ) {
        let Some(Arriving { askers, mut done, asked }) = tree.arriving.remove(&run) else { return };
        for asker in askers {
            let _ = asker.taken_up.send(stands.as_ref().map(drop).map_err(Clone::clone));
            done.join(Waiters::from_iter([asker.done]));
        }
        let unread = if let Err(SubmitError::Store(error)) = &stands { Some(error.clone()) } else { None };
        match stands {
            Ok(Stands::Open(run)) => tree.admit(Admitted { run, done }),
            Ok(Stands::Over(end)) => done.tell(&Ended { run, end: Ok(end) }),
            Err(SubmitError::Refused(_)) => {
                let nothing = StoreError::Conflict { run, expected: Seq::START.plus(1), actual: Seq::START };
                done.tell(&Ended { run, end: Err(Unended::NotRecorded(nothing)) });
            }
            Err(SubmitError::Store(_) | SubmitError::Stopping) => {
                done.tell(&Ended { run, end: Err(Unended::Left) });
            }
        }
        for (input, reply) in asked {
            match &unread {
                Some(error) => drop(reply.send(Err(AskError::Store(error.clone())))),
                None => self.ask(me, tree, run, input, reply),
            }
        }
    }

    fn read(&self, me: &ActorRef<RootMsg>, run: RunId) {
        let (services, me) = (self.services.clone(), me.clone());
        tokio::spawn(async move {
            let read = AssertUnwindSafe(read(&services, run)).catch_unwind().await;
            let _ = me.cast(RootMsg::Read(run, read.unwrap_or_else(|_| Err(panicked().into()))));
        });
    }
}

impl Tree {
    /// Takes a new run. One of a name that is here already joins it.
    pub(super) fn admit(&mut self, admitted: Admitted) {
        match self.waiters(admitted.run.id()) {
            Some(done) => done.join(admitted.done),
            None => self.enqueue(admitted),
        }
    }

    /// There is no such run after all, wherever it has come. It has done nothing that lasts.
    pub(super) fn not_recorded(&mut self, run: RunId, error: StoreError) {
        if matches!(error, StoreError::Conflict { actual, .. } if actual > Seq::START) {
            // Its name is that of another run, which is of record.
            return;
        }
        let live = self.live.remove(&run).map(|live| live.done);
        if live.is_some() {
            self.to_shard(run, ShardMsg::Forget(run));
        }
        if let Some(done) = live.or_else(|| self.take_slotless(run).map(|slotless| slotless.done)) {
            done.tell(&Ended { run, end: Err(Unended::NotRecorded(error)) });
        }
    }

    /// Who waits for a run that is here.
    fn waiters(&mut self, run: RunId) -> Option<&mut Waiters> {
        if self.live.contains_key(&run) {
            return self.live.get_mut(&run).map(|live| &mut live.done);
        }
        if self.closing.waiters(run).is_some() {
            return self.closing.waiters(run);
        }
        self.slotless(run).map(|slotless| &mut slotless.done)
    }
}

async fn read(services: &Services, run: RunId) -> Result<Stands, SubmitError> {
    let log = services.store.read(run, Seq::START).await?;
    let state = Run::replay(run, log.iter().map(|envelope| &envelope.fact));
    match log.into_iter().next_back().map(|envelope| envelope.fact.event) {
        None => Err(Refused::OutOfTurn.into()),
        Some(Event::RunEnd(end)) => Ok(Stands::Over(end.into())),
        Some(_) => {
            end_leftovers(&state).await;
            let state = answerable(services, state).await?;
            Ok(Stands::Open(Box::new(held(services, state).await?)))
        }
    }
}

/// A run that waits for people where nobody can be asked would wait for ever: what they were to decide about is denied.
async fn answerable(services: &Services, mut run: Run) -> Result<Run, StoreError> {
    if services.settings.approvals.is_some() {
        return Ok(run);
    }
    let denied = run.deny_unattended(services.clock.now());
    if !denied.is_empty() {
        services.store.durable(services.store.append(run.id(), run.seq(), &denied)?).await?;
        denied.iter().for_each(|fact| run.evolve(fact));
        tracing::warn!(run.id = %run.id(), calls = denied.len(), "waits for people, and nobody is there to ask: its calls are denied");
    }
    Ok(run)
}

/// A run that was to be held, and was interrupted before it was, gives its slot up on record: it gets none until it is let
/// go, and everybody can see that.
async fn held(services: &Services, run: Run) -> Result<Run, StoreError> {
    if !run.is_paused() || run.started_at().is_none() || run.parked().is_some() {
        return Ok(run);
    }
    let (mut parked, now) = (run.clone(), services.clock.now());
    let mut facts = told(&mut parked, Input::Restart { cause: RestartCause::Process, error: None }, now);
    facts.extend(told(&mut parked, Input::Park(ParkReason::Paused), now));
    if parked.parked().is_none() {
        // Calls of it are open: they come first.
        return Ok(run);
    }
    services.store.durable(services.store.append(run.id(), run.seq(), &facts)?).await?;
    Ok(parked)
}
