//! A daemon's batches over a scripted model, which can be held until a test lets it answer.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use futures_util::{
    FutureExt as _, StreamExt as _,
    stream::{self, BoxStream},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{Semaphore, watch};

use super::*;
use crate::{
    actor::{Services, Settings},
    clock::SystemClock,
    config::{Sources, load},
    domain::policy::Policy,
    model::{Delta, Model, ModelError, ModelProvider, Models, Request, scripted::Scripted},
    store::{
        RunFilter,
        memory::MemoryStore,
        sqlite::{Options, SqliteStore},
    },
    tool::{toolbox::Toolbox, workspace::Workspaces},
};

mod asked;
mod going_on;
mod gone;
mod log;
mod reading;
mod taking;

/// All results, as they come.
const FOLLOW: Reading = Reading { follow: true, with_messages: false, after: 0 };

/// What its model is called.
const GATED: &str = "scripted:gated";

/// A model that answers once for each permit.
#[derive(Clone)]
struct Gate {
    open: Arc<Semaphore>,
    /// How many requests were ever made.
    asked: watch::Sender<usize>,
}

impl Gate {
    fn new() -> Self {
        Self { open: Arc::new(Semaphore::new(0)), asked: watch::Sender::new(0) }
    }

    async fn until_asked(&self, count: usize) {
        soon(self.asked.subscribe().wait_for(|asked| *asked >= count)).await.unwrap();
    }
}

impl ModelProvider for Gate {
    fn stream(
        &self,
        request: Request,
        cancel: CancellationToken,
    ) -> BoxStream<'static, Result<Delta, ModelError>> {
        let Self { open, asked } = self.clone();
        let answer = async move {
            asked.send_modify(|asked| *asked += 1);
            match cancel.run_until_cancelled(open.acquire()).await {
                Some(permit) => permit.unwrap().forget(),
                None => return stream::iter([Err(ModelError::cancelled())]).boxed(),
            }
            Scripted::default().stream(request, cancel)
        };
        answer.flatten_stream().boxed()
    }
}

/// What outlives a daemon.
#[derive(Clone)]
struct Disk {
    folder: Arc<TempDir>,
    memory: Option<Arc<dyn EventStore>>,
}

impl Disk {
    fn new() -> Self {
        Self { folder: Arc::new(TempDir::new().unwrap()), memory: None }
    }

    fn in_memory() -> Self {
        Self::with(Arc::new(MemoryStore::default()))
    }

    fn with(store: Arc<dyn EventStore>) -> Self {
        Self { memory: Some(store), ..Self::new() }
    }

    fn store(&self) -> Arc<dyn EventStore> {
        match &self.memory {
            Some(memory) => memory.clone(),
            None => {
                let path = self.folder.path().join("log.db");
                Arc::new(SqliteStore::open(&path, Options::default()).unwrap())
            }
        }
    }

    fn inputs(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path().join("batches")).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

/// One life of a daemon.
struct Daemon {
    disk: Disk,
    gate: Gate,
    store: Arc<dyn EventStore>,
    supervisor: Supervisor,
    batches: Batches,
    recovered: Recovered,
}

impl Daemon {
    async fn start(disk: &Disk) -> Self {
        Self::with_slots(disk, 100).await
    }

    async fn with_slots(disk: &Disk, slots: usize) -> Self {
        let daemon = Self::starting(disk, slots).await;
        let recovered = soon(daemon.batches.recover()).await.unwrap();
        Self { recovered, ..daemon }
    }

    /// Nothing is taken up yet.
    async fn starting(disk: &Disk, slots: usize) -> Self {
        let (gate, store) = (Gate::new(), disk.store());
        let models = Models::default();
        let providers: [(&str, Arc<dyn ModelProvider>); 2] =
            [(crate::app::input::SCRIPTED, Arc::new(Scripted::default())), (GATED, Arc::new(gate.clone()))];
        for (name, provider) in providers {
            models.insert(Model::new(name, provider));
        }
        let policy = json!({ "name": "all", "rule": [{ "decision": "allow" }] });
        let policy: Policy = serde_json::from_value(policy).unwrap();
        let services = Services {
            store: store.clone(),
            clock: Arc::new(SystemClock),
            models,
            toolbox: Toolbox::default(),
            policy,
            workspaces: Workspaces::default(),
            live: tokio::sync::broadcast::channel(16).0,
            settings: Settings { shards: 1, max_live_runs: slots, ..Settings::default() },
        };
        let supervisor = Supervisor::start(Arc::new(services)).await.unwrap();
        let batches = Batches::new(Parts {
            supervisor: supervisor.clone(),
            store: store.clone(),
            folder: disk.folder.path().join("batches"),
            config: Arc::new(load(&Sources::default()).unwrap().0),
            clock: Arc::new(SystemClock),
            add_model: Arc::new(|_, _| Ok(())),
        })
        .unwrap();
        let recovered = Recovered::default();
        Self { disk: disk.clone(), gate, store, supervisor, batches, recovered }
    }

