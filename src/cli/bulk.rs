//! `herder cancel`, `pause`, `resume` and `requeue`: the same thing done to runs that are named or narrowed, or to a whole
//! batch, a model or everything.
//!
//! Nothing is done to everything unless that was said. What is narrowed to a batch alone is done to the batch, so that
//! it holds for tasks that have not started as well.

use clap::Args;

use super::{
    Context, Exit, UsageError,
    args::{FilterArgs, StandingArg},
    asking,
    ls::ask,
    stdout::Output,
};
use crate::daemon::{
    client::{Client, Route},
    wire::{BatchList, BatchState, BatchView, Changed, Pause, PauseMode, RunView},
};

mod act;
mod dry_run;

use act::Tally;
use dry_run::dry_run;

pub(super) const CANCEL: &str = "End runs

Runs are named, or narrowed by flags. --batch alone ends the batch, tasks that have not started included.";
pub(super) const CANCEL_AFTER: &str = "EXAMPLES
  herder cancel task-17 task-18
  herder cancel -l team=search --since 1h --dry-run
  herder cancel --batch tasks.jsonl
  herder cancel task-17 --call call_2                         one call; the run goes on";

pub(super) const PAUSE: &str = "Hold runs

A run that is held gives its slot up before its next request and goes on when it is resumed, also after the daemon was started \
anew. --batch, --model and --all hold what is to come as well.";
pub(super) const PAUSE_AFTER: &str = "EXAMPLES
  herder pause task-17
  herder pause --model openai:gpt-5
  herder pause --all --soft                                   what is live goes on, nothing starts";

pub(super) const RESUME: &str = "Let runs go on that are held

Who held a batch, a model or everything resumes just that. --model also opens the model's account if that is shut, because it is \
used up, refuses the key or is rate limited (`herder status` and `herder models` say which): the runs that wait for it ask again, \
and if nothing has changed it is shut again. What a server's rate limit told single runs holds all the same.";
pub(super) const RESUME_AFTER: &str = "EXAMPLES
  herder resume task-17
  herder resume --model openai:gpt-5
  herder resume --all";

pub(super) const REQUEUE: &str = "Give tasks whose run has ended another attempt

Runs are named, or narrowed by flags. Nothing becomes of a run after which there is an attempt already.";
pub(super) const REQUEUE_AFTER: &str = "EXAMPLES
  herder requeue task-17
  herder requeue --batch tasks.jsonl --outcome provider_error --dry-run";

/// Which runs, and how it is told what became of it.
#[derive(Clone, Debug, Args)]
pub struct TargetArgs {
    /// The runs: an id, the beginning of one, or a task's id
    #[arg(value_name = "RUN")]
    pub runs: Vec<String>,
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print JSON, a line for each that something was done to
    #[arg(long)]
    pub json: bool,
}

/// Flags of `herder cancel`.
#[derive(Clone, Debug, Args)]
pub struct CancelArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    /// Every run and every batch
    #[arg(long)]
    pub all: bool,
    /// Only this call of the run
    #[arg(long, value_name = "ID")]
    pub call: Option<String>,
}

/// Flags of `herder pause`.
#[derive(Clone, Debug, Args)]
pub struct PauseArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    /// Everything
    #[arg(long)]
    pub all: bool,
    /// Let what is live go on to its end, and start nothing
    #[arg(long)]
    pub soft: bool,
}

/// Flags of `herder resume`.
#[derive(Clone, Debug, Args)]
pub struct ResumeArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    /// Everything that was held with --all
    #[arg(long)]
    pub all: bool,
}

/// Flags of `herder requeue`.
#[derive(Clone, Debug, Args)]
pub struct RequeueArgs {
    #[command(flatten)]
    pub target: TargetArgs,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Cancel,
    Pause(PauseMode),
    Resume,
    Requeue,
}

