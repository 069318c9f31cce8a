//! A run that is told to end does, wherever it stands: once, with a history that a provider accepts, leaving nothing.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use herder::{
    actor::supervisor::{AskError, Unended},
    domain::call::{Failure, Mode},
};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    doubles::{DeafModel, Double, Gate, Trouble, TroubledStore},
    stage::{PATIENCE, Plan, Stage, calls, says},
};

fn asks(tool: &str) -> serde_json::Value {
    json!([calls(&[("a", tool, json!({}))]), says("done")])
}

async fn failures(stage: &Stage, run: herder::domain::id::RunId) -> Vec<(String, Option<Failure>)> {
    let results = stage.results(run).await;
    results.iter().map(|one| (one.call.as_str().to_owned(), one.failure)).collect()
}

async fn until_gone(pid: &str) {
    let start = std::time::Instant::now();
    while Path::new(&format!("/proc/{}", pid.trim())).exists() {
        assert!(start.elapsed() < PATIENCE, "process {pid} is still there");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_for_its_slot_ends_without_having_started() {
    let plan = Plan::paused().tool(Double::heeding("wait")).settings(|settings| settings.max_live_runs = 1);
    let stage = plan.start().await;
    let first = stage.run(&asks("wait"));
    let second = stage.run(&asks("wait"));
    stage.until(first.run, "call_started", 1).await;
    let (run, seq) = (second.run, stage.supervisor.cancel(second.run).await.unwrap());
    assert_eq!(stage.log(run).await.last().unwrap().seq, seq, "answered once it is of record");
    assert_eq!(stage.outcome(second).await, "cancelled");
    assert_eq!(stage.kinds(run).await, ["submitted", "cancel_requested", "run_end"]);
    stage.supervisor.cancel(first.run).await.unwrap();
    assert_eq!(stage.outcome(first).await, "cancelled");
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_model_has_fallen_silent_ends_at_once() {
    let stage = Plan::paused().start().await;
    let submitted = stage.run(&json!([{ "text": "well", "fault": "stall" }]));
    stage.until(submitted.run, "turn_start", 1).await;
    let since = Instant::now();
    stage.supervisor.cancel(submitted.run).await.unwrap();
    assert_eq!(stage.outcome(submitted).await, "cancelled");
    assert_eq!(since.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_sleeps_before_a_retry_ends_at_once_and_sends_no_more() {
    let stage = Plan::paused().start().await;
    let submitted = stage.run(&json!([{ "fault": { "status": 503, "retry_after_s": 30 } }, says("done")]));
    let run = submitted.run;
    stage.until(run, "model_retry", 1).await;
    let since = Instant::now();
    stage.supervisor.cancel(run).await.unwrap();
    assert_eq!(stage.outcome(submitted).await, "cancelled");
    assert_eq!(since.elapsed(), Duration::ZERO);
    assert!(!stage.kinds(run).await.contains(&"message"));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_leaves_the_queue_at_once_and_lets_those_behind_it_pass() {
    let gate = Gate::closed();
    let plan = Plan::paused()
        .tool(Double::gated("hold", &gate).on("file", Mode::Shared))
        .tool(Double::quick("alone").on("file", Mode::Exclusive))
        .tool(Double::quick("share").on("file", Mode::Shared));
    let stage = plan.start().await;
    let holds = stage.run(&asks("hold"));
    gate.until_inside(1).await;
    let alone = stage.run(&asks("alone"));
    stage.until(alone.run, "decision", 1).await;
    let shares = stage.run(&asks("share"));
    stage.until(shares.run, "decision", 1).await;

    let (run, since) = (alone.run, Instant::now());
    stage.supervisor.cancel(run).await.unwrap();
    assert_eq!(stage.outcome(alone).await, "cancelled");
    assert_eq!(failures(&stage, run).await, [("a".to_owned(), Some(Failure::AbortedBeforeStart))]);
    assert_eq!(stage.outcome(shares).await, "done");
    assert_eq!(since.elapsed(), Duration::ZERO, "the first still holds the file");
    gate.open.add_permits(1);
    assert_eq!(stage.outcome(holds).await, "done");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_ignores_the_signal_is_killed_and_the_run_ends_after_it() {
    let stage = Plan::default().start().await;
    let command = "trap '' TERM; echo $$ > pid; while :; do echo tick >> ticks; sleep 0.05; done";
    let submitted = stage.run(&json!([calls(&[("a", "bash", json!({ "command": command }))])]));
    let run = submitted.run;
    let pid = stage.until_file("ws", "pid").await;
    stage.until_file("ws", "ticks").await;
    stage.supervisor.cancel(run).await.unwrap();
    assert_eq!(stage.outcome(submitted).await, "cancelled");
    assert!(!Path::new(&format!("/proc/{}", pid.trim())).exists(), "the run ended before its command");
    assert_eq!(failures(&stage, run).await, [("a".to_owned(), Some(Failure::Cancelled))]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_of_a_cancelled_batch_has_a_result() {
    let stage = Plan::default().start().await;
    stage.write("ws", "a.txt", "hello\n");
    let command = "echo $$ > pid; exec sleep 3600";
    let batch = calls(&[
        ("a", "bash", json!({ "command": command })),
        ("b", "read", json!({ "path": "a.txt" })),
        ("c", "bash", json!({ "command": "true" })),
    ]);
    let submitted = stage.run(&json!([batch, says("done")]));
    let run = submitted.run;
    let pid = stage.until_file("ws", "pid").await;
    stage.supervisor.cancel(run).await.unwrap();
    assert_eq!(stage.outcome(submitted).await, "cancelled");
    let mut failures = failures(&stage, run).await;
    failures.sort();
    let aborted = Some(Failure::AbortedBeforeStart);
    let expected = [("a", Some(Failure::Cancelled)), ("b", aborted), ("c", aborted)];
    assert_eq!(failures, expected.map(|(id, failure)| (id.to_owned(), failure)));
    until_gone(&pid).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_fails_or_is_denied_takes_no_other_call_along() {
    let policy = json!({ "name": "test", "rule": [
        { "tools": ["write"], "path": ["secret/**"], "decision": "deny", "reason": "not there" },
        { "tools": ["bash", "read", "write"], "decision": "allow" },
    ]});
    let policy = serde_json::from_value(policy).unwrap();
    let stage = Plan { policy, ..Plan::default() }.start().await;
    stage.write("ws", "a.txt", "hello\n");
    let batch = calls(&[
        ("a", "bash", json!({ "command": "exit 3" })),
        ("b", "read", json!({ "path": "a.txt" })),
        ("c", "write", json!({ "path": "secret/x", "content": "x" })),
    ]);
    let submitted = stage.run(&json!([batch, says("done")]));
    let run = submitted.run;
    assert_eq!(stage.outcome(submitted).await, "done");
    let transcript = stage.transcript(run).await;
    assert_eq!(transcript.len(), 6, "{transcript:?}");
    assert!(transcript[2].starts_with("tool a: ") && transcript[2].contains('3'), "{}", transcript[2]);
    assert!(transcript[3].contains("hello"), "{}", transcript[3]);
    assert!(transcript[4].starts_with("tool c: denied: "), "{}", transcript[4]);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_has_ended_cannot_be_cancelled() {
    let stage = Plan::paused().start().await;
    let submitted = stage.run(&json!([says("done")]));
    let run = submitted.run;
    assert_eq!(stage.outcome(submitted).await, "done");
    assert!(matches!(stage.supervisor.cancel(run).await, Err(AskError::NoSuchRun)));
}

#[tokio::test(start_paused = true)]
async fn who_cancels_a_waiting_run_whose_log_takes_nothing_is_told_so_and_can_ask_again_later() {
    for trouble in [Trouble::Refuses, Trouble::Loses, Trouble::Panics] {
        let failed = AtomicBool::new(false);
        let store = TroubledStore::new(move |_, _, facts| {
            let ends = facts.iter().any(|fact| fact.event.kind() == "run_end");
            (ends && !failed.swap(true, Ordering::SeqCst)).then_some(trouble)
        });
        let plan = Plan { store: Arc::new(store), ..Plan::paused() };
        let stage = plan.settings(|settings| settings.max_live_runs = 0).start().await;
        let waits = stage.run(&json!([says("done")]));
        let run = waits.run;
        assert!(matches!(stage.supervisor.cancel(run).await, Err(AskError::Store(_))), "{trouble:?}");
        assert!(matches!(waits.done.await.unwrap().end, Err(Unended::Left)));
        let again = stage.supervisor.resume(run).await.unwrap();
        stage.supervisor.cancel(run).await.unwrap();
        assert_eq!(stage.outcome(again).await, "cancelled");
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_that_does_not_listen_holds_nobody_up_and_is_let_go() {
    let streams = Arc::default();
    let provider = Arc::new(DeafModel { streams: Arc::clone(&streams) });
    let stage = Plan { provider, ..Plan::paused() }.start().await;
    let submitted = stage.run(&json!([]));
    while streams.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    let since = Instant::now();
    stage.supervisor.cancel(submitted.run).await.unwrap();
    assert_eq!(stage.outcome(submitted).await, "cancelled");
    while streams.load(Ordering::SeqCst) > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(since.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_tool_does_not_listen_is_given_up_as_stuck_and_the_next_takes_its_slot() {
    let plan = Plan::paused()
        .tool(Double::deaf("deaf").on("file", Mode::Exclusive))
        .tool(Double::quick("alone").on("file", Mode::Exclusive))
        .settings(|settings| settings.max_live_runs = 1);
    let stage = plan.start().await;
    let stuck = stage.run(&asks("deaf"));
    let next = stage.run(&json!([says("done")]));
    let last = stage.run(&asks("alone"));
    let run = stuck.run;
    stage.until(run, "call_started", 1).await;
    let since = Instant::now();
    stage.supervisor.cancel(run).await.unwrap();
    assert_eq!(stage.outcome(stuck).await, "failed: stuck");
    assert_eq!(failures(&stage, run).await, [("a".to_owned(), Some(Failure::OutcomeUnknown))]);
    assert_eq!(stage.outcome(next).await, "done");
    assert!(since.elapsed() < Duration::from_secs(16), "{:?}", since.elapsed());
    assert_eq!(stage.outcome(last).await, "done", "what it held is free again");
}
