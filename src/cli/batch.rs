//! `herder batch`: many tasks in parallel, one line of results each.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use clap::{Args, ValueEnum};
use tokio::sync::mpsc;

use super::{
    Context, Exit, UsageError,
    args::{AskArgs, ConfineArgs, TaskArgs, WorkArgs, retry_failed, usd},
    progress::ProgressMode,
    signals::Signals,
    start::{caller, say, say_json, serve_metrics, warn_of_confinement, warn_of_silent_tools, with_rules},
};
use crate::{
    app::{
        batch::{Batch, Journal, Options, Report, Stopper, beside},
        herder::{Herder, People},
        input::{self, InputError, InputTask, Rules, Selection, Source, repeated},
        isolation,
        state::State,
    },
    config::{Config, Flag},
    domain::{
        admission::Slots,
        batch::{Halt, RetryFailed, StaleLines},
        usage::NanoUsd,
    },
};

mod dry_run;
mod shown;

use dry_run::dry_run;
use shown::Shown;

pub(super) const ABOUT: &str = "Run many tasks in parallel, one line of results each

IN has one JSON object a line: `id` and `task`, and optionally model, system, workspace, isolate, tools, limits, facts, priority, \
labels, meta, params, script. A line without an id is named by its place (line-7). Everything is checked before anything \
runs.

OUT gets a line when a task has ended: id, run, attempt, outcome, detail, text, turns, calls, usage, cost_usd, queued_ms, \
duration_ms, active_ms, error, labels, meta, model, branch, base, patch_path, files_changed. Beside it, OUT.state is the journal: give the same command again, and \
what is done stays done, what was interrupted goes on, what has not started starts.";

pub(super) const AFTER: &str = "EXAMPLES
  herder batch tasks.jsonl -o out.jsonl -j 50 --model openai:gpt-5
  herder batch tasks.jsonl -o out.jsonl --first 3            try the first three tasks
  herder batch tasks.jsonl -o out.jsonl --retry-failed       one more attempt at what is not done
  herder batch tasks.jsonl -o out.jsonl --isolate worktree   a git worktree and a branch for each run
  herder batch tasks.jsonl -o out.jsonl --halt soon,fail=10%
  herder batch tasks.jsonl -o out.jsonl --max-cost 5           what does not fit is not started; raise it and go on
  generate | herder batch - --state run1 | jq -r .text
  herder batch tasks.jsonl -o out.jsonl --policy careful --park    people answer later: herder approvals
  herder batch tasks.jsonl -o out.jsonl --daemon             Ctrl-C detaches, the same command attaches again

EXIT CODES
  0  every task is done
  1  some are not: they ended otherwise, wait for people, or were not started for want of money
  2  bad usage, configuration or input; nothing ran
  3  halted by --halt
  4  the journal does not fit the input
  5  with --daemon: no daemon answers
  6  another version of herder wrote the journal
  130, 143  ended by SIGINT or SIGTERM: once drains, twice stops now; the same command continues.
     With --daemon: detached";

/// Flags of `herder batch`.
#[derive(Clone, Debug, Args)]
pub struct BatchArgs {
    /// The tasks, one JSON object a line; - is stdin
    #[arg(value_name = "IN")]
    pub input: PathBuf,
    /// Where results go; - is stdout, and needs --state to be continued later
    #[arg(long, short, value_name = "OUT", default_value = "-")]
    pub output: PathBuf,
    /// Runs that are live at once; auto, or MIN-START-MAX: as many as the models turn out to take
    #[arg(long, short, value_name = "N")]
    pub jobs: Option<Slots>,
    /// Check everything, say what would run, and run nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Tell progress and the summary as JSON, a line each, on stderr
    #[arg(long)]
    pub json: bool,
    /// How progress is shown, on stderr
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub progress: ProgressMode,

    /// Have the daemon run it, and write its results here; the batch goes on without this command
    #[arg(long, help_heading = "By the daemon")]
    pub daemon: bool,
    /// Return once the daemon has it, and print its id; the same command without this attaches
    #[arg(long, requires = "daemon", help_heading = "By the daemon")]
    pub detach: bool,

    #[command(flatten)]
    pub task: TaskArgs,

