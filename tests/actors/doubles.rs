//! Tools, models and stores that do what real ones do on their worst day.

use std::{
    collections::{BTreeMap, HashMap},
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{
    FutureExt as _, StreamExt as _,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use herder::{
    domain::{
        call::{Access, EffectClass, Mode, Scope, ToolSpec},
        event::{Envelope, Fact},
        id::{BatchId, Pos, RunId, Seq},
        time::Timestamp,
    },
    model::{Delta, ModelError, ModelProvider, Request},
    store::{
        AuditFilter, AuditRecord, BatchRecord, Checkpoint, EventStore, RunCounts, RunFilter, RunRecord,
        StoreError, TaskRecord, Ticket, health::Health, memory::MemoryStore,
    },
    tool::{CallContext, Output, Started, Tool, workspace::Workspace},
};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

type Work = dyn Fn(CallContext, Value) -> BoxFuture<'static, Output> + Send + Sync;
type Touches = dyn Fn(&Workspace, &Value) -> Vec<Access> + Send + Sync;

/// A tool made of two closures: what it touches, and what it does.
pub(crate) struct Double {
    spec: ToolSpec,
    effect: EffectClass,
    touches: Box<Touches>,
    /// Where what it touches is found to be once it holds its locks.
    moved_to: Option<&'static str>,
    work: Arc<Work>,
}

impl Double {
    /// A tool that touches nothing.
    pub(crate) fn new<F: Future<Output = Output> + Send + 'static>(
        name: &str,
        work: impl Fn(CallContext, Value) -> F + Send + Sync + 'static,
    ) -> Self {
        Self {
            spec: ToolSpec {
                name: name.into(),
                description: "for a test".into(),
                schema: Arc::new(json!({ "type": "object" })),
            },
            effect: EffectClass::Outside,
            touches: Box::new(|_, _| Vec::new()),
            moved_to: None,
            work: Arc::new(move |context, arguments| work(context, arguments).boxed()),
        }
    }

    /// It is alone with a file, or shares it.
    pub(crate) fn on(mut self, file: &'static str, mode: Mode) -> Self {
        self.touches = Box::new(move |workspace, _| vec![access(workspace, file, mode)]);
        self
    }

    /// What it touches turns out to be this file when its locks are granted.
    pub(crate) const fn moved_to(mut self, file: &'static str) -> Self {
        self.moved_to = Some(file);
        self
    }

    pub(crate) fn effect(mut self, effect: EffectClass) -> Self {
        self.effect = effect;
        self
    }

    /// Says `did it`.
    pub(crate) fn quick(name: &str) -> Self {
        Self::new(name, |_, _| async { Output::ok("did it") })
    }

    /// Never ends, whatever it is told.
    pub(crate) fn deaf(name: &str) -> Self {
        Self::new(name, |_, _| pending())
    }

    /// Never ends, and has something like a thread that goes on until the gate lets it pass.
    pub(crate) fn stalled(name: &str, gate: &Arc<Gate>) -> Self {
        let gate = gate.clone();
        Self::new(name, move |context, _| {
            let (gate, thread) = (gate.clone(), context.blocking.token());
            tokio::spawn(async move {
                let _thread = thread;
                gate.open.acquire().await.unwrap().forget();
            });
            pending()
        })
    }

    /// Ends when it is told to.
    pub(crate) fn heeding(name: &str) -> Self {
        Self::new(name, |context, _| async move {
            context.cancel.cancelled().await;
            Output::failed(herder::domain::call::Failure::Cancelled, "told to end")
        })
    }

    /// Takes this long, unless it is told to end.
    pub(crate) fn slow(name: &str, time: Duration) -> Self {
        Self::new(name, move |context, _| async move {
            match context.cancel.run_until_cancelled(tokio::time::sleep(time)).await {
                Some(()) => Output::ok("did it"),
                None => Output::failed(herder::domain::call::Failure::Cancelled, "told to end"),
            }
        })
    }

    /// Waits for the gate to let it pass, and tells how many of it are in there.
    pub(crate) fn gated(name: &str, gate: &Arc<Gate>) -> Self {
        let gate = gate.clone();
        Self::new(name, move |_, _| {
            let gate = gate.clone();
            async move {
                gate.inside.send_modify(|inside| *inside += 1);
                gate.open.acquire().await.unwrap().forget();
                gate.inside.send_modify(|inside| *inside -= 1);
                Output::ok("passed")
            }
        })
    }
}

/// What a gated tool waits at.
pub(crate) struct Gate {
    pub(crate) open: Semaphore,
    pub(crate) inside: watch::Sender<usize>,
}

impl Gate {
    pub(crate) fn closed() -> Arc<Self> {
        Arc::new(Self { open: Semaphore::new(0), inside: watch::Sender::new(0) })
    }

    pub(crate) async fn until_inside(&self, count: usize) {
        self.inside.subscribe().wait_for(|inside| *inside >= count).await.unwrap();
    }
}

impl Tool for Double {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self) -> EffectClass {
        self.effect
    }

    fn access(&self, workspace: &Workspace, arguments: &Value) -> Result<Vec<Access>, String> {
        Ok((self.touches)(workspace, arguments))
    }

    fn start(self: Arc<Self>, context: CallContext, arguments: Value) -> BoxFuture<'static, Started> {
        if let Some(file) = self.moved_to {
            let access = vec![access(&context.workspace, file, Mode::Exclusive)];
            if *context.access != *access {
                return std::future::ready(Started::Moved(access)).boxed();
            }
        }
        let work = self.work.clone();
        let work = async move { work(context, arguments).await }.boxed();
        std::future::ready(Started::Ready { change: None, work }).boxed()
    }
}

