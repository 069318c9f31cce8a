//! `herder run`: one task, watched from here.

use std::{
    io::{self, IsTerminal},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use clap::Args;

use super::{
    Context, Exit, UsageError,
    args::{AskArgs, ConfineArgs, TaskArgs, WorkArgs},
    asking,
    signals::Signals,
    start::{caller, say, serve_metrics, warn_of_confinement, warn_of_silent_tools, with_rules},
};
use crate::{
    actor::supervisor::Blocked,
    app::{
        batch::Stopper,
        herder::{Herder, People},
        input, isolation, spent,
        state::{State, StateError, new_run},
    },
    config::{Config, Flag},
    domain::{id::RunId, outcome::Outcome, task::TaskSpec},
    store::folder::FolderError,
    tool::isolate::Change,
};

mod prompt;
mod watch;

use prompt::Prompt;
use watch::Watch;

pub(super) const ABOUT: &str = "Run one task and print what the model says at the end

What happens is shown on stderr; stdout has the last answer, or with --json every event, one a line. The run is kept: see \
`herder ls` and `herder show`.

Calls that policy leaves to a person are asked about here, on a terminal. With --park the run is left waiting for `herder approve` \
and `herder reject`, and this command ends with 1 if nothing else is left to do: to go on with the run once it is answered takes \
a daemon over its state, `herder serve`. Else such a call is denied, and nothing is read from stdin.";

pub(super) const AFTER: &str = "EXAMPLES
  herder run \"Fix the failing test in src/parse.rs\" --model openai:gpt-5
  herder run \"List the open questions in notes/\" --policy read-only --quiet
  herder run \"Find out why the tests fail\" --policy trusted --network deny
  herder run \"Port it to the new API\" --isolate worktree      on a branch of its own; `herder apply` takes it over
  herder run \"Say hello\" --script replies.json             no model, no key, no network
  herder run \"Tidy up\" --model openai:gpt-5 --policy careful     on a terminal, asks about each change

EXIT CODES
  0  done
  1  any other outcome
  2  bad usage or configuration; nothing ran
  130, 143  ended by SIGINT or SIGTERM";

/// Flags of `herder run`.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// What to do; - reads it from stdin
    #[arg(value_name = "TASK")]
    pub text: String,
    /// Print every event as JSON, one a line
    #[arg(long)]
    pub json: bool,
    /// Show nothing but the result
    #[arg(long, short)]
    pub quiet: bool,
    /// Replay the model's replies from this file, a JSON list
    #[arg(long, value_name = "FILE")]
    pub script: Option<PathBuf>,

    #[command(flatten)]
    pub task: TaskArgs,
    #[command(flatten)]
    pub confine: ConfineArgs,
    #[command(flatten)]
    pub asks: AskArgs,
    #[command(flatten)]
    pub work: WorkArgs,
}

impl RunArgs {
    pub(super) fn flags(&self) -> Vec<Flag> {
        let mut flags = Vec::new();
        self.task.flags(&mut flags);
        self.confine.flags(&mut flags);
        self.asks.flags(&mut flags);
        self.work.flags(&mut flags);
        flags
    }
}

/// What is shown of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    /// Every event, as JSON.
    pub(super) json: bool,
    /// Nothing but the result.
    pub(super) quiet: bool,
}

/// Whether people are asked about calls, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asks {
    /// Nobody is.
    Nobody,
    /// Whoever sits at the terminal, at once.
    Here,
    /// Whoever comes to it; the run waits for them.
    Later,
}

impl Asks {
    pub(super) fn of(Shown { json, quiet }: Shown, parks: bool, config: &Config) -> Self {
        let is_watched = !json && !quiet && io::stdin().is_terminal() && io::stderr().is_terminal();
        match (parks, config.approvals.ask && is_watched) {
            (true, _) => Self::Later,
            (false, true) => Self::Here,
            (false, false) => Self::Nobody,
        }
    }

    const fn people(self) -> People {
        match self {
            Self::Nobody => People::Absent,
            Self::Here | Self::Later => People::Asked,
        }
    }
}

/// Runs the command.
pub(crate) async fn main(args: RunArgs, mut context: Context) -> anyhow::Result<Exit> {
    args.task.fill(&mut context.config);
    let _metrics = serve_metrics(args.work.metrics)?;
    let text = task_text(&args.text)?;
    let mut spec = with_rules(&context.config, |rules| input::single(&text, args.script.as_deref(), rules))??;
    spec.owner = caller();
    Herder::check(&context.config, [&*spec.model])?;
    if context.config.limits_costs() || spec.limits.max_cost_usd.is_some() {
        Herder::check_prices(&context.config, [&*spec.model])?;
    }
    let folder = context.state_folder()?;
    let RunArgs { json, quiet, asks: AskArgs { park, .. }, .. } = args;
    let asks = Asks::of(Shown { json, quiet }, park, &context.config);
    work(spec, &folder, Shown { json, quiet }, asks, &context).await
}

