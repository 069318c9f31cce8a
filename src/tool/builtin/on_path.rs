//! What the file tools have in common: one path, one lock, and work that blocks.
//!
//! The path is resolved again inside the lock. If it leads elsewhere by then, nothing is done and the call is queued
//! anew. A change that has begun is always waited for: the lock must not go before it. A look at one file is taken at
//! once, since it needs no word in the log before it.

use std::{borrow::Cow, fs, sync::Arc};

use futures_util::future::BoxFuture;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::parse;
use crate::{
    domain::{
        call::{Access, EffectClass, Failure, Mode, Scope, ToolSpec},
        event::FileChange,
    },
    tool::{
        CallContext, Output, Preview, Started, Tool,
        output::{Limits, head},
        workspace::{
            Intent, PathError, Resolved, Told, Workspace, mutate, mutate::MutateError, replace,
            replace::ReplaceError,
        },
    },
};

/// A file up to this size is looked at where the call is, and not on a thread that may block.
const QUICK_BYTES: u64 = 64 << 10;

/// Bytes of a diff that a person is shown whole: what is more nobody would look over.
const MAX_PREVIEW: usize = 1 << 20;

/// A tool that works on what one path names.
pub(super) trait OnPath: Send + Sync + 'static {
    type Arguments: DeserializeOwned;

    fn spec(&self) -> ToolSpec;

    fn effect(&self) -> EffectClass;

    fn path<'a>(&self, arguments: &'a Self::Arguments) -> &'a str;

    fn scope(&self, target: &Resolved) -> Scope;

    /// Gets a call ready inside its lock. Changes nothing, but may block.
    fn prepare(
        &self,
        arguments: Self::Arguments,
        target: Resolved,
        cancel: &CancellationToken,
    ) -> Result<Prepared, Refused>;

    /// The change of a file that the call would make, if it makes one. May block.
    fn plan(&self, _: Self::Arguments, _: &Resolved) -> Result<Option<mutate::Change>, Refused> {
        Ok(None)
    }
}

/// A call that is about to take effect.
pub(super) struct Prepared {
    change: Option<FileChange>,
    /// May block.
    work: Box<dyn FnOnce() -> Output + Send>,
}

/// Why a call does not take effect.
pub(super) enum Refused {
    /// The path leads elsewhere than it did a moment ago.
    Moved,
    /// For the model.
    Because(String),
}

impl Prepared {
    /// Takes effect.
    pub(super) fn run(self) -> Output {
        (self.work)()
    }

    /// Looks at something.
    pub(super) fn look(work: impl FnOnce() -> Output + Send + 'static) -> Self {
        Self { change: None, work: Box::new(work) }
    }

    /// Changes a file.
    pub(super) fn change(change: mutate::Change) -> Self {
        let mutate::Change { prepared, mut summary, diff } = change;
        summary.push_str(diff.as_deref().unwrap_or_default());
        let announced = announced(&prepared);
        let commit = move || prepared.commit().map_or_else(|error| failed(&error), |()| Output::ok(summary));
        Self { change: Some(announced), work: Box::new(commit) }
    }
}

impl From<PathError> for Refused {
    fn from(error: PathError) -> Self {
        if matches!(error, PathError::Moved { .. }) {
            Self::Moved
        } else {
            Self::Because(Told(&error).to_string())
        }
    }
}

impl From<MutateError> for Refused {
    fn from(error: MutateError) -> Self {
        match error {
            MutateError::Replace(ReplaceError::Path(error)) => error.into(),
            error @ (MutateError::Replace(_) | MutateError::Edit { .. }) => {
                Self::Because(Told(&error).to_string())
            }
        }
    }
}

fn announced(prepared: &replace::Prepared) -> FileChange {
    FileChange {
        path: Arc::clone(prepared.target().key()),
        before: prepared.hash_before.clone(),
        after: prepared.hash_after.clone(),
    }
}

/// A path that begins no line of its own in a diff, whatever is in it.
fn in_a_header(path: &str) -> Cow<'_, str> {
    if path.contains(char::is_control) { format!("{path:?}").into() } else { path.into() }
}

