//! The guard: a small process that stands over one command and ends only when nothing of the command is left.
//!
//! It leads a session of its own, without a terminal, and is subreaper: whatever the command starts, however it
//! forks or changes session, is the guard's child once its parent is gone. So "no children" proves that nothing is
//! left. Its stdin is a socket to herder, and end of file there, for whatever reason herder ended, means: kill; at once, or
//! once the time is over that the command is granted to come to its end.
//!
//! When the command ends by itself, what it left in the background has a moment to end too ([`Respite`]: a process
//! substitution writes its last line), is then told to, and as much later made to. Runs without async, in the same
//! executable, before anything else in `main`. Knows nothing of time-outs or output.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read, Seek, Write},
    os::unix::{ffi::OsStrExt, net::UnixStream, process::CommandExt},
    path::Path,
    process::{Command, ExitCode, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{MemfdFlags, memfd_create},
    io::{Errno, fcntl_dupfd_cloexec},
    process::{Pid, Signal, WaitOptions, WaitStatus, getpid, set_child_subreaper, setsid, wait},
    stdio::dup2_stdout,
};

use super::{
    command::{self, OWN_EXECUTABLE},
    descendants::{Process, descendants_of, signal_all},
    protocol::{Exit, Launch, Report, Step, TERMINATE},
    respite::Respite,
};

/// How often what is to be killed is looked for again.
pub(super) const KILL_EVERY: Duration = Duration::from_millis(10);
/// When to stop waiting for processes that cannot be killed: another user's, or stuck in the kernel.
pub(super) const GIVE_UP: Duration = Duration::from_secs(5);

/// Runs as the guard of one command.
pub(super) fn guard_main() -> ExitCode {
    match guard() {
        Ok(()) => ExitCode::SUCCESS,
        // There is nobody to tell: the socket is the only way out.
        Err(_) => ExitCode::FAILURE,
    }
}

fn guard() -> io::Result<()> {
    let control = UnixStream::from(fcntl_dupfd_cloexec(io::stdin(), 3)?);
    let mut reports = control.try_clone()?;
    let mut orders = BufReader::new(control);
    let (launch, stdin) = receive(&mut orders)?;

    let kills_before = out_of_memory_kills();
    let (command, events) = match start(&launch, stdin, orders) {
        Ok(started) => started,
        Err((step, error)) => return send(&mut reports, &failure(step, &error)),
    };

    let mut watch = Watch {
        command,
        grace: launch.grace,
        parting: launch.parting,
        reports,
        exec: None,
        exit: Exit::default(),
    };
    watch.until_nothing_is_left(&events);
    watch.exit.out_of_memory = out_of_memory_kills() > kills_before;
    match watch.exec {
        // Failure has been reported.
        Some(Err(_)) => Ok(()),
        Some(Ok(())) | None => send(&mut watch.reports, &Report::Exited(watch.exit)),
    }
}

/// Reads what to run, and the bytes for its stdin into a file in memory: a command reads them when it likes, or not
/// at all, and nobody waits for it.
fn receive(orders: &mut BufReader<UnixStream>) -> io::Result<(Launch, Stdio)> {
    let mut line = String::new();
    orders.read_line(&mut line)?;
    let launch: Launch = serde_json::from_str(&line)?;
    let Some(length) = launch.stdin_len else { return Ok((launch, Stdio::null())) };
    let mut file = File::from(memfd_create("stdin", MemfdFlags::CLOEXEC)?);
    if io::copy(&mut orders.take(length), &mut file)? < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    file.rewind()?;
    Ok((launch, file.into()))
}

/// Starts the command in a group of its own, and lets go of the output, so that it ends when the command's does.
fn start(
    launch: &Launch,
    stdin: Stdio,
    orders: BufReader<UnixStream>,
) -> Result<(Process, Receiver<Event>), (Step, io::Error)> {
    let guard = |error: Errno| (Step::Guard, error.into());
    setsid().map_err(guard)?;
    set_child_subreaper(Some(getpid())).map_err(guard)?;
    std::env::set_current_dir(Path::new(&launch.cwd)).map_err(|error| (Step::Folder, error))?;
    fork(launch, stdin, orders).map_err(|error| (Step::Fork, error))
}

