//! A supervision tree in a temporary folder, and what its log says of its runs.

use std::{
    fs,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use herder::{
    actor::{
        Services, Settings, Supervisor,
        supervisor::{AskError, Submitted},
    },
    clock::{Clock, SystemClock},
    config::policies,
    domain::{
        call::ToolResult,
        event::{Envelope, Event, RunEnd},
        id::{RunId, Seq},
        message::{Message, validate},
        policy::Policy,
        run::{Input, Run},
        task::TaskSpec,
        time::Timestamp,
        usage::Price,
    },
    model::{
        Model, ModelProvider, Models,
        governor::{Account, Concurrency, Governor, Rates},
        scripted::Scripted,
    },
    store::{EventStore, memory::MemoryStore},
    tool::{
        Tool,
        builtin::{BuiltinOptions, builtin},
        launcher::{Bounds, Exposure, Launcher},
        output::Limits,
        process::{ProcessLimits, ProcessRunner},
        scratch::Scratch,
        toolbox::Toolbox,
        workspace::{Workspaces, sensitive::Sensitive},
    },
};
use serde_json::{Value, json};
use tempfile::TempDir;
use uuid::Uuid;

/// Far more than anything here takes, so that only what hangs fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(100);

/// What a tree is put together from.
pub(crate) struct Plan {
    pub(crate) store: Arc<dyn EventStore>,
    pub(crate) provider: Arc<dyn ModelProvider>,
    /// Models that go on with a run that the first is given up for, in this order.
    pub(crate) fallbacks: Vec<(&'static str, Arc<dyn ModelProvider>)>,
    pub(crate) price: Option<Price>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    pub(crate) policy: Policy,
    pub(crate) settings: Settings,
    pub(crate) rates: Rates,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            store: Arc::new(MemoryStore::default()),
            provider: Arc::new(Scripted::default()),
            fallbacks: Vec::new(),
            price: None,
            clock: Arc::new(SystemClock),
            tools: Vec::new(),
            policy: policies::load("trusted").unwrap(),
            settings: Settings { shards: 2, ..Settings::default() },
            rates: Rates { concurrency: Concurrency::Unlimited, ..Rates::default() },
        }
    }
}

impl Plan {
    /// Time is the runtime's, which a test pauses.
    pub(crate) fn paused() -> Self {
        Self { clock: Arc::new(RuntimeClock(tokio::time::Instant::now())), ..Self::default() }
    }

    pub(crate) fn tool(mut self, tool: impl Tool) -> Self {
        self.tools.push(Arc::new(tool));
        self
    }

    pub(crate) fn settings(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }

    pub(crate) async fn start(self) -> Stage {
        self.start_in(Arc::new(TempDir::new().unwrap())).await
    }

    /// In a folder that another tree has worked in.
    pub(crate) async fn start_in(self, folder: Arc<TempDir>) -> Stage {
        let launcher = Arc::new(Launcher {
            runner: ProcessRunner::with_executable(env!("CARGO_BIN_EXE_herder")),
            scratch: Scratch::new(folder.path().join("tmp")),
            spill_root: None,
            env_pass: Vec::new(),
            limits: ProcessLimits::default(),
            bounds: Bounds::default(),
            exposure: Exposure::of(None).into(),
            output: Limits::default(),
            grace: Duration::from_millis(500),
        });
        let bash_timeout = Duration::from_secs(60);
        let mut toolbox = Toolbox::default();
        for tool in builtin(BuiltinOptions { launcher, bash_timeout, sensitive: Sensitive::Skip }) {
            toolbox.register(tool).unwrap();
        }
        for tool in self.tools {
            toolbox.register(tool).unwrap();
        }
        let models = Models::default();
        let fallbacks = self.fallbacks.iter().map(|(name, _)| (*name).into()).collect();
        models.insert(Model {
            wire_name: "fake-1".into(),
            governor: Governor::new(Account::new("account"), self.rates),
            price: self.price,
            fallbacks,
            ..Model::new("m", self.provider)
        });
        for (name, provider) in self.fallbacks {
            models.insert(Model::new(name, provider));
        }
        let services = Services {
            store: self.store.clone(),
            clock: self.clock,
            models,
            toolbox,
            policy: self.policy,
            workspaces: Workspaces::default(),
            live: tokio::sync::broadcast::channel(16).0,
            settings: self.settings,
        };
        let supervisor = Supervisor::start(Arc::new(services)).await.unwrap();
        Stage { folder, store: self.store, supervisor }
    }
}

/// Tells the runtime's time.
pub(crate) struct RuntimeClock(tokio::time::Instant);

impl Clock for RuntimeClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(1_000_000_000).after(self.0.elapsed())
    }
}

/// A tree at work.
pub(crate) struct Stage {
    pub(crate) folder: Arc<TempDir>,
    pub(crate) store: Arc<dyn EventStore>,
    pub(crate) supervisor: Supervisor,
}

impl Stage {
    /// The path of a file in a workspace, which is made if it is not there.
    pub(crate) fn path(&self, workspace: &str, file: &str) -> PathBuf {
        let folder = self.folder.path().join(workspace);
        fs::create_dir_all(&folder).unwrap();
        folder.join(file)
    }

    pub(crate) fn write(&self, workspace: &str, file: &str, text: &str) {
        fs::write(self.path(workspace, file), text).unwrap();
    }

