//! herder's side of a guard: starts it, takes in the output, keeps the time, gives the orders.
//!
//! A command has ended when its guard says that nothing of it is left, not when its output does. Dropping a
//! [`Running`], or the future that waits for it, closes the socket to the guard, which then kills the command.

use std::{
    io,
    os::{fd::OwnedFd, unix::net::UnixStream as StdStream},
    path::PathBuf,
    pin::pin,
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rustix::pipe::{PipeFlags, pipe_with};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines},
    net::{UnixStream, unix::pipe},
    process::{Child, Command},
    task::spawn_blocking,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    CommandGroup, CommandSpec, End, Environment, Finished, GUARD_WORD, MARK, SpawnError,
    capture::{Capture, CaptureLimits, Captured},
    command::OWN_EXECUTABLE,
    open_files,
    protocol::{Exit, Launch, ProcessLimits, Report, Step, TERMINATE},
    remains::kill_unguarded,
};
use crate::crash::{self, Point};

/// How long output is still taken in after the command has ended.
const DRAIN: Duration = Duration::from_secs(2);
/// How much longer than the grace a guard may take to report; it is killed if it is silent for longer.
const GUARD_MARGIN: Duration = Duration::from_secs(10);
/// How long a guard may take to start a command on a machine that is very busy.
const START_LIMIT: Duration = Duration::from_secs(60);
const CHUNK: usize = 64 * 1024;
/// Later than anything waits for.
const NEVER: Duration = Duration::from_secs(60 * 60 * 24 * 365);

/// Starts commands, each under a guard.
#[derive(Clone, Debug)]
pub struct ProcessRunner {
    executable: PathBuf,
}

impl Default for ProcessRunner {
    /// Guards are further processes of the running program, whose `main` must call [`super::dispatch`] first.
    fn default() -> Self {
        Self::with_executable(OWN_EXECUTABLE)
    }
}

impl ProcessRunner {
    /// Takes the program to run as guard: herder, for a program that is not.
    pub fn with_executable(executable: impl Into<PathBuf>) -> Self {
        Self { executable: executable.into() }
    }

    /// Runs a command to its end.
    ///
    /// # Errors
    /// Only when it did not start, or was cancelled while it did. A command that fails, or is ended, has finished.
    pub async fn run(&self, spec: CommandSpec, cancel: &CancellationToken) -> Result<Finished, SpawnError> {
        Ok(self.start_unless(spec, cancel).await?.wait(cancel).await)
    }

    /// Starts a command; it runs from then on, under its time limit.
    ///
    /// # Errors
    /// Says why it did not start.
    pub async fn start(&self, spec: CommandSpec) -> Result<Running, SpawnError> {
        self.start_unless(spec, &CancellationToken::new()).await
    }

