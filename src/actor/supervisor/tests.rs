//! What happens when an actor of the tree itself dies; only from in here can one be made to.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{FutureExt as _, future::BoxFuture};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};

use super::{message::ShardMsg, *};
use crate::{
    actor::{Settings, executor::ExecutorMsg},
    clock::SystemClock,
    domain::{
        call::{self, Access, EffectClass, Failure, Mode, ToolSpec},
        event::{Event, RunEnd},
        policy::Policy,
    },
    model::{Model, Models, scripted::Scripted},
    store::{EventStore, memory::MemoryStore},
    tool::{
        CallContext, Output, Started, Tool,
        toolbox::Toolbox,
        workspace::{Workspace, Workspaces},
    },
};

/// A tool that is alone with the workspace, passes one call for each permit, and notes when two of it overlap.
struct Gate {
    spec: ToolSpec,
    open: Semaphore,
    inside: watch::Sender<usize>,
    most: AtomicUsize,
    ran: Mutex<Vec<RunId>>,
}

impl Tool for Gate {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self) -> EffectClass {
        EffectClass::Outside
    }

    fn access(&self, workspace: &Workspace, _: &Value) -> Result<Vec<Access>, String> {
        Ok(vec![Access { scope: call::Scope::Tree, path: workspace.key().clone(), mode: Mode::Exclusive }])
    }

    fn start(self: Arc<Self>, context: CallContext, _: Value) -> BoxFuture<'static, Started> {
        let work = async move {
            self.inside.send_modify(|inside| *inside += 1);
            self.most.fetch_max(*self.inside.borrow(), Ordering::SeqCst);
            self.ran.lock().unwrap().push(context.run);
            let passed = context.cancel.run_until_cancelled(self.open.acquire()).await;
            let output = match passed {
                Some(permit) => {
                    permit.unwrap().forget();
                    Output::ok("passed")
                }
                None => {
                    // It takes its time to end.
                    tokio::time::sleep(Duration::from_secs(3)).await;
                    Output::failed(Failure::Cancelled, "told to end")
                }
            };
            self.inside.send_modify(|inside| *inside -= 1);
            output
        };
        std::future::ready(Started::Ready { change: None, work: work.boxed() }).boxed()
    }
}

struct Stage {
    supervisor: Supervisor,
    gate: Arc<Gate>,
    folder: tempfile::TempDir,
}

impl Stage {
    async fn new() -> Self {
        let spec = ToolSpec {
            name: "gate".into(),
            description: "a gate".into(),
            schema: Arc::new(json!({ "type": "object" })),
        };
        let gate = Arc::new(Gate {
            spec,
            open: Semaphore::new(0),
            inside: watch::Sender::new(0),
            most: AtomicUsize::new(0),
            ran: Mutex::default(),
        });
        let mut toolbox = Toolbox::default();
        toolbox.register(gate.clone()).unwrap();
        let models = Models::default();
        models.insert(Model::new("m", Arc::new(Scripted::default())));
        let policy: Policy =
            serde_json::from_value(json!({ "name": "all", "rule": [{ "decision": "allow" }] })).unwrap();
        let services = Services {
            store: Arc::new(MemoryStore::default()),
            clock: Arc::new(SystemClock),
            models,
            toolbox,
            policy,
            workspaces: Workspaces::default(),
            live: tokio::sync::broadcast::channel(16).0,
            settings: Settings { shards: 1, ..Settings::default() },
        };
        let supervisor = Supervisor::start(Arc::new(services)).await.unwrap();
        Self { supervisor, gate, folder: tempfile::TempDir::new().unwrap() }
    }

    /// A run that goes through the gate once, then is done.
    fn run(&self) -> Submitted {
        let spec = json!({
            "task": "task", "attempt": 1, "model": "m", "workspace": self.folder.path().to_str().unwrap(),
            "script": [{ "calls": [{ "name": "gate" }] }, { "text": "done" }],
        });
        let spec = Arc::new(serde_json::from_value(spec).unwrap());
        self.supervisor.submit_soon(RunId::new(uuid::Uuid::now_v7()), spec).unwrap()
    }

    fn store(&self) -> &Arc<dyn EventStore> {
        &self.supervisor.services().store
    }