fn access(workspace: &Workspace, file: &str, mode: Mode) -> Access {
    Access { scope: Scope::File, path: format!("{}/{file}", workspace.key()).into(), mode }
}

/// A model that never answers, and does not listen.
pub(crate) struct DeafModel {
    pub(crate) streams: Arc<AtomicUsize>,
}

struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl ModelProvider for DeafModel {
    fn stream(&self, _: Request, _: CancellationToken) -> BoxStream<'static, Result<Delta, ModelError>> {
        self.streams.fetch_add(1, Ordering::SeqCst);
        let counted = Counted(self.streams.clone());
        stream::once(async move {
            let _counted = counted;
            pending().await
        })
        .boxed()
    }
}

/// What goes wrong with an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The store refuses it.
    Refuses,
    /// The store takes it, and does not get it to the disk, nor what builds on it.
    Loses,
    /// The actor that hands it over panics.
    Panics,
}

/// Says what goes wrong with an append: the run, how many were handed over for it before, and what this one is.
type Judge = dyn Fn(RunId, usize, &[Fact]) -> Option<Trouble> + Send + Sync;

/// A store that fails where it is told to.
pub(crate) struct TroubledStore {
    pub(crate) inner: MemoryStore,
    /// Whether the disk answers; until it does, nobody hears what has reached it.
    pub(crate) disk: watch::Sender<bool>,
    health: watch::Sender<Health>,
    appends: Mutex<HashMap<RunId, usize>>,
    judge: Box<Judge>,
}

impl TroubledStore {
    pub(crate) fn new(
        judge: impl Fn(RunId, usize, &[Fact]) -> Option<Trouble> + Send + Sync + 'static,
    ) -> Self {
        Self {
            inner: MemoryStore::default(),
            disk: watch::Sender::new(true),
            health: watch::Sender::new(Health::Well),
            appends: Mutex::default(),
            judge: Box::new(judge),
        }
    }

    /// Its disk is full.
    pub(crate) fn fill(&self) {
        self.disk.send_replace(false);
        self.health.send_replace(Health::Stuck { since: Timestamp::default(), free_bytes: Some(0) });
    }

