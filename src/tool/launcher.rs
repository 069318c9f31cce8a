//! Runs a program for a call, and tells the model what came of it.
//!
//! Joins what a call knows with what a process needs: the workspace as folder, an environment by permission, a
//! temporary folder of the run, limits, how far it reaches, a file for output that is too long to show. Knows no shell and no schema.

use std::{ffi::OsString, io, path::PathBuf, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    CallContext, Output,
    digest::digest,
    output::Limits,
    process::{
        self, CaptureLimits, CommandGroup, CommandSpec, End, ProcessLimits, ProcessRunner, SpawnError,
        confine::Network, environment,
    },
    scratch::Scratch,
    workspace::Told,
};
use crate::{
    crash::{self, Point},
    domain::{
        call::Failure,
        id::{CallId, RunId},
    },
};

mod bounds;
mod ending;

pub use bounds::{Bounds, Exposure, FileBounds, Reach};

/// Names the run in the environment of its programs.
const RUN_ID: &str = process::MARK;

/// Ends what programs of a run have left running whose herder is gone. Gives what could not be ended. Blocks.
pub fn end_remains(run: RunId, leaders: &[CommandGroup]) -> Vec<u32> {
    process::end_remains(leaders, &format!("{RUN_ID}={run}"))
}

/// How programs are run.
#[derive(Clone, Debug)]
pub struct Launcher {
    pub runner: ProcessRunner,
    /// Where a program finds its `TMPDIR`.
    pub scratch: Scratch,
    /// Where output that is not shown whole is kept, as `RUN/CALL.txt`; nowhere if left out.
    pub spill_root: Option<PathBuf>,
    /// Names of variables that programs see of herder's own environment, beyond those that all see.
    pub env_pass: Vec<String>,
    pub limits: ProcessLimits,
    pub bounds: Bounds,
    pub exposure: Arc<Exposure>,
    pub output: Limits,
    /// Time between asking a program to end and killing it.
    pub grace: Duration,
}

/// What to run.
pub(super) struct Program {
    pub(super) program: OsString,
    pub(super) args: Vec<OsString>,
    /// Beyond what every program of a call sees.
    pub(super) env: Vec<(OsString, OsString)>,
    pub(super) stdin: Option<Vec<u8>>,
    pub(super) reach: Reach,
    /// What the launcher says if left out.
    pub(super) network: Option<Network>,
    /// Never more than the call may take.
    pub(super) timeout: Duration,
}

/// Why a program did not run.
#[derive(Debug, thiserror::Error)]
pub(super) enum LaunchError {
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    #[error(
        "commands are run only when they are confined to their workspace, and this kernel has no Landlock; nothing was run"
    )]
    Unconfinable,
    #[error("cannot make the folder for temporary files")]
    Scratch(#[source] io::Error),
}

impl From<LaunchError> for Output {
    fn from(error: LaunchError) -> Self {
        Self::failed(Failure::Failed, Told(&error).to_string())
    }
}

impl Launcher {
    /// Removes what a run that has ended leaves in its temporary folder.
    pub(super) fn forget(&self, run: RunId) {
        if !self.scratch.has(run) {
            return;
        }
        let scratch = self.scratch.clone();
        tokio::task::spawn_blocking(move || {
            if let Err(error) = scratch.remove(run) {
                tracing::warn!(run.id = %run, %error, "temporary folder of a run could not be removed");
            }
        });
    }

    /// Runs a program to its end in the call's workspace.
    pub(super) async fn run(&self, context: &CallContext, program: Program) -> Result<Output, LaunchError> {
        if context.cancel.is_cancelled() {
            return Ok(Output::failed(Failure::Cancelled, "cancelled before it began; nothing was run"));
        }
        let (scratch, run) = (self.scratch.clone(), context.run);
        let made = tokio::task::spawn_blocking(move || scratch.for_run(run)).await;
        let tmpdir = made.map_err(io::Error::other).flatten().map_err(LaunchError::Scratch)?;
        let workspace = PathBuf::from(&**context.workspace.key());
        let confinement = self.bounds.of(&program, &workspace, &tmpdir)?;
        self.exposure.look_at(&confinement);
        let timeout = program.timeout.min(context.timeout);
        let own = own_variables(context, tmpdir).into_iter().chain(program.env);
        let spec = CommandSpec {
            program: program.program,
            args: program.args,
            cwd: workspace,
            env: environment(std::env::vars_os(), &self.env_pass, own),
            stdin: program.stdin,
            limits: self.limits.clone(),
            confinement,
            timeout: Some(timeout),
            grace: self.grace,
            parting: Duration::ZERO,
            output: CaptureLimits {
                shown: self.output,
                spill: self.spill_root.as_ref().map(|root| spill_file(root, context)),
                ..CaptureLimits::default()
            },
        };
        let started = Instant::now();
        let running = match self.runner.start_unless(spec, &context.cancel).await {
            Err(SpawnError::Cancelled(output)) => return Ok(ending::cancelled(output)),
            started => started?,
        };
        crash::point(Point::CommandStarted);
        if let Some(leader) = running.leader() {
            context.processes.tell(leader);
        }
        let mut finished = running.wait(&context.cancel).await;
        // The executor cancels a call whose time is up, and its clock may be first.
        if finished.end == End::Cancelled && started.elapsed() >= context.timeout {
            finished.end = End::TimedOut;
        }
        Ok(ending::told(finished, timeout, &self.limits))
    }
}

fn own_variables(context: &CallContext, tmpdir: PathBuf) -> Vec<(OsString, OsString)> {
    let mut own =
        vec![(RUN_ID.into(), context.run.to_string().into()), ("TMPDIR".into(), tmpdir.into_os_string())];
    if let Some(task_id) = &context.task_id {
        own.push(("HERDER_TASK_ID".into(), task_id.to_string().into()));
    }
    own
}

fn spill_file(root: &std::path::Path, context: &CallContext) -> PathBuf {
    root.join(context.run.to_string()).join(format!("{}.txt", file_name(&context.call)))
}

/// A call's id may be any text that a provider chose.
fn file_name(call: &CallId) -> String {
    const MAX_BYTES: usize = 100;
    let id = call.as_str();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if !id.is_empty() && id.len() <= MAX_BYTES && id.bytes().all(is_plain) {
        id.to_owned()
    } else {
        digest(&[id])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_of_any_name_has_a_file_name_of_its_own() {
        assert_eq!(file_name(&CallId::new("call_1-b")), "call_1-b");
        let names = ["../../etc/passwd", "..", "", "a/b", "a\\b", &"x".repeat(300)].map(|id| {
            let name = file_name(&CallId::new(id));
            assert!(name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit()), "{name}");
            name
        });
        assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), names.len());
    }
}
