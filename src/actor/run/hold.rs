//! A run that is held before its next request: it parks, and the supervisor has it until it may go on.
//!
//! Nothing asked of it gets lost on the way. The supervisor hears that the run is parked before it hears of anything
//! that this actor no longer takes, and the actor stays until the supervisor says that nothing more will come.

use std::sync::atomic::Ordering;

use ractor::ActorRef;

use super::{RunActor, RunMsg, RunState};
use crate::{
    actor::supervisor::RootMsg,
    domain::{
        event::ParkReason,
        run::{EffectId, Input, Phase},
    },
    store::StoreError,
};

impl RunActor {
    pub(super) fn hold(&self, me: &ActorRef<RunMsg>, state: &mut RunState) {
        state.held = true;
        self.start_owed(me, state);
    }

    pub(super) fn go_on(&self, me: &ActorRef<RunMsg>, state: &mut RunState) {
        state.held = false;
        self.start_owed(me, state);
    }

    /// Whether the run is to be held and has come far enough; if so, it parks instead of starting what it owes.
    pub(super) fn parks_here(&self, me: &ActorRef<RunMsg>, state: &RunState) -> bool {
        let parks = self.is_to_park(state);
        if parks {
            // By message: the step that led here has to be over first.
            let _ = me.cast(RunMsg::Park);
        }
        parks
    }

    /// A request that waits for its retry has not gone out yet.
    fn is_to_park(&self, state: &RunState) -> bool {
        let run = &state.run;
        if !(state.held || run.is_paused()) || run.parked().is_some() {
            return false;
        }
        match run.phase() {
            Phase::Thinking { attempt, not_before, .. } => {
                let out = state.progress.is_under_way(&EffectId::Request(run.turn(), *attempt));
                !out || *not_before > self.services.clock.now()
            }
            Phase::New | Phase::Queued | Phase::Between | Phase::Acting(_) | Phase::Ended(_) => false,
        }
    }

    /// Gives the slot up, unless something else came in between.
    pub(super) fn park(&self, me: &ActorRef<RunMsg>, state: &mut RunState) -> Result<(), StoreError> {
        if self.is_to_park(state) { self.park_as(me, state, ParkReason::Paused) } else { Ok(()) }
    }

    /// Gives the slot up before the open request has gone out.
    pub(super) fn park_as(
        &self,
        me: &ActorRef<RunMsg>,
        state: &mut RunState,
        reason: ParkReason,
    ) -> Result<(), StoreError> {
        let Ok(ticket) = self.step(me, state, Input::Park(reason))? else { return Ok(()) };
        self.cancel.cancel();
        let (store, me) = (self.services.store.clone(), me.clone());
        tokio::spawn(async move {
            // The run may have ended meanwhile.
            let _ = match store.durable(ticket).await {
                Ok(()) => me.cast(RunMsg::HandOver),
                Err(error) => me.cast(RunMsg::StoreFailed(error)),
            };
        });
        Ok(())
    }

    /// The supervisor has the run from here on.
    pub(super) fn hand_over(&self, state: &RunState) {
        self.ended.store(true, Ordering::Relaxed);
        // The supervisor may have gone down already; the log has it all.
        let _ = self.supervisor.cast(RootMsg::Parked(Box::new(state.run.clone())));
    }

    /// Takes what comes after the run has ended or was handed over. What is asked of one that was handed over goes after
    /// it; of one that has ended, the asker sees the port close.
    pub(super) fn too_late(&self, me: &ActorRef<RunMsg>, state: &RunState, message: RunMsg) {
        if matches!(message, RunMsg::Leave) {
            me.stop(None);
        } else if let RunMsg::Ask(input, reply) = message
            && state.run.parked().is_some()
        {
            let _ = self.supervisor.cast(RootMsg::Ask(state.run.id(), input, reply));
        }
    }
}
