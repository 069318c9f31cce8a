//! `herder serve`: the daemon, in the foreground or on its own.

use std::{
    ffi::OsString,
    fs::OpenOptions,
    io::{Read as _, Seek as _, SeekFrom},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::Context as _;
use clap::Args;
use tokio::{
    process::{Child, Command},
    signal::unix::{SignalKind, signal},
    time::Instant,
};

use super::{
    Context, Exit, UsageError,
    args::{ConfineArgs, KeepArgs},
    asking,
    start::{say, warn_of_confinement},
};
use crate::{
    app::state::StateError,
    config::{Flag, Sources},
    daemon::{
        client::{Client, ClientError, Route},
        desk::Desk,
        lifetime::{self, Setup},
        server::systemd::Inherited,
        wire::Status,
    },
    domain::admission::Slots,
    store::folder::StateFolder,
};

pub(super) const ABOUT: &str = "Run as a daemon that takes tasks over a Unix socket

Runs outlive the terminal and, if the daemon is killed, the daemon: they go on from their log when it is started again. The \
state folder and the socket have one daemon each. SIGTERM or SIGINT once: runs end their turn, then it stops; twice: it \
stops now. SIGHUP: it reads its configuration again. Under systemd it takes the socket that it is given, says when it is \
ready, and feeds the watchdog while its supervisor answers (config/systemd has units).

It takes up every run that its state folder has open, also one of `herder run` that was interrupted. Runs whose account is \
used up, refuses its key or is rate limited for long wait without a slot: `herder status` and `herder models` say so, and \
`herder resume --model NAME` opens the account.

The socket speaks HTTP with JSON: `curl --unix-socket SOCKET http://herder/openapi.json` describes it.";

pub(super) const AFTER: &str = "EXAMPLES
  herder serve --detach                                       returns once it answers
  herder serve --state /var/lib/herder -j 200 --policy trusted
  herder serve --listen 127.0.0.1:7070                        also a port, with the token in STATE/token
  herder submit \"Fix ticket 7.\" --model openai:gpt-5 --follow
  herder status; herder stop --wait

EXIT CODES
  0  it was told to stop, or with --detach: it answers
  1  it could not go on; with --detach nothing is left running
  2  bad usage or configuration, or another process has the state or the socket
  6  a later version of herder wrote the state";

/// Flags of `herder serve`.
#[derive(Clone, Debug, Args)]
pub struct ServeArgs {
    /// Return once the daemon answers, and leave it running
    #[arg(long)]
    pub detach: bool,
    /// Be the process that --detach leaves running
    #[arg(long, hide = true, conflicts_with = "detach")]
    pub detached: bool,
    /// With --detach: where its log lines go [default: STATE/daemon.log]
    #[arg(long, value_name = "FILE", requires = "detach")]
    pub log_file: Option<PathBuf>,
    /// Runs that are live at once; auto, or MIN-START-MAX: as many as the models turn out to take
    #[arg(long, short, value_name = "N")]
    pub jobs: Option<Slots>,
    /// Answer at this address of this machine too, to whoever has the token
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<std::net::SocketAddr>,
    /// The file with the token of --listen, made if it is missing [default: STATE/token]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Let the members of this group connect; what each may do stands in [daemon.roles]
    #[arg(long, value_name = "NAME")]
    pub group: Option<String>,
    #[command(flatten)]
    pub confine: ConfineArgs,
    #[command(flatten)]
    pub keep: KeepArgs,
}

impl ServeArgs {
    pub(super) fn flags(&self) -> Vec<Flag> {
        let mut flags = Vec::new();
        self.confine.flags(&mut flags);
        self.keep.flags(&mut flags);
        flags.extend(self.jobs.map(|jobs| Flag::new("--jobs", &["supervisor", "max_live_runs"], jobs)));
        let text =
            |name, key, value: Option<String>| value.map(|value| Flag::new(name, &["daemon", key], value));
        flags.extend(text("--listen", "listen", self.listen.map(|address| address.to_string())));
        let file = self.token_file.as_ref().map(|file| file.to_string_lossy().into_owned());
        flags.extend(text("--token-file", "token_file", file));
        flags.extend(text("--group", "group", self.group.clone()));
        flags
    }
}

/// How long a daemon that is started on its own may take until it answers.
const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks at whether it does.
const PAUSE: Duration = Duration::from_millis(30);

/// Runs the command. The sockets that a service manager handed down must have been taken before there were threads.
pub(crate) async fn main(
    args: ServeArgs,
    context: Context,
    sources: Sources,
    inherited: Inherited,
) -> anyhow::Result<Exit> {
    if args.detach {
        return detach(&args, &context).await;
    }
    let setup = Setup {
        state: context.state_folder()?,
        socket: asking::place(context.socket.as_deref())?,
        config: context.config,
        effective: context.effective,
        sources,
        inherited,
    };
    lifetime::serve(setup, tell_ready).await?;
    Ok(Exit::Done)
}

fn tell_ready(desk: &Desk) {
    warn_of_confinement(desk.herder(), say);
    let place = desk.place();
    let listen = place.listen.map_or_else(String::new, |address| format!(" and {address}"));
    say(&format!("ready at {}{listen}; runs are kept in {}", place.socket.display(), place.state.display()));
}

/// Starts the daemon as a process of its own and waits until it answers.
async fn detach(args: &ServeArgs, context: &Context) -> anyhow::Result<Exit> {
    let state = context.state_folder()?;
    let socket = asking::place(context.socket.as_deref())?;
    let client = Client::at_socket(socket.path())?;
    if let Ok(status) = status(&client).await {
        let (place, pid) = (socket.path().display(), status.pid);
        return Err(UsageError(format!("a daemon is already running at {place}, as process {pid}")).into());
    }
    let log = args.log_file.clone().unwrap_or_else(|| state.join("daemon.log"));
    // From before it is started, or a signal could end this and leave it.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let (mut child, from) = start(&state, &log)?;
    tokio::select! {
        answers = until_it_answers(&mut child, &client) => match answers? {
            Start::Answers(pid) => {
                say(&format!("daemon {pid} answers at {}; its log is {}", socket.path().display(), log.display()));
                Ok(Exit::Done)
            }
            Start::Ended(exit) => {
                for line in since(&log, from).lines() {
                    say(line.strip_prefix("herder: ").unwrap_or(line));
                }
                Ok(exit)
            }
            Start::Silent => {
                end(&mut child).await;
                let log = log.display();
                say(&format!("the daemon did not answer within {} s and was ended; its log is {log}", PATIENCE.as_secs()));
                Ok(Exit::NotDone)
            }
        },
        _ = interrupt.recv() => {
            end(&mut child).await;
            Ok(Exit::Interrupted)
        }
        _ = terminate.recv() => {
            end(&mut child).await;
            Ok(Exit::Terminated)
        }
    }
}

/// Starts this program again, with its output in `log`; tells where in the log its own lines begin.
fn start(state: &Path, log: &Path) -> anyhow::Result<(Child, u64)> {
    // Whoever has it, or what is wrong with it, is told here and now; the daemon takes it for good.
    drop(StateFolder::open_for_writing(state).map_err(StateError::Folder)?);
    let mut open = OpenOptions::new();
    let open = open.append(true).create(true).mode(0o600).open(log);
    let file = open.with_context(|| format!("{}: cannot be written", log.display()))?;
    let from = file.metadata().map_or(0, |facts| facts.len());
    let program = std::env::current_exe().context("this program cannot be found again")?;
    let arguments = std::env::args_os().skip(1).map(|argument| match argument == "--detach" {
        true => OsString::from("--detached"),
        false => argument,
    });
    let child = Command::new(program)
        .args(without_log_file(arguments))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(file)
        .spawn()
        .context("the daemon cannot be started")?;
    Ok((child, from))
}

/// The flag that only makes sense for whoever detaches.
fn without_log_file(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut kept = Vec::new();
    let mut arguments = arguments;
    while let Some(argument) = arguments.next() {
        if argument == "--log-file" {
            let _file = arguments.next();
        } else if !argument.to_string_lossy().starts_with("--log-file=") {
            kept.push(argument);
        }
    }
    kept
}

enum Start {
    Answers(u32),
    Ended(Exit),
    Silent,
}

async fn until_it_answers(child: &mut Child, client: &Client) -> anyhow::Result<Start> {
    let since = Instant::now();
    while since.elapsed() < PATIENCE {
        if let Some(status) = child.try_wait()? {
            let code = status.code().unwrap_or(1);
            let exit = [Exit::Usage, Exit::Version].into_iter().find(|exit| i32::from(exit.code()) == code);
            return Ok(Start::Ended(exit.unwrap_or(Exit::NotDone)));
        }
        // Another daemon may be there already; then this one is about to end.
        if let Ok(status) = status(client).await
            && Some(status.pid) == child.id()
            && status.phase == "ready"
        {
            return Ok(Start::Answers(status.pid));
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(Start::Silent)
}

async fn status(client: &Client) -> Result<Status, ClientError> {
    client.get(&Route::to(["v1", "status"])).await
}

async fn end(child: &mut Child) {
    // It may have ended by itself.
    let _ = child.start_kill();
    let _ = child.wait().await;
}

/// What was written to a file after this place.
fn since(file: &Path, from: u64) -> String {
    let read = || {
        let mut file = std::fs::File::open(file)?;
        file.seek(SeekFrom::Start(from))?;
        let mut text = Vec::new();
        file.take(64 << 10).read_to_end(&mut text)?;
        Ok::<_, std::io::Error>(String::from_utf8_lossy(&text).into_owned())
    };
    read().unwrap_or_default()
}
