//! The root of the tree: who gets a slot, and when everybody has stopped.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, RpcReplyPort, SupervisionEvent};
use tokio::sync::oneshot;

use super::{
    Jobs, end_without_actor,
    message::{Admitted, Ended, Load, Reply, RootMsg, ShardMsg, Stopping},
    shard::Shard,
    spawn_executor,
};
use crate::{
    actor::{Services, executor::ExecutorMsg},
    domain::{
        admission::Admission,
        event::RestartCause,
        id::{BatchId, RunId},
        outcome::Outcome,
        run::{Input, Run},
    },
    telemetry::metric,
};

/// Before another executor starts: one that dies at once each time does not keep the machine busy.
const EXECUTOR_PAUSE: Duration = Duration::from_secs(1);

/// The root.
pub(super) struct Root {
    pub(super) services: Arc<Services>,
}

/// What the root keeps.
pub(super) struct Tree {
    executor: ActorRef<ExecutorMsg>,
    jobs: Jobs,
    shards: Vec<ActorRef<ShardMsg>>,
    queue: Admission<Admitted>,
    live: HashMap<RunId, LiveRun>,
    max_live: usize,
    stopping: Stopping,
    /// Who waits for everybody to have stopped.
    drained: Vec<RpcReplyPort<()>>,
}

struct LiveRun {
    batch: Option<BatchId>,
    done: oneshot::Sender<Ended>,
    /// It was told to end as this.
    wish: Option<Outcome>,
}

impl Actor for Root {
    type Msg = RootMsg;
    type State = Tree;
    type Arguments = ();

    async fn pre_start(&self, me: ActorRef<RootMsg>, (): ()) -> Result<Tree, ActorProcessingErr> {
        let jobs = Jobs::new();
        let executor = spawn_executor(&self.services, &jobs, &me).await?;
        let mut shards = Vec::new();
        for _ in 0..self.services.settings.shards.max(1) {
            shards.push(self.spawn_shard(&me, &executor).await?);
        }
        Ok(Tree {
            executor,
            jobs,
            shards,
            queue: Admission::default(),
            live: HashMap::new(),
            max_live: self.services.settings.max_live_runs,
            stopping: Stopping::No,
            drained: Vec::new(),
        })
    }

    async fn handle(
        &self,
        me: ActorRef<RootMsg>,
        message: RootMsg,
        tree: &mut Tree,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            RootMsg::Admit(admitted) => tree.enqueue(admitted),
            RootMsg::Ended(ended) => {
                self.services.toolbox.forget(ended.run);
                tree.ended(ended);
            }
            RootMsg::Lost(run, error) => tree.to_shard(run, ShardMsg::Lost(run, error.to_string())),
            RootMsg::Ask(run, input, reply) => self.ask(&me, tree, run, input, reply),
            RootMsg::EndAll(batch, outcome) => self.end_all(&me, tree, batch, outcome),
            RootMsg::Ending(run) => later(&me, self.services.settings.stuck, RootMsg::CheckStuck(run)),
            RootMsg::CheckStuck(run) if tree.live.contains_key(&run) => {
                tree.to_shard(run, ShardMsg::Kill(run))
            }
            RootMsg::CheckStuck(_) => {}
            RootMsg::SetMaxLiveRuns(runs) => tree.max_live = runs,
            RootMsg::Close => tree.close(),
            RootMsg::Drain(patience, reply) => tree.drain(&me, patience, reply),
            RootMsg::Interrupt => self.interrupt(&me, tree),
            RootMsg::LeaveBehind => tree.live.clear(),
            RootMsg::ExecutorGone => self.replace_executor(&me, tree).await?,
            // Whoever asked may have gone.
            RootMsg::Load(reply) => drop(reply.send(tree.load())),
        }
        tree.fill_slots();
        tree.stop_if_drained(&me);
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        me: ActorRef<RootMsg>,
        event: SupervisionEvent,
        tree: &mut Tree,
    ) -> Result<(), ActorProcessingErr> {
        let (cell, error) = match event {
            SupervisionEvent::ActorTerminated(cell, _, why) => (cell, why),
            SupervisionEvent::ActorFailed(cell, error) => (cell, Some(error.to_string())),
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => return Ok(()),
        };
        self.child_died(&me, tree, cell.get_id(), error).await
    }
}

impl Root {
    async fn spawn_shard(
        &self,
        me: &ActorRef<RootMsg>,
        executor: &ActorRef<ExecutorMsg>,
    ) -> Result<ActorRef<ShardMsg>, ractor::SpawnErr> {
        let shard = Shard { services: self.services.clone(), root: me.clone() };
        Ok(Actor::spawn_linked(None, shard, executor.clone(), me.get_cell()).await?.0)
    }

