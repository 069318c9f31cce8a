//! A run that is held before its next request: it parks, and the supervisor has it until it may go on.
//!
//! It is held by a person, by its account, or by a provider that wants to be left alone for long. Nothing asked of it gets
//! lost on the way. The supervisor hears that the run is parked before it hears of anything that this actor no longer
//! takes, and the actor stays until the supervisor says that nothing more will come.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use ractor::ActorRef;

use super::{RunActor, RunMsg, RunState};
use crate::{
    actor::supervisor::RootMsg,
    domain::{
        event::ParkReason,
        retry::PATIENCE,
        run::{EffectId, Input, Phase},
        time::Timestamp,
    },
    store::StoreError,
};

/// Whether a request that is under way has gone out, or was called off before it did: one of the two, once.
#[derive(Clone, Debug)]
pub(super) struct Departure {
    /// When it began to wait for its place.
    since: Timestamp,
    /// When it went out, or one of the below.
    out: Arc<AtomicI64>,
}

const WAITS: i64 = i64::MIN;
const OFF: i64 = i64::MAX;

impl Departure {
    /// Of a request that waits for its place from then on.
    pub(super) fn from(since: Timestamp) -> Self {
        Self { since, out: Arc::new(AtomicI64::new(WAITS)) }
    }

    /// It goes out; not, if it was called off.
    pub(super) fn depart(&self, now: Timestamp) -> bool {
        self.leave(now.as_micros())
    }

    /// It is not to go out; says whether it has not.
    fn call_off(&self) -> bool {
        self.leave(OFF) || self.out.load(Ordering::Acquire) == OFF
    }

    fn leave(&self, how: i64) -> bool {
        self.out.compare_exchange(WAITS, how, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    fn is_out(&self) -> bool {
        !matches!(self.out.load(Ordering::Acquire), WAITS | OFF)
    }

    /// How long it has waited for its place by `now`.
    pub(super) fn waited(&self, now: Timestamp) -> Duration {
        let until = match self.out.load(Ordering::Acquire) {
            WAITS | OFF => now,
            out => Timestamp::from_micros(out),
        };
        until.since(self.since)
    }
}

impl RunState {
    /// Whether the open request has not gone out.
    pub(super) fn waits_to_ask(&self) -> bool {
        matches!(self.run.phase(), Phase::Thinking { .. })
            && self.departure().is_none_or(|departure| !departure.is_out())
    }

    /// Has the open request not go out any more; says whether it has not.
    pub(super) fn call_request_off(&self) -> bool {
        matches!(self.run.phase(), Phase::Thinking { .. }) && self.departure().is_none_or(Departure::call_off)
    }

    /// How long a request or a tool of it was at work, by `now`; what the open request waits for its place does not count.
    pub(super) fn active(&self, now: Timestamp) -> Duration {
        self.run.active(now).saturating_sub(self.waited(now))
    }

    /// How long the open request has waited for its place, by `now`.
    pub(super) fn waited(&self, now: Timestamp) -> Duration {
        self.departure().map_or(Duration::ZERO, |departure| departure.waited(now))
    }

    /// Of the open request, if one is under way.
    fn departure(&self) -> Option<&Departure> {
        let Phase::Thinking { attempt, .. } = self.run.phase() else { return None };
        let under_way = self.progress.is_under_way(&EffectId::Request(self.run.turn(), *attempt));
        self.progress.departure.as_ref().filter(|_| under_way)
    }
}

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
        let parks = self.is_to_park(state).is_some();
        if parks {
            // By message: the step that led here has to be over first.
            let _ = me.cast(RunMsg::Park);
        }
        parks
    }

    /// What the run is to wait for without a slot, if it has come to where it can: its next request has not gone out, or
    /// people are to decide about all of its calls that are open.
    fn is_to_park(&self, state: &RunState) -> Option<ParkReason> {
        let run = &state.run;
        if run.parked().is_none() && run.waits_for_people() {
            return Some(ParkReason::Approval);
        }
        let Phase::Thinking { not_before, .. } = run.phase() else { return None };
        if run.parked().is_some() || !state.waits_to_ask() {
            return None;
        }
        if run.is_paused() {
            return Some(ParkReason::Paused);
        }
        let latched = state.model.governor.account().latch().filter(|_| self.fallback(state).is_none());
        if let Some(latched) = latched.filter(|_| state.held || self.services.settings.outlast_accounts) {
            return Some(latched.reason.into());
        }
        if not_before.since(self.services.clock.now()) > PATIENCE {
            return Some(ParkReason::RateLimit);
        }
        state.held.then_some(ParkReason::Paused)
    }

    /// Gives the slot up, unless something else came in between.
    pub(super) fn park(&self, me: &ActorRef<RunMsg>, state: &mut RunState) -> Result<(), StoreError> {
        let Some(reason) = self.is_to_park(state) else { return Ok(()) };
        // If it cannot be called off, it has gone out in this very moment.
        if reason == ParkReason::Approval || state.call_request_off() {
            self.park_as(me, state, reason)
        } else {
            Ok(())
        }
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
