//! How runs come to the root: as new ones, or from their logs.
//!
//! A run is with the root once, however often it is taken up; whoever takes it up is told when it is over. A log is read
//! only while the root does not have the run: nothing else writes to it then, so what is read is how the run stands.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;
use ractor::ActorRef;

use super::{
    SubmitError,
    message::{Admitted, Asker, RootMsg, ShardMsg, Stands},
    over::{Ended, Unended, Waiters},
    root::{Root, Tree},
};
use crate::{
    actor::Services,
    domain::{
        event::Event,
        id::{RunId, Seq},
        run::{Refused, Run},
    },
    store::StoreError,
};

impl Root {
    pub(super) fn resume(&self, me: &ActorRef<RootMsg>, tree: &mut Tree, run: RunId, asker: Asker) {
        if let Some(done) = tree.waiters(run) {
            done.join(Waiters::from_iter([asker.done]));
            // Whoever asked may have gone; so with the others.
            return drop(asker.taken_up.send(Ok(())));
        }
        let askers = tree.arriving.entry(run).or_default();
        askers.push(asker);
        if askers.len() > 1 {
            return;
        }
        let (services, me) = (self.services.clone(), me.clone());
        tokio::spawn(async move {
            let read = AssertUnwindSafe(read(&services, run)).catch_unwind().await;
            let _ = me.cast(RootMsg::Read(run, read.unwrap_or_else(|_| Err(unreadable()))));
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

    pub(super) fn arrived(&mut self, run: RunId, stands: Result<Stands, SubmitError>) {
        let mut waiters = Vec::new();
        for Asker { done, taken_up } in self.arriving.remove(&run).unwrap_or_default() {
            let _ = taken_up.send(stands.as_ref().map(drop).map_err(Clone::clone));
            waiters.push(done);
        }
        let done = Waiters::from_iter(waiters);
        match stands {
            Ok(Stands::Open(run)) => self.admit(Admitted { run, done }),
            Ok(Stands::Over(end)) => done.tell(&Ended { run, end: Ok(end) }),
            Err(_) => {}
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
        self.slotless(run).map(|slotless| &mut slotless.done)
    }
}

async fn read(services: &Services, run: RunId) -> Result<Stands, SubmitError> {
    let log = services.store.read(run, Seq::START).await?;
    let state = Run::replay(run, log.iter().map(|envelope| &envelope.fact));
    match log.into_iter().next_back().map(|envelope| envelope.fact.event) {
        None => Err(Refused::OutOfTurn.into()),
        Some(Event::RunEnd(end)) => Ok(Stands::Over(end.into())),
        Some(_) => Ok(Stands::Open(Box::new(state))),
    }
}

fn unreadable() -> SubmitError {
    StoreError::Unavailable(std::sync::Arc::new(std::io::Error::other("reading the log panicked"))).into()
}