    /// The same, unless it is cancelled while it starts.
    ///
    /// # Errors
    /// As above, or it was cancelled.
    pub async fn start_unless(
        &self,
        spec: CommandSpec,
        cancel: &CancellationToken,
    ) -> Result<Running, SpawnError> {
        let grace = spec.grace.min(NEVER);
        let mark = spec.env.iter().find(|(name, _)| name == MARK);
        let mark = mark.map(|(name, value)| format!("{}={}", name.display(), value.display()));
        let open_files = spec.limits.open_files.or_else(open_files::of_commands);
        let launch = Launch {
            program: spec.program.clone(),
            args: spec.args,
            cwd: spec.cwd.clone().into_os_string(),
            limits: ProcessLimits { open_files, ..spec.limits },
            confinement: spec.confinement,
            grace,
            parting: spec.parting.min(NEVER),
            stdin_len: spec.stdin.as_ref().map(|bytes| bytes.len() as u64),
        };
        let mut order = serde_json::to_vec(&launch).map_err(|error| SpawnError::Guard(error.into()))?;
        order.push(b'\n');
        order.extend(spec.stdin.unwrap_or_default());

        let (mut guard, control, output) = self.spawn_guard(spec.env)?;
        crash::point(Point::GuardStarted);
        let mut control = BufReader::new(control).lines();
        let launched = timeout(START_LIMIT, launch_by(&mut control, &order));
        let answer = match cancel.run_until_cancelled(launched).await {
            Some(Ok(report)) => Ok(report.map_err(SpawnError::Guard)?),
            Some(Err(late)) => Err(Some(SpawnError::Guard(late.into()))),
            None => Err(None),
        };
        let report = match answer {
            Ok(report) => report,
            Err(why) => {
                // The command may run by now. The end of the socket is what makes the guard kill it.
                drop(control);
                if timeout(GUARD_MARGIN, guard.wait()).await.is_err() {
                    let session = guard.id();
                    kill_with_session(&mut guard, session, mark).await;
                }
                return Err(match why {
                    Some(late) => late,
                    None => SpawnError::Cancelled(left_in(output, spec.output).await),
                });
            }
        };
        match report {
            Report::Started { pid, start_time } => Ok(Running {
                leader: guard.id().and_then(|guard| CommandGroup::of(guard).ok()),
                group: CommandGroup::current(pid, start_time),
                session: guard.id(),
                mark,
                guard,
                control,
                output,
                capture: Arc::new(Mutex::new(Capture::new(spec.output))),
                started: Instant::now(),
                timeout: spec.timeout.unwrap_or(NEVER).min(NEVER),
                grace,
            }),
            Report::Failed { step, errno } => {
                // Collects the guard, which ends after such a report.
                let _ = guard.wait().await;
                let error = io::Error::from_raw_os_error(errno);
                Err(match step {
                    Step::Guard | Step::Fork => SpawnError::from_os(error),
                    Step::Folder => SpawnError::Folder { path: spec.cwd, source: error },
                    Step::Confine => SpawnError::Confine(error),
                    Step::Exec => SpawnError::from_exec(spec.program, error),
                })
            }
            Report::Exited(_) => Err(SpawnError::Guard(io::ErrorKind::InvalidData.into())),
        }
    }

    /// Gives the guard, the socket to it, and the pipe that it and the command write to.
    fn spawn_guard(&self, env: Environment) -> Result<(Child, UnixStream, pipe::Receiver), SpawnError> {
        let (output, output_end) = pipe_with(PipeFlags::CLOEXEC).map_err(SpawnError::from_os)?;
        let (control, control_end) = StdStream::pair().map_err(SpawnError::from_os)?;
        control.set_nonblocking(true).map_err(SpawnError::Guard)?;
        let control = UnixStream::from_std(control).map_err(SpawnError::Guard)?;
        let output = pipe::Receiver::from_owned_fd(output).map_err(SpawnError::Guard)?;
        let guard = Command::new(&self.executable)
            .arg0(env!("CARGO_PKG_NAME"))
            // Whoever finds it later sees whether it still has its herder.
            .args([GUARD_WORD, &std::process::id().to_string()])
            .env_clear()
            .envs(env)
            .stdin(OwnedFd::from(control_end))
            .stdout(output_end)
            .stderr(Stdio::null())
            .spawn()
            .map_err(SpawnError::from_os)?;
        Ok((guard, control, output))
    }
}

/// A command that has started.
#[derive(Debug)]
pub struct Running {
    group: CommandGroup,
    leader: Option<CommandGroup>,
    /// The guard's pid, which is the id of the session that the command runs in.
    session: Option<u32>,
    /// What its environment is known by, if it has it.
    mark: Option<String>,
    guard: Child,
    control: Lines<BufReader<UnixStream>>,
    output: pipe::Receiver,
    capture: Taken,
    /// When the program ran: what a busy machine takes to get there is not the command's.
    started: Instant,
    timeout: Duration,
    grace: Duration,
}

/// Why a command was told to end.
#[derive(Clone, Copy)]
enum Stop {
    TimedOut,
    Cancelled,
}

impl Running {
    /// What leads the session that the command runs in: to put on record, for [`super::end_remains`]. Absent if it is gone.
    pub const fn leader(&self) -> Option<&CommandGroup> {
        self.leader.as_ref()
    }

