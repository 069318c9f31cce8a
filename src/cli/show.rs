//! `herder show`: one run in short, or its whole conversation.

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::{Context, Exit, render::rfc3339, standing::Standing, stdout::Output, table::run_json};
use crate::{
    app::{
        conversation::{chat_completions, shown},
        state::find,
    },
    domain::{id::Seq, message::Message, run::Run, task::TaskSpec},
    store::RunRecord,
};

pub(super) const ABOUT: &str = "Show one run: its task, how far it is, how it ended

RUN is a run's id, the beginning of one, or a task's id (its latest attempt). Works also while the log is being written.";

pub(super) const AFTER: &str = "EXAMPLES
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
    let state = context.open_state()?;
    let record = find(&*state.store, &args.run).await?;
    let log = state.store.read(record.run, Seq::START).await?;
    let run = Run::replay(record.run, log.iter().map(|envelope| &envelope.fact));
    let mut out = Output::stdout();
    let _open = match (run.spec(), args.messages, args.json) {
        (Some(spec), true, true) => out.json(&chat_completions(spec, run.history()))?,
        (Some(spec), true, false) => out.line(&spoken(&shown(spec, run.history())))?,
        (Some(_), false, true) => out.json(&data(&record, &run))?,
        (Some(spec), false, false) => out.line(&summary(&record, spec, &run))?,
        (None, ..) => anyhow::bail!("the log of run {} does not begin with its task", record.run),
    };
    let _open = out.flush()?;
    state.close().await;
    Ok(Exit::Done)
}

/// The run as `herder ls --json` has it, and more of it.
fn data(record: &RunRecord, run: &Run) -> Value {
    let mut value = run_json(record, &Standing::of(run));
    value["task"] = json!(run.spec().map(|spec| &spec.task));
    value["model"] = json!(run.spec().map(|spec| &spec.model));
    value["workspace"] = json!(run.spec().map(|spec| &spec.workspace));
    value["turn"] = json!(run.turn());
    value["events"] = json!(run.seq());
    value["text"] = json!(record.end.as_ref().map(|end| &end.text));
    value
}

fn summary(record: &RunRecord, spec: &TaskSpec, run: &Run) -> String {
    let mut rows = vec![("run", record.run.to_string())];
    rows.extend(record.task_id.as_ref().map(|id| ("task id", id.to_string())));
    rows.push(("task", spec.task.to_string()));
    rows.push(("attempt", record.attempt.to_string()));
    rows.push(("model", spec.model.to_string()));
    rows.push(("workspace", spec.workspace.to_string()));
    rows.push(("submitted", rfc3339(record.submitted_at)));
    rows.push(("stands", Standing::of(run).phase));
    rows.push(("turns", format!("{} of {}", run.turn(), spec.limits.turns())));
    rows.push(("calls", run.answered().to_string()));
    let usage = run.usage();
    rows.push(("tokens", format!("{} in, {} out", usage.input, usage.output)));
    rows.push(("events", run.seq().to_string()));
    if let Some(end) = &record.end {
        let millis = |micros: u64| format!("{:.3} s", Duration::from_micros(micros).as_secs_f64());
        let (duration, queued) = (millis(end.duration_us), millis(end.queued_us));
        rows.push((
            "took",
            format!("{duration}, of them {} at work, after {queued} in the queue", millis(end.active_us)),
        ));
        rows.extend(end.error.clone().map(|error| ("error", error)));
        rows.push(("text", end.text.to_string()));
    }
    let line =
        |(name, value): &(&str, String)| format!("{name:<10} {}", value.replace('\n', "\n           "));
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The conversation for people.
fn spoken(messages: &[Message]) -> String {
    let turn = |message: &Message| match message {
        Message::System(text) => format!("[system]\n{text}"),
        Message::User(text) => format!("[user]\n{text}"),
        Message::Tool(result) => {
            format!("[{} {}]\n{}", result.call, if result.ok { "ok" } else { "failed" }, result.output)
        }
        Message::Assistant(reply) => {
            let asks = reply
                .calls
                .iter()
                .map(|call| format!("\n{} {} {}", call.id, call.name, call.arguments.as_str()));
            format!("[assistant]\n{}{}", reply.text, asks.collect::<String>())
        }
    };
    messages.iter().map(turn).collect::<Vec<_>>().join("\n\n")
}
