//! The one step that every message of a run comes down to: decide, append, fold, start what is newly owed.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::{Arc, atomic::Ordering},
};

use ractor::ActorRef;
use tokio::{sync::oneshot, task::AbortHandle};
use tokio_util::sync::CancellationToken;

use super::{RunActor, RunMsg, RunState, ask, purse::Out};
use crate::{
    actor::{
        executor::{ExecutorMsg, Job},
        supervisor::{Ended, Reply, RootMsg, Unended},
    },
    domain::{
        event::{Event, Fact, FileChange, RunEnd},
        id::CallId,
        outcome::Outcome,
        run::{Effect, EffectId, Input, Phase, Refused},
    },
    model::governor::Permit,
    store::{StoreError, Ticket},
    telemetry::{metric, span},
};

/// What a run has under way.
#[derive(Default)]
pub(super) struct Progress {
    /// What each is ended by.
    under_way: BTreeMap<EffectId, CancellationToken>,
    stopping: Option<Stopping>,
    pub(super) timer: Option<AbortHandle>,
    /// A place to ask from, on its way from one request of a turn to the next.
    pub(super) permit: Option<Permit>,
    /// What the open request may have used up, if it is out.
    pub(super) out: Option<Out>,
    /// The last append that was handed over.
    pub(super) last: Option<Ticket>,
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(timer) = &self.timer {
            timer.abort();
        }
    }
}

impl Progress {
    pub(super) fn is_under_way(&self, effect: &EffectId) -> bool {
        self.under_way.contains_key(effect)
    }
}

/// How a run is to stop without having ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stopping {
    /// At the end of its turn.
    AfterTurn,
    /// As soon as what runs has stopped.
    Now,
}

impl RunActor {
    /// Takes a report of this run's own; one that comes too late is dropped.
    pub(super) fn report(
        &self,
        me: &ActorRef<RunMsg>,
        state: &mut RunState,
        input: Input,
    ) -> Result<(), StoreError> {
        match self.step(me, state, input)? {
            Ok(_) => {}
            Err(refused) => tracing::debug!(run.id = %state.run.id(), %refused, "late report dropped"),
        }
        Ok(())
    }

    /// Takes something that was asked from outside, and answers once it is on disk.
    pub(super) fn ask(
        &self,
        me: &ActorRef<RunMsg>,
        state: &mut RunState,
        input: Input,
        reply: Reply,
    ) -> Result<(), StoreError> {
        match self.step(me, state, input) {
            Ok(taken) => self.answer(me, state, taken, reply),
            Err(error) => {
                // The asker may have hung up.
                let _ = reply.send(Err(error.clone().into()));
                return Err(error);
            }
        }
        Ok(())
    }

    fn answer(&self, me: &ActorRef<RunMsg>, state: &RunState, taken: Result<Ticket, Refused>, reply: Reply) {
        let ticket = match taken {
            Ok(ticket) => ticket,
            // The asker may have hung up.
            Err(refused) => return drop(reply.send(Err(refused.into()))),
        };
        let (store, seq, me) = (self.services.store.clone(), state.run.seq(), me.clone());
        tokio::spawn(async move {
            match store.durable(ticket).await {
                // The asker may have hung up.
                Ok(()) => drop(reply.send(Ok(seq))),
                // It only built on what the log did not take, and may be asked again: the port closes.
                Err(error @ StoreError::Conflict { .. }) => drop(me.cast(RunMsg::StoreFailed(error))),
                Err(error) => {
                    let _ = me.cast(RunMsg::StoreFailed(error.clone()));
                    let _ = reply.send(Err(error.into()));
                }
            }
        });
    }

    /// Ends one call: it never starts, or whoever runs it stops it and reports that.
    pub(super) fn cancel_call(
        &self,
        me: &ActorRef<RunMsg>,
        state: &mut RunState,
        call: CallId,
        reply: Reply,
    ) -> Result<(), StoreError> {
        let work = state.progress.under_way.get(&EffectId::Call(call.clone())).cloned();
        let taken = self.step(me, state, Input::CancelCall(call.clone()))?;
        if matches!(taken, Ok(_) | Err(Refused::CallStarted)) {
            work.inspect(CancellationToken::cancel);
        }
        match taken {
            // Nothing is of record yet. The asker may have hung up.
            Err(Refused::CallStarted) => drop(reply.send(Ok(state.run.seq()))),
            Err(_) => self.answer(me, state, taken, reply),
            Ok(_) => {
                let _ = state.executor.cast(ExecutorMsg::WithdrawCall(state.run.id(), call));
                self.answer(me, state, taken, reply);
            }
        }
        Ok(())
    }