    /// Names the command itself.
    pub fn group(&self) -> &CommandGroup {
        &self.group
    }

    /// Waits until nothing of the command is left. Ends it when its time is over or `cancel` is.
    pub async fn wait(mut self, cancel: &CancellationToken) -> Finished {
        let mut buffer = vec![0; CHUNK];
        let mut stop = None;
        // Outer: whether it is over. Inner: how, unless the guard was lost.
        let mut exit: Option<Option<Exit>> = None;
        let mut open = true;
        let mut alarm = pin!(sleep_until(self.started + self.timeout));
        while exit.is_none() || open {
            tokio::select! {
                read = self.output.read(&mut buffer), if open => match read {
                    Ok(0) | Err(_) => open = false,
                    Ok(length) => buffer = take_in(&self.capture, buffer, length).await,
                },
                report = next_report(&mut self.control), if exit.is_none() => {
                    exit = Some(match report {
                        Ok(Report::Exited(exit)) => Some(exit),
                        Ok(Report::Started { .. } | Report::Failed { .. }) | Err(_) => self.kill_all().await,
                    });
                    alarm.as_mut().reset(Instant::now() + DRAIN);
                }
                () = cancel.cancelled(), if stop.is_none() && exit.is_none() => {
                    stop = Some(Stop::Cancelled);
                    alarm.as_mut().reset(self.terminate().await);
                }
                () = &mut alarm => match (&exit, stop) {
                    (Some(_), _) => open = false,
                    (None, None) => {
                        stop = Some(Stop::TimedOut);
                        alarm.as_mut().reset(self.terminate().await);
                    }
                    (None, Some(_)) => {
                        exit = Some(self.kill_all().await);
                        alarm.as_mut().reset(Instant::now() + DRAIN);
                    }
                },
            }
        }
        crash::point(Point::CommandEnded);
        // Collects the guard, which has nothing left to do; an error means that it has been collected.
        let _ = self.guard.wait().await;
        self.finish(stop, exit.flatten()).await
    }

    /// Tells the guard to end the command, and says when to stop believing in the guard.
    async fn terminate(&mut self) -> Instant {
        // A guard that is gone shows as the end of its reports.
        let _ = self.control.get_mut().get_mut().write_all(format!("{TERMINATE}\n").as_bytes()).await;
        Instant::now() + self.grace + GUARD_MARGIN
    }

    /// Ends guard and command by force, when the guard no longer does its work.
    async fn kill_all(&mut self) -> Option<Exit> {
        kill_with_session(&mut self.guard, self.session, self.mark.clone()).await;
        None
    }

    async fn finish(self, stop: Option<Stop>, exit: Option<Exit>) -> Finished {
        let duration = self.started.elapsed();
        let output = taken_in(self.capture).await;
        let end = end_of(stop, exit.as_ref());
        let Exit { left_behind, survivors, .. } = exit.unwrap_or_default();
        Finished { end, output, left_behind, survivors, group: self.group, duration }
    }
}

/// Shared with the thread that writes to the disk; the two never want it at once.
type Taken = Arc<Mutex<Capture>>;

/// Stores what was read, off the async threads if that means the disk.
async fn take_in(taken: &Taken, buffer: Vec<u8>, length: usize) -> Vec<u8> {
    let capture = Arc::clone(taken);
    let push = move || {
        capture.lock().unwrap_or_else(PoisonError::into_inner).push(&buffer[..length]);
        buffer
    };
    let touches_disk = taken.lock().unwrap_or_else(PoisonError::into_inner).touches_disk(length);
    if touches_disk { spawn_blocking(push).await.unwrap_or_else(|_| vec![0; CHUNK]) } else { push() }
}

/// All that was stored.
async fn taken_in(taken: Taken) -> Captured {
    let finish = move || taken.lock().unwrap_or_else(PoisonError::into_inner).finish();
    spawn_blocking(finish).await.unwrap_or_else(|_| Capture::new(CaptureLimits::default()).finish())
}