/// Tells the model of an error.
pub(super) fn failed(error: &(dyn std::error::Error + 'static)) -> Output {
    Output::failed(Failure::Failed, Told(error).to_string())
}

/// Makes a [`Tool`] of a tool that works on one path.
pub(super) struct PathTool<T> {
    tool: T,
    spec: ToolSpec,
    limits: Limits,
}

impl<T: OnPath> PathTool<T> {
    pub(super) fn new(tool: T, limits: Limits) -> Self {
        Self { spec: tool.spec(), tool, limits }
    }

    fn resolve(&self, workspace: &Workspace, path: &str) -> Result<(Resolved, Vec<Access>), PathError> {
        let (intent, mode) = match self.tool.effect() {
            EffectClass::Read => (Intent::Read, Mode::Shared),
            EffectClass::Write | EffectClass::Outside => (Intent::Write, Mode::Exclusive),
        };
        let target = workspace.resolve(path, intent)?;
        let access = Access { scope: self.tool.scope(&target), path: Arc::clone(target.key()), mode };
        Ok((target, vec![access]))
    }

    /// Whether a call is over sooner than another thread could take it up: a look at a small file of a local disk.
    fn is_quick(&self, context: &CallContext) -> bool {
        let is_small = |path: &str| {
            fs::symlink_metadata(path).is_ok_and(|facts| facts.is_file() && facts.len() <= QUICK_BYTES)
        };
        self.tool.effect() == EffectClass::Read
            && !context.workspace.may_hang()
            && matches!(&*context.access, [Access { scope: Scope::File, path, .. }] if is_small(path))
    }

    fn begin(&self, context: &CallContext, arguments: &Value) -> Begun {
        match self.prepare(context, arguments) {
            Ok(begun) => begun,
            Err(why) => Begun::Ended(self.bounded(Output::failed(Failure::Failed, why))),
        }
    }

    fn prepare(&self, context: &CallContext, arguments: &Value) -> Result<Begun, String> {
        let arguments: T::Arguments = parse(&self.spec, arguments)?;
        let path = self.tool.path(&arguments).to_owned();
        let resolve = || self.resolve(&context.workspace, &path).map_err(|error| Told(&error).to_string());
        let (target, access) = resolve()?;
        if access != *context.access {
            return Ok(Begun::Moved(access));
        }
        let at_once = self.tool.effect() == EffectClass::Read && self.tool.scope(&target) == Scope::File;
        match self.tool.prepare(arguments, target, &context.cancel) {
            Ok(prepared) if at_once => Ok(Begun::Looked(self.bounded(prepared.run()))),
            Ok(prepared) => Ok(Begun::Ready(prepared)),
            Err(Refused::Moved) => Ok(Begun::Moved(resolve()?.1)),
            Err(Refused::Because(why)) => Err(why),
        }
    }

    /// Cuts texts that have no bounds of their own: refusals, and diffs.
    fn bounded(&self, output: Output) -> Output {
        if output.failure.is_none() && self.tool.effect() == EffectClass::Read {
            return output;
        }
        let shown = head(&output.text, &self.limits);
        let text = match shown.omitted {
            Some(omitted) => format!("{}[{omitted}]", shown.text),
            None => shown.text,
        };
        Output { text, ..output }
    }
}

/// As [`Started`], before the work is a future.
enum Begun {
    Ended(Output),
    Moved(Vec<Access>),
    /// Done; what is left of the work is to tell.
    Looked(Output),
    Ready(Prepared),
}

impl<T: OnPath> Tool for PathTool<T> {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self) -> EffectClass {
        self.tool.effect()
    }

    fn access_blocks(&self, workspace: &Workspace) -> bool {
        workspace.may_hang()
    }

    fn access(&self, workspace: &Workspace, arguments: &Value) -> Result<Vec<Access>, String> {
        let arguments: T::Arguments = parse(&self.spec, arguments)?;
        match self.resolve(workspace, self.tool.path(&arguments)) {
            Ok((_, access)) => Ok(access),
            Err(error) => Err(Told(&error).to_string()),
        }
    }

    fn preview(&self, workspace: &Workspace, arguments: &Value) -> Result<Preview, String> {
        let arguments: T::Arguments = parse(&self.spec, arguments)?;
        let (target, _) =
            self.resolve(workspace, self.tool.path(&arguments)).map_err(|error| Told(&error).to_string())?;
        let shown = target.shown().to_owned();
        match self.tool.plan(arguments, &target) {
            Ok(None) => Ok(Preview::default()),
            Ok(Some(change)) => {
                let diff = mutate::whole_diff(&change).map_err(|error| Told(&error).to_string())?;
                let to = in_a_header(&shown);
                let from = if change.prepared.hash_before.is_some() { &to } else { "/dev/null" };
                let text = format!("--- {from}\n+++ {to}\n{diff}");
                if text.len() > MAX_PREVIEW {
                    return Err(format!(
                        "not done: the change is too large for a person to look it over ({} KiB of diff, at most {}); make it in \
                         smaller steps",
                        text.len() >> 10,
                        MAX_PREVIEW >> 10
                    ));
                }
                Ok(Preview { change: Some(announced(&change.prepared)), text: Some(text.into()) })
            }
            Err(Refused::Moved) => Err(format!("what {shown} names keeps changing; nothing was done")),
            Err(Refused::Because(why)) => Err(why),
        }
    }

    fn start(self: Arc<Self>, context: CallContext, arguments: Value) -> BoxFuture<'static, Started> {
        Box::pin(async move {
            let (tool, cancel) = (Arc::clone(&self), context.cancel.clone());
            let threads = context.blocking.clone();
            let begun = if self.is_quick(&context) && !cancel.is_cancelled() {
                Ok(self.begin(&context, &arguments))
            } else {
                blocking(&cancel, &threads, move || tool.begin(&context, &arguments)).await
            };
            match begun {
                Ok(Begun::Ready(mut prepared)) => Started::Ready {
                    change: prepared.change.take(),
                    work: Box::pin(async move {
                        let output = blocking(&cancel, &threads, move || self.bounded(prepared.run())).await;
                        output.unwrap_or_else(|not_run| not_run)
                    }),
                },
                Ok(Begun::Looked(output)) => {
                    Started::Ready { change: None, work: Box::pin(std::future::ready(output)) }
                }
                Ok(Begun::Moved(access)) => Started::Moved(access),
                Ok(Begun::Ended(output)) | Err(output) => Started::Ended(output),
            }
        })
    }
}

/// Runs work that blocks on a thread for such, unless it is cancelled already; a panic in it is a panic here.
async fn blocking<R: Send + 'static>(
    cancel: &CancellationToken,
    threads: &TaskTracker,
    work: impl FnOnce() -> R + Send + 'static,
) -> Result<R, Output> {
    const NOT_RUN: &str = "cancelled before it began; nothing was done";
    if cancel.is_cancelled() {
        return Err(Output::failed(Failure::Cancelled, NOT_RUN));
    }
    match threads.spawn_blocking(work).await {
        Ok(result) => Ok(result),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime ends.
            Err(_) => Err(Output::failed(Failure::Cancelled, NOT_RUN)),
        },
    }
}