    async fn until(&self, run: RunId, kind: &str) {
        let mut durable = self.store().watch();
        loop {
            durable.borrow_and_update();
            let log = self.store().read(run, Seq::START).await.unwrap();
            if log.iter().any(|one| one.fact.event.kind() == kind) {
                return;
            }
            durable.changed().await.unwrap();
        }
    }

    fn kill<M: ractor::Message>(&self) {
        let children = self.supervisor.root.get_cell().get_children();
        children.iter().find(|child| child.is_message_type_of::<M>() == Some(true)).unwrap().kill();
    }
}

async fn end(submitted: Submitted) -> Arc<RunEnd> {
    submitted.done.await.unwrap().end.unwrap()
}

async fn failures(stage: &Stage, run: RunId) -> Vec<Option<Failure>> {
    let log = stage.store().read(run, Seq::START).await.unwrap().into_iter();
    log.filter_map(|one| if let Event::Result(result) = one.fact.event { Some(result.failure) } else { None })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn when_the_executor_dies_its_calls_end_before_those_that_waited_are_made() {
    let stage = Stage::new().await;
    let first = stage.run();
    stage.gate.inside.subscribe().wait_for(|inside| *inside == 1).await.unwrap();
    let waiting: Vec<_> = (0..5).map(|_| stage.run()).collect();
    for submitted in &waiting {
        stage.until(submitted.run, "decision").await;
    }
    stage.kill::<ExecutorMsg>();
    // Submitted while there is none.
    let late = stage.run();
    stage.until(late.run, "decision").await;
    stage.until(first.run, "result").await;
    stage.gate.open.add_permits(10);

    let run = first.run;
    assert_eq!(end(first).await.outcome, Outcome::Done);
    assert_eq!(failures(&stage, run).await, [Some(Failure::Cancelled)]);
    for submitted in waiting.into_iter().chain([late]) {
        let run = submitted.run;
        assert_eq!(end(submitted).await.outcome, Outcome::Done);
        assert_eq!(failures(&stage, run).await, [None]);
    }
    assert_eq!(stage.gate.most.load(Ordering::SeqCst), 1);
    assert_eq!(stage.gate.ran.lock().unwrap().len(), 7);
}

#[tokio::test(start_paused = true)]
async fn when_a_shard_dies_its_runs_go_on_from_their_logs() {
    let stage = Stage::new().await;
    let first = stage.run();
    stage.gate.inside.subscribe().wait_for(|inside| *inside == 1).await.unwrap();
    let waiting = stage.run();
    stage.until(waiting.run, "decision").await;
    stage.kill::<ShardMsg>();
    stage.gate.open.add_permits(10);
    let runs = [first.run, waiting.run];
    for submitted in [first, waiting] {
        assert_eq!(end(submitted).await.outcome, Outcome::Done);
    }
    assert_eq!(failures(&stage, runs[0]).await, [Some(Failure::OutcomeUnknown)]);
    assert_eq!(failures(&stage, runs[1]).await, [None]);
    assert_eq!(stage.gate.most.load(Ordering::SeqCst), 1);
    assert_eq!(stage.supervisor.load().await, Load::default());
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_cancelled_as_its_shard_dies_is_cancelled() {
    let stage = Stage::new().await;
    let submitted = stage.run();
    stage.gate.inside.subscribe().wait_for(|inside| *inside == 1).await.unwrap();
    stage.kill::<ShardMsg>();
    // The answer may die with the shard.
    let _ = stage.supervisor.cancel(submitted.run).await;
    assert_eq!(end(submitted).await.outcome, Outcome::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn a_run_behind_a_gate_is_held_though_its_shard_dies() {
    let stage = Stage::new().await;
    let submitted = stage.run();
    stage.gate.inside.subscribe().wait_for(|inside| *inside == 1).await.unwrap();
    stage.supervisor.hold(Scope::All, PauseMode::Hold).await;
    stage.kill::<ShardMsg>();
    stage.until(submitted.run, "parked").await;
    while stage.supervisor.load().await.held != 1 {
        tokio::task::yield_now().await;
    }
    stage.supervisor.release(Scope::All).await;
    assert_eq!(end(submitted).await.outcome, Outcome::Done);
    assert_eq!(stage.supervisor.load().await, Load::default());
}
