//! The built-in tools as the executor uses them, and as a model sees them.

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uuid::Uuid;

use super::{BuiltinOptions, builtin};
use crate::{
    domain::{
        call::{Access, Failure, ToolSpec},
        event::FileChange,
        id::{CallId, RunId},
    },
    tool::{
        CallContext, Output, ProcessesPort, Started, Tool,
        launcher::{Bounds, Exposure, Launcher},
        output::Limits,
        process::{ProcessLimits, ProcessRunner},
        scratch::Scratch,
        toolbox::Toolbox,
        workspace::{Workspace, sensitive::Sensitive},
    },
};

mod arguments;
mod changing;
mod locks;
mod looking;

/// A workspace and the tools that work in it.
struct Bench {
    folder: TempDir,
    workspace: Arc<Workspace>,
    toolbox: Toolbox,
}

impl Bench {
    fn new() -> Self {
        Self::with(options())
    }

    fn with(options: BuiltinOptions) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("ws")).unwrap();
        let workspace = Arc::new(Workspace::open(&folder.path().join("ws"), &[]).unwrap());
        let mut toolbox = Toolbox::default();
        for tool in builtin(options) {
            toolbox.register(tool).unwrap();
        }
        Self { folder, workspace, toolbox }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join("ws").join(path)
    }

    fn file(&self, path: &str, content: impl AsRef<[u8]>) {
        fs::create_dir_all(self.path(path).parent().unwrap()).unwrap();
        fs::write(self.path(path), content).unwrap();
    }

    fn content(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    /// The key of a path that is spelled without links.
    fn key(&self, path: &str) -> Arc<str> {
        match path {
            "." => self.workspace.key().clone(),
            path => format!("{}/{path}", self.workspace.key()).into(),
        }
    }

    fn tool(&self, name: &str, arguments: &Value) -> &Arc<dyn Tool> {
        let offered: Vec<_> = self.toolbox.names().cloned().collect();
        self.toolbox.check(&offered, name, arguments).unwrap()
    }

    fn access(&self, name: &str, arguments: &Value) -> Result<Vec<Access>, String> {
        self.tool(name, arguments).access(&self.workspace, arguments)
    }

    async fn start(&self, name: &str, arguments: Value, context: CallContext) -> Started {
        self.tool(name, &arguments).clone().start(context, arguments).await
    }

    fn context(&self, access: Vec<Access>) -> CallContext {
        CallContext {
            run: RunId::new(Uuid::nil()),
            task_id: None,
            call: CallId::new("call_1"),
            workspace: self.workspace.clone(),
            access: access.into(),
            cancel: CancellationToken::new(),
            timeout: Duration::from_secs(60),
            blocking: TaskTracker::new(),
            processes: ProcessesPort::default(),
        }
    }

    /// All of a call, as the executor does it, and what was announced.
    async fn call(&self, name: &str, arguments: Value) -> (Output, Option<FileChange>) {
        let access = match self.access(name, &arguments) {
            Ok(access) => access,
            Err(why) => return (Output::failed(Failure::Failed, why), None),
        };
        match self.start(name, arguments, self.context(access)).await {
            Started::Ended(output) => (output, None),
            Started::Moved(access) => panic!("moved to {access:?}"),
            Started::Ready { change, work } => (work.await, change),
        }
    }

    async fn ok(&self, name: &str, arguments: Value) -> String {
        let (output, _) = self.call(name, arguments).await;
        assert_eq!(output.failure, None, "{}", output.text);
        output.text
    }

    async fn refused(&self, name: &str, arguments: Value) -> String {
        let (output, _) = self.call(name, arguments).await;
        assert_eq!(output.failure, Some(Failure::Failed), "{}", output.text);
        output.text
    }
}

fn options() -> BuiltinOptions {
    BuiltinOptions {
        launcher: Arc::new(launcher(Limits::default())),
        bash_timeout: Duration::from_secs(120),
        sensitive: Sensitive::Skip,
    }
}

/// For tools that are not run here.
fn launcher(output: Limits) -> Launcher {
    Launcher {
        runner: ProcessRunner::default(),
        scratch: Scratch::new("/nonexistent"),
        spill_root: None,
        env_pass: Vec::new(),
        limits: ProcessLimits::default(),
        bounds: Bounds::default(),
        exposure: Exposure::of(None).into(),
        output,
        grace: Duration::ZERO,
    }
}

fn edit_of(path: &str, old_text: &str, new_text: &str) -> Value {
    json!({ "path": path, "old_text": old_text, "new_text": new_text })
}
