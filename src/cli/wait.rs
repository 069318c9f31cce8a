//! `herder wait`: returns when runs or batches have ended.

use std::time::Duration;

use clap::Args;
use futures_util::{StreamExt, stream::FuturesUnordered};

use super::{
    Context, Exit, UsageError,
    approvals::shown,
    args,
    asking::{self, WINDOW, patiently},
    render::one_line,
    start::say,
    stdout::Output,
    table,
};
use crate::{
    daemon::{
        client::{Client, ClientError, Route},
        wire::{BatchState, BatchView, Code, RunDetail, RunState, RunView, WaitReason},
    },
    domain::outcome::Outcome,
};

pub(super) const ABOUT: &str = "Wait until runs or batches have ended

Prints one line for each that ends: its id, its name, how it ended.";

pub(super) const AFTER: &str = "EXAMPLES
  herder wait task-17 task-18
  herder wait tasks.jsonl --timeout 30m
  herder wait --any 0198c2a1 0198c2b7 --json

EXIT CODES
  0  all are done
  1  one ended otherwise, or the time was over
  2  there is no such run or batch
  5  no daemon answers";

/// How often a batch is looked at.
const INTERVAL: Duration = Duration::from_millis(500);

/// The event that people are asked by.
const ASKED: &str = "approval_requested";

