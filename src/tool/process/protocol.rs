//! What herder and a guard say to each other, one JSON line each, over the socket that is the guard's stdin.
//!
//! herder sends a [`Launch`], then the bytes of the command's stdin, then perhaps [`TERMINATE`]. The guard answers
//! [`Report`]s: `Started` and `Exited`, or `Failed` alone. End of file from herder's side, at any time, means: kill, once the time is
//! over that the launch grants for parting.
//! Both ends are the same executable, so the format need not be stable.

use std::{ffi::OsString, time::Duration};

use serde::{Deserialize, Serialize};

use super::confine::Confinement;

/// The one order after the launch.
pub(super) const TERMINATE: &str = "terminate";

/// What to run. The environment is not in it: the command has the guard's own.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Launch {
    pub program: OsString,
    pub args: Vec<OsString>,
    pub cwd: OsString,
    pub limits: ProcessLimits,
    pub confinement: Confinement,
    pub grace: Duration,
    /// Time that the command has to come to its end once herder is gone.
    pub parting: Duration,
    /// How many bytes for the command's stdin follow; none means `/dev/null`.
    pub stdin_len: Option<u64>,
}

/// Bounds that the kernel keeps for each process of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessLimits {
    /// Writable private memory of one process. Address space that is only reserved does not count, so runtimes that
    /// reserve a great deal of it still start.
    pub memory_bytes: Option<u64>,
    /// Processor time of one process.
    pub cpu: Option<Duration>,
    /// Largest file that can be written.
    pub file_bytes: Option<u64>,
    /// Processes *of this user*, counted over the whole machine; root is exempt.
    pub processes: Option<u64>,
    /// The soft limit alone, and by default the one that herder was started with.
    pub open_files: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Report {
    Started { pid: u32, start_time: u64 },
    Failed { step: Step, errno: i32 },
    Exited(Exit),
}

/// Where starting a command can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Step {
    Guard,
    Folder,
    Fork,
    Confine,
    Exec,
}

/// How a command ended and what was found of it afterwards.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Exit {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    /// Whether it was still running when the order to terminate came.
    pub terminated: bool,
    /// Processes it had left in the background, ended by the guard.
    pub left_behind: u32,
    /// Processes that outlived SIGKILL.
    pub survivors: Vec<u32>,
    /// Whether the kernel killed anything for want of memory meanwhile.
    pub out_of_memory: bool,
}
