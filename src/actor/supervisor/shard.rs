//! Holds the lives of some of the runs: starts their actors, and starts them again from the log when they die.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, RpcReplyPort, SupervisionEvent};

use super::message::{Ended, Revived, RootMsg, ShardMsg};
use crate::{
    actor::{
        Services,
        executor::ExecutorMsg,
        run::{Offer, RunActor, RunArgs, RunMsg, beginning},
    },
    domain::{
        event::RestartCause,
        id::{RunId, Seq},
        outcome::Breakage,
        restart::{self, Exit},
        run::{Input, Refused, Run},
    },
    telemetry::metric,
};

/// A shard.
pub(super) struct Shard {
    pub(super) services: Arc<Services>,
    pub(super) root: ActorRef<RootMsg>,
}

/// What a shard knows of its runs.
pub(super) struct Lives {
    executor: ActorRef<ExecutorMsg>,
    runs: HashMap<RunId, Life>,
    by_actor: HashMap<ActorId, RunId>,
}

/// What is known of one run.
#[derive(Default)]
struct Life {
    /// Which of its lives this is; what belongs to an earlier one is stale.
    number: u64,
    actor: Option<ActorRef<RunMsg>>,
    /// Whether the log was handed the run's end.
    ended: Arc<AtomicBool>,
    /// It was told to give up, or was found stuck: this is how it ends.
    doom: Option<(Breakage, String)>,
    /// What was asked of it while it had no actor.
    asked: Vec<(Input, RpcReplyPort<Result<Seq, Refused>>)>,
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
        Ok(Lives { executor, runs: HashMap::new(), by_actor: HashMap::new() })
    }

    async fn handle(
        &self,
        me: ActorRef<ShardMsg>,
        message: ShardMsg,
        lives: &mut Lives,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            ShardMsg::Start(run) => {
                lives.runs.insert(run.id(), Life::default());
                self.begin(&me, lives, *run, None).await;
            }
            ShardMsg::Revived(Revived { run, life, first }) => {
                if lives.runs.get(&run.id()).is_some_and(|current| current.number == life) {
                    self.begin(&me, lives, *run, Some(first)).await;
                }
            }
            ShardMsg::Ask(run, input, reply) => self.ask(&me, lives, run, input, reply),
            ShardMsg::Lost(run, error) => self.revive(&me, lives, run, Exit::Failed, Some(error.to_string())),
            ShardMsg::Forget(run) => drop(lives.runs.remove(&run)),
            ShardMsg::Kill(run) => lives.kill(run),
            ShardMsg::Drain => lives.tell_all(|| RunMsg::Drain),
            ShardMsg::Interrupt => {
                lives.leave_the_dead(&self.root);
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
                self.died(&me, lives, cell.get_id(), Exit::Stopped, why)
            }
            SupervisionEvent::ActorFailed(cell, error) => {
                self.died(&me, lives, cell.get_id(), Exit::Failed, Some(error.to_string()));
            }
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => {}
        }
        Ok(())
    }
}

impl Shard {
    /// Gives a run an actor. `first` is what it is told, if it is not simply to begin or go on.
    async fn begin(&self, me: &ActorRef<ShardMsg>, lives: &mut Lives, run: Run, first: Option<Input>) {
        let id = run.id();
        let Some(life) = lives.runs.get_mut(&id) else { return };
        let Some(spec) = run.spec().cloned() else { return };
        let (Some(model), Ok(workspace)) =
            (self.services.models.get(&spec.model), self.services.workspaces.get(&spec.workspace))
        else {
            let why = format!("model {:?} or workspace {:?} is not to be had", spec.model, spec.workspace);
            return self.give_up(run, Breakage::Setup, why);
        };
        let tools = Offer::of(&self.services, &spec);
        let first = first
            .unwrap_or_else(|| beginning(&run, model, tools.names.to_vec(), RestartCause::Process, None));
        life.number += 1;
        life.ended = Arc::default();
        let actor = RunActor::new(self.services.clone(), self.root.clone(), life.ended.clone());
        let (model, executor) = (model.clone(), lives.executor.clone());
        let args = RunArgs { run, model, workspace, tools, executor };
        match Actor::spawn_linked(None, actor, args, me.get_cell()).await {
            Ok((actor, _)) => {
                lives.by_actor.insert(actor.get_id(), id);
                // A dead actor's mailbox is closed; its death comes as an event.
                let _ = actor.cast(RunMsg::Begin(first));
                for (input, reply) in life.asked.drain(..) {
                    let _ = actor.cast(RunMsg::Ask(input, reply));
                }
                life.actor = Some(actor);
            }
            Err(error) => self.revive(me, lives, id, Exit::Failed, Some(error.to_string())),
        }
    }

