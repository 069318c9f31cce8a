//! Holds the lives of some of the runs: starts their actors, and starts them again from the log when they die.

use std::{
    collections::HashMap,
    panic::AssertUnwindSafe,
    sync::{Arc, atomic::Ordering},
};

use futures_util::FutureExt as _;
use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};

use super::{
    end_without_actor,
    lives::{Life, Lives},
    message::{Opened, Reply, Revived, RootMsg, ShardMsg, Stopping},
    over::{Ended, Unended},
    revival::{self, Case, Death, Next},
    workspace,
};
use crate::{
    actor::{
        Services,
        executor::ExecutorMsg,
        run::{Offer, RunActor, RunArgs, RunMsg, beginning, means},
    },
    domain::{
        event::RestartCause,
        id::RunId,
        outcome::Breakage,
        restart::Exit,
        run::{Input, Run},
    },
    telemetry::metric,
};

/// A shard.
pub(super) struct Shard {
    pub(super) services: Arc<Services>,
    pub(super) root: ActorRef<RootMsg>,
}

impl Actor for Shard {
    type Msg = ShardMsg;
    type State = Lives;
    type Arguments = ActorRef<ExecutorMsg>;

    async fn pre_start(
        &self,
        _: ActorRef<ShardMsg>,
        executor: ActorRef<ExecutorMsg>,
    ) -> Result<Lives, ActorProcessingErr> {
        Ok(Lives { executor, runs: HashMap::new(), by_actor: HashMap::new(), stopping: Stopping::No })
    }

    async fn handle(
        &self,
        me: ActorRef<ShardMsg>,
        message: ShardMsg,
        lives: &mut Lives,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            ShardMsg::Start(run, pledge) => {
                lives.runs.insert(run.id(), Life { pledge, ..Life::of(run.seq()) });
                self.begin(&me, lives, *run, None).await;
            }
            ShardMsg::Opened(opened) => self.opened(&me, lives, *opened).await,
            ShardMsg::Revived(revived) => self.revived(&me, lives, *revived).await,
            ShardMsg::Ask(run, input, reply) => self.ask(&me, lives, run, input, reply),
            ShardMsg::Lost(run, head, why) => {
                lives.runs.entry(run).or_insert_with(|| Life::of(head));
                self.revive(&me, lives, run, Death { exit: Exit::Failed, error: Some(why) });
            }
            ShardMsg::Forget(run) => lives.forget(run),
            ShardMsg::Parked(run) => self.parked(lives, run),
            ShardMsg::Hold(run) => lives.hold(run, true, RunMsg::Hold),
            ShardMsg::GoOn(run) => lives.hold(run, false, RunMsg::GoOn),
            ShardMsg::Kill(run) => self.kill(lives, run),
            ShardMsg::Drain => {
                lives.stopping = Stopping::Draining;
                self.leave_the_dead(lives);
                lives.tell_all(|| RunMsg::Drain);
            }
            ShardMsg::Interrupt => {
                lives.stopping = Stopping::Interrupting;
                self.leave_the_dead(lives);
                lives.tell_all(|| RunMsg::Interrupt);
            }
            ShardMsg::Executor(executor) => {
                lives.executor = executor;
                let next = &lives.executor;
                lives.tell_all(|| RunMsg::Executor(next.clone()));
            }
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        me: ActorRef<ShardMsg>,
        event: SupervisionEvent,
        lives: &mut Lives,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorTerminated(cell, _, why) => {
                self.died(&me, lives, cell.get_id(), Death { exit: Exit::Stopped, error: why });
            }
            SupervisionEvent::ActorFailed(cell, error) => {
                let death = Death { exit: Exit::Failed, error: Some(error.to_string()) };
                self.died(&me, lives, cell.get_id(), death);
            }
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => {}
        }
        Ok(())
    }
}