    /// There is room on it again.
    pub(crate) fn make_room(&self) {
        self.disk.send_replace(true);
        self.health.send_replace(Health::Well);
    }

    pub(crate) fn appends(&self, run: RunId) -> usize {
        self.appends.lock().unwrap().get(&run).copied().unwrap_or_default()
    }
}

impl EventStore for TroubledStore {
    fn append(&self, run: RunId, expected: Seq, facts: &[Fact]) -> Result<Ticket, StoreError> {
        let before = {
            let mut appends = self.appends.lock().unwrap();
            let count = appends.entry(run).or_default();
            *count += 1;
            *count - 1
        };
        match (self.judge)(run, before, facts) {
            None => self.inner.append(run, expected, facts),
            Some(Trouble::Refuses) => {
                Err(StoreError::Unavailable(Arc::new(std::io::Error::other("disk on fire"))))
            }
            Some(Trouble::Loses) => self.inner.append(run, expected.plus(1_000), facts),
            Some(Trouble::Panics) => panic!("the disk is on fire"),
        }
    }

    fn durable(&self, ticket: Ticket) -> BoxFuture<'_, Result<(), StoreError>> {
        async move {
            self.disk.subscribe().wait_for(|answers| *answers).await.unwrap();
            self.inner.durable(ticket).await
        }
        .boxed()
    }

    fn read(&self, run: RunId, after: Seq) -> BoxFuture<'_, Result<Vec<Envelope>, StoreError>> {
        self.inner.read(run, after)
    }

    fn read_all(&self, after: Pos, limit: usize) -> BoxFuture<'_, Result<Vec<Envelope>, StoreError>> {
        self.inner.read_all(after, limit)
    }

    fn watch(&self) -> watch::Receiver<Pos> {
        self.inner.watch()
    }

    fn health(&self) -> watch::Receiver<Health> {
        self.health.subscribe()
    }

    fn runs(&self, filter: RunFilter) -> BoxFuture<'_, Result<Vec<RunRecord>, StoreError>> {
        self.inner.runs(filter)
    }

    fn count(&self, filter: RunFilter) -> BoxFuture<'_, Result<RunCounts, StoreError>> {
        self.inner.count(filter)
    }

    fn save_checkpoint(&self, run: RunId, through: Seq, state: Vec<u8>) -> Result<Ticket, StoreError> {
        self.inner.save_checkpoint(run, through, state)
    }

    fn checkpoint(&self, run: RunId) -> BoxFuture<'_, Result<Option<Checkpoint>, StoreError>> {
        self.inner.checkpoint(run)
    }

    fn record_batch(&self, batch: BatchRecord, tasks: Vec<TaskRecord>) -> Result<Ticket, StoreError> {
        self.inner.record_batch(batch, tasks)
    }

    fn batches(&self) -> BoxFuture<'_, Result<Vec<BatchRecord>, StoreError>> {
        self.inner.batches()
    }

    fn tasks(&self, batch: BatchId) -> BoxFuture<'_, Result<Vec<TaskRecord>, StoreError>> {
        self.inner.tasks(batch)
    }

    fn forget(&self, batches: Vec<BatchId>, runs: Vec<RunId>) -> Result<Ticket, StoreError> {
        self.inner.forget(batches, runs)
    }

    fn save_setting(&self, name: &str, value: Option<String>) -> Result<Ticket, StoreError> {
        self.inner.save_setting(name, value)
    }

    fn settings(&self) -> BoxFuture<'_, Result<BTreeMap<String, String>, StoreError>> {
        self.inner.settings()
    }

    fn record_audit(&self, record: AuditRecord) -> Result<Ticket, StoreError> {
        self.inner.record_audit(record)
    }

    fn audit(&self, filter: AuditFilter) -> BoxFuture<'_, Result<Vec<AuditRecord>, StoreError>> {
        self.inner.audit(filter)
    }
}
