//! Runs that have no slot: what is said to them, which of them are held, and how they end.
//!
//! A run that is held is with the root, as a state and without an actor. It gets back into the queue as soon as neither a
//! person nor a gate holds it.

use std::{collections::BTreeMap, mem};

use ractor::ActorRef;

use super::{
    AskError, end_without_actor,
    live::LiveRun,
    message::{Admitted, Load, Reply, RootMsg, ShardMsg},
    over::{Ended, Unended, Waiters},
    root::{Root, Tree, later, nobody},
};
use crate::domain::{
    event::{ParkReason, RestartCause},
    gate::{PauseMode, Scope},
    id::RunId,
    outcome::Outcome,
    run::{Input, Run},
};

impl Root {
    pub(super) fn ask(
        &self,
        me: &ActorRef<RootMsg>,
        tree: &mut Tree,
        run: RunId,
        input: Input,
        reply: Reply,
    ) {
        if let Some(live) = tree.live.get_mut(&run) {
            if let Input::End(outcome) = input {
                live.wish.get_or_insert(outcome);
                later(me, self.services.settings.stuck, RootMsg::CheckStuck(run));
            }
            return tree.to_shard(run, ShardMsg::Ask(run, input, reply));
        }
        if let Some(arriving) = tree.arriving.get_mut(&run) {
            // Once it is known where it stands.
            return arriving.asked.push((input, reply));
        }
        if let Input::End(outcome) = input {
            if let Some(Admitted { run: state, done }) = tree.take_slotless(run) {
                self.end_slotless(me, tree, *state, done, outcome, Some(reply));
            }
            return;
        }
        // Else the port closes unanswered.
        let Some(slotless) = tree.slotless(run) else { return };
        if matches!(input, Input::CancelCall(_)) {
            // The asker may have hung up.
            return drop(reply.send(Err(AskError::NotLive)));
        }
        let stood = (slotless.run.is_paused(), slotless.run.waits_for_people());
        self.tell_slotless(me, &mut slotless.run, input, reply);
        if (slotless.run.is_paused(), slotless.run.waits_for_people()) != stood
            && let Some(slotless) = tree.take_slotless(run)
        {
            tree.enqueue(slotless);
        }
    }

    /// A run's time has come, unless it is gone or was given another one meanwhile.
    pub(super) fn due(&self, me: &ActorRef<RootMsg>, tree: &mut Tree, run: RunId) {
        if let Some(mut held) = tree.held.remove(run) {
            if held.run.parked().is_some() && held.run.waits_for_people() {
                self.tell_slotless(me, &mut held.run, Input::Expire, nobody());
            }
            tree.enqueue(held);
        }
    }

    /// What is said to a run that has no slot goes on record at once; it hears it when it starts.
    fn tell_slotless(&self, me: &ActorRef<RootMsg>, run: &mut Run, input: Input, reply: Reply) {
        let store = self.services.store.clone();
        let facts = match run.decide(input, self.services.clock.now()) {
            Ok(facts) => facts,
            // Whoever asked may have gone.
            Err(refused) => return drop(reply.send(Err(refused.into()))),
        };
        let id = run.id();
        let ticket = match store.append(id, run.seq(), &facts) {
            Ok(ticket) => ticket,
            Err(error) => return drop(reply.send(Err(error.into()))),
        };
        facts.iter().for_each(|fact| run.evolve(fact));
        let (seq, me) = (run.seq(), me.clone());
        tokio::spawn(async move {
            let stored = store.durable(ticket).await;
            if stored.is_err() {
                // Before the answer: whoever asks again comes after it.
                let _ = me.cast(RootMsg::NotTaken(id));
            }
            let _ = reply.send(stored.map(|()| seq).map_err(AskError::from));
        });
    }

