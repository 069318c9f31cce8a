//! Calls that people decide about, with real files: what is approved is done once, and nothing else is.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use herder::{
    actor::{
        Approvals,
        supervisor::{AskError, Blocked, Submitted},
    },
    config::policies,
    domain::{
        call::Failure,
        event::{Event, Grant, ParkReason, Resolution},
        id::RunId,
        policy::Policy,
        run::{Answer, Input, Refused},
    },
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    doubles::{Double, Trouble, TroubledStore},
    pause::{held, until_held, until_live},
    stage::{PATIENCE, Plan, Stage, calls, replay, says},
};

/// Reads are allowed, and people decide about everything else.
fn careful() -> Plan {
    let plan = Plan { policy: policies::load("careful").unwrap(), ..Plan::default() };
    plan.settings(|settings| settings.approvals = Some(Approvals::default()))
}

fn write(content: &str) -> Value {
    json!({ "path": "a.txt", "content": content })
}

fn bash(command: &str) -> Value {
    json!({ "command": command })
}

/// Asks for these calls in one answer, then is done.
fn asks_for(asked: &[(&str, &str, Value)]) -> Value {
    json!([calls(asked), says("done")])
}

async fn resolve(stage: &Stage, run: RunId, approval: u32, answer: Answer) -> Result<(), AskError> {
    let (command, by) = (format!("k{approval}").into(), Some("ada".into()));
    stage.supervisor.ask(run, Input::Resolve { approval, answer, command, by }).await.map(drop)
}

async fn approve(stage: &Stage, run: RunId, approval: u32) {
    resolve(stage, run, approval, Answer::Approve(None)).await.unwrap();
}

async fn resolutions(stage: &Stage, run: RunId) -> Vec<Resolution> {
    let log = stage.log(run).await.into_iter();
    log.filter_map(|one| {
        let Event::ApprovalResolved(resolved) = one.fact.event else { return None };
        Some(resolved.resolution)
    })
    .collect()
}

/// Runs that wait for people, and hold no slot.
async fn waiting(stage: &Stage) -> usize {
    let waits = stage.supervisor.load().await.waits;
    waits.iter().filter(|wait| wait.reason == ParkReason::Approval).map(|wait| wait.runs).sum()
}

#[tokio::test]
async fn a_run_that_waits_for_a_person_holds_neither_slot_nor_lock_and_makes_exactly_what_was_approved() {
    let stage = careful().settings(|settings| settings.max_live_runs = 1).start().await;
    stage.write("ws", "a.txt", "old\n");
    let submitted = stage.run(&asks_for(&[("a", "write", write("new\n"))]));
    let run = submitted.run;
    until_held(&stage, 1).await;
    assert_eq!((waiting(&stage).await, stage.supervisor.load().await.live), (1, 0));
    let other = stage.run(&asks_for(&[("r", "read", json!({ "path": "a.txt" }))]));
    assert_eq!(stage.outcome(other).await, "done", "there is a slot, and no lock is held");
    let log = stage.log(run).await;
    let asked = replay(run, &log).approval(1).unwrap().request.clone();
    let preview = asked.preview.as_deref().unwrap();
    assert!(preview.starts_with("--- a.txt\n+++ a.txt\n"), "{preview}");
    assert!(preview.contains("\n-old\n+new\n"), "{preview}");
    approve(&stage, run, 1).await;
    assert_eq!(stage.outcome(submitted).await, "done");
    assert_eq!(stage.text("ws", "a.txt"), "new\n");
    assert_eq!(
        stage.kinds(run).await[4..],
        [
            "decision",
            "approval_requested",
            "parked",
            "approval_resolved",
            "unparked",
            "call_started",
            "result",
            "turn_end",
            "turn_start",
            "message",
            "turn_end",
            "run_end"
        ]
    );
}

