//! `herder approvals`: the calls that people are to decide about, and what exactly each would do.

use std::io;

use clap::{Args, Subcommand};

use super::{
    Context, Exit, UsageError,
    args::OriginArgs,
    asking::{Source, source},
    folder, paint,
    render::Paint,
    start::say,
    stdout::Output,
};
use crate::{
    app::approvals::{find, name_of_run},
    clock::{Clock as _, SystemClock},
    daemon::{
        client::{Client, ClientError, Route},
        wire::{ApprovalDetail, ApprovalList, ApprovalView},
    },
    store::EventStore,
};

pub(super) mod shown;

use shown::Extent;

pub(super) const ABOUT: &str = "List the calls that people are to decide about

They are the daemon's, or with --state those of a folder, also while that is being written. An approval is named RUN.N: its run, \
by id, the beginning of one or a task's id, and its number there. `herder approvals show` tells exactly what is approved.";

pub(super) const AFTER: &str = "EXAMPLES
  herder approvals
  herder approvals --state out.jsonl.state
  herder approvals show task-17.1                            the whole diff, or the command
  herder approvals --batch tasks.jsonl --json | jq -r .id
  herder approve task-17.1; herder reject task-18.1 --reason \"Leave the tests as they are.\"

EXIT CODES
  0  they are listed, be there none, or it is shown
  2  bad usage, a name that is no approval's, or no state folder
  5  no daemon answers";

/// Flags of `herder approvals`.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ApprovalsArgs {
    #[command(subcommand)]
    command: Option<ApprovalsCommand>,
    #[command(flatten)]
    origin: OriginArgs,
    /// Those that are resolved, too
    #[arg(long)]
    all: bool,
    /// Print JSON, an approval a line
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, Subcommand)]
enum ApprovalsCommand {
    /// Show exactly what one would do: the diff, or the command
    Show(ShowArgs),
}

#[derive(Clone, Debug, Args)]
struct ShowArgs {
    /// The approval, as task-17.1
    #[arg(value_name = "RUN.N")]
    name: String,
    /// Colour what is added and taken away, though stdout is no terminal
    #[arg(long)]
    color: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) async fn main(args: ApprovalsArgs, context: Context) -> anyhow::Result<Exit> {
    if let Some(ApprovalsCommand::Show(args)) = args.command {
        return show(args, context).await;
    }
    let approvals = match source(&context).await? {
        Source::Folder(state) => {
            let approvals = in_folder(&*state.store, &args.origin, args.all).await?;
            state.close().await;
            approvals
        }
        Source::Daemon(client, _) => at_daemon(&client, &args.origin, args.all).await?,
    };
    let mut out = Output::stdout();
    if args.json {
        for approval in &approvals {
            if out.json(approval)?.is_break() {
                break;
            }
        }
    } else if approvals.is_empty() {
        let _open = out.line("nobody is asked about anything")?;
    } else {
        let _open = out.line(&shown::table(&approvals, args.all, SystemClock.now()))?;
    }
    let _open = out.flush()?;
    Ok(Exit::Done)
}

async fn show(args: ShowArgs, context: Context) -> anyhow::Result<Exit> {
    let detail: ApprovalDetail = match source(&context).await? {
        Source::Folder(state) => {
            let found = find(&*state.store, &args.name).await;
            let found = found.map_err(|error| ClientError::Refused(error.into()))?;
            let name = name_of_run(&*state.store, &found.run).await?;
            state.close().await;
            shown::detail_of(&found, &name)
                .ok_or_else(|| UsageError(format!("{}: there is no such approval", args.name)))?
        }
        Source::Daemon(client, _) => client.get(&Route::to(["v1", "approvals", &args.name])).await?,
    };
    let mut out = Output::stdout();
    let paint = if args.color { Paint::Colored } else { paint(&io::stdout()) };
    let _open =
        if args.json { out.json(&detail)? } else { out.line(&shown::whole(&detail, paint, Extent::Whole))? };
    let _open = out.flush()?;
    Ok(Exit::Done)
}

/// Approvals of the daemon's, all pages of them, the newest last.
pub(super) async fn at_daemon(
    client: &Client,
    origin: &OriginArgs,
    all: bool,
) -> anyhow::Result<Vec<ApprovalView>> {
    let route = origin.narrow(Route::to(["v1", "approvals"]), SystemClock.now());
    let route = if all { route.with("all", true) } else { route };
    let (mut pages, mut unread, mut before) = (Vec::new(), Vec::new(), None);
    loop {
        let list: ApprovalList = client.get(&route.clone().with_some("before", before)).await?;
        pages.push(list.approvals);
        unread.extend(list.unread);
        before = list.next;
        if before.is_none() {
            say_unread(&unread);
            return Ok(pages.into_iter().rev().flatten().collect());
        }
    }
}

/// Approvals of a folder's, the newest last.
pub(super) async fn in_folder(
    store: &dyn EventStore,
    origin: &OriginArgs,
    all: bool,
) -> anyhow::Result<Vec<ApprovalView>> {
    let (details, unread) = folder::approvals(store, origin, all).await?;
    say_unread(&unread);
    Ok(details
        .into_iter()
        .map(|detail| detail.approval)
        .filter(|one| all || one.resolution.is_none())
        .collect())
}

/// Says of which runs it is not known whether anybody is asked about their calls.
fn say_unread(runs: &[impl ToString]) {
    if !runs.is_empty() {
        let runs: Vec<String> = runs.iter().map(ToString::to_string).collect();
        let runs = runs.join(", ");
        say(&format!(
            "the logs of these runs are damaged, what they ask is not known: {runs}; `herder doctor STATE` tells more"
        ));
    }
}