    async fn child_died(
        &self,
        me: &ActorRef<RootMsg>,
        tree: &mut Tree,
        child: ActorId,
        error: Option<String>,
    ) -> Result<(), ActorProcessingErr> {
        if child == tree.executor.get_id() {
            tracing::error!(error, "executor died");
            let (jobs, me) = (tree.jobs.clone(), me.clone());
            jobs.close();
            tokio::spawn(async move {
                jobs.wait().await;
                tokio::time::sleep(EXECUTOR_PAUSE).await;
                let _ = me.cast(RootMsg::ExecutorGone);
            });
        } else if let Some(index) = tree.shards.iter().position(|shard| shard.get_id() == child) {
            tracing::error!(error, "shard died");
            let shard = self.spawn_shard(me, &tree.executor).await?;
            match tree.stopping {
                Stopping::No | Stopping::Closed => {}
                Stopping::Draining => drop(shard.cast(ShardMsg::Drain)),
                Stopping::Interrupting => drop(shard.cast(ShardMsg::Interrupt)),
            }
            for (run, live) in tree.live.iter().filter(|(run, _)| tree.shard_of(**run) == index) {
                let _ = shard.cast(ShardMsg::Lost(*run, "the run's supervisor died".to_owned()));
                if let Some(outcome) = live.wish {
                    let _ = shard.cast(ShardMsg::Ask(*run, Input::End(outcome), nobody()));
                }
            }
            if let Some(place) = tree.shards.get_mut(index) {
                *place = shard;
            }
        }
        Ok(())
    }

    async fn replace_executor(
        &self,
        me: &ActorRef<RootMsg>,
        tree: &mut Tree,
    ) -> Result<(), ActorProcessingErr> {
        tree.jobs = Jobs::new();
        tree.executor = spawn_executor(&self.services, &tree.jobs, me).await?;
        let executor = &tree.executor;
        tree.tell_shards(|| ShardMsg::Executor(executor.clone()));
        Ok(())
    }

    fn ask(&self, me: &ActorRef<RootMsg>, tree: &mut Tree, run: RunId, input: Input, reply: Reply) {
        if let Some(live) = tree.live.get_mut(&run) {
            if let Input::End(outcome) = input {
                live.wish.get_or_insert(outcome);
                later(me, self.services.settings.stuck, RootMsg::CheckStuck(run));
            }
            return tree.to_shard(run, ShardMsg::Ask(run, input, reply));
        }
        if let Input::End(outcome) = input {
            let waiting = tree.queue.remove(|waiting| waiting.run.id() == run).pop();
            if let Some(Admitted { run: state, done }) = waiting {
                self.end_queued(me, tree, *state, done, outcome, Some(reply));
            }
        } else if let Some(waiting) = tree.queue.find(|waiting| waiting.run.id() == run) {
            self.tell_queued(&mut waiting.run, input, reply);
        }
        // Else the port closes unanswered.
    }

    /// What is said to a run that has no slot yet is of record at once; it hears it when it starts.
    fn tell_queued(&self, run: &mut Run, input: Input, reply: Reply) {
        let store = self.services.store.clone();
        let facts = match run.decide(input, self.services.clock.now()) {
            Ok(facts) => facts,
            // Whoever asked may have gone.
            Err(refused) => return drop(reply.send(Err(refused))),
        };
        let Ok(ticket) = store.append(run.id(), run.seq(), &facts) else { return };
        facts.iter().for_each(|fact| run.evolve(fact));
        let seq = run.seq();
        tokio::spawn(async move {
            // A port that closes unanswered says that nothing came of it.
            if store.durable(ticket).await.is_ok() {
                let _ = reply.send(Ok(seq));
            }
        });
    }

    fn interrupt(&self, me: &ActorRef<RootMsg>, tree: &mut Tree) {
        if tree.stopping == Stopping::Draining {
            tree.stopping = Stopping::Interrupting;
            tree.tell_shards(|| ShardMsg::Interrupt);
            later(me, self.services.settings.stuck, RootMsg::LeaveBehind);
        }
    }

    fn end_all(&self, me: &ActorRef<RootMsg>, tree: &mut Tree, batch: Option<BatchId>, outcome: Outcome) {
        let of_batch = |one: Option<BatchId>| batch.is_none() || one == batch;
        for Admitted { run, done } in tree.queue.remove(|waiting| of_batch(batch_of(&waiting.run))) {
            self.end_queued(me, tree, *run, done, outcome, None);
        }
        let live: Vec<RunId> =
            tree.live.iter().filter(|(_, run)| of_batch(run.batch)).map(|(run, _)| *run).collect();
        for run in live {
            self.ask(me, tree, run, Input::End(outcome), nobody());
        }
    }

