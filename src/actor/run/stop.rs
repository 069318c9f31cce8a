//! A run that is to stop without having ended: it goes on from its log at the next start.

use ractor::ActorRef;

use super::{RunActor, RunMsg, RunState};
use crate::{
    actor::supervisor::Unended,
    domain::run::{Input, Phase},
    store::StoreError,
};

/// How a run is to stop without having ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stopping {
    /// At the end of its turn.
    AfterTurn,
    /// As soon as what runs has stopped.
    Now,
}

impl RunActor {
    pub(super) fn drain(&self, me: &ActorRef<RunMsg>, state: &mut RunState) -> Result<(), StoreError> {
        state.progress.stopping.get_or_insert(Stopping::AfterTurn);
        let between = matches!(state.run.phase(), Phase::Between | Phase::Queued);
        if between || (state.run.parked().is_none() && state.call_request_off()) {
            self.stop_unfinished(me, state)?;
        }
        Ok(())
    }

    pub(super) fn interrupt(&self, me: &ActorRef<RunMsg>, state: &mut RunState) -> Result<(), StoreError> {
        state.progress.stopping = Some(Stopping::Now);
        if state.run.parked().is_some() {
            // It has stopped, and is on its way to the supervisor.
            return Ok(());
        }
        self.call_off(state, state.run.waiting_calls().next().is_some());
        if !state.run.is_acting() {
            self.stop_unfinished(me, state)?;
        }
        Ok(())
    }

    /// Whether a run that is to stop has come far enough; if so, it stops instead of starting what it owes.
    pub(super) fn stops_here(&self, me: &ActorRef<RunMsg>, state: &RunState) -> bool {
        let fresh_turn = state.waits_to_ask();
        let stops = match state.progress.stopping {
            Some(Stopping::AfterTurn) => fresh_turn,
            Some(Stopping::Now) => fresh_turn || !state.run.is_acting(),
            None => false,
        };
        if stops {
            // By message: the step that led here has to be over first.
            let _ = me.cast(RunMsg::Interrupt);
        }
        stops || state.progress.stopping == Some(Stopping::Now)
    }

    /// The log says that herder stopped here; the run goes on at the next start.
    fn stop_unfinished(&self, me: &ActorRef<RunMsg>, state: &mut RunState) -> Result<(), StoreError> {
        let now = self.services.clock.now();
        let Ok(facts) = state.run.decide_while(Input::Interrupt, now, state.waited(now)) else {
            return Ok(());
        };
        let ticket = self.append(state, &facts)?;
        for fact in &facts {
            state.run.evolve(fact);
        }
        self.call_off(state, state.run.waiting_calls().next().is_some());
        self.announce(me, state, Err(Unended::Stopped), ticket);
        Ok(())
    }
}