    /// Only the first N tasks
    #[arg(long, value_name = "N", help_heading = "Which tasks, and when")]
    pub first: Option<usize>,
    /// Only the task with this id; may be given more than once
    #[arg(long, value_name = "ID", help_heading = "Which tasks, and when")]
    pub only: Vec<String>,
    /// Start tasks in an order that is drawn by --seed
    #[arg(long, help_heading = "Which tasks, and when")]
    pub shuffle: bool,
    /// The seed of --shuffle
    #[arg(
        long,
        value_name = "N",
        default_value = "0",
        requires = "shuffle",
        help_heading = "Which tasks, and when"
    )]
    pub seed: u64,
    /// Run each task N times, as ID#1, ID#2 and so on
    #[arg(
        long,
        value_name = "N",
        default_value = "1",
        value_parser = clap::value_parser!(u32).range(1..),
        help_heading = "Which tasks, and when"
    )]
    pub repeat: u32,
    /// Stop when N tasks, or N% of all, have ended otherwise than done: soon,fail=N or now,fail=N%
    #[arg(long, value_name = "WHEN", help_heading = "Which tasks, and when")]
    pub halt: Option<Halt>,
    /// Dollars that all of it may cost; tasks that are not begun for want of them start with a larger one
    #[arg(long, value_name = "USD", value_parser = usd, help_heading = "Which tasks, and when")]
    pub max_cost: Option<NanoUsd>,

    /// Further attempts at a task that failed in a way that may pass
    #[arg(long, value_name = "N", default_value = "0", help_heading = "Again")]
    pub retries: u32,
    /// Give tasks that are not done another attempt, all or those with this outcome or detail
    #[arg(
        long,
        value_name = "CLASS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "all",
        value_parser = retry_failed,
        help_heading = "Again"
    )]
    pub retry_failed: Option<RetryFailed>,
    /// Start tasks again whose line has changed
    #[arg(long, help_heading = "Again")]
    pub restart_stale: bool,

    /// Write results in the order of the input instead of as they come
    #[arg(long, help_heading = "Results")]
    pub keep_order: bool,
    /// Put more into each result
    #[arg(long, value_name = "WHAT", value_delimiter = ',', help_heading = "Results")]
    pub include: Vec<Include>,

    #[command(flatten)]
    pub confine: ConfineArgs,
    #[command(flatten)]
    pub asks: AskArgs,
    #[command(flatten)]
    pub work: WorkArgs,
}

/// What a result may have besides the usual.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Include {
    /// The whole conversation, in the form of Chat Completions
    Messages,
}

impl BatchArgs {
    pub(super) fn flags(&self) -> Vec<Flag> {
        let mut flags = Vec::new();
        self.task.flags(&mut flags);
        self.confine.flags(&mut flags);
        self.asks.flags(&mut flags);
        self.work.flags(&mut flags);
        flags.extend(self.jobs.map(|jobs| Flag::new("--jobs", &["supervisor", "max_live_runs"], jobs)));
        flags
    }
}

