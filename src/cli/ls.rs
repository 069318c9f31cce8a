//! `herder ls`: runs of the daemon, or of a state folder, the newest last.

use std::{
    io::{self, IsTerminal},
    time::Duration,
};

use clap::Args;

use super::{
    Context, Exit, UsageError,
    args::FilterArgs,
    asking::{Source, patiently, source},
    folder,
    start::say,
    stdout::Output,
    table,
};
use crate::{
    clock::{Clock, SystemClock},
    daemon::{
        client::{Client, ClientError},
        wire::RunList,
    },
};

pub(super) const ABOUT: &str = "List runs, the newest last

They are the daemon's, or with --state those of a folder, also while it is being written. STANDS is how a run ended or, of one \
that has not, what it is at and what it waits for. With --json a run is one line, as the daemon's API has it.";

pub(super) const AFTER: &str = "EXAMPLES
  herder ls --standing running,paused
  herder ls -l team=search --outcome failed --since 1h
  herder ls --batch tasks.jsonl --watch
  herder ls --state out.jsonl.state --json | jq -r .id";

/// Runs that a table shows if nobody says how many.
const SHOWN: usize = 50;

/// Runs that the daemon gives at once.
const PAGE: usize = 1_000;

/// Flags of `herder ls`.
#[derive(Clone, Debug, Args)]
pub struct LsArgs {
    #[command(flatten)]
    pub filter: FilterArgs,
    /// At most N runs, the newest [default: 50, and all with --json]
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Show them anew each second
    #[arg(long, conflicts_with = "json")]
    pub watch: bool,
    /// Print JSON, one run a line
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub(crate) async fn main(args: LsArgs, context: Context) -> anyhow::Result<Exit> {
    let source = source(&context).await?;
    if args.watch {
        return watch(&source, &args).await;
    }
    let limit = args.limit.or((!args.json).then_some(SHOWN));
    let list = list(&source, &args.filter, limit).await?;
    let mut out = Output::stdout();
    if args.json {
        for run in &list.runs {
            if out.json(run)?.is_break() {
                return Ok(Exit::Done);
            }
        }
        let _open = out.flush()?;
    } else if list.runs.is_empty() {
        say("no runs");
    } else {
        let shown = out.line(&table::runs(&list.runs))?.is_continue() && out.flush()?.is_continue();
        if shown && list.counts.total > list.runs.len() as u64 {
            say(&table::counts(&list.counts, list.runs.len()));
        }
    }
    if let Source::Folder(state) = source {
        state.close().await;
    }
    Ok(Exit::Done)
}

async fn list(source: &Source, filter: &FilterArgs, limit: Option<usize>) -> anyhow::Result<RunList> {
    match source {
        Source::Folder(state) => folder::list(&*state.store, filter, limit).await,
        Source::Daemon(client, _) => Ok(ask(client, filter, limit).await?),
    }
}

/// The runs of the daemon that are meant, page by page.
pub(super) async fn ask(
    client: &Client,
    filter: &FilterArgs,
    limit: Option<usize>,
) -> Result<RunList, ClientError> {
    let route = filter.route(SystemClock.now());
    let limit = limit.unwrap_or(usize::MAX);
    let first = limit.min(PAGE);
    let mut list: RunList = client.get(&route.clone().with("limit", first)).await?;
    while list.runs.len() < limit
        && let Some(before) = list.next.take()
    {
        let rest = (limit - list.runs.len()).min(PAGE);
        let page = route.clone().with("limit", rest).with("before", before);
        let mut older: RunList = client.get(&page).await?;
        older.runs.append(&mut list.runs);
        list = RunList { runs: older.runs, next: older.next, counts: list.counts };
    }
    Ok(list)
}

/// How often the list is shown anew.
const INTERVAL: Duration = Duration::from_secs(1);

/// How long a daemon that went away is waited for, with the last list on the screen.
const PATIENCE: Duration = Duration::from_secs(30);

async fn watch(source: &Source, args: &LsArgs) -> anyhow::Result<Exit> {
    if !io::stdout().is_terminal() {
        return Err(UsageError("--watch draws on a terminal, and stdout is none".to_owned()).into());
    }
    let mut out = Output::stdout();
    let mut signal = std::pin::pin!(tokio::signal::ctrl_c());
    let mut tick = tokio::time::interval(INTERVAL);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = &mut signal => return Ok(Exit::Interrupted),
            _ = tick.tick() => {}
        }
        let (columns, rows) = crossterm::terminal::size().unwrap_or((80, 24));
        // The heads, the counts and the cursor have a line each.
        let limit = args.limit.unwrap_or(usize::MAX).min(usize::from(rows).saturating_sub(3));
        let list = match source {
            Source::Folder(state) => folder::list(&*state.store, &args.filter, Some(limit)).await?,
            Source::Daemon(client, _) => {
                patiently(PATIENCE, || ask(client, &args.filter, Some(limit))).await?
            }
        };
        if out.line(&screen(&list, usize::from(columns)))?.is_break() {
            return Ok(Exit::Done);
        }
    }
}

/// One screen: drawn over the last one, without a moment in which it is empty.
fn screen(list: &RunList, columns: usize) -> String {
    const HOME: &str = "\x1b[H";
    const END_OF_LINE: &str = "\x1b[K";
    const END_OF_SCREEN: &str = "\x1b[J";
    let cut = |line: &str| line.chars().take(columns).collect::<String>();
    let table = if list.runs.is_empty() { String::new() } else { table::runs(&list.runs) };
    let counts = table::counts(&list.counts, list.runs.len());
    let lines: Vec<String> =
        table.lines().chain([counts.as_str()]).map(|line| cut(line) + END_OF_LINE).collect();
    format!("{HOME}{}{END_OF_SCREEN}", lines.join("\r\n"))
}