impl Shard {
    /// Gives a run an actor; `death` is how the last one ended.
    async fn begin(&self, me: &ActorRef<ShardMsg>, lives: &mut Lives, run: Run, death: Option<Death>) {
        let id = run.id();
        let Some(life) = lives.runs.get_mut(&id) else { return };
        let Some(spec) = run.spec().cloned() else {
            // No log begins like that.
            return self.leave(id, life, Unended::Left);
        };
        let (model, form) = match means(&self.services, &run) {
            Ok(means) => means,
            Err(error) => {
                return self.end(life, run, vec![Input::GiveUp { breakage: Breakage::Setup, error }]);
            }
        };
        let Some(workspace) = self.services.workspaces.held_by(id, &spec) else {
            return self.open(me, life, run, death);
        };
        let tools = Offer::of(&self.services, &spec);
        let (cause, error) = match death {
            Some(death) => (RestartCause::Actor, death.error),
            None => (RestartCause::Process, None),
        };
        let first: Vec<Input> = beginning(&run, &model, tools.names.to_vec(), cause, error).collect();
        life.number += 1;
        life.ended = Arc::default();
        life.head = run.seq();
        let actor = RunActor::new(id, self.services.clone(), self.root.clone(), life.ended.clone());
        let executor = lives.executor.clone();
        let pledge = life.pledge.take();
        let args = RunArgs { run, model, workspace, tools, form, executor, held: life.held, pledge };
        match Actor::spawn_linked(None, actor, args, me.get_cell()).await {
            Ok((actor, _)) => {
                lives.by_actor.insert(actor.get_id(), id);
                // A dead actor's mailbox is closed; its death comes as an event.
                for input in first {
                    let _ = actor.cast(RunMsg::Begin(input));
                }
                for (input, reply) in life.asked.drain(..) {
                    let _ = actor.cast(RunMsg::Ask(input, reply));
                }
                life.actor = Some(actor);
            }
            Err(error) => {
                let death = Death { exit: Exit::Failed, error: Some(error.to_string()) };
                self.revive(me, lives, id, death);
            }
        }
    }

    /// Opens a run's workspace in a task: its file system may take any time, and other runs don't wait for it.
    fn open(&self, me: &ActorRef<ShardMsg>, life: &Life, run: Run, death: Option<Death>) {
        let (services, me, number) = (self.services.clone(), me.clone(), life.number);
        tokio::spawn(async move {
            let opened = AssertUnwindSafe(workspace::open(&services, &run)).catch_unwind().await;
            let workspace = opened.unwrap_or_else(|_| Err("opening the workspace panicked".to_owned()));
            let _ = me.cast(ShardMsg::Opened(Box::new(Opened { run, life: number, death, workspace })));
        });
    }

    async fn opened(&self, me: &ActorRef<ShardMsg>, lives: &mut Lives, opened: Opened) {
        let Opened { run, life: number, death, workspace } = opened;
        let Some(life) = lives.runs.get_mut(&run.id()).filter(|life| life.number == number) else { return };
        match workspace {
            // It is held until the run holds it.
            Ok(_held) => self.begin(me, lives, run, death).await,
            Err(error) => self.end(life, run, vec![Input::GiveUp { breakage: Breakage::Setup, error }]),
        }
    }

    /// Does with a run that was read from its log what was decided, unless something else came in between.
    async fn revived(&self, me: &ActorRef<ShardMsg>, lives: &mut Lives, revived: Revived) {
        let Revived { run, life: number, next } = revived;
        let Some(life) = lives.runs.get_mut(&run.id()).filter(|life| life.number == number) else { return };
        match next {
            // One that is where it was when it got its slot has yet to take that up, to give it back on record.
            Next::GoOn { .. }
                if run.parked().is_some() && run.seq() != life.head && (life.held || run.is_paused()) =>
            {
                life.ended.store(true, Ordering::Relaxed);
                let _ = self.root.cast(RootMsg::Parked(Box::new(run)));
            }
            Next::GoOn { death, untraced } => {
                life.untraced = untraced;
                self.begin(me, lives, run, Some(death)).await;
            }
            Next::End { death, outcome } => {
                let restart = Input::Restart { cause: RestartCause::Actor, error: death.error };
                self.end(life, run, vec![restart, Input::End(outcome)]);
            }
            Next::GiveUp { breakage, error } => {
                self.end(life, run, vec![Input::GiveUp { breakage, error }]);
            }
            Next::Over(end) => {
                life.ended.store(true, Ordering::Relaxed);
                let _ = self.root.cast(RootMsg::Ended(Ended { run: run.id(), end: Ok(end) }));
            }
            Next::Leave => self.leave(run.id(), life, Unended::Left),
            Next::Nothing => {}
        }
    }

    /// Ends a run that has no actor. Whoever asked for that is answered.
    fn end(&self, life: &mut Life, run: Run, inputs: Vec<Input>) {
        life.ended.store(true, Ordering::Relaxed);
        let asked = life.asked.drain(..).find(|(input, _)| matches!(input, Input::End(_)));
        end_without_actor(&self.services, &self.root, run, inputs, asked.map(|(_, reply)| reply));
    }

