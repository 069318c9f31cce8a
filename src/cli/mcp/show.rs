//! What the tools answer: short JSON, bounded, since a model pays for each word of it.

use serde_json::{Map, Value, json};

use crate::{
    cli::{render::describe, told::Told},
    daemon::{
        client,
        wire::{RunDetail, RunList, RunView},
    },
};

/// Bytes of a result's text that are shown.
const TEXT: usize = 50 * 1024;

/// Bytes of a text that is there to give an idea.
const GLIMPSE: usize = 200;

/// A run in short. What is not there is left out.
pub(super) fn run(run: &RunView) -> Value {
    let waits: Vec<_> = run.open_calls.iter().filter(|call| call.waits).map(|call| &call.tool).collect();
    let all = json!({
        "run": run.id, "task_id": run.task_id, "batch": run.batch, "about": cut(&run.about, GLIMPSE), "state": run.state,
        "phase": run.phase, "outcome": run.outcome, "detail": run.detail,
        "error": run.error.as_deref().map(|error| cut(error, GLIMPSE)), "model": run.model,
        "attempt": (run.attempt > 1).then_some(run.attempt), "turns": run.turns, "calls": run.calls,
        "calls_waiting": (!waits.is_empty()).then_some(waits), "tokens": run.usage.input + run.usage.output,
        "cost_usd": run.cost_usd, "duration_ms": run.duration_ms, "submitted_at": run.submitted_at,
        "ended_at": run.ended_at, "said": (!run.said.is_empty()).then(|| cut(&run.said, GLIMPSE)),
    });
    present(all)
}

/// A page of runs.
pub(super) fn runs(list: &RunList) -> Value {
    let runs: Vec<Value> = list.runs.iter().map(run).collect();
    let counts = &list.counts;
    present(json!({
        "runs": runs, "matching": counts.total, "not_ended": counts.open, "ended": counts.ended, "next": list.next,
    }))
}

/// What a run came to.
pub(super) fn result(detail: &RunDetail) -> Value {
    let mut shown = run(&detail.run);
    if let Value::Object(fields) = &mut shown {
        fields.remove("said");
        match (&detail.run.outcome, &detail.text) {
            (None, _) => {
                let note = "it has not ended; herder_wait waits for it";
                fields.insert("note".to_owned(), note.into());
            }
            (Some(_), text) => {
                let text = text.as_deref().unwrap_or_default();
                if text.len() > TEXT {
                    let note = format!(
                        "the text is cut: {} of its bytes are left out; `herder show {} --json` has all of them",
                        text.len() - text.floor_char_boundary(TEXT),
                        detail.run.id
                    );
                    fields.insert("note".to_owned(), note.into());
                }
                fields.insert("text".to_owned(), text[..text.floor_char_boundary(TEXT)].into());
            }
        }
    }
    shown
}

/// An event on one line: its number, when, the turn, the kind, what happened.
pub(super) fn event(event: &client::Event) -> String {
    let number = event.id.map_or_else(String::new, |id| format!("{id} "));
    let Some(told) = Told::read(event) else { return format!("{number}{}", event.name) };
    let what = match &told.event {
        Ok(event) => describe(event).1,
        Err(data) => cut(data, GLIMPSE),
    };
    format!("{number}{} turn {} {} {what}", told.time, told.turn, told.kind).trim_end().to_owned()
}

fn cut(text: &str, bytes: usize) -> String {
    match text.floor_char_boundary(bytes) {
        end if end < text.len() => format!("{}…", &text[..end]),
        _ => text.to_owned(),
    }
}

/// Leaves out what is null.
fn present(value: Value) -> Value {
    let Value::Object(fields) = value else { return value };
    Value::Object(fields.into_iter().filter(|(_, value)| !value.is_null()).collect::<Map<_, _>>())
}