    /// Submits lines in pieces that fall anywhere.
    async fn submit(&self, batch: SubmitBatch, lines: &[Value]) -> Result<Submitted, SubmitError> {
        let text: String = lines.iter().map(|line| format!("{}\n", self.complete(line))).collect();
        self.submit_text(batch, text).await
    }

    async fn submit_text(&self, batch: SubmitBatch, text: String) -> Result<Submitted, SubmitError> {
        let pieces: Vec<_> = text.as_bytes().chunks(1_001).map(|piece| Ok(piece.to_vec())).collect();
        let submission: futures_util::future::BoxFuture<'_, _> =
            self.batches.submit(batch, stream::iter(pieces)).boxed();
        soon(submission).await
    }

    /// The line with a workspace.
    fn complete(&self, line: &Value) -> Value {
        let mut line = line.clone();
        line["workspace"] = json!(self.disk.folder.path());
        line
    }

    async fn until(&self, id: BatchId, is_so: impl FnMut(&Status) -> bool) -> Status {
        soon(self.batches.watch(id).unwrap().wait_for(is_so)).await.unwrap().clone()
    }

    async fn ended(&self, id: BatchId) -> Status {
        self.until(id, |status| status.state != BatchState::Open && status.counts.in_flight == 0).await
    }

    /// The ids, attempts and outcomes of all results, once they are complete.
    async fn results(&self, id: BatchId) -> Vec<(String, u64, String)> {
        let lines = self.batches.results(id, FOLLOW).await.unwrap();
        soon(lines.map(|line| told(&line.unwrap())).collect()).await
    }

    /// The ids of the tasks of all runs of record, sorted, one for each attempt.
    async fn attempts(&self) -> Vec<String> {
        let runs = self.store.runs(RunFilter::default()).await.unwrap();
        let mut tasks: Vec<_> =
            runs.iter().map(|run| run.task_id.as_deref().unwrap_or("-").to_owned()).collect();
        tasks.sort();
        tasks
    }
}

fn told(line: &[u8]) -> (String, u64, String) {
    assert_eq!(line.last(), Some(&b'\n'));
    let line: Value = serde_json::from_slice(line).unwrap();
    let text = |key: &str| line[key].as_str().unwrap().to_owned();
    (text("id"), line["attempt"].as_u64().unwrap(), text("outcome"))
}

fn sorted<T: Ord>(mut list: Vec<T>) -> Vec<T> {
    list.sort();
    list
}

fn result(id: &str, attempt: u64, outcome: &str) -> (String, u64, String) {
    (id.to_owned(), attempt, outcome.to_owned())
}

/// A task that is done at once.
fn quick(id: &str) -> Value {
    json!({ "id": id, "task": "t", "script": [{ "text": "done" }] })
}

/// A task that waits for the gate.
fn held(id: &str) -> Value {
    json!({ "id": id, "task": "t", "model": GATED, "script": [{ "text": "done" }] })
}

/// A task that fails at once, for good.
fn barred(id: &str) -> Value {
    json!({ "id": id, "task": "t", "script": [{ "fault": { "status": 401 } }] })
}

fn keyed(key: &str) -> SubmitBatch {
    SubmitBatch { key: Some(key.to_owned()), ..SubmitBatch::default() }
}

fn at_once(runs: usize) -> SubmitBatch {
    let options = BatchOptions { concurrency: std::num::NonZeroUsize::new(runs), ..BatchOptions::default() };
    SubmitBatch { options, ..SubmitBatch::default() }
}

fn both() -> [Disk; 2] {
    [Disk::new(), Disk::in_memory()]
}

/// Lives one life of a daemon; it is killed at the end of it.
fn live<T>(disk: &Disk, life: impl AsyncFnOnce(Daemon) -> T) -> T {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let daemon = Daemon::start(disk).await;
        life(daemon).await
    })
}

/// Waits for what comes soon, unless something hangs.
async fn soon<F: Future>(work: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(120), work).await.expect("it hangs")
}