/// If it fails half-way the guard ends, and with it, by the kernel's hand, what was started.
fn fork(
    launch: &Launch,
    stdin: Stdio,
    orders: BufReader<UnixStream>,
) -> io::Result<(Process, Receiver<Event>)> {
    let (outcome, outcome_of_exec) = io::pipe()?;
    let child = Command::new(OWN_EXECUTABLE)
        .args(command::arguments(launch)?)
        .stdin(stdin)
        .stderr(outcome_of_exec)
        .process_group(0)
        .spawn()?;
    let command = Process::look_up(child.id().cast_signed())?;
    dup2_stdout(File::options().write(true).open("/dev/null")?)?;

    let (sender, events) = channel();
    watch_with(&sender, move |sender| {
        // No receiver means, here and below, that the guard is about to end.
        let _ = sender.send(Event::Exec(command::read_outcome(outcome)));
    })?;
    watch_with(&sender, |sender| follow_orders(orders, sender))?;
    watch_with(&sender, reap)?;
    Ok((command, events))
}

fn watch_with(sender: &Sender<Event>, work: impl FnOnce(&Sender<Event>) + Send + 'static) -> io::Result<()> {
    let sender = sender.clone();
    thread::Builder::new().spawn(move || work(&sender)).map(drop)
}

enum Event {
    Exec(Result<(), (Step, i32)>),
    Reaped(Pid, WaitStatus),
    Childless,
    Terminate,
    /// herder is gone, or has lost interest.
    Abandoned,
}

fn follow_orders(orders: BufReader<UnixStream>, sender: &Sender<Event>) {
    for line in orders.lines().map_while(Result::ok) {
        if line == TERMINATE && sender.send(Event::Terminate).is_err() {
            return;
        }
    }
    let _ = sender.send(Event::Abandoned);
}

/// Collects every child, the command and the orphans, until there is none.
fn reap(sender: &Sender<Event>) {
    loop {
        let event = match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) => Event::Reaped(pid, status),
            Ok(None) | Err(Errno::INTR) => continue,
            Err(_) => Event::Childless,
        };
        let last = matches!(event, Event::Childless);
        if sender.send(event).is_err() || last {
            return;
        }
    }
}

#[derive(Clone, Copy)]
enum Stage {
    Running,
    /// The command has ended; the rest may end by itself.
    Settling(Respite),
    /// The rest has been told to end.
    Leaving(Respite),
    /// herder is gone, and the command may come to its end.
    Parting {
        until: Instant,
    },
    /// All have been told to end.
    Asked {
        until: Instant,
    },
    /// All are being killed.
    Forced {
        again: Instant,
        give_up: Instant,
    },
}

struct Watch {
    command: Process,
    grace: Duration,
    parting: Duration,
    reports: UnixStream,
    /// Whether the program could be run; not yet known at first.
    exec: Option<Result<(), (Step, i32)>>,
    exit: Exit,
}

impl Watch {
    fn until_nothing_is_left(&mut self, events: &Receiver<Event>) {
        let mut stage = Stage::Running;
        let mut childless = false;
        while !(childless && self.exec.is_some()) {
            match next(events, stage) {
                Ok(Event::Exec(outcome)) => self.tell_whether_started(outcome),
                Ok(Event::Childless) => childless = true,
                Ok(Event::Reaped(pid, status)) if pid.as_raw_nonzero().get() == self.command.pid => {
                    self.exit.code = status.exit_status();
                    self.exit.signal = status.terminating_signal();
                    if matches!(stage, Stage::Running) {
                        stage = Stage::Settling(Respite::new(Instant::now()));
                    }
                }
                Ok(Event::Terminate) if matches!(stage, Stage::Running) => {
                    self.exit.terminated = true;
                    stage = ask_to_end(self.grace);
                }
                // An orphan has ended; or the command had, when the order came.
                Ok(Event::Reaped(..) | Event::Terminate) => {}
                Ok(Event::Abandoned) if matches!(stage, Stage::Running) && !self.parting.is_zero() => {
                    stage = Stage::Parting { until: Instant::now() + self.parting };
                }
                Ok(Event::Abandoned) => stage = force(),
                Err(RecvTimeoutError::Timeout) => match self.after(stage) {
                    Some(next) => stage = next,
                    None => return self.give_up(),
                },
                Err(RecvTimeoutError::Disconnected) => return self.give_up(),
            }
        }
    }