/// Flags of `herder wait`.
#[derive(Clone, Debug, Args)]
pub struct WaitArgs {
    /// Runs by id, the beginning of one, or a task's id; batches by name or id
    #[arg(value_name = "RUN|BATCH", required = true)]
    pub names: Vec<String>,
    /// Only until the first one has ended
    #[arg(long)]
    pub any: bool,
    /// Wait no longer than this
    #[arg(long, value_name = "TIME", value_parser = args::duration)]
    pub timeout: Option<Duration>,
    /// Print JSON, one run or batch a line
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub(crate) async fn main(args: WaitArgs, context: Context) -> anyhow::Result<Exit> {
    let client = asking::client(&context)?;
    let mut awaited = Vec::new();
    for name in &args.names {
        awaited.push(find(&client, name).await?);
    }
    let waiting = all(&client, awaited, args.any, args.json);
    let over = async {
        match args.timeout {
            Some(time) => tokio::time::sleep(time).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        exit = waiting => exit,
        _ = tokio::signal::ctrl_c() => Ok(Exit::Interrupted),
        () = over => {
            say("the time is over; what has not ended goes on");
            Ok(Exit::NotDone)
        }
    }
}

/// What is waited for.
enum Awaited {
    Run(Box<RunDetail>),
    Batch(Box<BatchView>),
}

/// What has ended.
enum Ended {
    Run(Box<RunView>),
    Batch(Box<BatchView>),
}

async fn find(client: &Client, name: &str) -> anyhow::Result<Awaited> {
    match client.get(&Route::to(["v1", "runs", name])).await {
        Err(error) if error.code() == Some(Code::UnknownRun) => {}
        found => return Ok(Awaited::Run(found?)),
    }
    match client.get(&Route::to(["v1", "batches", name])).await {
        Err(error) if error.code() == Some(Code::UnknownBatch) => {
            Err(UsageError(format!("no run, task or batch is called {name:?}")).into())
        }
        found => Ok(Awaited::Batch(Box::new(found?))),
    }
}

async fn all(client: &Client, awaited: Vec<Awaited>, any: bool, json: bool) -> anyhow::Result<Exit> {
    let mut waiting: FuturesUnordered<_> = awaited
        .into_iter()
        .map(|one| async move {
            match one {
                Awaited::Run(detail) => {
                    run(client, *detail).await.map(|detail| Ended::Run(Box::new(detail.run)))
                }
                Awaited::Batch(view) => batch(client, *view).await.map(|view| Ended::Batch(Box::new(view))),
            }
        })
        .collect();
    let mut out = Output::stdout();
    let mut exit = Exit::Done;
    while let Some(ended) = waiting.next().await {
        let ended = ended?;
        let _open = match (&ended, json) {
            (Ended::Run(run), true) => out.json(run)?,
            (Ended::Batch(batch), true) => out.json(batch)?,
            (Ended::Run(run), false) => out.line(&line(run))?,
            (Ended::Batch(batch), false) => out.line(&batch_line(batch))?,
        };
        let _open = out.flush()?;
        if !ended.is_done() {
            exit = Exit::NotDone;
        }
        if any {
            break;
        }
    }
    Ok(exit)
}

/// Waits for the end of a run.
pub(super) async fn run(client: &Client, mut detail: RunDetail) -> Result<RunDetail, ClientError> {
    let route = Route::to(["v1", "runs", &detail.run.id]);
    let mut seen = detail.events;
    let mut told = None;
    while detail.run.state != RunState::Ended {
        tell_anew(&mut told, wanted(&detail));
        let events = Route::to(["v1", "runs", &detail.run.id, "events"]);
        let mut follower = client.follow(events, Some(seen));
        while let Some(event) = follower.next().await? {
            seen = event.id.unwrap_or(seen);
            if event.name == ASKED {
                tell_anew(&mut told, wanted(&patiently(WINDOW, || client.get(&route)).await?));
            }
        }
        detail = patiently(WINDOW, || client.get(&route)).await?;
    }
    Ok(detail)
}

async fn batch(client: &Client, mut view: BatchView) -> Result<BatchView, ClientError> {
    let route = Route::to(["v1", "batches", &view.id]);
    let mut told = None;
    while goes_on(&view) {
        tell_anew(&mut told, wanted_by(&view));
        tokio::time::sleep(INTERVAL).await;
        view = patiently(WINDOW, || client.get(&route)).await?;
    }
    Ok(view)
}

/// Says what people are wanted for, unless that was said last.
fn tell_anew(told: &mut Option<String>, wanted: Option<String>) {
    if let Some(wanted) = wanted.filter(|wanted| Some(wanted) != told.as_ref()) {
        say(&wanted);
        *told = Some(wanted);
    }
}

/// Which approvals a run waits for.
fn wanted(detail: &RunDetail) -> Option<String> {
    let open = detail.approvals.iter().filter(|approval| approval.resolution.is_none());
    let names: Vec<&str> = open.map(shown::name).collect();
    (!names.is_empty()).then(|| format!("run {} waits for approval {}", detail.run.id, names.join(", ")))
}

/// How many runs of a batch wait for approval.
fn wanted_by(view: &BatchView) -> Option<String> {
    let wait = view.waits.iter().find(|wait| wait.reason == WaitReason::Approval)?;
    let verb = if wait.runs == 1 { "run waits" } else { "runs wait" };
    Some(format!("batch {}: {} {verb} for approval", one_line(&view.name, 40), wait.runs))
}

/// Whether runs of it are open, as those of a batch that is being cancelled, or will be.
fn goes_on(view: &BatchView) -> bool {
    match view.state {
        BatchState::Open | BatchState::Paused => true,
        BatchState::Ended | BatchState::Halted | BatchState::Cancelled => view.open > 0,
        BatchState::Broken => false,
    }
}

impl Ended {
    fn is_done(&self) -> bool {
        let done = Outcome::Done.as_str();
        match self {
            Self::Run(run) => run.outcome.as_deref() == Some(done),
            Self::Batch(batch) => {
                batch.state == BatchState::Ended && batch.ended.get(done).copied() == Some(batch.tasks)
            }
        }
    }
}

/// A run that has ended, in a line.
pub(super) fn line(run: &RunView) -> String {
    let name = run.task_id.as_deref().unwrap_or(&run.about);
    let error = run.error.as_ref().map_or_else(String::new, |error| format!(": {}", one_line(error, 200)));
    format!("{}  {}  {}{error}", run.id, one_line(name, 40), run.phase)
}

fn batch_line(batch: &BatchView) -> String {
    let error = batch.error.as_ref().map_or_else(String::new, |error| format!(": {}", one_line(error, 200)));
    let (state, ended) = (table::word(&batch.state), table::outcomes(&batch.ended));
    format!("{}  {}  {state}, {ended}{error}", batch.id, one_line(&batch.name, 40))
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };

    use axum::{Json, Router, http::StatusCode, routing::get};
    use serde_json::{Value, json};

    use super::*;
    use crate::cli::fake::Fake;

    fn usage() -> Value {
        json!({"input": 0, "output": 0, "cached": 0, "estimated": false})
    }

    fn detail(outcome: Option<&str>) -> Value {
        let (state, phase) = outcome.map_or(("running", "between turns"), |outcome| ("ended", outcome));
        json!({"id": "r1", "task_id": "one", "attempt": 1, "about": "", "model": "m", "labels": {}, "priority": 0,
            "state": state, "phase": phase, "outcome": outcome, "turns": 0, "calls": 0, "submitted_at": "", "said": "",
            "usage": usage(), "task": "", "workspace": "/", "max_turns": 1, "events": 1})
    }

    fn batch_view(state: &str, ended: Value) -> Value {
        json!({"id": "b1", "name": "in.jsonl", "state": state, "created_at": "", "tasks": 2, "waiting": 0, "open": 0, "running": 0,
            "ended": ended, "usage": usage()})
    }

    /// Has a run that ends while its events are followed, and a batch that ends once it was looked at.
    fn daemon(outcome: &'static str, failed: u64) -> Fake {
        let (ended, looked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let end = ended.clone();
        let run = move || {
            let ended = ended.load(Ordering::SeqCst);
            async move { Json(detail(ended.then_some(outcome))) }
        };
        let events = move || {
            end.store(true, Ordering::SeqCst);
            async { "id: 2\nevent: run_end\ndata: {}\n\nevent: end\ndata: {\"code\": \"ended\"}\n\n" }
        };
        let batch = move || {
            let looked = looked.swap(true, Ordering::SeqCst);
            let ended = json!({"done": 2 - failed, "failed": failed});
            async move { Json(if looked { batch_view("ended", ended) } else { batch_view("open", json!({})) }) }
        };
        let unknown = || async {
            (StatusCode::NOT_FOUND, Json(json!({"code": "unknown_run", "message": "no run is called so"})))
        };
        let no_batch = || async {
            (
                StatusCode::NOT_FOUND,
                Json(json!({"code": "unknown_batch", "message": "no batch is called so"})),
            )
        };
        let router = Router::new()
            .route("/v1/runs/one", get(run.clone()))
            .route("/v1/runs/r1", get(run))
            .route("/v1/runs/r1/events", get(events))
            .route("/v1/runs/{run}", get(unknown))
            .route("/v1/batches/b1", get(batch.clone()))
            .route("/v1/batches/in.jsonl", get(batch))
            .route("/v1/batches/{batch}", get(no_batch));
        Fake::start(router)
    }

    async fn waited(names: &[&str], fake: &Fake) -> Exit {
        let client = fake.client();
        let mut awaited = Vec::new();
        for name in names {
            awaited.push(find(&client, name).await.expect("known"));
        }
        all(&client, awaited, false, true).await.expect("waited")
    }

    #[tokio::test]
    async fn runs_and_batches_are_waited_for_by_whatever_they_are_called() {
        assert_eq!(waited(&["one", "in.jsonl"], &daemon("done", 0)).await, Exit::Done);
        assert_eq!(waited(&["one"], &daemon("failed", 0)).await, Exit::NotDone);
        assert_eq!(waited(&["in.jsonl"], &daemon("done", 1)).await, Exit::NotDone);
    }

    #[test]
    fn what_people_are_wanted_for_is_told_by_name_while_it_is_open() {
        let approval = |number: u32, resolution: Value| {
            json!({"id": format!("r1.{number}"), "name": format!("one.{number}"), "run": "r1", "number": number, "call": "c",
                "tool": "bash", "what": "ls", "rule": "", "asked_at": "", "resolution": resolution})
        };
        let told = |approvals: Value| {
            let mut detail = detail(None);
            detail["approvals"] = approvals;
            wanted(&serde_json::from_value(detail).expect("a run"))
        };
        let approved = json!({"how": "approved", "at": ""});
        assert_eq!(told(json!([approval(1, approved.clone())])), None);
        assert_eq!(
            told(json!([approval(1, approved), approval(2, Value::Null)])).as_deref(),
            Some("run r1 waits for approval one.2")
        );
        let mut view = batch_view("open", json!({}));
        view["waits"] = json!([{"reason": "approval", "runs": 2, "until": null}]);
        let view = serde_json::from_value(view).expect("a batch");
        assert_eq!(wanted_by(&view).as_deref(), Some("batch in.jsonl: 2 runs wait for approval"));
    }

    #[tokio::test]
    async fn a_name_that_stands_for_nothing_is_bad_usage() {
        let Err(error) = find(&daemon("done", 0).client(), "two").await else { panic!("found") };
        assert_eq!(Exit::of(&error), Exit::Usage);
        assert_eq!(error.to_string(), "no run, task or batch is called \"two\"");
    }
}