#[tokio::test]
async fn a_change_of_a_file_that_was_changed_meanwhile_is_asked_about_again() {
    let stage = careful().start().await;
    stage.write("ws", "a.txt", "old\n");
    let submitted = stage.run(&asks_for(&[("a", "write", write("new\n"))]));
    let run = submitted.run;
    until_held(&stage, 1).await;
    stage.write("ws", "a.txt", "somebody else's\n");
    approve(&stage, run, 1).await;
    stage.until(run, "approval_requested", 2).await;
    until_held(&stage, 1).await;
    assert_eq!(stage.text("ws", "a.txt"), "somebody else's\n");
    let (answer, by) = (Answer::Reject(None), None);
    let late =
        stage.supervisor.ask(run, Input::Resolve { approval: 1, answer, command: "k9".into(), by }).await;
    assert!(matches!(late, Err(AskError::Refused(Refused::Resolved(Resolution::Superseded)))), "{late:?}");
    let preview = replay(run, &stage.log(run).await).approval(2).unwrap().request.preview.clone().unwrap();
    assert!(preview.contains("\n-somebody else's\n+new\n"), "{preview}");
    approve(&stage, run, 2).await;
    assert_eq!(stage.outcome(submitted).await, "done");
    assert_eq!(stage.text("ws", "a.txt"), "new\n");
    let resolutions = resolutions(&stage, run).await;
    assert_eq!(resolutions, [Resolution::Approved, Resolution::Superseded, Resolution::Approved]);
}

#[tokio::test]
async fn a_person_is_shown_all_of_a_change_and_no_path_makes_lines_of_its_own() {
    let stage = careful().start().await;
    let lines = |word: &str| (0..6_000).map(|n| format!("{word} {n}\n")).collect::<String>();
    stage.write("ws", "a.txt", &lines("old"));
    let forged = json!({ "path": "b\n@@ -0,0 +1,1 @@\n+nice\n--- c", "content": "rm -rf /\n" });
    let submitted = stage.run(&asks_for(&[("a", "write", write(&lines("new"))), ("b", "write", forged)]));
    until_held(&stage, 1).await;
    let run = replay(submitted.run, &stage.log(submitted.run).await);
    let preview = |number| run.approval(number).unwrap().request.preview.clone().unwrap();
    let whole = preview(1);
    for n in 0..6_000 {
        assert!(whole.contains(&format!("\n-old {n}\n")) && whole.contains(&format!("\n+new {n}\n")), "{n}");
    }
    assert_eq!(preview(2).lines().count(), 4, "{}", preview(2));
    assert!(preview(2).starts_with("--- /dev/null\n+++ \"b\\n@@"), "{}", preview(2));
}

#[tokio::test]
async fn what_is_too_much_to_look_over_is_not_asked_about_and_not_done() {
    let stage = careful().start().await;
    let submitted = stage.run(&asks_for(&[("a", "write", write(&"a line of it\n".repeat(100_000)))]));
    let run = submitted.run;
    assert_eq!(stage.outcome(submitted).await, "done");
    assert!(stage.results(run).await[0].output.contains("in smaller steps"));
    assert!(!stage.path("ws", "a.txt").exists());
}

#[tokio::test]
async fn a_path_that_leads_elsewhere_by_then_is_asked_about_again() {
    let stage = careful().start().await;
    stage.write("ws", "one.txt", "same\n");
    stage.write("ws", "two.txt", "same\n");
    let link = stage.path("ws", "a.txt");
    std::os::unix::fs::symlink("one.txt", &link).unwrap();
    let submitted = stage.run(&asks_for(&[("a", "write", write("new\n"))]));
    let run = submitted.run;
    until_held(&stage, 1).await;
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("two.txt", &link).unwrap();
    approve(&stage, run, 1).await;
    stage.until(run, "approval_requested", 2).await;
    assert_eq!(
        (stage.text("ws", "one.txt"), stage.text("ws", "two.txt")),
        ("same\n".into(), "same\n".into())
    );
    until_held(&stage, 1).await;
    approve(&stage, run, 2).await;
    assert_eq!(stage.outcome(submitted).await, "done");
    assert_eq!((stage.text("ws", "one.txt"), stage.text("ws", "two.txt")), ("same\n".into(), "new\n".into()));
}

#[tokio::test]
async fn a_rejection_reaches_the_model_and_its_call_never_runs() {
    let stage = careful().start().await;
    let submitted = stage.run(&asks_for(&[("a", "bash", bash("touch ran")), ("b", "bash", bash("echo b"))]));
    let run = submitted.run;
    until_held(&stage, 1).await;
    resolve(&stage, run, 1, Answer::Reject(Some("not here".into()))).await.unwrap();
    approve(&stage, run, 2).await;
    assert_eq!(stage.outcome(submitted).await, "done");
    let results = stage.results(run).await;
    let said: Vec<_> = results.iter().map(|result| (&*result.output, result.failure)).collect();
    assert!(said.contains(&("denied: a person rejected it: not here", Some(Failure::Denied))), "{said:?}");
    assert!(!stage.path("ws", "ran").exists());
}

