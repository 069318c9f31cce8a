//! The one step that every message of a run comes down to: decide, append, fold, start what is newly owed.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use ractor::ActorRef;
use tokio::{sync::oneshot, task::AbortHandle};
use tokio_util::sync::CancellationToken;

use super::{RunActor, RunMsg, RunState, ask, counting::count, hold::Departure, stop::Stopping};
use crate::{
    actor::{
        executor::{ExecutorMsg, Job},
        supervisor::{Ended, Reply, RootMsg, Unended},
    },
    crash::{self, Point},
    domain::{
        event::{Event, Fact, FileChange, RunEnd},
        id::CallId,
        outcome::{Breakage, Outcome},
        run::{Effect, EffectId, Input, Refused},
    },
    model::governor::{Permit, Pledge},
    store::{StoreError, Ticket},
    telemetry::span,
};

/// What a run has under way.
#[derive(Default)]
pub(super) struct Progress {
    /// What each is ended by.
    under_way: BTreeMap<EffectId, CancellationToken>,
    pub(super) stopping: Option<Stopping>,
    pub(super) timer: Option<AbortHandle>,
    /// Given back as soon as the run asks.
    pub(super) pledge: Option<Pledge>,
    /// Whether the open request, if one is under way, has gone out.
    pub(super) departure: Option<Departure>,
    /// A place to ask from, on its way from one request of a turn to the next.
    pub(super) permit: Option<Permit>,
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
    /// Nothing, in a run that counts as one that is about to ask.
    pub(super) fn pledged(pledge: Option<Pledge>) -> Self {
        let mut progress = Self::default();
        progress.pledge = pledge;
        progress
    }

    pub(super) fn is_under_way(&self, effect: &EffectId) -> bool {
        self.under_way.contains_key(effect)
    }
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

    /// Hands facts over to the log.
    pub(super) fn append(&self, state: &mut RunState, facts: &[Fact]) -> Result<Ticket, StoreError> {
        crash::point(Point::BeforeAppend);
        let ticket = self.services.store.append(state.run.id(), state.run.seq(), facts)?;
        crash::point(Point::AfterAppend);
        state.progress.last = Some(ticket);
        Ok(ticket)
    }

    pub(super) fn step(
        &self,
        me: &ActorRef<RunMsg>,
        state: &mut RunState,
        input: Input,
    ) -> Result<Result<Ticket, Refused>, StoreError> {
        let now = self.services.clock.now();
        // What is reported of the request says it itself.
        let says = matches!(input, Input::Replied { .. } | Input::ModelFailed { .. });
        let waited = if says { Duration::ZERO } else { state.waited(now) };
        let facts = match state.run.decide_while(input, now, waited) {
            Ok(facts) => facts,
            Err(refused) => return Ok(Err(refused)),
        };
        let ticket = self.append(state, &facts)?;
        let ends =
            facts.iter().any(|fact| matches!(fact.event, Event::CancelRequested(_) | Event::RunEnd(_)));
        let waited = ends && state.run.waiting_calls().next().is_some();
        for fact in &facts {
            state.run.evolve(fact);
            count(fact);
            if let Event::ModelRetry(_) = fact.event {
                let batch = state.run.spec().and_then(|spec| spec.batch);
                // The supervisor may have gone down already.
                let _ = self.supervisor.cast(RootMsg::Retried(batch));
            }
        }
        if ends {
            self.call_off(state, waited);
        }
        if state.run.outcome().is_some() {
            self.end(me, state, facts, ticket);
        } else if self.follows_model(state) {
            self.go_on_with(me, state, &facts);
        } else {
            let name = state.run.model().map(ToString::to_string).unwrap_or_default();
            let error = format!("model {name:?} is not to be had");
            return self.step(me, state, Input::GiveUp { breakage: Breakage::Setup, error });
        }
        Ok(Ok(ticket))
    }

    /// Starts what these facts have the run owe. While calls only begin and end, that is nothing: there may be too many of
    /// them to look at all for each.
    fn go_on_with(&self, me: &ActorRef<RunMsg>, state: &mut RunState, facts: &[Fact]) {
        let only_calls = facts.iter().all(|fact| {
            matches!(fact.event, Event::CallStarted(_) | Event::CommandGroup(_) | Event::Result(_))
        });
        if !only_calls || state.progress.stopping.is_some() || state.run.asks_people() {
            return self.start_owed(me, state);
        }
        for fact in facts {
            if let Event::Result(result) = &fact.event {
                state.progress.under_way.remove(&EffectId::Call(result.call.clone()));
            }
        }
        self.arm_timer(me, state);
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
                Effect::RunCall { call, decision, approved, doubt } => {
                    match self.services.toolbox.get(&call.name) {
                        Some(tool) => jobs.push(Job {
                            run: state.run.id(),
                            task_id: state.run.spec().and_then(|spec| spec.task_id.clone()),
                            report_to: me.clone(),
                            access: decision.access.clone().into(),
                            approved,
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
                    }
                }
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

    fn end(&self, me: &ActorRef<RunMsg>, state: &RunState, facts: Vec<Fact>, ticket: Ticket) {
        let end = facts
            .into_iter()
            .rev()
            .find_map(|fact| if let Event::RunEnd(end) = fact.event { Some(Arc::new(*end)) } else { None });
        self.announce(me, state, end.ok_or(Unended::Left), ticket);
    }

    /// Tells the supervisor, once it is on disk; the actor is done.
    pub(super) fn announce(
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
    pub(super) fn call_off(&self, state: &RunState, calls_wait: bool) {
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