impl Verb {
    /// As the API has it.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Pause(_) => "pause",
            Self::Resume => "resume",
            Self::Requeue => "requeue",
        }
    }

    const fn past(self) -> &'static str {
        match self {
            Self::Cancel => "cancelled",
            Self::Pause(_) => "paused",
            Self::Resume => "resumed",
            Self::Requeue => "requeued",
        }
    }

    /// Runs that it can be done to.
    const fn standing(self) -> &'static [StandingArg] {
        match self {
            Self::Cancel => &[StandingArg::Queued, StandingArg::Running, StandingArg::Paused],
            Self::Pause(_) => &[StandingArg::Queued, StandingArg::Running],
            Self::Resume => &[StandingArg::Paused],
            Self::Requeue => &[StandingArg::Ended],
        }
    }

    const fn body(self) -> Pause {
        match self {
            Self::Pause(mode) => Pause { mode },
            Self::Cancel | Self::Resume | Self::Requeue => Pause { mode: PauseMode::Hold },
        }
    }
}

/// What it is done to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    Runs(Vec<String>),
    Matching(Box<FilterArgs>),
    Batch(String),
    Model(String),
    All,
}

pub(crate) async fn cancel(args: CancelArgs, context: Context) -> anyhow::Result<Exit> {
    let Some(call) = &args.call else { return main(Verb::Cancel, args.target, args.all, &context).await };
    let ([run], false, true) = (&args.target.runs[..], args.all, args.target.filter.is_empty()) else {
        return Err(UsageError("--call: want the one run whose call it is".to_owned()).into());
    };
    let client = asking::client(&context)?;
    let route = Route::to(["v1", "runs", run, "calls", call, "cancel"]);
    let changed: Changed = client.post(&route, &serde_json::json!({})).await?;
    let mut out = Output::stdout();
    let _open = match (args.target.json, changed.changed) {
        (true, _) => out.json(&changed)?,
        (false, true) => out.line("cancelled")?,
        (false, false) => out.line("had been cancelled already")?,
    };
    let _open = out.flush()?;
    Ok(Exit::Done)
}

pub(crate) async fn pause(args: PauseArgs, context: Context) -> anyhow::Result<Exit> {
    let mode = if args.soft { PauseMode::Soft } else { PauseMode::Hold };
    main(Verb::Pause(mode), args.target, args.all, &context).await
}

pub(crate) async fn resume(args: ResumeArgs, context: Context) -> anyhow::Result<Exit> {
    main(Verb::Resume, args.target, args.all, &context).await
}

pub(crate) async fn requeue(args: RequeueArgs, context: Context) -> anyhow::Result<Exit> {
    main(Verb::Requeue, args.target, false, &context).await
}

async fn main(verb: Verb, args: TargetArgs, all: bool, context: &Context) -> anyhow::Result<Exit> {
    let target = target(verb, args.runs, args.filter, all)?;
    let client = asking::client(context)?;
    if args.dry_run {
        return dry_run(&client, verb, target, args.json).await;
    }
    let mut tally = Tally::new(verb, args.json);
    match &target {
        Target::Runs(names) => tally.runs(&client, names).await?,
        Target::Matching(filter) => {
            let ids = matching(&client, filter).await?.into_iter().map(|run| run.id).collect::<Vec<_>>();
            tally.matching(&client, &ids).await?;
        }
        Target::Batch(name) => tally.whole(&client, &["v1", "batches", name, verb.as_str()], name).await?,
        Target::Model(name) => tally.whole(&client, &["v1", "models", name, verb.as_str()], name).await?,
        Target::All if verb == Verb::Cancel => cancel_all(&client, &mut tally).await?,
        Target::All => tally.whole(&client, &["v1", verb.as_str()], "everything").await?,
    }
    Ok(tally.finish()?)
}

/// Batches come first: they would start their next tasks.
async fn cancel_all(client: &Client, tally: &mut Tally) -> anyhow::Result<()> {
    for batch in open_batches(client).await? {
        tally.whole(client, &["v1", "batches", &batch.id, "cancel"], &batch.name).await?;
    }
    let open = FilterArgs::default().standing_or(Verb::Cancel.standing());
    let ids: Vec<String> = matching(client, &open).await?.into_iter().map(|run| run.id).collect();
    tally.matching(client, &ids).await
}

async fn open_batches(client: &Client) -> anyhow::Result<Vec<BatchView>> {
    let list: BatchList = client.get(&Route::to(["v1", "batches"])).await?;
    let open = |batch: &BatchView| matches!(batch.state, BatchState::Open | BatchState::Paused);
    Ok(list.batches.into_iter().filter(open).collect())
}