/// What lies in the pipe of a command that is gone.
async fn left_in(mut output: pipe::Receiver, limits: CaptureLimits) -> Captured {
    let taken = Arc::new(Mutex::new(Capture::new(limits)));
    let read = async {
        let mut buffer = vec![0; CHUNK];
        while let Ok(length @ 1..) = output.read(&mut buffer).await {
            buffer = take_in(&taken, buffer, length).await;
        }
    };
    // Whoever still holds the pipe has escaped, and is not waited for.
    let _ = timeout(DRAIN, read).await;
    taken_in(taken).await
}

async fn kill_with_session(guard: &mut Child, session: Option<u32>, mark: Option<String>) {
    let _ = guard.kill().await;
    if let Some(session) = session {
        let _ = spawn_blocking(move || kill_unguarded(session.cast_signed(), mark.as_deref())).await;
    }
}

fn end_of(stop: Option<Stop>, exit: Option<&Exit>) -> End {
    const SIGKILL: i32 = 9;
    /// What a shell answers for a command that SIGKILL ended.
    const KILLED_IN_SHELL: i32 = 128 + SIGKILL;
    match (exit, stop) {
        (None, _) => End::GuardLost,
        (Some(Exit { terminated: true, .. }), Some(Stop::TimedOut)) => End::TimedOut,
        (Some(Exit { terminated: true, .. }), Some(Stop::Cancelled)) => End::Cancelled,
        (Some(Exit { signal: Some(SIGKILL), out_of_memory: true, .. }), _)
        | (Some(Exit { code: Some(KILLED_IN_SHELL), out_of_memory: true, .. }), _) => End::OutOfMemory,
        (Some(Exit { code: Some(code), .. }), _) => End::Exited(*code),
        (Some(Exit { signal: Some(signal), .. }), _) => End::Signalled(*signal),
        (Some(Exit { code: None, signal: None, .. }), _) => End::GuardLost,
    }
}

async fn launch_by(control: &mut Lines<BufReader<UnixStream>>, order: &[u8]) -> io::Result<Report> {
    control.get_mut().get_mut().write_all(order).await?;
    crash::point(Point::CommandLaunched);
    next_report(control).await
}

/// May be dropped half-way without losing anything.
async fn next_report(control: &mut Lines<BufReader<UnixStream>>) -> io::Result<Report> {
    let line = control.next_line().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok(serde_json::from_str(&line)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_a_time_out_only_if_the_command_still_ran_then() {
        let ended = Exit { code: Some(0), ..Exit::default() };
        assert_eq!(end_of(Some(Stop::TimedOut), Some(&ended)), End::Exited(0));
        let stopped = Exit { signal: Some(15), terminated: true, ..Exit::default() };
        assert_eq!(end_of(Some(Stop::TimedOut), Some(&stopped)), End::TimedOut);
        assert_eq!(end_of(Some(Stop::Cancelled), Some(&stopped)), End::Cancelled);
    }

    #[test]
    fn a_kill_while_the_kernel_was_killing_for_memory_is_told_apart() {
        let killed = |out_of_memory| Exit { signal: Some(9), out_of_memory, ..Exit::default() };
        assert_eq!(end_of(None, Some(&killed(true))), End::OutOfMemory);
        assert_eq!(end_of(None, Some(&killed(false))), End::Signalled(9));
        let in_shell = Exit { code: Some(137), out_of_memory: true, ..Exit::default() };
        assert_eq!(end_of(None, Some(&in_shell)), End::OutOfMemory);
        let elsewhere = Exit { code: Some(0), out_of_memory: true, ..Exit::default() };
        assert_eq!(end_of(None, Some(&elsewhere)), End::Exited(0));
    }

    #[test]
    fn without_word_from_the_guard_it_is_lost() {
        assert_eq!(end_of(None, None), End::GuardLost);
        assert_eq!(end_of(Some(Stop::Cancelled), None), End::GuardLost);
    }
}