    /// Lets a call that holds its locks go ahead, once the log says so.
    pub(super) fn granted(
        &self,
        me: &ActorRef<RunMsg>,
        state: &mut RunState,
        call: CallId,
        change: Option<FileChange>,
        go: oneshot::Sender<Ticket>,
    ) -> Result<(), StoreError> {
        if state.progress.stopping == Some(Stopping::Now) {
            // It starts when the run goes on.
            return Ok(());
        }
        match self.step(me, state, Input::Granted { call, change })? {
            // The job may have been dropped; then its locks are free already.
            Ok(ticket) => drop(go.send(ticket)),
            Err(refused) => tracing::debug!(run.id = %state.run.id(), %refused, "grant not taken"),
        }
        Ok(())
    }

    pub(super) fn step(
        &self,
        me: &ActorRef<RunMsg>,
        state: &mut RunState,
        input: Input,
    ) -> Result<Result<Ticket, Refused>, StoreError> {
        if matches!(input, Input::End(_)) {
            self.give_up_request(state)?;
        }
        let facts = match state.run.decide(input, self.services.clock.now()) {
            Ok(facts) => facts,
            Err(refused) => return Ok(Err(refused)),
        };
        let ticket = self.services.store.append(state.run.id(), state.run.seq(), &facts)?;
        state.progress.last = Some(ticket);
        let waited = state.run.waiting_calls().next().is_some();
        for fact in &facts {
            state.run.evolve(fact);
            count(fact);
        }
        if facts.iter().any(|fact| matches!(fact.event, Event::CancelRequested(_) | Event::RunEnd(_))) {
            self.call_off(state, waited);
        }
        if state.run.outcome().is_some() {
            self.end(me, state, facts, ticket);
        } else {
            self.start_owed(me, state);
        }
        Ok(Ok(ticket))
    }

    pub(super) fn start_owed(&self, me: &ActorRef<RunMsg>, state: &mut RunState) {
        let owed = state.run.owed();
        let ids: BTreeSet<EffectId> = owed.iter().map(Effect::id).collect();
        state.progress.under_way.retain(|id, _| ids.contains(id));
        if state.progress.stopping.is_some() && self.stops_here(me, state) {
            return;
        }
        if self.parks_here(me, state) {
            return;
        }
        let mut jobs = Vec::new();
        for effect in owed {
            let Entry::Vacant(place) = state.progress.under_way.entry(effect.id()) else { continue };
            let cancel = place.insert(self.cancel.child_token()).clone();
            match effect {
                Effect::AskModel { turn, attempt, not_before } => {
                    ask::spawn(self, me, state, turn, attempt, not_before, cancel)
                }
                Effect::RunCall { call, decision, doubt } => match self.services.toolbox.get(&call.name) {
                    Some(tool) => jobs.push(Job {
                        run: state.run.id(),
                        task_id: state.run.spec().and_then(|spec| spec.task_id.clone()),
                        report_to: me.clone(),
                        access: decision.access.clone().into(),
                        tool: tool.clone(),
                        workspace: state.workspace.clone(),
                        cancel,
                        queued_at: self.services.clock.now(),
                        moves: 0,
                        span: span::tool_call(&call.id, &call.name),
                        call,
                        decision,
                        doubt,
                    }),
                    None => ask::tool_is_gone(me, &call),
                },
            }
        }
        if !jobs.is_empty() {
            // Fails only while the executor is replaced; the next one is told of everything that is owed.
            let _ = state.executor.cast(ExecutorMsg::Submit(jobs));
        }
        self.arm_timer(me, state);
    }

    /// Another executor knows of no call of this run: those that had not started are queued with it again.
    pub(super) fn use_executor(
        &self,
        me: &ActorRef<RunMsg>,
        state: &mut RunState,
        executor: ActorRef<ExecutorMsg>,
    ) {
        state.executor = executor;
        let waiting: BTreeSet<EffectId> =
            state.run.waiting_calls().map(|call| EffectId::Call(call.id.clone())).collect();
        state.progress.under_way.retain(|id, _| !waiting.contains(id));
        self.start_owed(me, state);
    }

