//! States with many runs in them, written as herder writes them.

use std::path::Path;

use herder::{
    domain::{
        event::{Event, Fact, RunEnd},
        id::{RunId, Seq},
        task::TaskSpec,
        time::Timestamp,
    },
    store::{
        EventStore,
        folder::StateFolder,
        sqlite::{Durability, Options, SqliteStore},
    },
};
use serde_json::{Value, json};

/// Writes runs that have ended, then runs that are open and wait for a model that says nothing for a day.
pub(crate) fn fill(state: &Path, ended: usize, open: usize) {
    let folder = StateFolder::open_for_writing(state).unwrap();
    let options = Options { durability: Durability::Process, ..Options::default() };
    let store = SqliteStore::open(&folder.log(), options).unwrap();
    let end = fact(2, Event::RunEnd(Box::new(run_end())));
    for number in 0..ended {
        let facts = [submitted(number, &json!([{ "text": "done" }])), end.clone()];
        store.append(RunId::new(uuid::Uuid::now_v7()), Seq::START, &facts).unwrap();
    }
    for number in 0..open {
        let silent = json!([{ "text": "done", "delay_ms": 86_400_000 }]);
        store.append(RunId::new(uuid::Uuid::now_v7()), Seq::START, &[submitted(number, &silent)]).unwrap();
    }
    store.close();
}

fn fact(turn: u32, event: Event) -> Fact {
    Fact { at: Timestamp::from_micros(1_760_000_000_000_000), turn, event }
}

fn submitted(number: usize, script: &Value) -> Fact {
    let spec: TaskSpec = serde_json::from_value(json!({
        "task": format!("Add numbers, task {number}."), "task_id": format!("task-{number}"), "attempt": 1,
        "model": "scripted:inline", "workspace": "/", "labels": { "team": "search" }, "script": script,
    }))
    .unwrap();
    fact(0, Event::Submitted(spec.into()))
}

fn run_end() -> RunEnd {
    serde_json::from_value(json!({
        "outcome": "done", "text": "It is done, and here is how.", "turns": 2, "calls": 1,
        "usage": { "input": 100, "output": 10 }, "queued_us": 1, "duration_us": 2, "active_us": 2,
    }))
    .unwrap()
}
