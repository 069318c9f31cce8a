//! `herder show`: one run in short, or its whole conversation.

use std::time::Duration;

use clap::Args;
use serde_json::Value;

use super::{
    Context, Exit,
    approvals::shown,
    asking::{Source, source},
    folder,
    render::{harmless, quote},
    stdout::Output,
    table,
};
use crate::daemon::{
    client::Route,
    wire::{RequestEnd, RequestView, RunDetail},
};

pub(super) const ABOUT: &str = "Show one run: its task, how far it is, how it ended

RUN is a run's id, the beginning of one, or a task's id (its latest attempt). It is the daemon's, or with --state one of a \
folder, also while that is being written.";

pub(super) const AFTER: &str = "EXAMPLES
  herder show task-17
  herder show task-17 --state out.jsonl.state
  herder show 0198c2a1 --messages --json                     the conversation, in the form of Chat Completions";

/// Flags of `herder show`.
#[derive(Clone, Debug, Args)]
pub struct ShowArgs {
    /// The run
    #[arg(value_name = "RUN")]
    pub run: String,
    /// Show the whole conversation
    #[arg(long)]
    pub messages: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub(crate) async fn main(args: ShowArgs, context: Context) -> anyhow::Result<Exit> {
    let run = match source(&context).await? {
        Source::Folder(state) => {
            let run = folder::detail(&state, &args.run, args.messages).await?;
            state.close().await;
            run
        }
        Source::Daemon(client, _) => {
            let route = Route::to(["v1", "runs", &args.run]);
            client.get(&route.with_some("messages", args.messages.then_some(true))).await?
        }
    };
    let mut out = Output::stdout();
    let _open = match (&run.messages, args.json) {
        (Some(messages), true) => out.json(messages)?,
        (Some(messages), false) => out.line(&spoken(messages))?,
        (None, true) => out.json(&run)?,
        (None, false) => out.line(&summary(&run))?,
    };
    let _open = out.flush()?;
    Ok(Exit::Done)
}

fn summary(detail: &RunDetail) -> String {
    let run = &detail.run;
    let mut rows = vec![("run", run.id.clone())];
    rows.extend(run.task_id.clone().map(|id| ("task id", id)));
    rows.push(("task", detail.task.clone()));
    rows.extend(run.batch.clone().map(|batch| ("batch", batch)));
    let after = run.predecessor.as_ref().map_or_else(String::new, |run| format!(", after {run}"));
    rows.push(("attempt", format!("{}{after}", run.attempt)));
    rows.extend(detail.parent.clone().map(|run| ("goes on", format!("from {run}"))));
    rows.push(("model", run.model.clone()));
    rows.push(("workspace", detail.workspace.clone()));
    rows.extend(detail.isolate.clone().filter(|how| how != "none").map(|how| ("isolate", how)));
    rows.extend(run.branch.clone().map(|branch| ("branch", branch)));
    rows.extend(run.base.clone().map(|base| ("base", base)));
    rows.extend(run.files_changed.map(|files| ("changed", format!("{files} files"))));
    rows.extend(run.patch_path.clone().map(|path| ("patch", path)));
    rows.extend(detail.kept.clone().map(|path| ("kept in", path)));
    if !run.labels.is_empty() {
        let labels: Vec<_> = run.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        rows.push(("labels", labels.join(", ")));
    }
    rows.push(("stands", run.phase.clone()));
    rows.extend(run.open_calls.iter().map(|call| {
        let how = if call.waits { "waits" } else { "runs" };
        let access =
            if call.access.is_empty() { String::new() } else { format!(": {}", call.access.join(", ")) };
        ("call", format!("{} {} {how}{access}", call.call, call.tool))
    }));
    rows.push(("turns", format!("{} of {}", run.turns, detail.max_turns)));
    rows.push(("calls", run.calls.to_string()));
    rows.push(("tokens", format!("{} in, {} out", run.usage.input, run.usage.output)));
    rows.extend(run.cost_usd.map(|usd| ("cost", table::cost(Some(usd)))));
    rows.extend(requests(detail).map(|requests| ("requests", requests)));
    rows.extend(detail.requests.iter().filter_map(switch).map(|switch| ("switched", switch)));
    rows.extend(detail.approvals.iter().map(|approval| ("approval", shown::line(approval))));
    rows.push(("events", detail.events.to_string()));
    rows.push(("submitted", run.submitted_at.clone()));
    rows.extend(run.started_at.clone().map(|at| ("started", at)));
    rows.extend(run.ended_at.clone().map(|at| ("ended", at)));
    rows.extend(
        run.duration_ms
            .map(|millis| ("took", format!("{:.3} s", Duration::from_millis(millis).as_secs_f64()))),
    );
    rows.extend(run.error.clone().map(|error| ("error", error)));
    match &detail.text {
        Some(text) => rows.push(("text", text.clone())),
        None if run.said.is_empty() => {}
        None => rows.push(("said last", run.said.clone())),
    }
    let line = |(name, value): &(&str, String)| {
        format!("{name:<10} {}", harmless(value).replace('\n', "\n           "))
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// How many requests it took, where not each was answered at once.
fn requests(RunDetail { requests, .. }: &RunDetail) -> Option<String> {
    let count = |end| requests.iter().filter(|request| request.end == end).count();
    let failed = [
        (RequestEnd::Retried, "sent again"),
        (RequestEnd::Switched, "given up for another model"),
        (RequestEnd::Lost, "lost"),
    ];
    let failed = failed.map(|(end, words)| (count(end), words)).into_iter().filter(|(count, _)| *count > 0);
    let failed: Vec<String> = failed.map(|(count, words)| format!("{count} {words}")).collect();
    (!failed.is_empty()).then(|| format!("{}: {}", requests.len(), failed.join(", ")))
}

fn switch(request: &RequestView) -> Option<String> {
    let (from, to) = (request.model.as_deref()?, request.to.as_deref()?);
    let error = request.error.as_deref().unwrap_or_default();
    Some(format!("to {to} from {from} in turn {}: {}", request.turn, quote(error)))
}

/// The conversation for people.
fn spoken(messages: &[Value]) -> String {
    let turn = |message: &Value| {
        let role = message["role"].as_str().unwrap_or("?");
        let head = match message["tool_call_id"].as_str() {
            Some(call) => format!("[{role} {call}]"),
            None => format!("[{role}]"),
        };
        let asks = message["tool_calls"].as_array().into_iter().flatten().map(|call| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let (id, function) = (text(&call["id"]), &call["function"]);
            format!("\n{id} {} {}", text(&function["name"]), text(&function["arguments"]))
        });
        let said = message["content"].as_str().unwrap_or_default();
        harmless(&format!("{head}\n{said}{}", asks.collect::<String>())).into_owned()
    };
    messages.iter().map(turn).collect::<Vec<_>>().join("\n\n")
}
