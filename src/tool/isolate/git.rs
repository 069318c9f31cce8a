//! Runs git, guarded like any command, so that nothing of the user's setup makes it ask, sign, wait or clean up.
//!
//! What it says on both of its outputs comes as one text; whoever reads it looks for lines of the form that it wants.

use std::{
    ffi::{OsStr, OsString},
    path::Path,
    time::Duration,
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{IsolateError, locks::lock_in};
use crate::tool::{
    output::Limits,
    process::{
        CaptureLimits, CommandSpec, End, Environment, ProcessRunner, SpawnError, environment,
        is_one_abandoned,
    },
};

/// How long one command may take: a checkout of a large tree on a busy disk.
const TIMEOUT: Duration = Duration::from_secs(120);
/// How long it has to come to its end when herder dies. What takes longer locks nothing that is shared.
pub(super) const PARTING: Duration = Duration::from_secs(5);
/// Names the folder of the workspaces that a command is for.
const MARK: &str = "HERDER_WORKSPACES";
/// How often a command is given again that met the lock of another one.
const TRIES: u32 = 8;
/// Before the first of those; each further wait is longer by as much.
const PAUSE: Duration = Duration::from_millis(50);
/// What is read of an answer: names of files, mostly.
const SHOWN: usize = 16 << 20;

const SETTINGS: &[&str] = &[
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.splitIndex=false",
    "core.quotePath=false",
    "core.logAllRefUpdates=false",
    "core.looseCompression=1",
    "commit.gpgSign=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "advice.addEmbeddedRepo=false",
    "color.ui=false",
];

#[derive(Clone, Debug)]
pub(super) struct Git {
    runner: ProcessRunner,
    /// Told to git, by which it is found again when herder is not there any more.
    mark: Option<(OsString, OsString)>,
}

/// One command of git.
#[derive(Clone, Debug)]
pub(super) struct Call {
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    stdin: Option<Vec<u8>>,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) ok: bool,
    pub(super) text: String,
}

impl Call {
    pub(super) fn new<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Self {
        Self {
            args: args.into_iter().map(|arg| arg.as_ref().to_owned()).collect(),
            env: Vec::new(),
            stdin: None,
        }
    }

    #[must_use]
    pub(super) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    #[must_use]
    pub(super) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.into(), value.as_ref().to_owned()));
        self
    }

    #[must_use]
    pub(super) fn stdin(self, bytes: Vec<u8>) -> Self {
        Self { stdin: Some(bytes), ..self }
    }

    fn verb(&self) -> String {
        self.args.first().map(|verb| verb.to_string_lossy().into_owned()).unwrap_or_default()
    }
}

impl Git {
    pub(super) const fn new(runner: ProcessRunner) -> Self {
        Self { runner, mark: None }
    }

    /// For the workspaces in a folder.
    pub(super) fn of(runner: ProcessRunner, work: &Path) -> Self {
        Self { runner, mark: Some((MARK.into(), work.into())) }
    }

