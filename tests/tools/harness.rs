//! A workspace, a launcher, and calls that are made as the executor makes them.

use std::{
    fs,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use herder::{
    domain::{
        call::{Access, Failure},
        id::{CallId, RunId},
    },
    tool::{
        CallContext, Output, ProcessesPort, Started, Tool,
        builtin::{BuiltinOptions, builtin},
        launcher::{Bounds, Exposure, Launcher},
        output::Limits,
        process::{ProcessLimits, ProcessRunner},
        scratch::Scratch,
        workspace::{Workspace, sensitive::Sensitive},
    },
};
use serde_json::Value;
use tempfile::TempDir;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uuid::Uuid;

/// Far more than anything here takes, so that only what hangs fails.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const RUN: RunId = RunId::new(Uuid::from_u128(7));

pub(crate) struct Scene {
    folder: TempDir,
    pub(crate) workspace: Arc<Workspace>,
    pub(crate) launcher: Launcher,
    pub(crate) scratch: Scratch,
    pub(crate) cancel: CancellationToken,
    /// What a call may take at most.
    pub(crate) timeout: Duration,
    pub(crate) call: &'static str,
    pub(crate) task_id: Option<Arc<str>>,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let folder = TempDir::new().unwrap();
        fs::create_dir(folder.path().join("ws")).unwrap();
        let scratch = Scratch::new(folder.path().join("tmp"));
        let launcher = Launcher {
            runner: ProcessRunner::with_executable(env!("CARGO_BIN_EXE_herder")),
            scratch: scratch.clone(),
            spill_root: Some(folder.path().join("spill")),
            env_pass: Vec::new(),
            limits: ProcessLimits::default(),
            bounds: Bounds::default(),
            exposure: Exposure::of(None).into(),
            output: Limits::default(),
            grace: Duration::from_millis(500),
        };
        Self {
            workspace: Arc::new(Workspace::open(&folder.path().join("ws"), &[]).unwrap()),
            folder,
            launcher,
            scratch,
            cancel: CancellationToken::new(),
            timeout: PATIENCE,
            call: "call_1",
            task_id: None,
        }
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    pub(crate) fn tool(&self, name: &str) -> Arc<dyn Tool> {
        let launcher = Arc::new(self.launcher.clone());
        let tools = builtin(BuiltinOptions { launcher, bash_timeout: PATIENCE, sensitive: Sensitive::Skip });
        tools.into_iter().find(|tool| &*tool.spec().name == name).unwrap()
    }

    pub(crate) async fn bash(&self, arguments: Value) -> Output {
        self.run(self.tool("bash"), arguments).await
    }

    pub(crate) async fn run(&self, tool: Arc<dyn Tool>, arguments: Value) -> Output {
        let access = tool.access(&self.workspace, &arguments).unwrap();
        let started = tool.start(self.context(access), arguments).await;
        let Started::Ready { change: None, work } = started else { panic!("not ready") };
        tokio::time::timeout(PATIENCE * 2, work).await.expect("hangs")
    }

    /// Calls a built-in tool, whatever comes of it.
    pub(crate) async fn call(&self, name: &str, arguments: Value) -> Output {
        let tool = self.tool(name);
        let called = async {
            let access = match tool.access(&self.workspace, &arguments) {
                Ok(access) => access,
                Err(why) => return Output::failed(Failure::Failed, why),
            };
            match tool.start(self.context(access), arguments).await {
                Started::Ready { work, .. } => work.await,
                Started::Ended(output) => output,
                Started::Moved(_) => Output::failed(Failure::Failed, "moved"),
            }
        };
        tokio::time::timeout(PATIENCE * 2, called).await.expect("hangs")
    }

    fn context(&self, access: Vec<Access>) -> CallContext {
        CallContext {
            run: RUN,
            task_id: self.task_id.clone(),
            call: CallId::new(self.call),
            workspace: self.workspace.clone(),
            access: access.into(),
            cancel: self.cancel.clone(),
            timeout: self.timeout,
            blocking: TaskTracker::new(),
            processes: ProcessesPort::default(),
        }
    }

    /// Waits for a file in the workspace that ends in a line feed.
    pub(crate) async fn until_file(&self, name: &str) -> String {
        let (path, start) = (self.path("ws").join(name), Instant::now());
        loop {
            match fs::read_to_string(&path) {
                Ok(text) if text.ends_with('\n') => return text,
                Ok(_) | Err(_) => assert!(start.elapsed() < PATIENCE, "waited in vain for {name}"),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