    /// What follows when the time of a stage, or until the next look in it, is over.
    fn after(&mut self, stage: Stage) -> Option<Stage> {
        match stage {
            Stage::Settling(respite) => {
                let left = descendants_of(getpid());
                let settling = respite.after(&left, Instant::now()).map(Stage::Settling);
                Some(settling.unwrap_or_else(|| {
                    self.exit.left_behind = left.len().try_into().unwrap_or(u32::MAX);
                    tell_to_end(&left);
                    Stage::Leaving(Respite::new(Instant::now()))
                }))
            }
            Stage::Leaving(respite) => {
                let leaving = respite.after(&descendants_of(getpid()), Instant::now());
                Some(leaving.map_or_else(force, Stage::Leaving))
            }
            Stage::Running | Stage::Parting { .. } | Stage::Asked { .. } => Some(force()),
            Stage::Forced { give_up, .. } => (Instant::now() < give_up).then(|| kill_again(give_up)),
        }
    }

    fn tell_whether_started(&mut self, outcome: Result<(), (Step, i32)>) {
        let report = match outcome {
            Ok(()) => {
                Report::Started { pid: self.command.pid.cast_unsigned(), start_time: self.command.start_time }
            }
            Err((step, errno)) => Report::Failed { step, errno },
        };
        self.exec = Some(outcome);
        // If herder is gone, the order thread says so.
        let _ = send(&mut self.reports, &report);
    }

    fn give_up(&mut self) {
        self.exit.survivors =
            descendants_of(getpid()).iter().map(|process| process.pid.cast_unsigned()).collect();
    }
}

fn next(events: &Receiver<Event>, stage: Stage) -> Result<Event, RecvTimeoutError> {
    let until = match stage {
        Stage::Running => return events.recv().map_err(RecvTimeoutError::from),
        Stage::Settling(respite) | Stage::Leaving(respite) => respite.next_look(),
        Stage::Parting { until } | Stage::Asked { until } | Stage::Forced { again: until, .. } => until,
    };
    events.recv_timeout(until.saturating_duration_since(Instant::now()))
}

fn ask_to_end(grace: Duration) -> Stage {
    tell_to_end(&descendants_of(getpid()));
    Stage::Asked { until: Instant::now() + grace }
}

fn tell_to_end(processes: &[Process]) {
    signal_all(processes, Signal::TERM, getpid());
    // A stopped process would hear of it only when it goes on.
    signal_all(processes, Signal::CONT, getpid());
}

fn force() -> Stage {
    kill_again(Instant::now() + GIVE_UP)
}

fn kill_again(give_up: Instant) -> Stage {
    signal_all(&descendants_of(getpid()), Signal::KILL, getpid());
    Stage::Forced { again: Instant::now() + KILL_EVERY, give_up }
}

fn failure(step: Step, error: &io::Error) -> Report {
    Report::Failed { step, errno: error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()) }
}

fn send(reports: &mut UnixStream, report: &Report) -> io::Result<()> {
    let mut line = serde_json::to_vec(report)?;
    line.push(b'\n');
    reports.write_all(&line)
}

/// How many processes the kernel has killed for want of memory since boot.
fn out_of_memory_kills() -> u64 {
    let counters = std::fs::read("/proc/vmstat").unwrap_or_default();
    let kills = counters.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"oom_kill "));
    kills.and_then(|count| std::ffi::OsStr::from_bytes(count).to_str()?.parse().ok()).unwrap_or(0)
}
