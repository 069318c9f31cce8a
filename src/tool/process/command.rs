//! The last step before a command: a process that takes on the limits and bounds and then becomes the command.
//!
//! A step of its own, so that the limits bind the command and not its guard, and so that the kernel kills the command
//! if the guard is killed. Its stderr is a pipe on which it says why it could not become the command; the pipe closes
//! without a word when it could. What the command gets as stderr is its stdout: one pipe keeps the order exactly.

use std::{
    env::ArgsOs,
    ffi::{OsStr, OsString},
    io::{self, PipeReader, Read, Write},
    os::{fd::AsFd, unix::process::CommandExt},
    process::{Command, ExitCode},
};

use rustix::{
    io::fcntl_dupfd_cloexec,
    process::{
        Pid, Resource, Rlimit, Signal, getppid, getrlimit, set_parent_process_death_signal, setrlimit,
    },
};

use super::{
    confine::{self, Confinement},
    protocol::{Launch, ProcessLimits, Step},
};

/// Names the running program even when its file has been replaced meanwhile.
pub(super) const OWN_EXECUTABLE: &str = "/proc/self/exe";

/// First argument of a process that is to become a command.
pub(super) const HIDDEN_WORD: &str = "__command";

/// How much sooner than herder a command is chosen when memory runs out.
const OUT_OF_MEMORY_SCORE: &str = "500";

/// Tells [`command_main`] what to become.
pub(super) fn arguments(launch: &Launch) -> io::Result<Vec<OsString>> {
    let guard = std::process::id().to_string();
    let bounds = serde_json::to_string(&(&launch.limits, &launch.confinement))?;
    let fixed = [HIDDEN_WORD.into(), guard.into(), bounds.into(), launch.program.clone()];
    Ok(fixed.into_iter().chain(launch.args.iter().cloned()).collect())
}

/// Becomes the command that the remaining arguments name. Returns only if that failed.
pub(super) fn command_main(arguments: ArgsOs) -> ExitCode {
    let Ok(outcome) = fcntl_dupfd_cloexec(io::stderr(), 3) else { return ExitCode::FAILURE };
    let (step, error) = become_command(arguments);
    let failure = serde_json::to_vec(&(step, error.raw_os_error().unwrap_or(0))).unwrap_or_default();
    // The guard is gone if this fails.
    let _ = io::PipeWriter::from(outcome).write_all(&failure);
    ExitCode::FAILURE
}

/// Says, for the guard, whether the program runs: if not, where that failed, and the number of the error.
pub(super) fn read_outcome(mut outcome: PipeReader) -> Result<(), (Step, i32)> {
    let mut failure = Vec::new();
    let _ = outcome.read_to_end(&mut failure);
    serde_json::from_slice(&failure).map_or(Ok(()), Err)
}

fn become_command(mut arguments: ArgsOs) -> (Step, io::Error) {
    let guard = arguments.next().and_then(|pid| pid.to_str()?.parse().ok()).and_then(Pid::from_raw);
    let bounds = arguments.next().and_then(|bounds| serde_json::from_str(bounds.to_str()?).ok());
    let (Some(guard), Some(bounds), Some(program)) = (guard, bounds, arguments.next()) else {
        return (Step::Exec, rustix::io::Errno::INVAL.into());
    };
    let (limits, confinement): (ProcessLimits, Confinement) = bounds;
    if let Err(error) = prepare(guard, &limits) {
        return (Step::Exec, error);
    }
    match confine::apply(&confinement) {
        Ok(()) => (Step::Exec, replace_by(&program, arguments)),
        Err(error) => (Step::Confine, error),
    }
}

fn prepare(guard: Pid, limits: &ProcessLimits) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() != Some(guard) {
        // It died before the kernel knew what to do then.
        return Err(rustix::io::Errno::SRCH.into());
    }
    // Refused where herder itself is an even likelier choice; then nothing is lost.
    let _ = std::fs::write("/proc/self/oom_score_adj", OUT_OF_MEMORY_SCORE);
    bound(Resource::Core, Some(0), 0)?;
    bound(Resource::Data, limits.memory_bytes, 0)?;
    // The second more is for SIGXCPU, which says what happened; SIGKILL, at the hard limit, does not.
    bound(Resource::Cpu, limits.cpu.map(|time| time.as_secs().max(1)), 1)?;
    bound(Resource::Fsize, limits.file_bytes, 0)?;
    bound(Resource::Nproc, limits.processes, 0)?;
    let maximum = getrlimit(Resource::Nofile).maximum;
    let open_files = limits.open_files.map(|files| maximum.map_or(files, |maximum| files.min(maximum)));
    match open_files {
        Some(current) => Ok(setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum })?),
        None => Ok(()),
    }
}

/// Lowers a limit, and the hard one to `slack` above it; what is lower already stays.
fn bound(resource: Resource, limit: Option<u64>, slack: u64) -> io::Result<()> {
    let Some(limit) = limit else { return Ok(()) };
    let hard = limit.saturating_add(slack);
    let hard = getrlimit(resource).maximum.map_or(hard, |maximum| maximum.min(hard));
    Ok(setrlimit(resource, Rlimit { current: Some(limit.min(hard)), maximum: Some(hard) })?)
}

fn replace_by(program: &OsStr, arguments: ArgsOs) -> io::Error {
    match io::stdout().as_fd().try_clone_to_owned() {
        Ok(stdout) => Command::new(program).args(arguments).stderr(stdout).exec(),
        Err(error) => error,
    }
}
