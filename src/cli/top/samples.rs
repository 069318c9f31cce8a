//! What a daemon may tell, for tests of the screen: runs in every phase, with names that are hard on columns.

use std::collections::BTreeMap;

use serde_json::json;

use super::state::Look;
use crate::{
    daemon::wire::{BatchList, CallView, Counts, RunList, RunState, RunView, Status, Tokens},
    domain::time::Timestamp,
};

/// 2026-01-02T03:04:05Z.
pub(super) const NOW: Timestamp = Timestamp::from_micros(1_767_323_045_000_000);

pub(super) fn status(live: u64, queued: u64, held: u64) -> Status {
    serde_json::from_value(json!({
        "version": "0.1.0", "api": 1, "pid": 4242, "state": "/home/ada/.local/state/herder", "socket": "/run/herder.sock",
        "listen": null, "started_at": "2026-01-02T01:00:00Z", "phase": "ready", "max_live_runs": 50,
        "load": {"live": live, "queued": queued, "held": held, "thinking": live / 2, "acting": live - live / 2,
                 "calls_running": live / 3, "calls_waiting": live / 5},
        "rates": {"turns_per_s": live as f64 / 4.0, "tokens_per_s": live as f64 * 310.0, "runs_per_min": live as f64,
                  "usd_per_min": live as f64 * 0.05},
        "runs": {"total": 1_000, "open": live + queued + held, "ended": {"done": 812, "failed": 3}},
        "open_usage": {"input": live * 40_000, "output": live * 900, "cached": 0, "estimated": false},
        "open_cost_usd": (live > 0).then_some(live as f64 * 0.21), "open_batches": 2, "paused": [], "followers": 1,
        "rss_bytes": 48_000_000, "log_bytes": null
    }))
    .expect("a status")
}

pub(super) fn run(number: u32, task: &str, state: RunState, phase: &str) -> RunView {
    RunView {
        id: format!("019b7c3e-0000-7000-8000-{number:012}"),
        batch: None,
        task_id: Some(task.to_owned()),
        attempt: 1,
        predecessor: None,
        about: "Read the parser and say what is wrong with it".to_owned(),
        model: "openai:gpt-5".to_owned(),
        labels: BTreeMap::from([("team".to_owned(), "core".to_owned())]),
        priority: 0,
        state,
        phase: phase.to_owned(),
        outcome: None,
        detail: None,
        error: None,
        turns: number,
        calls: number * 2,
        open_calls: Vec::new(),
        usage: Tokens { input: u64::from(number) * 4_100, output: 77, cached: 0, estimated: false },
        cost_usd: (!number.is_multiple_of(3)).then_some(f64::from(number) * 0.0123),
        submitted_at: "2026-01-02T03:00:00Z".to_owned(),
        started_at: (state != RunState::Queued).then(|| format!("2026-01-02T03:0{}:30Z", number % 4)),
        ended_at: None,
        duration_ms: None,
        said: String::new(),
        branch: None,
        base: None,
        patch_path: None,
        files_changed: None,
    }
}

pub(super) fn call(tool: &str, waits: bool, access: &str) -> CallView {
    CallView { call: "c1".to_owned(), tool: tool.to_owned(), waits, access: vec![access.to_owned()] }
}

pub(super) fn every_phase() -> Vec<RunView> {
    use RunState::{Paused, Queued, Running};
    let mut runs = vec![
        run(1, "parse", Running, "thinking: waits for the model"),
        run(2, "retry", Running, "thinking: request 2 of this turn"),
        run(3, "edit-a", Running, "acting: edit runs"),
        run(4, "edit-b", Running, "acting: edit waits for its lock or permit"),
        run(5, "bash", Running, "acting: bash waits for its lock or permit"),
        run(6, "日本語の仕事", Running, "between turns"),
        run(7, "emoji 👩‍👩‍👧 🚀", Running, "thinking: waits for the model"),
        run(8, "held", Paused, "paused"),
        run(9, "held\u{1b}[2J\ttwo", Paused, "paused"),
        run(10, "next-1", Queued, "queued: waits for a slot"),
        run(11, "next-2", Queued, "queued: waits for a slot"),
        run(12, &"very-long-name-".repeat(9), Queued, "queued: waits for a slot"),
    ];
    runs[2].open_calls = vec![call("edit", false, "exclusive file /w/src/parser.rs")];
    runs[3].open_calls = vec![call("edit", true, "exclusive file /w/src/parser.rs")];
    runs[4].open_calls = vec![CallView { access: Vec::new(), ..call("bash", true, "") }];
    runs
}

/// A daemon's answer about a page of runs, of so many in all.
pub(super) fn page(count: usize, open: u64) -> String {
    let counts = Counts { total: open, open, ended: BTreeMap::new() };
    let list = RunList { runs: every_phase().into_iter().take(count).collect(), next: None, counts };
    serde_json::to_string(&list).expect("JSON")
}

pub(super) fn status_json(live: u64, queued: u64) -> String {
    serde_json::to_string(&status(live, queued, 0)).expect("JSON")
}

pub(super) fn batches_json() -> String {
    serde_json::to_string(&batches()).expect("JSON")
}

pub(super) fn look(status: Status, runs: Vec<RunView>) -> Look {
    let open = status.load.live + status.load.queued + status.load.held;
    let counts = Counts { total: open, open, ended: BTreeMap::new() };
    Look { status, batches: Vec::new(), runs: RunList { runs, next: None, counts } }
}

pub(super) fn batches() -> BatchList {
    let batch = |id: &str, name: &str, state: &str, done: u64, failed: u64| {
        json!({"id": id, "name": name, "state": state, "created_at": "2026-01-02T01:00:00Z", "tasks": 1_000,
               "waiting": 100, "open": 12, "running": 12, "ended": {"done": done, "failed": failed}, "concurrency": 12,
               "usage": {"input": 1, "output": 1, "cached": 0, "estimated": false}, "cost_usd": 3.21, "error": null})
    };
    serde_json::from_value(json!({"batches": [
        batch("b1", "nightly", "open", 640, 4), batch("b2", "夜のバッチ処理全部をもう一度やり直す", "paused", 1, 0)
    ]}))
    .expect("batches")
}
