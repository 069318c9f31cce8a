//! What a daemon leaves that dies or stops with runs at every stage, and how the next one takes them up.

use std::fs;

use herder::daemon::wire::Code;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::process::{Daemon, House, assert_sound, runs, says, task, until};

/// Two slots, so that the third run waits for one.
const SERVE: [&str; 4] = ["--policy", "trusted", "--jobs", "2"];

/// A run that thinks, one that is in a command without end, and one that waits for a slot.
struct Three {
    thinking: String,
    acting: String,
    queued: String,
}

impl Three {
    async fn submitted(house: &House, daemon: &Daemon) -> Self {
        let thinking = daemon.submit(&says(house, "thinking", 600_000)).await;
        let acting = daemon.submit(&runs(house, "acting", "echo begun >> begun; sleep 300")).await;
        let queued = daemon.submit(&says(house, "queued", 0)).await;
        until("the command is at work", || has_begun(house)).await;
        daemon.until("v1/status", |status| status["load"]["thinking"] == 1).await;
        assert_eq!(daemon.get(&format!("v1/runs/{queued}")).await["state"], "queued");
        Self { thinking, acting, queued }
    }
}

/// Whether a command has written its line: that its file is there says only that it is about to.
fn has_begun(house: &House) -> bool {
    fs::read_to_string(house.path("work/begun")).is_ok_and(|text| text == "begun\n")
}

fn of_run<'a>(log: &'a [Value], run: &str) -> Vec<&'a Value> {
    log.iter().filter(|event| event["run"] == run).collect()
}

fn last_kind<'a>(log: &'a [Value], run: &str) -> &'a str {
    of_run(log, run).last().unwrap()["kind"].as_str().unwrap()
}

#[tokio::test]
async fn after_a_kill_every_open_run_is_taken_up_its_command_is_gone_and_all_of_them_can_be_stopped() {
    let house = House::new();
    let first = house.start(&SERVE).await;
    let three = Three::submitted(&house, &first).await;
    first.kill();
    let second = house.start(&SERVE).await;
    // The command is in doubt, so its run goes on without it, ends, and leaves its slot to the one that waits.
    assert_eq!(second.until_run_ends(&three.acting).await["outcome"], "done");
    assert_eq!(second.until_run_ends(&three.queued).await["outcome"], "done");
    // The slots of the others are free.
    second.until("v1/status", |status| status["load"]["live"] == 1 && status["load"]["thinking"] == 1).await;
    until("only the daemon is left", || house.processes().len() == 1).await;
    assert_eq!(fs::read_to_string(house.path("work/begun")).unwrap(), "begun\n");
    second.post(&format!("v1/runs/{}/cancel", three.thinking), json!({})).await;
    assert_eq!(second.until_run_ends(&three.thinking).await["outcome"], "cancelled");
    second.stop().await;
    let log = house.events();
    assert_sound(&log);
    for run in [&three.thinking, &three.acting] {
        assert_eq!(of_run(&log, run).iter().filter(|event| event["kind"] == "restart").count(), 1);
    }
}

#[tokio::test]
async fn when_a_daemon_that_was_told_to_stop_has_gone_the_log_says_of_every_run_how_it_stopped() {
    let house = House::new();
    let mut first = house.start(&[&SERVE[..], &["--drain", "1s"]].concat()).await;
    let three = Three::submitted(&house, &first).await;
    first.signal(Signal::TERM);
    assert_eq!(first.ended().await, Some(0), "{}", first.said());
    let log = house.events();
    assert_eq!(last_kind(&log, &three.thinking), "interrupted");
    assert_eq!(last_kind(&log, &three.acting), "interrupted");
    assert_eq!(last_kind(&log, &three.queued), "submitted");
    let told = of_run(&log, &three.acting);
    let result = told.iter().find(|event| event["kind"] == "result").unwrap();
    assert_eq!(result["data"]["failure"], "cancelled", "{result}");
    house.assert_nothing_runs();
}

#[tokio::test]
async fn the_end_of_a_run_that_was_cancelled_is_of_record_though_its_daemon_stops_meanwhile() {
    let house = House::new();
    let mut daemon = house.start(&[&SERVE[..], &["--drain", "1s"]].concat()).await;
    let deaf = "trap '' TERM; echo begun > begun; while :; do sleep 0.05; done";
    let run = daemon.submit(&runs(&house, "deaf", deaf)).await;
    until("the command is at work", || has_begun(&house)).await;
    daemon.post(&format!("v1/runs/{run}/cancel"), json!({})).await;
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.ended().await, Some(0), "{}", daemon.said());
    let log = house.events();
    assert_sound(&log);
    assert_eq!(log.last().unwrap()["data"]["outcome"], "cancelled");
    house.assert_nothing_runs();
}

#[tokio::test]
async fn a_result_that_came_before_a_kill_is_used_and_the_call_after_it_is_not_repeated() {
    let house = House::new();
    let first = house.start(&SERVE).await;
    let bash = |id: &str, command: &str| json!({"id": id, "name": "bash", "arguments": {"command": command}});
    let calls = [bash("a", "echo a >> log"), bash("b", "echo begun > begun; sleep 300; echo b >> log")];
    let run = first.submit(&task(&house, "one", json!([{"calls": calls}, {"text": "ready"}]))).await;
    until("the second command is at work", || has_begun(&house)).await;
    first.kill();
    let second = house.start(&SERVE).await;
    assert_eq!(second.until_run_ends(&run).await["outcome"], "done");
    second.stop().await;
    house.assert_nothing_runs();
    assert_eq!(fs::read_to_string(house.path("work/log")).unwrap(), "a\n");
    let log = house.events();
    assert_sound(&log);
    let results: Vec<_> = log.iter().filter(|event| event["kind"] == "result").collect();
    let told: Vec<_> =
        results.iter().map(|result| (&result["data"]["call"], &result["data"]["failure"])).collect();
    assert_eq!(told, [(&json!("a"), &Value::Null), (&json!("b"), &json!("outcome_unknown"))]);
    let messages = log.iter().filter(|event| event["kind"] == "message").count();
    assert_eq!(messages, 2, "the model is not asked for these calls again");
}

#[tokio::test]
async fn a_call_of_a_run_that_has_no_slot_yet_is_there_and_cannot_be_ended_now() {
    let house = House::new();
    let first = house.start(&SERVE).await;
    let three = Three::submitted(&house, &first).await;
    let acts = |run: &Value| run["open_calls"][0]["waits"] == false;
    let shown = first.until(&format!("v1/runs/{}", three.acting), acts).await;
    let call = shown["open_calls"][0]["call"].as_str().unwrap();
    // In the next daemon no run has a slot before it is let go.
    first.post("v1/pause", json!({})).await;
    first.kill();
    let second = house.start(&SERVE).await;
    let path = |call: &str| format!("v1/runs/{}/calls/{call}/cancel", three.acting);
    second.refuses(&path(call), json!({}), Code::Busy).await;
    second.refuses(&path("none"), json!({}), Code::UnknownCall).await;
    second.post("v1/resume", json!({})).await;
    assert_eq!(second.until_run_ends(&three.acting).await["outcome"], "done");
    second.refuses(&path(call), json!({}), Code::Ended).await;
    second.post(&format!("v1/runs/{}/cancel", three.thinking), json!({})).await;
    second.stop().await;
}
