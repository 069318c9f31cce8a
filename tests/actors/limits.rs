//! Limits of time, turns and tokens, and who gets the next slot.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt as _, stream, stream::BoxStream};
use herder::{
    domain::{
        call::{Failure, Mode},
        id::BatchId,
    },
    model::{Delta, ModelError, ModelProvider, Request},
    tool::Output,
};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    doubles::{Double, Gate},
    stage::{Plan, Stage, calls, says},
};

fn asks(tool: &str) -> Value {
    json!([calls(&[("a", tool, json!({}))]), says("done")])
}

async fn limited(plan: Plan, script: &Value, limits: Value) -> (String, Duration) {
    let stage = plan.start().await;
    let since = Instant::now();
    let submitted = stage.submit("ws", script, &json!({ "limits": limits }));
    (stage.outcome(submitted).await, since.elapsed())
}

fn about(time: Duration, seconds: u64) -> bool {
    time >= Duration::from_secs(seconds) && time < Duration::from_secs(seconds + 1)
}

#[tokio::test(start_paused = true)]
async fn a_run_ends_when_its_wall_time_is_up_whatever_it_does() {
    let slow = json!([{ "text": "done", "delay_ms": 60_000 }]);
    let asleep = json!([{ "fault": { "status": 503, "retry_after_s": 50 } }]);
    let limits = json!({ "wall_time_s": 5 });
    for script in [slow, asleep, asks("wait")] {
        let plan = Plan::paused().tool(Double::heeding("wait"));
        let (outcome, time) = limited(plan, &script, limits.clone()).await;
        assert_eq!(outcome, "budget: wall_time");
        assert!(about(time, 5), "{time:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_has_ended_leaves_nothing_behind_that_waits_for_its_limits() {
    let stage = Plan::paused().start().await;
    // The first one has the tree attend to the model's account.
    assert_eq!(stage.outcome(stage.run(&json!([says("done")]))).await, "done");
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let (before, since) = (tasks(), Instant::now());
    for _ in 0..10 {
        let limits = json!({ "limits": { "wall_time_s": 3_600, "active_time_s": 3_600 } });
        assert_eq!(stage.outcome(stage.submit("ws", &json!([says("done")]), &limits)).await, "done");
    }
    while tasks() > before {
        assert!(since.elapsed() < Duration::from_secs(1), "{} tasks more", tasks() - before);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_outlives_its_wall_time_by_too_much_is_given_up_as_stuck() {
    let plan = Plan::paused().tool(Double::deaf("deaf"));
    let (outcome, time) = limited(plan, &asks("deaf"), json!({ "wall_time_s": 5 })).await;
    assert_eq!(outcome, "failed: stuck");
    assert!(about(time, 20), "{time:?}");
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_lock_or_a_retry_is_not_active_time() {
    let plan = Plan::paused()
        .tool(Double::slow("hold", Duration::from_secs(100)).on("file", Mode::Exclusive))
        .tool(Double::quick("quick").on("file", Mode::Exclusive));
    let stage = plan.start().await;
    let held = stage.run(&asks("hold"));
    stage.until(held.run, "call_started", 1).await;
    let script = json!([
        { "fault": { "status": 503, "retry_after_s": 50 } },
        calls(&[("a", "quick", json!({}))]),
        says("done"),
    ]);
    let waits = stage.submit("ws", &script, &json!({ "limits": { "active_time_s": 10 } }));
    let end = stage.end(waits).await;
    assert_eq!(end.outcome.to_string(), "done");
    assert!(end.duration_us >= 99_000_000 && end.active_us < 1_000_000, "{end:?}");
    assert_eq!(stage.outcome(held).await, "done");
}

#[tokio::test(start_paused = true)]
async fn a_run_ends_when_its_active_time_is_up() {
    let plan = Plan::paused().tool(Double::slow("slow", Duration::from_secs(100)));
    let (outcome, time) = limited(plan, &asks("slow"), json!({ "active_time_s": 10 })).await;
    assert_eq!(outcome, "budget: active_time");
    assert!(about(time, 10), "{time:?}");
}

#[tokio::test(start_paused = true)]
async fn turns_and_tokens_are_limits_too() {
    let look = |id: &str| {
        let mut reply = calls(&[(id, "look", json!({}))]);
        reply["usage"] = json!({ "input": 100, "output": 10 });
        reply
    };
    let script = json!([look("a"), look("b"), look("c"), look("d"), says("done")]);
    for (limits, expected) in [
        (json!({ "max_turns": 2 }), "budget: turns"),
        (json!({ "max_input_tokens": 250 }), "budget: input_tokens"),
        (json!({ "max_total_tokens": 110 }), "budget: total_tokens"),
        (json!({ "max_tool_calls": 3 }), "budget: tool_calls"),
    ] {
        let plan = Plan::paused().tool(Double::quick("look"));
        assert_eq!(limited(plan, &script, limits).await.0, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_time_is_up_has_a_result_that_says_so_and_the_run_goes_on() {
    for (tool, seconds) in [(Double::heeding("tool"), 10), (Double::deaf("tool"), 30)] {
        let plan = Plan::paused().tool(tool).settings(|settings| settings.tool = Duration::from_secs(10));
        let stage = plan.start().await;
        let since = Instant::now();
        let submitted = stage.run(&asks("tool"));
        let run = submitted.run;
        assert_eq!(stage.outcome(submitted).await, "done");
        assert_eq!(stage.results(run).await[0].failure, Some(Failure::TimedOut));
        assert!(about(since.elapsed(), seconds), "{:?}", since.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_stays_locked_while_a_thread_of_a_call_that_was_given_up_goes_on() {
    let gate = Gate::closed();
    let plan = Plan::paused()
        .tool(Double::stalled("stalled", &gate).on("file", Mode::Exclusive))
        .tool(Double::quick("next").on("file", Mode::Exclusive))
        .settings(|settings| settings.tool = Duration::from_secs(10));
    let stage = plan.start().await;
    let stalled = stage.run(&asks("stalled"));
    let run = stalled.run;
    stage.until(run, "call_started", 1).await;
    let next = stage.run(&asks("next"));
    let waits = next.run;
    stage.until(waits, "decision", 1).await;
    assert_eq!(stage.outcome(stalled).await, "done", "the run itself goes on");
    assert_eq!(stage.results(run).await[0].failure, Some(Failure::TimedOut));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!stage.kinds(waits).await.contains(&"call_started"));
    gate.open.add_permits(1);
    assert_eq!(stage.outcome(next).await, "done");
}

#[tokio::test(start_paused = true)]
async fn a_model_that_falls_silent_is_asked_again_and_then_given_up() {
    let stall = json!({ "text": "well", "fault": "stall" });
    let plan = || Plan::paused().settings(|settings| settings.stall = Duration::from_secs(30));
    let (outcome, time) = limited(plan(), &json!([stall, says("done")]), json!({})).await;
    assert_eq!(outcome, "done");
    assert!(time >= Duration::from_secs(30) && time < Duration::from_secs(40), "{time:?}");
    let (outcome, _) = limited(plan(), &json!([stall, stall, stall, stall, stall]), json!({})).await;
    assert_eq!(outcome, "provider_error: stall");
}

/// A model that is always at work and never done.
struct Endless;

impl ModelProvider for Endless {
    fn stream(&self, _: Request, _: CancellationToken) -> BoxStream<'static, Result<Delta, ModelError>> {
        stream::repeat(())
            .then(|()| async {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Ok(Delta::Progress)
            })
            .boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_takes_too_long_is_a_fault_however_much_comes() {
    let plan = Plan { provider: Arc::new(Endless), ..Plan::paused() };
    let plan = plan.settings(|settings| settings.turn = Duration::from_secs(60));
    let (outcome, time) = limited(plan, &json!([]), json!({})).await;
    assert_eq!(outcome, "provider_error: timeout");
    assert!(time >= Duration::from_secs(300), "{time:?}");
}

/// The names of the runs, in the order in which they started.
async fn order_of_starts(
    stage: &Stage,
    runs: Vec<(&str, herder::actor::supervisor::Submitted)>,
) -> Vec<String> {
    let mut starts = Vec::new();
    for (name, submitted) in runs {
        let run = submitted.run;
        assert_eq!(stage.outcome(submitted).await, "done");
        let log = stage.log(run).await;
        let start = log.iter().find(|one| one.fact.event.kind() == "run_start").unwrap();
        starts.push((start.pos, name.to_owned()));
    }
    starts.sort();
    starts.into_iter().map(|(_, name)| name).collect()
}

#[tokio::test(start_paused = true)]
async fn the_next_slot_goes_by_priority_then_fairly_between_batches_then_by_arrival() {
    let gate = Gate::closed();
    let plan =
        Plan::paused().tool(Double::gated("gate", &gate)).settings(|settings| settings.max_live_runs = 1);
    let stage = plan.start().await;
    let first = stage.run(&asks("gate"));
    gate.until_inside(1).await;
    let batch = |n: u128| BatchId::new(Uuid::from_u128(n));
    let waits = |name, batch: BatchId, priority: i32| {
        let more = json!({ "batch": batch, "priority": priority });
        (name, stage.submit("ws", &json!([says("done")]), &more))
    };
    let runs = vec![
        ("first", first),
        waits("a1", batch(1), 0),
        waits("a2", batch(1), 0),
        waits("a3", batch(1), 0),
        waits("b1", batch(2), 0),
        waits("urgent", batch(1), 5),
        waits("idle", batch(3), -1),
        waits("b2", batch(2), 0),
    ];
    // What is said to a run that waits does not cost it its place.
    let word = herder::actor::run::say(herder::domain::event::InputKind::FollowUp, "and then?");
    let heard = stage.supervisor.ask(runs[1].1.run, word).await.unwrap();
    assert_eq!(stage.log(runs[1].1.run).await.last().unwrap().seq, heard);
    gate.open.add_permits(1);
    let order = order_of_starts(&stage, runs).await;
    assert_eq!(order, ["first", "urgent", "a1", "b1", "a2", "b2", "a3", "idle"]);
}

#[tokio::test(start_paused = true)]
async fn no_more_runs_are_live_than_there_are_slots() {
    let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (now, peak) = (inside.clone(), most.clone());
    let tool = Double::new("work", move |_, _| {
        let (now, peak) = (now.clone(), peak.clone());
        async move {
            peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_secs(1)).await;
            now.fetch_sub(1, Ordering::SeqCst);
            Output::ok("did it")
        }
    });
    let stage = Plan::paused().tool(tool).settings(|settings| settings.max_live_runs = 7).start().await;
    let runs: Vec<_> = (0..50).map(|_| stage.run(&asks("work"))).collect();
    for submitted in runs {
        assert_eq!(stage.outcome(submitted).await, "done");
    }
    assert_eq!((inside.load(Ordering::SeqCst), most.load(Ordering::SeqCst)), (0, 7));
}