    fn ask(&self, me: &ActorRef<ShardMsg>, lives: &mut Lives, run: RunId, input: Input, reply: Reply) {
        let Some(life) = lives.runs.get_mut(&run) else { return };
        let wish = if let Input::End(outcome) = input { Some(outcome) } else { None };
        life.wish = life.wish.or(wish);
        if let Some(actor) = &life.actor {
            let _ = actor.cast(RunMsg::Ask(input, reply));
            return;
        }
        // If it has ended the port closes unanswered; if it is parked the root gets this back.
        life.asked.push((input, reply));
        if wish.is_some() && !life.ended.load(Ordering::Relaxed) {
            // It waits to be started again; to be ended it need not wait.
            self.read_again(me, run, life);
        }
    }

    /// The root has the run now. What was asked of it here goes there.
    fn parked(&self, lives: &mut Lives, run: RunId) {
        let Some(life) = lives.runs.remove(&run) else { return };
        for (input, reply) in life.asked {
            let _ = self.root.cast(RootMsg::Ask(run, input, reply));
        }
        if let Some(actor) = life.actor {
            let _ = actor.cast(RunMsg::Leave);
        }
    }

    fn died(&self, me: &ActorRef<ShardMsg>, lives: &mut Lives, actor: ActorId, death: Death) {
        let Some(run) = lives.by_actor.remove(&actor) else { return };
        let Some(life) = lives.runs.get_mut(&run) else { return };
        if life.actor.as_ref().is_none_or(|current| current.get_id() != actor) {
            return;
        }
        life.actor = None;
        if !life.ended.load(Ordering::Relaxed) {
            self.revive(me, lives, run, death);
        }
    }

    /// Starts a run again from its log, as policy and its history allow.
    fn revive(&self, me: &ActorRef<ShardMsg>, lives: &mut Lives, run: RunId, death: Death) {
        let Some(life) = lives.runs.get_mut(&run) else { return };
        tracing::warn!(run.id = %run, error = death.error.as_deref(), "run actor died");
        // Its calls that wait are no longer wanted; it queues them anew.
        let _ = lives.executor.cast(ExecutorMsg::Withdraw(run));
        if lives.stopping != Stopping::No && life.wish.is_none() {
            return self.leave(run, life, Unended::Stopped);
        }
        metrics::counter!(metric::RUN_RESTARTS).increment(1);
        // One that has announced its end may still be stopping.
        life.actor = None;
        life.ended = Arc::default();
        life.death = Some(death);
        self.read_again(me, run, life);
    }

    /// Reads the run's log in a task, waits as long as is due after a death, and comes back with [`ShardMsg::Revived`].
    fn read_again(&self, me: &ActorRef<ShardMsg>, run: RunId, life: &mut Life) {
        life.number += 1;
        let number = life.number;
        let case = Case {
            death: life.death.clone().unwrap_or(Death { exit: Exit::Failed, error: None }),
            wish: life.wish,
            stuck: life.stuck,
            head: life.head,
            untraced: life.untraced.clone(),
        };
        let (services, me) = (self.services.clone(), me.clone());
        tokio::spawn(async move {
            let read = AssertUnwindSafe(revival::next(&services, run, case)).catch_unwind().await;
            let (run, next) = read.unwrap_or_else(|_| (Run::new(run), Next::Leave));
            let _ = me.cast(ShardMsg::Revived(Box::new(Revived { run, life: number, next })));
        });
    }

    /// The run did not end when it was told to.
    fn kill(&self, lives: &mut Lives, run: RunId) {
        let Some(life) = lives.runs.get_mut(&run) else { return };
        if life.ended.load(Ordering::Relaxed) {
            return;
        }
        life.stuck = true;
        match &life.actor {
            Some(actor) => actor.kill(),
            // Not even its log is to be had.
            None => self.leave(run, life, Unended::Left),
        }
    }

    /// Leaves a run that has no actor to whoever takes it up next.
    fn leave(&self, run: RunId, life: &mut Life, why: Unended) {
        life.number += 1;
        life.ended.store(true, Ordering::Relaxed);
        let _ = self.root.cast(RootMsg::Ended(Ended { run, end: Err(why) }));
    }

    /// Runs that wait to be started again are not, once herder is to stop. One that is to end does so.
    fn leave_the_dead(&self, lives: &mut Lives) {
        let dead = lives.runs.iter_mut().filter(|(_, life)| life.actor.is_none() && life.wish.is_none());
        for (run, life) in dead.filter(|(_, life)| !life.ended.load(Ordering::Relaxed)) {
            self.leave(*run, life, Unended::Stopped);
        }
    }
}
