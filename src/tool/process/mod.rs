//! Runs a command as a guarded process that leaves nothing behind.
//!
//! Each command runs under a guard: this same program, started again, which outlives the command and not herder.
//! The command has no terminal, its stdin is `/dev/null` or given bytes, its environment is what the
//! caller says and no more, its output is one pipe that is read within bounds, and what it may write to and reach can be
//! confined. Knows no tools: what a time-out or an
//! exit code means to a model is not decided here.

mod capture;
mod command;
pub mod confine;
mod descendants;
mod env;
mod guard;
mod open_files;
mod protocol;
mod remains;
mod respite;
mod runner;

use std::{ffi::OsString, io, path::PathBuf, process::ExitCode, time::Duration};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use self::confine::Confinement;
pub use self::{
    capture::{CaptureLimits, Captured},
    descendants::is_of_a_command,
    env::{Environment, environment},
    open_files::raise_open_files,
    protocol::ProcessLimits,
    remains::{end_remains, is_one_abandoned},
    runner::{ProcessRunner, Running},
};

/// First argument of a guard.
const GUARD_WORD: &str = "__guard";

/// The variable by which what a command started is known when its guard is gone: it names the command's run.
pub const MARK: &str = "HERDER_RUN_ID";

/// Does the work of a process that this program started itself, if this is one. `main` asks before anything else.
pub fn dispatch() -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    let word = arguments.nth(1)?;
    if word == GUARD_WORD {
        Some(guard::guard_main())
    } else if word == command::HIDDEN_WORD {
        Some(command::command_main(arguments))
    } else {
        None
    }
}

/// What to run, and within which bounds.
#[derive(Clone, Debug)]
pub struct CommandSpec {
    /// Looked up in the `PATH` of `env`, unless it has a slash.
    pub program: OsString,
    pub args: Vec<OsString>,
    pub cwd: PathBuf,
    /// All of it: nothing is inherited.
    pub env: Environment,
    /// None means `/dev/null`.
    pub stdin: Option<Vec<u8>>,
    pub limits: ProcessLimits,
    pub confinement: Confinement,
    /// How long it may run, from when the program does.
    pub timeout: Option<Duration>,
    /// Time between asking to end and killing.
    pub grace: Duration,
    /// Time that it has to come to its end by itself when herder dies: for what leaves a mess when it is killed, and is done soon.
    pub parting: Duration,
    pub output: CaptureLimits,
}

impl CommandSpec {
    /// A command without arguments or environment, unlimited and unconfined, with 5 s of grace and no time for parting.
    pub fn new(program: impl Into<OsString>, cwd: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            cwd: cwd.into(),
            env: Vec::new(),
            stdin: None,
            limits: ProcessLimits::default(),
            confinement: Confinement::default(),
            timeout: None,
            grace: Duration::from_secs(5),
            parting: Duration::ZERO,
            output: CaptureLimits::default(),
        }
    }
}

/// What came of a command. Nothing of it runs any more, but for `survivors`.
#[derive(Clone, Debug)]
pub struct Finished {
    pub end: End,
    pub output: Captured,
    /// How many processes it had left in the background; they were ended.
    pub left_behind: u32,
    /// Processes that could not be killed: another user's, or stuck in the kernel. Empty but for such.
    pub survivors: Vec<u32>,
    pub group: CommandGroup,
    pub duration: Duration,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Exited(i32),
    /// By a signal that herder did not send. SIGXCPU and SIGXFSZ mean a limit of processor time and of file size.
    Signalled(i32),
    /// Killed by the kernel, which was killing for want of memory at that time.
    OutOfMemory,
    TimedOut,
    Cancelled,
    /// The guard was killed from outside, and the command with it.
    GuardLost,
}

/// Names a process, and what it leads, for good: over restarts of herder and of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandGroup {
    pub pid: u32,
    /// In clock ticks since boot.
    pub start_time: u64,
    pub boot_id: String,
}

impl CommandGroup {
    fn current(pid: u32, start_time: u64) -> Self {
        Self { pid, start_time, boot_id: boot_id() }
    }

    /// The process that has this number now, which one that was not waited for keeps.
    fn of(pid: u32) -> io::Result<Self> {
        let process = descendants::Process::look_up(pid.cast_signed())?;
        Ok(Self::current(pid, process.start_time))
    }

    /// Whether the command that this names still runs.
    pub fn is_alive(&self) -> bool {
        let found = descendants::Process::look_up(self.pid.cast_signed());
        self.boot_id == boot_id() && found.is_ok_and(|process| process.start_time == self.start_time)
    }
}

fn boot_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim_end().to_owned()
}

/// Why a command did not start.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    #[error("no such program: {}", program.display())]
    Missing { program: OsString },
    #[error("cannot run {}", program.display())]
    NotRunnable {
        program: OsString,
        #[source]
        source: io::Error,
    },
    #[error("cannot run a command in {}", path.display())]
    Folder {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The system cannot keep it within its bounds.
    #[error("the command could not be confined, so it was not run")]
    Confine(#[source] io::Error),
    #[error("the command and its environment are too long")]
    TooLong,
    /// Processes, file descriptors or memory; worth another try later.
    #[error("the machine has no room for another process")]
    Busy(#[source] io::Error),
    /// Nothing of it is left but what it had written by then.
    #[error("the command was cancelled while it started")]
    Cancelled(Captured),
    #[error("the guard of the command failed")]
    Guard(#[source] io::Error),
}

impl SpawnError {
    fn from_os(error: impl Into<io::Error>) -> Self {
        let error = error.into();
        match Errno::from_io_error(&error) {
            Some(Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE) => Self::Busy(error),
            Some(Errno::TOOBIG) => Self::TooLong,
            Some(_) | None => Self::Guard(error),
        }
    }

    fn from_exec(program: OsString, error: io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(Errno::NOENT | Errno::NOTDIR) => Self::Missing { program },
            Some(Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE | Errno::TOOBIG) => {
                Self::from_os(error)
            }
            Some(_) | None => Self::NotRunnable { program, source: error },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_machine_is_told_from_a_broken_guard() {
        for errno in [Errno::AGAIN, Errno::NOMEM, Errno::MFILE, Errno::NFILE] {
            assert!(matches!(SpawnError::from_os(errno), SpawnError::Busy(_)), "{errno}");
            assert!(
                matches!(SpawnError::from_exec("x".into(), errno.into()), SpawnError::Busy(_)),
                "{errno}"
            );
        }
        assert!(matches!(SpawnError::from_os(Errno::NOENT), SpawnError::Guard(_)));
    }
}
