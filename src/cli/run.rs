//! `herder run`: one task, watched from here.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use clap::Args;
use tokio::sync::broadcast;

use super::{
    Context, Exit, UsageError,
    args::{TaskArgs, WorkArgs},
    asking,
    live::Ahead,
    paint,
    render::line,
    signals::Signals,
    start::{caller, say, serve_metrics, warn_of_silent_tools, with_rules},
    stdout::Output,
};
use crate::{
    actor::{Live, LiveDelta},
    app::{
        batch::Stopper,
        herder::Herder,
        input, isolation, spent,
        state::{State, StateError, new_run},
    },
    config::Flag,
    daemon::hub::EventJson,
    domain::{
        event::{Envelope, Event, RunEnd},
        id::{RunId, Seq},
        outcome::Outcome,
    },
    store::{EventStore, feed::Feed, folder::FolderError},
    tool::isolate::Change,
};

pub(super) const ABOUT: &str = "Run one task and print what the model says at the end

What happens is shown on stderr; stdout has the last answer, or with --json every event, one a line. The run is kept: see \
`herder ls` and `herder show`.";

pub(super) const AFTER: &str = "EXAMPLES
  herder run \"Fix the failing test in src/parse.rs\" --model openai:gpt-5
  herder run \"List the open questions in notes/\" --policy read-only --quiet
  herder run \"Port it to the new API\" --isolate worktree      on a branch of its own; `herder apply` takes it over
  herder run \"Say hello\" --script replies.json             no model, no key, no network

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
    pub work: WorkArgs,
}

impl RunArgs {
    pub(super) fn flags(&self) -> Vec<Flag> {
        let mut flags = Vec::new();
        self.task.flags(&mut flags);
        self.work.flags(&mut flags);
        flags
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
    let state = match State::to_write(&folder, context.config.store.durability) {
        Err(error) => return Err(taken(error, &context).await),
        Ok(state) => state,
    };
    let herder = Herder::start_for_one(&context.config, state, &spec.model).await?;
    spent::restore_users(&herder.supervisor, &|_| {}).await?;
    warn_of_silent_tools(&herder, &spec.tools.as_ref().map(|names| names.iter().cloned().collect()), say);
    let stopper = Stopper::default();
    let signals = Signals::watch(stopper.clone(), context.screen.clone(), say)?;
    let live = herder.supervisor.services().live.subscribe();
    let submitted = herder.supervisor.submit(new_run(), Arc::new(spec)).await?;
    let run = submitted.run;
    let store = herder.state().store.clone();
    let mut watch = Watch::new(args.json, args.quiet);
    let supervisor = herder.supervisor.clone();
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
    let over = async {
        tokio::select! {
            // Whatever it says, nothing more comes, and what came is of record.
            _ = submitted.done => {}
            () = stopping => {}
        }
    };
    let end = watch.follow(store, live, run, over).await;
    herder.supervisor.drain(Duration::ZERO).await;
    let change = isolation::change(&isolation::patches(herder.state()), run).await;
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
            say(&format!(
                "the run has not ended; a daemon goes on with it: `herder serve{state}`; `herder show {run}{state}` says \
                 how far it came"
            ));
            signal.unwrap_or(Exit::NotDone)
        }
    })
}

