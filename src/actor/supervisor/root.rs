//! The root of the tree: who gets a slot, and when everybody has stopped.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, RpcReplyPort, SupervisionEvent};
use tokio::sync::{oneshot, watch};

use super::{
    Jobs,
    accounts::Accounts,
    arrival::Arriving,
    closing::Closing,
    held::{Held, HeldByBatch},
    live::LiveRun,
    message::{Admitted, Reply, RootMsg, ShardMsg, Stopping},
    notice::Notices,
    provider::{Attended, Blocked},
    room::LogRoom,
    shard::Shard,
    spawn_executor,
};
use crate::{
    actor::{Services, Settings, executor::ExecutorMsg, run::fallback_of},
    domain::{
        admission::{Admission, Place},
        gate::Gates,
        id::{BatchId, RunId},
        run::Input,
    },
    telemetry::metric,
};

/// Before another executor starts: one that dies at once each time does not keep the machine busy.
const EXECUTOR_PAUSE: Duration = Duration::from_secs(1);

/// The root.
pub(super) struct Root {
    pub(super) services: Arc<Services>,
    /// What is told of [`Blocked`].
    pub(super) blocked: watch::Sender<Option<Blocked>>,
    /// What is told of how many runs are held.
    pub(super) held: watch::Sender<HeldByBatch>,
    pub(super) notices: Notices,
}