    /// A run that has no slot ends without an actor; until the log says so it counts as live.
    fn end_slotless(
        &self,
        me: &ActorRef<RootMsg>,
        tree: &mut Tree,
        run: Run,
        done: Waiters,
        outcome: Outcome,
        reply: Option<Reply>,
    ) {
        tree.live.insert(run.id(), LiveRun::new(&run, done, Some(outcome)));
        // One that was taken up in the midst of its work has first to be told that whoever was at it is gone.
        let restart = Input::Restart { cause: RestartCause::Process, error: None };
        let at_work = run.started_at().is_some() && run.parked().is_none();
        let inputs = at_work.then_some(restart).into_iter().chain([Input::End(outcome)]).collect();
        end_without_actor(&self.services, me, run, inputs, reply);
    }
}

impl Tree {
    /// A run gave its slot up. It is held, unless whatever held it no longer does.
    pub(super) fn parked(&mut self, run: Box<Run>) {
        let id = run.id();
        // Whoever held its life may have died as it parked; then this is said twice.
        if self.live.get(&id).is_none_or(|live| run.seq() <= live.head) {
            return;
        }
        self.to_shard(id, ShardMsg::Parked(id));
        if let Some(LiveRun { done, .. }) = self.live.remove(&id) {
            if run.parked() == Some(ParkReason::Budget) {
                // It has not begun. Whoever had it run knows whether and when there is more money.
                return done.tell(&Ended { run: id, end: Err(Unended::Unaffordable) });
            }
            self.enqueue(Admitted { run, done });
        }
    }

    /// Holds a run that has no slot.
    pub(super) fn keep(&mut self, admitted: Admitted) {
        self.look_later(&admitted.run);
        self.held.insert(admitted);
    }

    pub(super) fn shut(&mut self, scope: Scope, mode: PauseMode) -> bool {
        let changed = self.gates.shut(scope, mode);
        if changed {
            self.heed();
        }
        changed
    }

    pub(super) fn open(&mut self, scope: &Scope) -> bool {
        let changed = self.gates.open(scope);
        if changed {
            self.heed();
        }
        changed
    }

    /// Has every run be where the gates and the accounts, as they are now, want it.
    pub(super) fn heed(&mut self) {
        let mut queue = mem::take(&mut self.queue);
        let kept = queue.remove_if(|queued| self.is_kept(&queued.run));
        self.queue = queue;
        let free: Vec<RunId> =
            self.held.iter().filter(|held| !self.is_kept(&held.run)).map(|held| held.run.id()).collect();
        let mut free: Vec<Admitted> = free.into_iter().filter_map(|run| self.held.remove(run)).collect();
        let turned: Vec<(RunId, bool)> = self
            .live
            .iter()
            .filter_map(|(run, live)| {
                let spec = live.spec.as_ref()?;
                let held = self.gates.hold(spec) || self.shuts(live);
                (live.held != held).then_some((*run, held))
            })
            .collect();
        kept.into_iter().for_each(|kept| self.keep(kept));
        // Back in the order in which they were submitted.
        free.sort_by_key(|free| (free.run.submitted_at(), free.run.id()));
        free.into_iter().for_each(|free| self.enqueue(free));
        for (run, held) in turned {
            if let Some(live) = self.live.get_mut(&run) {
                live.held = held;
            }
            self.to_shard(run, if held { ShardMsg::Hold(run) } else { ShardMsg::GoOn(run) });
        }
    }

    pub(super) fn slotless(&mut self, run: RunId) -> Option<&mut Admitted> {
        self.held.get_mut(run).or_else(|| self.queue.get_mut(run))
    }

    pub(super) fn take_slotless(&mut self, run: RunId) -> Option<Admitted> {
        self.held.remove(run).or_else(|| self.queue.remove(run))
    }

    pub(super) fn load(&self) -> Load {
        let mut by_batch = BTreeMap::new();
        for run in self.live.values() {
            *by_batch.entry(run.batch()).or_default() += 1;
        }
        Load {
            live: self.live.len(),
            queued: self.queue.len(),
            held: self.held.len(),
            by_batch,
            waits: self.waits(),
            retries: self.retries.clone(),
        }
    }
}