async fn matching(client: &Client, filter: &FilterArgs) -> anyhow::Result<Vec<RunView>> {
    Ok(ask(client, filter, None).await?.runs)
}

fn target(verb: Verb, runs: Vec<String>, filter: FilterArgs, all: bool) -> Result<Target, UsageError> {
    let refuse = |what: &str| Err(UsageError(what.to_owned()));
    let has_gate = matches!(verb, Verb::Pause(_) | Verb::Resume);
    let target = match (runs.is_empty(), filter.is_empty(), all) {
        (false, true, false) => Target::Runs(runs),
        (true, true, true) => Target::All,
        (true, true, false) => {
            let or_all = if verb == Verb::Requeue { "" } else { ", or say --all" };
            return refuse(&format!("name runs, or narrow them by flags, as --batch or -l{or_all}"));
        }
        (true, false, false) => match (filter.whole_batch(), filter.whole_model()) {
            (Some(batch), _) if verb != Verb::Requeue => Target::Batch(batch.to_owned()),
            (_, Some(model)) if has_gate => Target::Model(model.to_owned()),
            (Some(_) | None, _) => Target::Matching(Box::new(filter.standing_or(verb.standing()))),
        },
        (false, false, _) | (false, _, true) | (_, false, true) => {
            return refuse("name runs, narrow them by flags or say --all: one of the three");
        }
    };
    let is_of_runs = matches!(target, Target::Runs(_) | Target::Matching(_));
    if is_of_runs && verb == Verb::Pause(PauseMode::Soft) {
        return refuse("--soft: a single run is always held; want --batch, --model or --all alone");
    }
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::OriginArgs;

    fn filter(batch: Option<&str>, model: Option<&str>, label: bool) -> FilterArgs {
        let origin = OriginArgs {
            batch: batch.map(str::to_owned),
            model: model.map(str::to_owned),
            labels: if label { vec![("a".to_owned(), "b".to_owned())] } else { Vec::new() },
            ..OriginArgs::default()
        };
        FilterArgs { origin, ..FilterArgs::default() }
    }

    const PAUSE: Verb = Verb::Pause(PauseMode::Hold);
    const SOFT: Verb = Verb::Pause(PauseMode::Soft);

    #[test]
    fn a_batch_or_a_model_alone_is_meant_as_a_whole() {
        let narrowed = |verb, filter| target(verb, Vec::new(), filter, false);
        let batch = || Ok(Target::Batch("B".to_owned()));
        assert_eq!(narrowed(Verb::Cancel, filter(Some("B"), None, false)).map_err(|e| e.0), batch());
        assert_eq!(narrowed(SOFT, filter(Some("B"), None, false)).map_err(|e| e.0), batch());
        let model = narrowed(Verb::Resume, filter(None, Some("m"), false)).map_err(|e| e.0);
        assert_eq!(model, Ok(Target::Model("m".to_owned())));
        for (verb, filter) in [
            (Verb::Cancel, filter(Some("B"), None, true)),
            (Verb::Requeue, filter(Some("B"), None, false)),
            (Verb::Cancel, filter(None, Some("m"), false)),
        ] {
            let want = Target::Matching(Box::new(filter.clone().standing_or(verb.standing())));
            assert_eq!(narrowed(verb, filter).map_err(|error| error.0), Ok(want));
        }
    }

    #[test]
    fn nothing_is_done_to_everything_unless_that_was_said() {
        let runs = || vec!["a".to_owned()];
        let none = FilterArgs::default;
        for (verb, runs, filter, all, want) in [
            (Verb::Cancel, Vec::new(), none(), false, "or say --all"),
            (Verb::Requeue, Vec::new(), none(), false, "as --batch or -l"),
            (Verb::Cancel, runs(), none(), true, "one of the three"),
            (Verb::Cancel, runs(), filter(None, None, true), false, "one of the three"),
            (Verb::Cancel, Vec::new(), filter(None, None, true), true, "one of the three"),
            (SOFT, runs(), none(), false, "always held"),
        ] {
            let told = target(verb, runs, filter, all).expect_err("refused").0;
            assert!(told.contains(want), "{told}");
        }
        assert_eq!(target(PAUSE, Vec::new(), none(), true).map_err(|error| error.0), Ok(Target::All));
    }
}