    pub(super) fn drain(&self, me: &ActorRef<RunMsg>, state: &mut RunState) -> Result<(), StoreError> {
        state.progress.stopping.get_or_insert(Stopping::AfterTurn);
        if matches!(state.run.phase(), Phase::Between | Phase::Queued) {
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
    fn stops_here(&self, me: &ActorRef<RunMsg>, state: &RunState) -> bool {
        let fresh_turn = match state.run.phase() {
            Phase::Thinking { attempt, .. } => {
                !state.progress.is_under_way(&EffectId::Request(state.run.turn(), *attempt))
            }
            Phase::New | Phase::Queued | Phase::Between | Phase::Acting(_) | Phase::Ended(_) => false,
        };
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
        self.give_up_request(state)?;
        let Ok(facts) = state.run.decide(Input::Interrupt, self.services.clock.now()) else { return Ok(()) };
        let ticket = self.services.store.append(state.run.id(), state.run.seq(), &facts)?;
        for fact in &facts {
            state.run.evolve(fact);
        }
        self.call_off(state, state.run.waiting_calls().next().is_some());
        self.announce(me, state, Err(Unended::Stopped), ticket);
        Ok(())
    }

    fn end(&self, me: &ActorRef<RunMsg>, state: &RunState, facts: Vec<Fact>, ticket: Ticket) {
        let end = facts
            .into_iter()
            .rev()
            .find_map(|fact| if let Event::RunEnd(end) = fact.event { Some(Arc::new(*end)) } else { None });
        self.announce(me, state, end.ok_or(Unended::Left), ticket);
    }

    /// Tells the supervisor, once it is on disk; the actor is done.
    fn announce(
        &self,
        me: &ActorRef<RunMsg>,
        state: &RunState,
        end: Result<Arc<RunEnd>, Unended>,
        ticket: Ticket,
    ) {
        self.ended.store(true, Ordering::Relaxed);
        let (services, supervisor, run) = (self.services.clone(), self.supervisor.clone(), state.run.id());
        tokio::spawn(async move {
            let message = match services.store.durable(ticket).await {
                Ok(()) => RootMsg::Ended(Ended { run, end }),
                Err(error) => RootMsg::Lost(run, Arc::new(error)),
            };
            // The supervisor may have gone down already; the log has the end.
            let _ = supervisor.cast(message);
        });
        me.stop(None);
    }

    /// Ends what is under way. Calls that wait leave the queue at once.
    fn call_off(&self, state: &RunState, calls_wait: bool) {
        self.cancel.cancel();
        if calls_wait {
            let _ = state.executor.cast(ExecutorMsg::Withdraw(state.run.id()));
        }
    }

    /// Ends the run early from within.
    pub(super) fn end_early(
        &self,
        me: &ActorRef<RunMsg>,
        state: &mut RunState,
        outcome: Outcome,
    ) -> Result<(), StoreError> {
        self.report(me, state, Input::End(outcome))?;
        if state.run.outcome().is_none() {
            // The supervisor may have gone down already, and with it whoever minds.
            let _ = self.supervisor.cast(RootMsg::Ending(state.run.id()));
        }
        Ok(())
    }
}

fn count(fact: &Fact) {
    match &fact.event {
        Event::RunStart(_) => metrics::counter!(metric::RUNS_STARTED).increment(1),
        Event::TurnStart(_) => metrics::counter!(metric::TURNS).increment(1),
        Event::Message(reply) => {
            metrics::counter!(metric::TOKENS_INPUT).increment(reply.usage.input);
            metrics::counter!(metric::TOKENS_OUTPUT).increment(reply.usage.output);
        }
        Event::ModelRetry(retry) => {
            metrics::counter!(metric::MODEL_RETRIES, "class" => retry.class.as_str()).increment(1)
        }
        Event::Result(result) => {
            metrics::counter!(metric::TOOL_CALLS, "ok" => metric::ok(result.ok)).increment(1);
        }
        Event::RunEnd(end) => {
            metrics::counter!(metric::RUNS_ENDED, "outcome" => end.outcome.as_str()).increment(1)
        }
        Event::Submitted(_)
        | Event::RequestLost(_)
        | Event::ModelSwitched(_)
        | Event::Correction(_)
        | Event::Decision(_)
        | Event::CallStarted(_)
        | Event::TurnEnd(_)
        | Event::InputQueued(_)
        | Event::InputClaimed(_)
        | Event::LimitsSet(_)
        | Event::CancelRequested(_)
        | Event::Paused(_)
        | Event::Resumed(_)
        | Event::Parked(_)
        | Event::Unparked(_)
        | Event::Interrupted(_)
        | Event::Restart(_) => {}
    }
}
