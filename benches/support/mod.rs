//! What the benches share: a supervision tree over a chosen log, the `add` tool, runs of five turns.

use std::{path::Path, sync::Arc};

use futures_util::future::{BoxFuture, FutureExt};
use herder::{
    actor::{Services, Settings, Supervisor},
    clock::SystemClock,
    config::policies,
    domain::{
        call::{Access, EffectClass, Mode, Scope, ToolSpec},
        id::RunId,
        outcome::Outcome,
        script::Script,
        task::TaskSpec,
    },
    model::{Model, ModelProvider, Models},
    store::{
        EventStore,
        memory::MemoryStore,
        sqlite::{Options, SqliteStore},
    },
    tool::{
        CallContext, Output, Started, Tool,
        toolbox::Toolbox,
        workspace::{Workspace, Workspaces},
    },
};
use serde_json::{Value, json};

/// Adds two integers. Shares a file of the workspace, as a read does, so that the mutation queue is at work.
struct Add(ToolSpec);

impl Add {
    fn new() -> Self {
        let integer = json!({ "type": "integer" });
        Self(ToolSpec {
            name: "add".into(),
            description: "Add two integers".into(),
            schema: Arc::new(json!({
                "type": "object",
                "properties": { "a": integer, "b": integer },
                "required": ["a", "b"],
            })),
        })
    }
}

impl Tool for Add {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn effect(&self) -> EffectClass {
        EffectClass::Outside
    }

    fn access(&self, workspace: &Workspace, _: &Value) -> Result<Vec<Access>, String> {
        let path = format!("{}/sums", workspace.key()).into();
        Ok(vec![Access { scope: Scope::File, path, mode: Mode::Shared }])
    }

    fn start(self: Arc<Self>, _: CallContext, arguments: Value) -> BoxFuture<'static, Started> {
        let number = |name| arguments.get(name).and_then(Value::as_i64).unwrap_or_default();
        let sum = number("a") + number("b");
        let work = async move { Output::ok(sum.to_string()) }.boxed();
        std::future::ready(Started::Ready { change: None, work }).boxed()
    }
}

/// The log that a bench runs over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Log {
    /// None that outlives the process.
    Memory,
    /// SQLite, each event durable against a loss of power.
    Durable,
}

/// A supervision tree with the `add` tool, allowed by policy.
pub(crate) async fn supervisor(
    log: Log,
    folder: &Path,
    provider: Arc<dyn ModelProvider>,
    concurrency: usize,
) -> Supervisor {
    let model =
        Model { wire_name: "mock".into(), context_tokens: Some(128_000), ..Model::new("bench", provider) };
    let settings = Settings { max_live_runs: concurrency, max_running_calls: 1_024, ..Settings::default() };
    tree(log, folder, model, settings).await
}

/// The same, of any model and settings.
pub(crate) async fn tree(log: Log, folder: &Path, model: Model, settings: Settings) -> Supervisor {
    let store: Arc<dyn EventStore> = match log {
        Log::Memory => Arc::new(MemoryStore::default()),
        Log::Durable => Arc::new(SqliteStore::open(&folder.join("log.db"), Options::default()).unwrap()),
    };
    let models = Models::default();
    models.insert(model);
    let mut toolbox = Toolbox::default();
    toolbox.register(Arc::new(Add::new())).unwrap();
    let services = Services {
        store,
        clock: Arc::new(SystemClock),
        models,
        toolbox,
        policy: policies::load("trusted").unwrap(),
        workspaces: Workspaces::default(),
        live: tokio::sync::broadcast::channel(16).0,
        settings,
    };
    Supervisor::start(Arc::new(services)).await.unwrap()
}

/// Four turns with a call each, then one with text; each reply takes `delay_ms`.
pub(crate) fn script(delay_ms: u64) -> Script {
    let call = json!({ "calls": [{ "name": "add", "arguments": { "a": 2, "b": 3 } }], "delay_ms": delay_ms });
    let end = json!({ "text": "done", "delay_ms": delay_ms });
    serde_json::from_value(json!([call, call, call, call, end])).unwrap()
}

/// A task in `workspace`.
pub(crate) fn task(number: usize, workspace: &str, script: Option<Script>) -> Arc<TaskSpec> {
    Arc::new(TaskSpec {
        parent: None,
        before: Vec::new(),
        task: format!("Add numbers, task {number}.").into(),
        task_id: None,
        batch: None,
        attempt: 1,
        predecessor: None,
        system: Some("You are a helpful assistant.".into()),
        facts: std::collections::BTreeMap::new(),
        model: "bench".into(),
        workspace: workspace.into(),
        tools: None,
        limits: herder::domain::usage::Limits::default(),
        priority: 0,
        labels: std::collections::BTreeMap::new(),
        submission: None,
        owner: None,
        meta: None,
        params: herder::domain::task::Params::default(),
        response_format: None,
        on_truncated: herder::domain::task::OnTruncated::Block,
        isolate: herder::domain::task::Isolate::None,
        stop_on_tool_error: false,
        script,
    })
}

/// Runs `n` tasks, all submitted at once; how many were done.
pub(crate) async fn run_all(
    supervisor: &Supervisor,
    n: usize,
    workspace: &str,
    script: Option<&Script>,
) -> usize {
    let mut waits = Vec::with_capacity(n);
    for number in 0..n {
        let run = RunId::new(uuid::Uuid::now_v7());
        waits.push(supervisor.submit_soon(run, task(number, workspace, script.cloned())).unwrap().done);
    }
    let mut done = 0;
    for wait in waits {
        let end = wait.await.unwrap().end.unwrap();
        done += usize::from(end.outcome == Outcome::Done);
    }
    done
}