#[tokio::test]
async fn answers_that_come_while_other_calls_run_are_taken_up_at_once() {
    let stage = careful().start().await;
    let policy = "the first is approved while the second still waits";
    let submitted = stage
        .run(&asks_for(&[("a", "bash", bash("echo one >> out")), ("b", "bash", bash("echo two >> out"))]));
    let run = submitted.run;
    until_held(&stage, 1).await;
    approve(&stage, run, 1).await;
    stage.until(run, "result", 1).await;
    until_held(&stage, 1).await;
    assert_eq!(stage.text("ws", "out"), "one\n", "{policy}");
    approve(&stage, run, 2).await;
    assert_eq!(stage.outcome(submitted).await, "done");
    assert_eq!(stage.text("ws", "out"), "one\ntwo\n");
}

#[tokio::test(start_paused = true)]
async fn what_nobody_answers_is_denied_at_its_time_and_the_wait_is_no_time_of_the_run() {
    let plan = Plan { policy: policies::load("careful").unwrap(), ..Plan::paused() };
    let expire = Some(Duration::from_secs(3_600));
    let stage = plan.settings(|settings| settings.approvals = Some(Approvals { expire })).start().await;
    let start = Instant::now();
    let submitted = stage.run(&asks_for(&[("a", "write", write("new\n"))]));
    let run = submitted.run;
    let end = stage.end(submitted).await;
    assert_eq!(end.outcome.to_string(), "done");
    assert!(start.elapsed() >= Duration::from_secs(3_600));
    assert!(end.duration_us < 60_000_000, "{}", end.duration_us);
    assert_eq!(resolutions(&stage, run).await, [Resolution::Expired]);
    assert_eq!(&*stage.results(run).await[0].output, "denied: nobody approved of it in time");
    assert!(!stage.path("ws", "a.txt").exists());
}

#[tokio::test(start_paused = true)]
async fn the_time_to_answer_passes_while_other_calls_of_the_run_are_at_work() {
    let policy: Policy = serde_json::from_value(json!({
        "name": "p",
        "rule": [{ "tools": ["slow"], "decision": "allow" }, { "decision": "ask" }]
    }))
    .unwrap();
    let expire = Some(Duration::from_secs(60));
    let plan = Plan { policy, ..Plan::paused() }.tool(Double::slow("slow", Duration::from_secs(300)));
    let stage = plan.settings(|settings| settings.approvals = Some(Approvals { expire })).start().await;
    let submitted = stage.run(&asks_for(&[("s", "slow", json!({})), ("a", "write", write("new\n"))]));
    let (run, start) = (submitted.run, Instant::now());
    stage.until(run, "approval_resolved", 1).await;
    assert!(start.elapsed() < Duration::from_secs(100), "the other call is still at work");
    assert_eq!(resolutions(&stage, run).await, [Resolution::Expired]);
    assert_eq!(stage.outcome(submitted).await, "done");
}

#[tokio::test(start_paused = true)]
async fn a_log_that_does_not_take_it_that_the_time_is_up_is_asked_again_now_and_then() {
    let refused = Arc::new(AtomicUsize::new(0));
    let counted = refused.clone();
    let store = TroubledStore::new(move |_, _, facts| {
        let resolves = facts.iter().any(|fact| matches!(fact.event, Event::ApprovalResolved(_)));
        (resolves && counted.fetch_add(1, Ordering::SeqCst) < 20).then_some(Trouble::Refuses)
    });
    let policy = policies::load("careful").unwrap();
    let plan = Plan { policy, store: Arc::new(store), ..Plan::paused() };
    let expire = Some(Duration::from_secs(60));
    let stage = plan.settings(|settings| settings.approvals = Some(Approvals { expire })).start().await;
    let start = Instant::now();
    let submitted = stage.run(&asks_for(&[("a", "write", write("new\n"))]));
    assert_eq!(stage.outcome(submitted).await, "done");
    assert!(refused.load(Ordering::SeqCst) > 20);
    assert!(start.elapsed() >= Duration::from_secs(60 + 19), "{:?}", start.elapsed());
}