    fn ask(
        &self,
        me: &ActorRef<ShardMsg>,
        lives: &mut Lives,
        run: RunId,
        input: Input,
        reply: RpcReplyPort<Result<Seq, Refused>>,
    ) {
        let Some(life) = lives.runs.get_mut(&run) else { return };
        if let Some(actor) = &life.actor {
            let _ = actor.cast(RunMsg::Ask(input, reply));
            return;
        }
        let hurry = matches!(input, Input::End(_));
        life.asked.push((input, reply));
        if hurry {
            // It waits to be started again; to be ended it need not wait.
            self.read_again(me, run, life, None);
        }
    }

    fn died(
        &self,
        me: &ActorRef<ShardMsg>,
        lives: &mut Lives,
        actor: ActorId,
        exit: Exit,
        why: Option<String>,
    ) {
        let Some(run) = lives.by_actor.remove(&actor) else { return };
        let Some(life) = lives.runs.get_mut(&run) else { return };
        if life.actor.as_ref().is_none_or(|current| current.get_id() != actor) {
            return;
        }
        life.actor = None;
        if !life.ended.load(Ordering::Relaxed) {
            self.revive(me, lives, run, exit, why);
        }
    }

    /// Starts a run again from its log, as policy and its history allow.
    fn revive(
        &self,
        me: &ActorRef<ShardMsg>,
        lives: &mut Lives,
        run: RunId,
        exit: Exit,
        why: Option<String>,
    ) {
        let life = lives.runs.entry(run).or_default();
        tracing::warn!(run.id = %run, error = why.as_deref(), "run actor died");
        metrics::counter!(metric::RUN_RESTARTS).increment(1);
        self.read_again(me, run, life, Some((exit, why)));
    }

    /// Reads the run's log in a task, waits as long as is due after a death, and comes back with [`ShardMsg::Revived`].
    fn read_again(
        &self,
        me: &ActorRef<ShardMsg>,
        run: RunId,
        life: &mut Life,
        death: Option<(Exit, Option<String>)>,
    ) {
        life.number += 1;
        let (number, doom) = (life.number, life.doom.take());
        let (services, root, me) = (self.services.clone(), self.root.clone(), me.clone());
        tokio::spawn(async move {
            let Some(state) = read(&services, run).await else {
                // Nothing can be done for it now; its log is as it was, and the next start goes on from it.
                let _ = root.cast(RootMsg::Ended(Ended { run, end: None }));
                return;
            };
            let (first, delay) = next_life(&services, &state, death, doom);
            tokio::time::sleep(delay).await;
            let _ = me.cast(ShardMsg::Revived(Revived { run: Box::new(state), life: number, first }));
        });
    }

    /// Ends a run that cannot have an actor.
    fn give_up(&self, run: Run, breakage: Breakage, error: String) {
        super::end_without_actor(&self.services, &self.root, run, Input::GiveUp { breakage, error });
    }
}

async fn read(services: &Services, run: RunId) -> Option<Run> {
    match services.store.read(run, Seq::START).await {
        Ok(log) => Some(Run::replay(run, log.iter().map(|envelope| &envelope.fact))),
        Err(error) => {
            tracing::error!(run.id = %run, %error, "log of a dead run could not be read");
            None
        }
    }
}

fn next_life(
    services: &Services,
    run: &Run,
    death: Option<(Exit, Option<String>)>,
    doom: Option<(Breakage, String)>,
) -> (Input, Duration) {
    if let Some((breakage, error)) = doom {
        return (Input::GiveUp { breakage, error }, Duration::ZERO);
    }
    let Some((exit, error)) = death else {
        return (Input::Restart { cause: RestartCause::Actor, error: None }, Duration::ZERO);
    };
    let now = services.clock.now();
    let said = || error.clone().unwrap_or_else(|| "the run's actor ended before the run".to_owned());
    let give_up = |breakage| (Input::GiveUp { breakage, error: said() }, Duration::ZERO);
    match restart::decide(services.settings.restart, exit, run.idle_restarts(), now, crate::actor::jitter()) {
        restart::Restart::After(delay) => (Input::Restart { cause: RestartCause::Actor, error }, delay),
        restart::Restart::Forbidden => give_up(Breakage::Panic),
        restart::Restart::TooMany => give_up(Breakage::RestartLimit),
    }
}

impl Lives {
    fn tell_all(&self, message: impl Fn() -> RunMsg) {
        for actor in self.runs.values().filter_map(|life| life.actor.as_ref()) {
            let _ = actor.cast(message());
        }
    }

    /// Runs that wait to be started again are not: the next start of herder does it.
    fn leave_the_dead(&mut self, root: &ActorRef<RootMsg>) {
        for (run, life) in self.runs.iter_mut().filter(|(_, life)| life.actor.is_none()) {
            if !life.ended.load(Ordering::Relaxed) {
                life.number += 1;
                let _ = root.cast(RootMsg::Ended(Ended { run: *run, end: None }));
            }
        }
    }

    fn kill(&mut self, run: RunId) {
        let Some(life) = self.runs.get_mut(&run) else { return };
        life.doom = Some((Breakage::Stuck, "the run did not end when it was told to".to_owned()));
        if let Some(actor) = &life.actor {
            actor.kill();
        }
    }
}