/// What the root keeps.
pub(super) struct Tree {
    pub(super) me: ActorRef<RootMsg>,
    pub(super) services: Arc<Services>,
    executor: ActorRef<ExecutorMsg>,
    jobs: Jobs,
    shards: Vec<ActorRef<ShardMsg>>,
    /// Runs that wait for a slot; none of them is held.
    pub(super) queue: Admission<Admitted>,
    /// Runs that are kept from getting one.
    pub(super) held: Held,
    pub(super) live: HashMap<RunId, LiveRun>,
    pub(super) closing: Closing,
    /// Runs whose logs are read.
    pub(super) arriving: HashMap<RunId, Arriving>,
    pub(super) gates: Gates,
    pub(super) accounts: Accounts,
    max_live: usize,
    log_room: LogRoom,
    /// Whether a run starts only if its model has a place free for it.
    pub(super) follows_models: bool,
    pub(super) attended: Attended,
    pub(super) blocked: watch::Sender<Option<Blocked>>,
    pub(super) notices: Notices,
    /// Requests that failed and were sent again.
    pub(super) retries: BTreeMap<Option<BatchId>, u64>,
    pub(super) stopping: Stopping,
    /// Who waits for everybody to have stopped.
    drained: Vec<RpcReplyPort<()>>,
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
        let log_room = LogRoom::watch(&*self.services.store, &me);
        Ok(Tree {
            me,
            services: self.services.clone(),
            executor,
            jobs,
            shards,
            queue: Admission::default(),
            held: Held::new(self.held.clone()),
            live: HashMap::new(),
            closing: Closing::default(),
            arriving: HashMap::new(),
            gates: Gates::default(),
            accounts: Accounts::new(&self.services, self.notices.clone()),
            max_live: self.services.settings.max_live_runs,
            log_room,
            follows_models: self.services.settings.follow_models,
            attended: Attended::default(),
            blocked: self.blocked.clone(),
            notices: self.notices.clone(),
            retries: BTreeMap::new(),
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
            RootMsg::Admit(admitted) => tree.admit(admitted),
            RootMsg::NotRecorded(run, error) => tree.not_recorded(run, error),
            RootMsg::NotTaken(run) => self.not_taken(&me, tree, run),
            RootMsg::Resume(run, asker) => self.resume(&me, tree, run, asker),
            RootMsg::Read(run, stands) => self.arrived(&me, tree, run, stands),
            RootMsg::Ended(ended) => self.ended(&me, tree, ended),
            RootMsg::Closed(run) => tree.closed(run),
            RootMsg::Parked(run) => tree.parked(run),
            RootMsg::Switched(run) => tree.switched(&run),
            RootMsg::Retried(batch) => *tree.retries.entry(batch).or_default() += 1,
            RootMsg::Lost(run, error) => {
                if let Some(live) = tree.live.get(&run) {
                    tree.to_shard(run, ShardMsg::Lost(run, live.head, error.to_string()));
                }
            }
            RootMsg::Ask(run, input, reply) => self.ask(&me, tree, run, input, reply),
            RootMsg::Ending(run) => later(&me, self.services.settings.stuck, RootMsg::CheckStuck(run)),
            RootMsg::CheckStuck(run) if tree.live.contains_key(&run) => {
                tree.to_shard(run, ShardMsg::Kill(run))
            }
            RootMsg::CheckStuck(_) => {}
            RootMsg::SetMaxLiveRuns(runs) => tree.max_live = runs,
            RootMsg::FollowModels(follows) => tree.follow_models(follows),
            RootMsg::AccountChanged => tree.heed(),
            // There is some, or there is not: it is looked for after each message.
            RootMsg::Room => tree.heed_room(&me),
            RootMsg::Due(run) => self.due(&me, tree, run),
            RootMsg::Close => tree.close(),
            RootMsg::Drain(patience, reply) => tree.drain(&me, patience, reply),
            RootMsg::Interrupt => self.interrupt(&me, tree),
            RootMsg::LeaveBehind => tree.leave_behind(),
            RootMsg::ExecutorGone => self.replace_executor(&me, tree).await?,
            // Whoever asked may have gone; so with the others.
            RootMsg::Shut(scope, mode, reply) => drop(reply.send(tree.shut(scope, mode))),
            RootMsg::Open(scope, reply) => drop(reply.send(tree.open(&scope))),
            RootMsg::Gates(reply) => drop(reply.send(tree.gates.clone())),
            RootMsg::Load(reply) => drop(reply.send(tree.load())),
            RootMsg::Reserve(reserve) => self.reserve(tree, *reserve),
            RootMsg::Settle(id, actual) => tree.accounts.settle(id, actual),
            RootMsg::Spent(node, amount) => tree.accounts.spent(node, amount),
            RootMsg::SetCap(node, cap) => tree.accounts.set_cap(node, cap),
            RootMsg::Forget(node) => tree.accounts.forget(&node),
            RootMsg::SetBudgets(budgets) => tree.accounts.set_budgets(budgets),
            RootMsg::Accounts(reply) => drop(reply.send(tree.accounts.standings())),
        }
        tree.fill_slots();
        tree.tell_blocked();
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
                let _ = shard.cast(ShardMsg::Lost(*run, live.head, "the run's supervisor died".to_owned()));
                if let Some(outcome) = live.wish {
                    let _ = shard.cast(ShardMsg::Ask(*run, Input::End(outcome), nobody()));
                }
                if live.held {
                    let _ = shard.cast(ShardMsg::Hold(*run));
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

    fn interrupt(&self, me: &ActorRef<RootMsg>, tree: &mut Tree) {
        if tree.stopping == Stopping::Draining {
            tree.stopping = Stopping::Interrupting;
            tree.tell_shards(|| ShardMsg::Interrupt);
            let Settings { stuck, grace, .. } = self.services.settings;
            // What runs is given its time to stop. That this is of record is not waited for while the log takes nothing.
            let patience = if tree.log_room.is_there() { stuck } else { grace };
            later(me, patience, RootMsg::LeaveBehind);
        }
    }
}

impl Tree {
    pub(super) fn enqueue(&mut self, admitted: Admitted) {
        if self.stopping != Stopping::No {
            // It starts when herder does.
            return admitted.done.stop(admitted.run.id());
        }
        self.attend(&admitted.run);
        if self.is_kept(&admitted.run) {
            return self.keep(admitted);
        }
        let place = Place {
            priority: admitted.run.spec().map_or(0, |spec| spec.priority),
            batch: admitted.run.spec().and_then(|spec| spec.batch),
            lane: admitted.run.model().cloned().unwrap_or_default(),
        };
        self.queue.push(place, admitted.run.id(), admitted);
    }

    fn follow_models(&mut self, follows: bool) {
        self.follows_models = follows;
        // Whoever waits already is to be told of their models too.
        let queued: Vec<Admitted> = std::iter::from_fn(|| self.queue.pop()).collect();
        queued.into_iter().for_each(|queued| self.enqueue(queued));
    }

    fn fill_slots(&mut self) {
        while self.log_room.is_there()
            && self.live.len() < self.max_live
            // Workspaces do not become more and more on a disk that is slow to take them in.
            && self.closing.len() <= self.max_live
            && let Some(Admitted { run, done }) = self.next()
        {
            let id = run.id();
            let pledge = self.pledge(&run);
            let falls_back = fallback_of(&self.services, &run).is_some();
            self.live.insert(id, LiveRun { falls_back, ..LiveRun::new(&run, done, None) });
            self.to_shard(id, ShardMsg::Start(run, pledge));
        }
        metrics::gauge!(metric::RUNS_LIVE).set(gauge(self.live.len()));
        metrics::gauge!(metric::RUNS_QUEUED).set(gauge(self.queue.len()));
        metrics::gauge!(metric::RUNS_HELD).set(gauge(self.held.len()));
    }

    fn next(&mut self) -> Option<Admitted> {
        if !self.follows_models {
            return self.queue.pop();
        }
        let services = self.services.clone();
        // Who waits though the account is shut can ask another model.
        self.queue.pop_if(|model| {
            services
                .models
                .get(model)
                .is_none_or(|model| model.governor.has_room() || model.governor.account().latch().is_some())
        })
    }

    /// Starts nothing any more; what is live goes on.
    fn close(&mut self) {
        let queued = std::iter::from_fn(|| self.queue.pop());
        for Admitted { run, done } in queued.chain(self.held.drain()) {
            done.stop(run.id());
        }
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
            self.heed_room(me);
        }
    }

    /// While the log takes nothing no run comes to the end of its turn, so nobody waits for it.
    fn heed_room(&self, me: &ActorRef<RootMsg>) {
        if self.stopping == Stopping::Draining && !self.log_room.is_there() {
            let _ = me.cast(RootMsg::Interrupt);
        }
    }

    /// The whole tree goes down with the root.
    fn stop_if_drained(&mut self, me: &ActorRef<RootMsg>) {
        let draining = matches!(self.stopping, Stopping::Draining | Stopping::Interrupting);
        if draining && self.live.is_empty() && self.closing.is_empty() {
            self.drained.drain(..).for_each(|reply| drop(reply.send(())));
            me.stop(None);
        }
    }

    fn shard_of(&self, run: RunId) -> usize {
        // The last bytes of a v7 id are random: as good as a hash.
        let bytes = run.as_bytes();
        usize::from(u16::from_be_bytes([bytes[14], bytes[15]])) % self.shards.len().max(1)
    }

    pub(super) fn to_shard(&self, run: RunId, message: ShardMsg) {
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
}

/// For what is asked where nobody waits for the answer.
pub(super) fn nobody() -> Reply {
    oneshot::channel().0.into()
}

pub(super) fn later(me: &ActorRef<RootMsg>, delay: Duration, message: RootMsg) {
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