#[tokio::test]
async fn one_cancel_ends_a_run_that_waits_for_a_person() {
    let stage = careful().start().await;
    let submitted = stage.run(&asks_for(&[("a", "write", write("new\n"))]));
    let run = submitted.run;
    until_held(&stage, 1).await;
    stage.supervisor.cancel(run).await.unwrap();
    assert_eq!(stage.outcome(submitted).await, "cancelled");
    assert_eq!(resolutions(&stage, run).await, [Resolution::Withdrawn]);
    assert!(resolve(&stage, run, 1, Answer::Approve(None)).await.is_err());
    assert!(!stage.path("ws", "a.txt").exists());
}

#[tokio::test]
async fn what_was_asked_before_a_stop_is_answered_after_it_and_used_once() {
    let plan = careful();
    let store = plan.store.clone();
    let stage = plan.start().await;
    let submitted = stage.run(&asks_for(&[("a", "bash", bash("echo ran >> out"))]));
    let run = submitted.run;
    until_held(&stage, 1).await;
    stage.supervisor.drain(Duration::ZERO).await;
    drop(submitted);
    let next = Plan { store, ..careful() }.start_in(Arc::clone(&stage.folder)).await;
    let resumed = next.supervisor.resume(run).await.unwrap();
    until_held(&next, 1).await;
    approve(&next, run, 1).await;
    assert_eq!(next.outcome(Submitted { run, ..resumed }).await, "done");
    assert_eq!(next.text("ws", "out"), "ran\n");
}

#[tokio::test]
async fn what_is_approved_for_the_run_is_not_asked_about_again_in_it_and_is_in_another() {
    let stage = careful().start().await;
    let script = json!([
        calls(&[("a", "write", write("one\n"))]),
        calls(&[("b", "write", write("two\n"))]),
        calls(&[("c", "write", json!({ "path": "b.txt", "content": "three\n" }))]),
        says("done")
    ]);
    let submitted = stage.run(&script);
    let run = submitted.run;
    until_held(&stage, 1).await;
    let grant = Grant { tool: "write".into(), pattern: "a.*".into() };
    resolve(&stage, run, 1, Answer::Approve(Some(grant))).await.unwrap();
    stage.until(run, "approval_requested", 2).await;
    assert_eq!(stage.text("ws", "a.txt"), "two\n");
    assert_eq!(replay(run, &stage.log(run).await).approval(2).unwrap().request.call.as_str(), "c");
    until_held(&stage, 1).await;
    approve(&stage, run, 2).await;
    assert_eq!(stage.outcome(submitted).await, "done");
    let other = stage.run(&asks_for(&[("a", "write", write("four\n"))]));
    until_held(&stage, 1).await;
    assert_eq!(stage.text("ws", "a.txt"), "two\n");
    drop(other);
}

#[tokio::test]
async fn what_could_not_be_done_anyway_is_not_asked_about() {
    let stage = careful().start().await;
    stage.write("ws", "a.txt", "old\n");
    let edit = json!({ "path": "a.txt", "old_text": "nothing like it", "new_text": "new" });
    let submitted = stage.run(&asks_for(&[("a", "edit", edit)]));
    let run = submitted.run;
    assert_eq!(stage.outcome(submitted).await, "done");
    assert!(!stage.kinds(run).await.contains(&"approval_requested"));
    assert_eq!(stage.results(run).await[0].failure, Some(Failure::Failed));
}

#[tokio::test]
async fn that_all_that_is_left_waits_for_people_is_told() {
    let stage = careful().start().await;
    let submitted = stage.run(&asks_for(&[("a", "write", write("new\n"))]));
    let blocked = tokio::time::timeout(PATIENCE, stage.supervisor.blocked()).await.unwrap();
    assert_eq!(blocked, Some(Blocked::Approval));
    approve(&stage, submitted.run, 1).await;
    assert_eq!(stage.outcome(submitted).await, "done");
}

#[tokio::test]
async fn a_paused_run_whose_call_is_approved_waits_to_be_resumed() {
    let stage = careful().start().await;
    let submitted = stage.run(&asks_for(&[("a", "write", write("new\n"))]));
    let run = submitted.run;
    until_held(&stage, 1).await;
    stage.pause(run).await.unwrap();
    approve(&stage, run, 1).await;
    assert_eq!((held(&stage).await, stage.path("ws", "a.txt").exists()), (1, false));
    stage.unpause(run).await.unwrap();
    assert_eq!(stage.outcome(submitted).await, "done");
    until_live(&stage, 0).await;
}