    pub(crate) fn text(&self, workspace: &str, file: &str) -> String {
        fs::read_to_string(self.path(workspace, file)).unwrap()
    }

    /// A task in a workspace; `more` overrides its fields.
    pub(crate) fn task(&self, workspace: &str, script: &Value, more: &Value) -> Arc<TaskSpec> {
        let folder = self.path(workspace, "");
        let mut task = json!({
            "task": "task", "attempt": 1, "model": "m", "workspace": folder.to_str().unwrap(), "script": script,
        });
        for (key, value) in more.as_object().unwrap() {
            task[key] = value.clone();
        }
        Arc::new(serde_json::from_value(task).unwrap())
    }

    pub(crate) fn submit(&self, workspace: &str, script: &Value, more: &Value) -> Submitted {
        let run = RunId::new(Uuid::now_v7());
        self.supervisor.submit_soon(run, self.task(workspace, script, more)).unwrap()
    }

    /// Who says how much is asked of the model at once.
    pub(crate) fn governor(&self) -> Arc<Governor> {
        self.supervisor.services().models.get("m").unwrap().governor.clone()
    }

    /// A run in the workspace `ws`.
    pub(crate) fn run(&self, script: &Value) -> Submitted {
        self.submit("ws", script, &json!({}))
    }

    pub(crate) async fn log(&self, run: RunId) -> Vec<Envelope> {
        self.store.read(run, Seq::START).await.unwrap()
    }

    pub(crate) async fn kinds(&self, run: RunId) -> Vec<&'static str> {
        self.log(run).await.iter().map(|one| one.fact.event.kind()).collect()
    }

    /// Waits until the log of a run has so many facts of a kind.
    pub(crate) async fn until(&self, run: RunId, kind: &str, count: usize) {
        let mut durable = self.store.watch();
        let come = async {
            loop {
                durable.borrow_and_update();
                if self.kinds(run).await.iter().filter(|one| **one == kind).count() >= count {
                    return;
                }
                durable.changed().await.unwrap();
            }
        };
        come.await;
    }

    pub(crate) async fn pause(&self, run: RunId) -> Result<Seq, AskError> {
        self.supervisor.ask(run, Input::Pause).await
    }

    pub(crate) async fn unpause(&self, run: RunId) -> Result<Seq, AskError> {
        self.supervisor.ask(run, Input::Resume).await
    }

    /// Waits for the end of a run, and checks what holds for every run that has ended.
    pub(crate) async fn end(&self, submitted: Submitted) -> RunEnd {
        let Submitted { run, done } = submitted;
        let told = done.await.unwrap().end.expect("the run has not ended");
        let log = self.log(run).await;
        assert!(log.iter().zip(1..).all(|(one, seq)| one.seq == Seq::START.plus(seq)), "gaps in the log");
        let ends = log.iter().filter(|one| one.fact.event.kind() == "run_end").count();
        let Some(Event::RunEnd(end)) = log.last().map(|one| &one.fact.event) else { panic!("no run_end") };
        assert_eq!((ends, &**end), (1, &*told));
        let state = replay(run, &log);
        assert_eq!((validate(state.history()), state.owed()), (Ok(()), Vec::new()));
        (*told).clone()
    }

    pub(crate) async fn outcome(&self, submitted: Submitted) -> String {
        self.end(submitted).await.outcome.to_string()
    }

    /// What was said, in short.
    pub(crate) async fn transcript(&self, run: RunId) -> Vec<String> {
        let short = |message: &Message| match message {
            Message::System(text) => format!("system: {text}"),
            Message::User(text) => format!("user: {text}"),
            Message::Assistant(reply) => {
                let calls: Vec<_> = reply.calls.iter().map(|call| call.id.as_str()).collect();
                format!("model: {}{}", reply.text, calls.join(" "))
            }
            Message::Tool(result) => format!("tool {}: {}", result.call, result.output),
        };
        replay(run, &self.log(run).await).history().iter().map(short).collect()
    }

    pub(crate) async fn results(&self, run: RunId) -> Vec<Arc<ToolResult>> {
        let log = self.log(run).await.into_iter();
        log.filter_map(|one| if let Event::Result(result) = one.fact.event { Some(result) } else { None })
            .collect()
    }

    /// Waits for a file that ends in a line feed.
    pub(crate) async fn until_file(&self, workspace: &str, file: &str) -> String {
        let (path, start) = (self.path(workspace, file), Instant::now());
        loop {
            match fs::read_to_string(&path) {
                Ok(text) if text.ends_with('\n') => return text,
                Ok(_) | Err(_) => assert!(start.elapsed() < PATIENCE, "waited in vain for {file}"),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

pub(crate) fn replay(run: RunId, log: &[Envelope]) -> Run {
    Run::replay(run, log.iter().map(|one| &one.fact))
}

/// A reply that asks for calls: id, tool, arguments.
pub(crate) fn calls(calls: &[(&str, &str, Value)]) -> Value {
    let calls: Vec<_> = calls
        .iter()
        .map(|(id, name, arguments)| json!({ "id": id, "name": name, "arguments": arguments }))
        .collect();
    json!({ "calls": calls })
}

pub(crate) fn says(text: &str) -> Value {
    json!({ "text": text })
}