    /// A run that has no slot ends without an actor; until the log says so it counts as live.
    fn end_queued(
        &self,
        me: &ActorRef<RootMsg>,
        tree: &mut Tree,
        run: Run,
        done: oneshot::Sender<Ended>,
        outcome: Outcome,
        reply: Option<Reply>,
    ) {
        tree.live.insert(run.id(), LiveRun { batch: batch_of(&run), done, wish: Some(outcome) });
        // One that was taken up has first to be told that whoever was at work on it is gone.
        let restart = Input::Restart { cause: RestartCause::Process, error: None };
        let restart = run.started_at().is_some().then_some(restart);
        let inputs = restart.into_iter().chain([Input::End(outcome)]).collect();
        end_without_actor(&self.services, me, run, inputs, reply);
    }
}

impl Tree {
    fn enqueue(&mut self, admitted: Admitted) {
        if self.stopping != Stopping::No {
            // Its submitter sees the port close: it starts when herder does.
            return;
        }
        let priority = admitted.run.spec().map_or(0, |spec| spec.priority);
        self.queue.push(priority, batch_of(&admitted.run), admitted);
    }

    fn fill_slots(&mut self) {
        while self.live.len() < self.max_live
            && let Some(Admitted { run, done }) = self.queue.pop()
        {
            let id = run.id();
            if self.live.contains_key(&id) {
                // Taken up twice: one actor a run. The port of this one closes.
                continue;
            }
            self.live.insert(id, LiveRun { batch: batch_of(&run), done, wish: None });
            self.to_shard(id, ShardMsg::Start(run));
        }
        metrics::gauge!(metric::RUNS_LIVE).set(gauge(self.live.len()));
        metrics::gauge!(metric::RUNS_QUEUED).set(gauge(self.queue.len()));
    }

    fn ended(&mut self, ended: Ended) {
        self.to_shard(ended.run, ShardMsg::Forget(ended.run));
        if let Some(run) = self.live.remove(&ended.run) {
            // Nobody may be waiting for it.
            let _ = run.done.send(ended);
        }
    }

    /// Starts nothing any more; what is live goes on.
    fn close(&mut self) {
        self.queue = Admission::default();
        if self.stopping == Stopping::No {
            self.stopping = Stopping::Closed;
        }
    }

    fn drain(&mut self, me: &ActorRef<RootMsg>, patience: Duration, reply: RpcReplyPort<()>) {
        self.close();
        self.drained.push(reply);
        if self.stopping == Stopping::Closed {
            self.stopping = Stopping::Draining;
            self.tell_shards(|| ShardMsg::Drain);
            later(me, patience, RootMsg::Interrupt);
        }
    }

    /// The whole tree goes down with the root.
    fn stop_if_drained(&mut self, me: &ActorRef<RootMsg>) {
        let draining = matches!(self.stopping, Stopping::Draining | Stopping::Interrupting);
        if draining && self.live.is_empty() {
            self.drained.drain(..).for_each(|reply| drop(reply.send(())));
            me.stop(None);
        }
    }

    fn shard_of(&self, run: RunId) -> usize {
        // The last bytes of a v7 id are random: as good as a hash.
        let bytes = run.as_bytes();
        usize::from(u16::from_be_bytes([bytes[14], bytes[15]])) % self.shards.len().max(1)
    }

    fn to_shard(&self, run: RunId, message: ShardMsg) {
        if let Some(shard) = self.shards.get(self.shard_of(run)) {
            // A shard that is gone is replaced, and told of the runs that live.
            let _ = shard.cast(message);
        }
    }

    fn tell_shards(&self, message: impl Fn() -> ShardMsg) {
        for shard in &self.shards {
            let _ = shard.cast(message());
        }
    }

    fn load(&self) -> Load {
        let mut by_batch = BTreeMap::new();
        for run in self.live.values() {
            *by_batch.entry(run.batch).or_default() += 1;
        }
        Load { live: self.live.len(), queued: self.queue.len(), by_batch }
    }
}

fn batch_of(run: &Run) -> Option<BatchId> {
    run.spec().and_then(|spec| spec.batch)
}

/// For what is asked where nobody waits for the answer.
fn nobody() -> Reply {
    oneshot::channel().0.into()
}

fn later(me: &ActorRef<RootMsg>, delay: Duration, message: RootMsg) {
    let me = me.clone();
    tokio::spawn(async move {
        tokio::time::sleep(delay).await;
        let _ = me.cast(message);
    });
}

#[expect(clippy::cast_precision_loss, reason = "a gauge takes a float, and these counts are small")]
const fn gauge(n: usize) -> f64 {
    n as f64
}
