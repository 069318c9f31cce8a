//! What a run can do to the world: the tools, and the rules they share.
//!
//! A tool says beforehand what a call touches, so that the executor can order calls over all runs; it does its work
//! inside the locks that this asks for. It knows nothing of runs, models or the log.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::domain::{
    call::{Access, EffectClass, Failure, Timing, ToolResult, ToolSpec},
    event::FileChange,
    id::{CallId, RunId},
};

pub mod builtin;
pub mod command;
pub(crate) mod digest;
pub mod isolate;
pub mod launcher;
pub mod output;
pub mod process;
pub mod scratch;
pub mod text_edit;
pub mod toolbox;
pub mod workspace;

use process::CommandGroup;
use workspace::Workspace;

/// Something that a model can have done.
pub trait Tool: Send + Sync + 'static {
    /// What a model is told of it.
    fn spec(&self) -> &ToolSpec;

    /// What any call of it does to the world, at most.
    fn effect(&self) -> EffectClass;

    /// What this call touches, and how. May look at the file system, and does so outside any lock; the work checks
    /// again once it holds them.
    ///
    /// # Errors
    /// Why the call cannot be made, in words for the model.
    fn access(&self, workspace: &Workspace, arguments: &Value) -> Result<Vec<Access>, String>;

    /// The command line that a call with these arguments would run, for policy to judge what is in it.
    fn command<'a>(&self, _arguments: &'a Value) -> Option<&'a str> {
        None
    }

    /// Whether [`Self::access`] may take any time, because it looks at a file system that may.
    fn access_blocks(&self, _workspace: &Workspace) -> bool {
        false
    }

    /// What a person is shown who is to decide about the call, and what it would change. Looks at the file system, outside
    /// any lock, and changes nothing. May block.
    ///
    /// # Errors
    /// Why the call cannot be made, in words for the model.
    fn preview(&self, _workspace: &Workspace, _arguments: &Value) -> Result<Preview, String> {
        Ok(Preview::default())
    }

    /// Begins the call; the locks of `context.access` are held until what this returns has ended. Nothing may be
    /// changed before [`Started::Ready`]'s work runs: by then the log says what is about to happen.
    fn start(self: Arc<Self>, context: CallContext, arguments: Value) -> BoxFuture<'static, Started>;

    /// The run has ended: what the tool keeps for it can go. Called within the runtime; must not block.
    fn forget(&self, _run: RunId) {}
}

/// What a call may know and use.
#[derive(Clone, Debug)]
pub struct CallContext {
    /// The run.
    pub run: RunId,
    /// The task's own name, if it has one.
    pub task_id: Option<Arc<str>>,
    /// The call.
    pub call: CallId,
    /// Where it works.
    pub workspace: Arc<Workspace>,
    /// What it holds locks on.
    pub access: Arc<[Access]>,
    /// Fires when the call is to end at once; it then has its grace, and no more.
    pub cancel: CancellationToken,
    /// How long it may take.
    pub timeout: Duration,
    /// Counts its threads that change something and cannot be stopped: should the work be dropped, its locks wait for
    /// them.
    pub blocking: TaskTracker,
    /// Is told of the processes that the call runs.
    pub processes: ProcessesPort,
}

/// Is told what leads the processes of a call, as soon as there are some.
#[derive(Clone, Default)]
pub struct ProcessesPort(Option<Arc<Tell>>);

type Tell = dyn Fn(&CommandGroup) + Send + Sync;

impl ProcessesPort {
    /// Hands on what it is told.
    pub fn new(tell: impl Fn(&CommandGroup) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(tell)))
    }

    /// Tells it.
    pub fn tell(&self, leader: &CommandGroup) {
        if let Some(tell) = &self.0 {
            tell(leader);
        }
    }
}

impl std::fmt::Debug for ProcessesPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProcessesPort").finish_non_exhaustive()
    }
}

/// See [`Tool::preview`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preview {
    /// For a change of one file: how to tell whether it is still the one that is shown.
    pub change: Option<FileChange>,
    /// The change as a unified diff, or the command.
    pub text: Option<Arc<str>>,
}

/// How far a call came without changing anything.
pub enum Started {
    /// It ended already: it failed, or there was nothing to do.
    Ended(Output),
    /// What it touches is no longer what its locks are on.
    Moved(Vec<Access>),
    /// It is about to take effect.
    Ready {
        /// For a change of one file: how to tell afterwards whether it was made.
        change: Option<FileChange>,
        /// Takes effect.
        work: BoxFuture<'static, Output>,
    },
}

/// What a model is told of a tool that panicked.
pub const PANICKED: &str = "the tool failed in a way that it should not (it panicked)";

/// What came of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// What the model is shown.
    pub text: String,
    /// Why the tool did not do what was asked, if it did not.
    pub failure: Option<Failure>,
    /// Asks the run to end.
    pub terminate: bool,
}

impl Output {
    /// Answers a call with it.
    pub fn answer(self, call: CallId, timing: Option<Timing>) -> ToolResult {
        let Self { text, failure, terminate } = self;
        ToolResult { call, ok: failure.is_none(), output: text.into(), failure, terminate, timing }
    }

    /// The tool did what was asked.
    pub fn ok(text: impl Into<String>) -> Self {
        Self { text: text.into(), failure: None, terminate: false }
    }

    /// The tool did not.
    pub fn failed(failure: Failure, text: impl Into<String>) -> Self {
        Self { text: text.into(), failure: Some(failure), terminate: false }
    }
}