/// Runs the command.
pub(crate) async fn main(args: BatchArgs, mut context: Context) -> anyhow::Result<Exit> {
    args.task.fill(&mut context.config);
    if args.daemon && (args.asks.park || args.asks.approval_timeout.is_some()) {
        let what = "--daemon: the daemon asks people as its own [approvals] says; leave --park and --approval-timeout out";
        return Err(UsageError(what.to_owned()).into());
    }
    if args.daemon {
        return super::attach::main(args, context).await;
    }
    let _metrics = serve_metrics(args.work.metrics)?;
    let mut tasks = with_rules(&context.config, |rules| tasks(&args, rules))??;
    let owner = caller();
    tasks.iter_mut().for_each(|task| task.spec.owner.clone_from(&owner));
    let chosen = chosen(&args, &tasks)?;
    let out = out(&args)?;
    let folder = context.state.clone().or_else(|| out.as_deref().map(beside));
    if args.asks.park && folder.is_none() {
        let what =
            "--park: nobody could answer what is gone with this command; keep it with -o FILE or --state DIR";
        return Err(UsageError(what.to_owned()).into());
    }
    let options = Options {
        name: args.input.display().to_string(),
        out: out.clone(),
        concurrency: context.config.supervisor.max_live_runs.most().get(),
        retries: args.retries,
        retry_failed: args.retry_failed.unwrap_or(RetryFailed::None),
        stale_lines: if args.restart_stale { StaleLines::Restart } else { StaleLines::Refuse },
        halt: args.halt,
        keep_order: args.keep_order,
        parks: args.asks.park,
        with_messages: args.include.contains(&Include::Messages),
        drain: context.config.supervisor.drain(),
        max_cost: args.max_cost,
    };
    Herder::check(&context.config, tasks.iter().map(|task| &*task.spec.model).collect::<BTreeSet<_>>())?;
    let is_limited = args.max_cost.is_some() || context.config.limits_costs();
    let limited = tasks.iter().filter(|task| is_limited || task.spec.limits.max_cost_usd.is_some());
    Herder::check_prices(&context.config, limited.map(|task| &*task.spec.model).collect::<BTreeSet<_>>())?;
    check_isolated(&context.config, &tasks).await?;
    if let Some(folder) = folder.as_deref().filter(|_| args.asks.park) {
        let shared = tasks.iter().filter(|task| task.spec.isolate.is_none());
        let workspaces = shared.map(|task| Path::new(&*task.spec.workspace));
        Herder::check_answers(&context.config, People::Asked, folder, workspaces)?;
    }
    if args.dry_run {
        return dry_run(&args, folder.as_deref(), out.as_deref(), &tasks, &chosen, &options).await;
    }
    let offered = offered(&tasks);
    let tell = if args.json { say_json } else { say };
    let stopper = Stopper::default();
    let signals = Signals::watch(stopper.clone(), context.screen.clone(), tell)?;
    let mut journal =
        Journal::open(folder.as_deref(), out.as_deref(), context.config.store.durability).await?;
    journal.state.input = (args.input != Path::new("-")).then(|| args.input.clone());
    let total = chosen.len();
    let stopped = stopper.clone();
    let batch = tokio::select! {
        batch = Batch::prepare(&context.config, journal, tasks, chosen, options, stopper) => batch?,
        () = stopped.drained() => {
            tell("stopped before anything ran; the same command starts it");
            return Ok(signals.received().unwrap_or(Exit::NotDone));
        }
    };
    warn_of_silent_tools(batch.herder(), &offered, tell);
    warn_of_confinement(batch.herder(), tell);
    let mut shown = Shown::new(&args, &context, &batch, total, tell);
    let supervisor = batch.herder().supervisor.clone();
    let (happened, mut told) = mpsc::unbounded_channel();
    let report = {
        let run = batch.run(move |event| {
            // The receiver lives as long as the batch runs.
            let _ = happened.send(event);
        });
        tokio::pin!(run);
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                biased;
                report = &mut run => break report?,
                Some(event) = told.recv() => shown.take(event),
                _ = tick.tick() => shown.tick(&supervisor).await,
            }
        }
    };
    // What happened last may have come together with the end.
    while let Ok(event) = told.try_recv() {
        shown.take(event);
    }
    shown.finish(&report, folder.as_deref());
    Ok(exit(&report, signals.received()))
}

/// Finds out before anything runs that tasks cannot have the workspaces of their own that they ask for.
async fn check_isolated(config: &Config, tasks: &[InputTask]) -> anyhow::Result<()> {
    // What is made in it is not asked for here.
    let isolated = isolation::isolation(config, &State::in_memory());
    isolation::check(&isolated, tasks).await.map_err(|told| InputError::Mistakes { told, more: 0 }.into())
}

/// How often progress is brought up to date.
const TICK: Duration = Duration::from_millis(200);

fn exit(report: &Report, signal: Option<Exit>) -> Exit {
    if report.all_done() {
        return Exit::Done;
    }
    match signal {
        Some(signal) if report.unfinished > 0 => signal,
        Some(_) | None if report.halted => Exit::Halted,
        Some(_) | None => Exit::NotDone,
    }
}

fn is_same(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

/// The places of the chosen tasks, in the order in which they shall start.
pub(super) fn chosen(args: &BatchArgs, tasks: &[InputTask]) -> Result<Vec<usize>, UsageError> {
    let shuffle = args.shuffle.then_some(args.seed);
    let selection = Selection { only: args.only.clone(), first: args.first, shuffle };
    selection.choose(tasks).map_err(UsageError)
}

/// The file that results go to, if it is not stdout.
pub(super) fn out(args: &BatchArgs) -> Result<Option<PathBuf>, UsageError> {
    let out = (args.output != Path::new("-")).then(|| args.output.clone());
    if out.as_deref().is_some_and(|out| is_same(out, &args.input)) {
        let input = args.input.display();
        return Err(UsageError(format!("{input}: is the input; name another file for the results")));
    }
    Ok(out)
}

/// The tasks of the input, each as often as it is to run.
pub(super) fn tasks(args: &BatchArgs, rules: Rules<'_>) -> anyhow::Result<Vec<InputTask>> {
    let tasks = input::read(&Source::named(&args.input), rules)?;
    if tasks.is_empty() {
        return Err(UsageError(format!(
            "{}: has no tasks; want one JSON object a line",
            args.input.display()
        ))
        .into());
    }
    Ok(repeated(tasks, args.repeat))
}

/// The tools that tasks name, or all of them if one names none.
fn offered(tasks: &[InputTask]) -> Option<BTreeSet<Arc<str>>> {
    let named: Option<Vec<_>> = tasks.iter().map(|task| task.spec.tools.clone()).collect();
    named.map(|named| named.into_iter().flatten().collect())
}