/// Does a task in a state folder that nobody else works in, to its end or as far as it can go.
pub(super) async fn work(
    spec: TaskSpec,
    folder: &Path,
    Shown { json, quiet }: Shown,
    asks: Asks,
    context: &Context,
) -> anyhow::Result<Exit> {
    let workspace = spec.isolate.is_none().then(|| Path::new(&*spec.workspace));
    Herder::check_answers(&context.config, asks.people(), folder, workspace)?;
    let state = match State::to_write(folder, context.config.store.durability) {
        Err(error) => return Err(taken(error, context).await),
        Ok(state) => state,
    };
    let herder = Herder::start_for_one(&context.config, state, &spec.model, asks.people()).await?;
    spent::restore_users(&herder.supervisor, &|_| {}).await?;
    warn_of_silent_tools(&herder, &spec.tools.as_ref().map(|names| names.iter().cloned().collect()), say);
    warn_of_confinement(&herder, say);
    let stopper = Stopper::default();
    let signals = Signals::watch(stopper.clone(), context.screen.clone(), say)?;
    let live = herder.supervisor.services().live.subscribe();
    let submitted = tokio::select! {
        submitted = herder.supervisor.submit(new_run(), Arc::new(spec)) => submitted?,
        // Only a log that takes nothing leaves the time for it.
        () = stopper.drained() => {
            herder.close().await;
            say("the task was not taken on, since the log took nothing; nothing ran");
            return Ok(signals.received().unwrap_or(Exit::NotDone));
        }
    };
    let run = submitted.run;
    let store = herder.state().store.clone();
    let supervisor = herder.supervisor.clone();
    let mut watch = Watch::new(json, quiet);
    if asks == Asks::Here {
        watch.ask = Some(Prompt::new(supervisor.clone(), run, stopper.clone()).asks());
    }
    let drain = context.config.supervisor.drain();
    let stopping = async {
        stopper.drained().await;
        tokio::select! {
            () = supervisor.drain(drain) => {}
            () = stopper.stopped_now() => {
                supervisor.interrupt();
                supervisor.drain(Duration::ZERO).await;
            }
        }
    };
    let _answers = herder.take_answers();
    let undecided = async {
        if asks != Asks::Later || !matches!(supervisor.blocked().await, Some(Blocked::Approval)) {
            std::future::pending::<()>().await;
        }
    };
    let over = async {
        tokio::select! {
            // Whatever it says, nothing more comes, and what came is of record.
            _ = submitted.done => {}
            () = stopping => {}
            () = undecided => {}
        }
    };
    let end = watch.follow(store, live, run, over).await;
    let asked = watch.is_asking();
    herder.supervisor.drain(Duration::ZERO).await;
    let change = isolation::change_by(&herder, run).await;
    herder.close().await;
    Ok(match (end?, signals.received()) {
        (Some(end), _) => {
            watch.finish(&end)?;
            if let Some(told) = change.and_then(|change| changed(run, &change, context.state.as_deref())) {
                say(&told);
            }
            if end.outcome == Outcome::Done { Exit::Done } else { Exit::NotDone }
        }
        (None, signal) => {
            let state = context
                .state
                .as_deref()
                .map_or_else(String::new, |folder| format!(" --state {}", folder.display()));
            let approvals = if asked {
                format!("`herder approvals{state}` says what it waits for; ")
            } else {
                String::new()
            };
            say(&format!(
                "the run has not ended; {approvals}a daemon goes on with it: `herder serve{state}`; \
                 `herder show {run}{state}` says how far it came"
            ));
            signal.unwrap_or(Exit::NotDone)
        }
    })
}

/// What a run changed in a workspace of its own, and how to have it.
fn changed(run: RunId, change: &Change, state: Option<&Path>) -> Option<String> {
    let kept =
        change.kept.as_ref().map_or_else(String::new, |path| format!("; its workspace is kept: {path}"));
    if let Some(error) = &change.error {
        return Some(error.clone());
    }
    if change.patch_path.is_none() {
        return (!kept.is_empty()).then(|| format!("the run changed nothing{kept}"));
    }
    let files = match change.files_changed {
        1 => "1 file".to_owned(),
        files => format!("{files} files"),
    };
    let on = change.branch.as_ref().map_or_else(String::new, |branch| format!(", branch {branch}"));
    let state = state.map_or_else(String::new, |folder| format!(" --state {}", folder.display()));
    Some(format!(
        "the run changed {files}{on}; `herder diff {run}{state}` shows how, `herder apply` takes it over{kept}"
    ))
}

/// Why the state cannot be had. Of the daemon's, that it does there what was asked for.
async fn taken(error: StateError, context: &Context) -> anyhow::Error {
    let StateError::Folder(FolderError::InUse { path, holder }) = &error else { return error.into() };
    let daemon = asking::daemon(context).await.map(|status| status.pid);
    match daemon {
        Some(pid) if holder.pid() == Some(pid) => UsageError(format!(
            "{}: the daemon, process {pid}, keeps its runs there; `herder submit --follow` has it run the task, \
             --state keeps the run elsewhere",
            path.display()
        ))
        .into(),
        Some(_) | None => error.into(),
    }
}

/// The task that is named on the command line, or read from stdin.
pub(super) fn task_text(text: &str) -> anyhow::Result<String> {
    if text != "-" {
        return Ok(text.to_owned());
    }
    io::read_to_string(io::stdin()).context("stdin: cannot be read as text")
}
