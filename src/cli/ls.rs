//! `herder ls`: runs of the daemon, or of a state folder, the newest last.

use std::{
    io::{self, IsTerminal},
    num::NonZeroUsize,
    time::Duration,
};

use clap::Args;

use super::{
    Context, Exit, UsageError,
    args::FilterArgs,
    asking::{Source, patiently, source},
    folder,
    progress::short,
    start::say,
    stdout::Output,
    table,
};
use crate::{
    app::state::log_bytes,
    clock::{Clock, SystemClock},
    daemon::{
        client::{Client, ClientError},
        wire::RunList,
    },
};

pub(super) const ABOUT: &str = "List runs, the newest last

They are the daemon's, or with --state those of a folder, also while it is being written. STANDS is how a run ended or, of one \
that has not, what it is at and what it waits for. How many there are, and how large the log is, is told on stderr. With --json \
a run is one line, as the daemon's API has it.";

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
    pub limit: Option<NonZeroUsize>,
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
    let limit = args.limit.map(NonZeroUsize::get).or((!args.json).then_some(SHOWN));
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
        if shown {
            let log = log_size(&source).map_or_else(String::new, |size| format!("; {size}"));
            say(&format!("{}{log}", table::counts(&list.counts, list.runs.len())));
        }
    }
    if let Source::Folder(state) = source {
        state.close().await;
    }
    Ok(Exit::Done)
}

/// How large the log is that the runs are of.
fn log_size(source: &Source) -> Option<String> {
    let bytes = match source {
        Source::Folder(state) => log_bytes(state.folder.as_ref()?.path()),
        Source::Daemon(_, status) => status.log_bytes,
    };
    Some(format!("log {}B", short(bytes?)))
}

async fn list(source: &Source, filter: &FilterArgs, limit: Option<usize>) -> anyhow::Result<RunList> {
    match source {
        Source::Folder(state) => folder::list(state, filter, limit).await,
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
    let RunList { runs, mut next, counts } = client.get(&route.clone().with("limit", first)).await?;
    let (mut count, mut pages) = (runs.len(), vec![runs]);
    while count < limit
        && let Some(before) = next.take()
    {
        let page = route.clone().with("limit", (limit - count).min(PAGE)).with("before", before);
        let older: RunList = client.get(&page).await?;
        count += older.runs.len();
        next = older.next;
        pages.push(older.runs);
    }
    // The newest page came first, and in each the newest run is last.
    let runs = pages.into_iter().rev().flatten().collect();
    Ok(RunList { runs, next, counts })
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
        let room = usize::from(rows).saturating_sub(3).max(1);
        let limit = args.limit.map_or(room, |limit| limit.get().min(room));
        let list = match source {
            Source::Folder(state) => folder::list(state, &args.filter, Some(limit)).await?,
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

#[cfg(test)]
mod tests {
    use std::{collections::HashMap, sync::Arc, sync::Mutex};

    use axum::{Json, Router, extract::Query, routing::get};
    use serde_json::{Value, json};

    use super::*;
    use crate::cli::fake::Fake;

    fn run(number: usize) -> Value {
        json!({"id": format!("{number:05}"), "attempt": 1, "about": "", "model": "m", "labels": {}, "priority": 0,
            "state": "queued", "phase": "queued: waits for a slot", "turns": 0, "calls": 0, "submitted_at": "", "said": "",
            "usage": {"input": 0, "output": 0, "cached": 0, "estimated": false}})
    }

    /// Has runs 0 to 2499 and gives them page by page, the newest last.
    fn daemon(asked: Arc<Mutex<Vec<usize>>>) -> Fake {
        let list = move |Query(query): Query<HashMap<String, String>>| {
            let limit: usize = query["limit"].parse().expect("a number");
            asked.lock().expect("unpoisoned").push(limit);
            let end = query.get("before").map_or(2_500_usize, |before| before.parse().expect("a number"));
            let start = end.saturating_sub(limit);
            let next = (start > 0).then(|| format!("{start:05}"));
            let runs: Vec<Value> = (start..end).map(run).collect();
            async move {
                Json(
                    json!({"runs": runs, "next": next, "counts": {"total": 2_500, "open": 2_500, "ended": {}}}),
                )
            }
        };
        Fake::start(Router::new().route("/v1/runs", get(list)))
    }

    #[tokio::test]
    async fn all_runs_are_had_page_by_page_the_newest_last() {
        let asked = Arc::default();
        let fake = daemon(Arc::clone(&asked));
        let all = ask(&fake.client(), &FilterArgs::default(), None).await.expect("runs");
        let ids: Vec<usize> = all.runs.iter().map(|run| run.id.parse().expect("a number")).collect();
        assert_eq!(ids, (0..2_500).collect::<Vec<_>>());
        let some = ask(&fake.client(), &FilterArgs::default(), Some(1_200)).await.expect("runs");
        assert_eq!((some.runs.len(), some.runs[0].id.as_str()), (1_200, "01300"));
        assert_eq!(*asked.lock().expect("unpoisoned"), [1_000, 1_000, 1_000, 1_000, 200]);
    }

    #[tokio::test]
    async fn a_screen_is_no_wider_and_no_higher_than_its_terminal() {
        let fake = daemon(Arc::default());
        let list = ask(&fake.client(), &FilterArgs::default(), Some(10)).await.expect("runs");
        let screen = screen(&list, 40);
        let lines: Vec<&str> = screen.split("\r\n").collect();
        assert_eq!(lines.len(), 12);
        assert!(lines[1..11].iter().all(|line| line.trim_end_matches("\x1b[K").chars().count() <= 40));
        assert!(lines[11].starts_with("2,500 runs: 2,500 open; showing 10"), "{}", lines[11]);
    }
}