    /// Waits until no git for the workspaces in a folder is at work whose herder is gone; not for ever.
    pub(super) async fn outwait(work: &Path) {
        let mark = format!("{MARK}={}", work.display());
        let since = Instant::now();
        while since.elapsed() < PARTING * 3 {
            let mark = mark.clone();
            if !tokio::task::spawn_blocking(move || is_one_abandoned(&mark)).await.unwrap_or_default() {
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
        tracing::warn!(work = %work.display(), "git of an earlier start is still at work");
    }

    pub(super) const fn runner(&self) -> &ProcessRunner {
        &self.runner
    }

    /// Runs a command that may well fail.
    pub(super) async fn ask(&self, cwd: &Path, call: Call) -> Result<Said, IsolateError> {
        let verb = call.verb();
        let settings = SETTINGS.iter().flat_map(|setting| ["-c".into(), OsString::from(setting)]);
        let spec = CommandSpec {
            args: settings.chain(call.args).collect(),
            env: env(self.mark.iter().cloned().chain(call.env)),
            stdin: call.stdin,
            timeout: Some(TIMEOUT),
            // Killed, or told to end while it makes a lock, it leaves that behind.
            parting: PARTING,
            output: CaptureLimits {
                shown: Limits { lines: usize::MAX, bytes: SHOWN, line_chars: usize::MAX },
                ..CaptureLimits::default()
            },
            ..CommandSpec::new("git", cwd)
        };
        let finished =
            self.runner.run(spec, &CancellationToken::new()).await.map_err(|error| match error {
                SpawnError::Folder { path, source } => IsolateError::Io { action: "work in", path, source },
                error @ (SpawnError::Missing { .. }
                | SpawnError::NotRunnable { .. }
                | SpawnError::TooLong
                | SpawnError::Busy(_)
                | SpawnError::Cancelled(_)
                | SpawnError::Confine(_)
                | SpawnError::Guard(_)) => IsolateError::NoGit(error),
            })?;
        let text = finished.output.text;
        let why = match finished.end {
            End::Exited(code) => return Ok(Said { ok: code == 0, text }),
            End::Signalled(_) | End::GuardLost => "it was killed",
            End::OutOfMemory => "it was killed for want of memory",
            End::TimedOut => "it took too long",
            End::Cancelled => "it was called off",
        };
        // What it did is done by half.
        Err(IsolateError::Git { verb, said: format!("{}{why}", text.trim_start()) })
    }

    /// Runs a command that is to succeed. One that met the lock of another is given again, a few times.
    pub(super) async fn run(&self, cwd: &Path, call: Call) -> Result<String, IsolateError> {
        for tried in 1.. {
            let Said { ok, text } = self.ask(cwd, call.clone()).await?;
            if ok {
                return Ok(text);
            }
            if tried >= TRIES || !met_a_lock(&text) {
                let said = text.trim().to_owned();
                return Err(match lock_in(&said) {
                    Some(lock) => IsolateError::Locked { lock },
                    None => IsolateError::Git { verb: call.verb(), said },
                });
            }
            tokio::time::sleep(PAUSE * tried).await;
        }
        Ok(String::new())
    }

    /// Runs a command whose answer is the name of an object.
    pub(super) async fn object(&self, cwd: &Path, call: Call) -> Result<String, IsolateError> {
        let verb = call.verb();
        let text = self.run(cwd, call).await?;
        let object = text.lines().rev().find(|line| is_object(line)).map(str::to_owned);
        object.ok_or(IsolateError::Git { verb, said: text })
    }
}

/// Variables of herder's own that name a repository are not among those that pass.
fn env(own: impl Iterator<Item = (OsString, OsString)>) -> Environment {
    let fixed =
        [("GIT_OPTIONAL_LOCKS", "0"), ("LC_ALL", "C"), ("GIT_EDITOR", "true"), ("GIT_ASKPASS", "true")];
    let fixed = fixed.into_iter().map(|(name, value)| (name.into(), value.into()));
    environment(std::env::vars_os(), &[], fixed.chain(own))
}

pub(super) fn is_object(line: &str) -> bool {
    matches!(line.len(), 40 | 64) && line.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn met_a_lock(said: &str) -> bool {
    lock_in(said).is_some() || said.contains("cannot lock ref") && !is_at_odds(said)
}

/// Whether a reference is not there, or not where it was said to be, which it will not be later either.
pub(super) fn is_at_odds(said: &str) -> bool {
    said.contains(" but expected ") || said.contains("unable to resolve reference")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_in_the_way_is_told_from_other_failures() {
        assert!(met_a_lock("fatal: Unable to create '/r/.git/index.lock': File exists."));
        assert!(met_a_lock("error: could not lock config file /r/.git/config: File exists"));
        assert!(met_a_lock("fatal: cannot lock ref 'refs/heads/a/b': unable to create directory for it"));
        assert!(!met_a_lock("fatal: a branch named 'x' already exists"));
        assert!(!met_a_lock("error: cannot lock ref 'refs/heads/x': is at 1 but expected 2"));
    }

    #[test]
    fn an_object_is_told_from_a_warning() {
        assert!(is_object(&"a1".repeat(20)) && is_object(&"0f".repeat(32)));
        assert!(!is_object("warning: in the working copy of 'a', LF wil") && !is_object(&"g".repeat(40)));
    }
}
