//! A call that is ended alone: it and nothing else, be it waiting or running.

use std::{path::Path, sync::Arc};

use herder::{
    actor::supervisor::AskError,
    domain::{
        call::{Failure, Mode, ToolResult},
        id::CallId,
        run::Refused,
    },
};
use serde_json::{Value, json};

use crate::{
    doubles::{Double, Gate},
    stage::{Plan, calls, says},
};

fn asks(tool: &str) -> Value {
    json!([calls(&[("a", tool, json!({}))]), says("done")])
}

#[tokio::test(start_paused = true)]
async fn a_call_is_ended_alone_be_it_waiting_or_running() {
    let gate = Gate::closed();
    let plan = Plan::paused()
        .tool(Double::heeding("wait").on("file", Mode::Exclusive))
        .tool(Double::quick("quick").on("file", Mode::Exclusive))
        .tool(Double::gated("gate", &gate));
    let stage = plan.start().await;
    let batch = [("a", "wait", json!({})), ("b", "quick", json!({})), ("c", "gate", json!({}))];
    let submitted = stage.run(&json!([calls(&batch), says("done")]));
    let other = stage.run(&asks("gate"));
    let run = submitted.run;
    stage.until(run, "call_started", 2).await;
    gate.until_inside(2).await;
    let cancel = |call: &str| stage.supervisor.cancel_call(run, CallId::new(call));

    cancel("b").await.unwrap();
    let failures = |results: &[Arc<_>]| -> Vec<_> {
        let one = |one: &Arc<ToolResult>| (one.call.as_str().to_owned(), one.failure);
        results.iter().map(one).collect()
    };
    let aborted = ("b".to_owned(), Some(Failure::AbortedBeforeStart));
    assert_eq!(failures(&stage.results(run).await), std::slice::from_ref(&aborted));
    let refused = |answer| matches!(answer, Err(AskError::Refused(Refused::UnknownCall)));
    assert!(refused(cancel("b").await) && refused(cancel("nobody").await));

    cancel("a").await.unwrap();
    stage.until(run, "result", 2).await;
    let cancelled = ("a".to_owned(), Some(Failure::Cancelled));
    assert_eq!(failures(&stage.results(run).await), [aborted, cancelled]);
    gate.open.add_permits(2);
    assert_eq!(stage.outcome(submitted).await, "done");
    assert_eq!(stage.outcome(other).await, "done");
    assert!(stage.results(run).await[2].ok);
    assert!(matches!(cancel("c").await, Err(AskError::NoSuchRun)));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_not_at_work_is_told_from_one_that_has_ended() {
    let gate = Gate::closed();
    let plan = Plan::paused().tool(Double::gated("gate", &gate));
    let stage = plan.settings(|settings| settings.max_live_runs = 1).start().await;
    let live = stage.run(&asks("gate"));
    gate.until_inside(1).await;
    let (queued, held) = (stage.run(&asks("gate")), stage.run(&asks("gate")));
    stage.pause(held.run).await.unwrap();
    let run = live.run;
    let cancel = |run| stage.supervisor.cancel_call(run, CallId::new("a"));
    for waits in [&queued, &held] {
        assert!(matches!(cancel(waits.run).await, Err(AskError::NotLive)));
    }
    gate.open.add_permits(1);
    assert_eq!(stage.outcome(live).await, "done");
    assert!(matches!(cancel(run).await, Err(AskError::NoSuchRun)));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_leaves_the_queue_alone_lets_those_behind_it_pass() {
    let gate = Gate::closed();
    let plan = Plan::paused()
        .tool(Double::gated("gate", &gate).on("file", Mode::Shared))
        .tool(Double::quick("alone").on("file", Mode::Exclusive))
        .tool(Double::quick("share").on("file", Mode::Shared));
    let stage = plan.start().await;
    let holds = stage.run(&asks("gate"));
    gate.until_inside(1).await;
    let alone = stage.run(&asks("alone"));
    stage.until(alone.run, "decision", 1).await;
    let shares = stage.run(&asks("share"));
    stage.until(shares.run, "decision", 1).await;
    stage.supervisor.cancel_call(alone.run, CallId::new("a")).await.unwrap();
    assert_eq!(stage.outcome(alone).await, "done");
    assert_eq!(stage.outcome(shares).await, "done");
    gate.open.add_permits(1);
    assert_eq!(stage.outcome(holds).await, "done");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_is_ended_alone_is_killed_and_the_run_goes_on() {
    let stage = Plan::default().start().await;
    let command = "trap '' TERM; echo $$ > pid; while :; do sleep 0.05; done";
    let batch = [("a", "bash", json!({ "command": command })), ("b", "bash", json!({ "command": "true" }))];
    let submitted = stage.run(&json!([calls(&batch), says("done")]));
    let run = submitted.run;
    let pid = stage.until_file("ws", "pid").await;
    stage.supervisor.cancel_call(run, CallId::new("a")).await.unwrap();
    assert_eq!(stage.outcome(submitted).await, "done");
    assert!(!Path::new(&format!("/proc/{}", pid.trim())).exists(), "the command is still there");
    let results = stage.results(run).await;
    assert_eq!((results[0].failure, results[1].ok), (Some(Failure::Cancelled), true));
}