/// What a run changed in a workspace of its own, and how to have it.
fn changed(run: RunId, change: &Change, state: Option<&Path>) -> Option<String> {
    let kept =
        change.kept.as_ref().map_or_else(String::new, |path| format!("; its workspace is kept: {path}"));
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

/// Shows one run as it goes on.
struct Watch {
    json: bool,
    quiet: bool,
    out: Output,
    /// Whether anybody still reads stdout.
    open: bool,
    /// Whether the model's words on stderr have not ended their line.
    midline: bool,
    ahead: Ahead<Arc<str>>,
}

impl Watch {
    fn new(json: bool, quiet: bool) -> Self {
        Self { json, quiet, out: Output::stdout(), open: true, midline: false, ahead: Ahead::new() }
    }

    /// Shows what happens until the run ends, or until it is `over` without an end.
    async fn follow(
        &mut self,
        store: Arc<dyn EventStore>,
        mut live: broadcast::Receiver<Live>,
        run: RunId,
        over: impl Future<Output = ()>,
    ) -> anyhow::Result<Option<RunEnd>> {
        let mut feed = Feed::run(store.clone(), run, Seq::START);
        let mut shown = Seq::START;
        let mut over = pin!(over);
        loop {
            let page = tokio::select! {
                biased;
                delta = live.recv(), if !self.quiet && !self.json => {
                    match delta {
                        Ok(Live { run: of, turn, what: LiveDelta::Text(text) | LiveDelta::Reasoning(text) }) if of == run => {
                            if let Some(text) = self.ahead.hear(turn, text) {
                                self.hear(&text);
                            }
                        }
                        Ok(_) | Err(_) => {}
                    }
                    continue;
                }
                page = feed.next() => page?,
                () = &mut over => return self.show_all(store.read(run, shown).await?),
            };
            shown = page.last().map_or(shown, |envelope| envelope.seq);
            if let Some(end) = self.show_all(page)? {
                return Ok(Some(end));
            }
        }
    }

    fn show_all(&mut self, page: Vec<Envelope>) -> anyhow::Result<Option<RunEnd>> {
        for envelope in page {
            self.show(&envelope)?;
            if let Event::RunEnd(end) = envelope.fact.event {
                return Ok(Some(*end));
            }
        }
        Ok(None)
    }

    /// The model's words, as they come.
    fn hear(&mut self, text: &str) {
        self.midline = !text.ends_with('\n');
        let mut stderr = io::stderr();
        // The run goes on though nobody watches it.
        let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
    }

    fn show(&mut self, envelope: &Envelope) -> io::Result<()> {
        if self.json && self.open {
            self.open = self.out.json(&EventJson(envelope))?.is_continue() && self.out.flush()?.is_continue();
        }
        if !self.json && !self.quiet {
            let newline = if std::mem::take(&mut self.midline) { "\n" } else { "" };
            let _ = writeln!(io::stderr(), "{newline}{}", line(envelope, paint(&io::stderr())));
            let is_message = matches!(envelope.fact.event, Event::Message(_));
            for text in self.ahead.reach(envelope.fact.turn, is_message) {
                self.hear(&text);
            }
        }
        Ok(())
    }

    fn finish(&mut self, end: &RunEnd) -> io::Result<()> {
        if !self.json {
            if !end.text.is_empty() {
                let _open = self.out.line(&end.text)?;
            }
            if end.outcome != Outcome::Done {
                let why = end.error.as_ref().map_or_else(String::new, |error| format!(": {error}"));
                say(&format!("the run ended as {}{why}", end.outcome));
            }
        }
        let _open = self.out.flush()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        domain::{run::Run, task::TaskSpec, time::Timestamp},
        store::memory::MemoryStore,
    };

    #[tokio::test]
    async fn a_run_that_is_over_without_an_end_is_not_waited_for() {
        let spec = r#"{"task": "t", "attempt": 1, "model": "m", "workspace": "/w"}"#;
        let spec: TaskSpec = serde_json::from_str(spec).expect("a spec");
        let run = new_run();
        let store: Arc<dyn EventStore> = Arc::new(MemoryStore::default());
        let input = crate::domain::run::Input::Submit(Arc::new(spec));
        let facts = Run::new(run).decide(input, Timestamp::default()).expect("taken on");
        store.append(run, Seq::START, &facts).expect("stored");
        let mut watch = Watch::new(false, true);
        let followed = watch.follow(store, broadcast::channel(1).1, run, std::future::ready(()));
        let end = tokio::time::timeout(Duration::from_secs(30), followed).await.expect("does not hang");
        assert_eq!(end.expect("readable"), None);
    }
}
