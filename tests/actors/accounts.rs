//! Runs whose provider refuses everybody for a while, has no place free for them, or says how much is left.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use futures_util::{StreamExt as _, stream, stream::BoxStream};
use herder::{
    actor::supervisor::{Blocked, Shut},
    domain::event::Event,
    model::{
        Delta, Model, ModelError, ModelProvider, RateLimits, Request,
        governor::{Account, Concurrency, Governor, LatchReason, Latched, Rates, Window},
        scripted::Scripted,
    },
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::stage::{Plan, Stage};

fn places(count: u32) -> Rates {
    let concurrency = Concurrency::Fixed(NonZeroU32::new(count).unwrap());
    Rates { concurrency, ..Rates::default() }
}

/// Fails once, then answers.
fn after(fault: &Value) -> Value {
    json!([{ "fault": fault }, { "text": "done" }])
}

fn used_up() -> Value {
    after(&json!({ "status": 429, "body": r#"{"error":{"code":"insufficient_quota","message":"no more"}}"# }))
}

/// The account that keeps everything that is left to do from going on, once one does.
async fn blocked(stage: &Stage) -> Shut {
    match stage.supervisor.blocked().await.unwrap() {
        Blocked::Account(shut) => shut,
        Blocked::Approval => panic!("people are asked"),
    }
}

async fn retries(stage: &Stage, run: herder::domain::id::RunId) -> Vec<&'static str> {
    let log = stage.log(run).await;
    let class =
        |event: &Event| if let Event::ModelRetry(retry) = event { Some(retry.class.as_str()) } else { None };
    log.iter().filter_map(|one| class(&one.fact.event)).collect()
}

#[tokio::test(start_paused = true)]
async fn whoever_asks_a_provider_that_wants_to_be_left_alone_waits_for_that_time_without_a_slot() {
    let stage = Plan::paused().settings(|settings| settings.max_live_runs = 1).start().await;
    let began = Instant::now();
    let first = stage.run(&after(&json!({ "status": 429, "retry_after_s": 300 })));
    let run = first.run;
    stage.until(run, "parked", 1).await;
    let second = stage.run(&json!([{ "text": "done" }]));
    sleep(Duration::from_secs(200)).await;
    assert_eq!(stage.kinds(second.run).await, ["submitted"], "the account is shut for all its runs");
    assert_eq!(stage.supervisor.load().await.held, 2);
    assert_eq!(stage.outcome(first).await, "done");
    assert_eq!(stage.outcome(second).await, "done");
    let waited = began.elapsed();
    assert!((300..302).contains(&waited.as_secs()), "{waited:?}");
    assert_eq!(retries(&stage, run).await, ["rate_limit"]);
}

#[tokio::test(start_paused = true)]
async fn a_long_wait_for_an_overloaded_server_is_one_run_s_own_and_uses_up_no_try() {
    let stage = Plan::paused().start().await;
    let faults: Vec<Value> =
        (0..7).map(|_| json!({ "fault": { "status": 503, "retry_after_s": 90 } })).collect();
    let script = Value::from([faults, vec![json!({ "text": "done" })]].concat());
    let run = stage.run(&script);
    stage.until(run.run, "parked", 1).await;
    assert_eq!(stage.outcome(stage.run(&json!([{ "text": "quick" }]))).await, "done");
    let end = stage.end(run).await;
    assert_eq!((end.outcome.to_string().as_str(), end.turns), ("done", 1));
    assert!(end.active_us < 1_000_000 && end.duration_us < 1_000_000, "{end:?}");
}

#[tokio::test(start_paused = true)]
async fn runs_whose_account_is_used_up_wait_until_a_person_opens_it() {
    let stage = Plan::paused().start().await;
    let first = stage.run(&used_up());
    let run = first.run;
    stage.until(run, "parked", 1).await;
    let second = stage.run(&json!([{ "text": "done" }]));
    let blocked = blocked(&stage).await;
    assert_eq!((&*blocked.account, blocked.latched.reason), ("account", LatchReason::Quota));
    assert!(blocked.latched.said.contains("no more"), "{blocked:?}");
    sleep(Duration::from_secs(100_000)).await;
    assert_eq!(stage.kinds(second.run).await, ["submitted"]);
    assert!(stage.governor().account().open());
    assert_eq!(stage.outcome(first).await, "done");
    assert_eq!(stage.outcome(second).await, "done");
    assert_eq!(retries(&stage, run).await, ["quota"], "one request was refused, not one for each second");
}

#[tokio::test(start_paused = true)]
async fn an_account_that_is_used_up_opens_at_a_time_far_off_that_its_server_names_and_at_no_other() {
    let body = r#"{"error":{"code":"insufficient_quota","message":"no more"}}"#;
    let used_up = |wait_s: u64| after(&json!({ "status": 429, "retry_after_s": wait_s, "body": body }));
    let stage = Plan::paused().start().await;
    let run = stage.run(&used_up(1));
    stage.until(run.run, "parked", 1).await;
    sleep(Duration::from_secs(100_000)).await;
    assert_eq!(blocked(&stage).await.latched.reason, LatchReason::Quota);
    assert_eq!(retries(&stage, run.run).await, ["quota"]);
    assert!(stage.governor().account().open());
    assert_eq!(stage.outcome(run).await, "done");

    let began = Instant::now();
    assert_eq!(stage.outcome(stage.run(&used_up(3_600))).await, "done");
    assert!((3_600..3_602).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_not_to_outlast_its_account_ends_with_what_the_provider_said() {
    let stage = Plan::paused().settings(|settings| settings.outlast_accounts = false).start().await;
    let end = stage.end(stage.run(&used_up())).await;
    assert_eq!(end.outcome.to_string(), "provider_error: quota");
    assert!(end.error.unwrap().contains("no more"));
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_refused_twice_has_everybody_wait_for_another_one() {
    let stage = Plan::paused().start().await;
    let fault = json!({ "fault": { "status": 401, "body": "bad key" } });
    let first = stage.run(&json!([fault, { "text": "done" }]));
    let run = first.run;
    assert_eq!(stage.outcome(first).await, "done", "the key may have been changed in that moment");
    assert_eq!(retries(&stage, run).await, ["auth"]);
    let second = stage.run(&json!([fault, fault, { "text": "done" }]));
    stage.until(second.run, "parked", 1).await;
    assert_eq!(blocked(&stage).await.latched.reason, LatchReason::Auth);
    assert!(stage.governor().account().open());
    assert_eq!(stage.outcome(second).await, "done");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_no_good_for_one_model_leaves_the_account_open_for_the_others() {
    let stage = Plan::paused().start().await;
    let refused = || after(&json!({ "status": 403, "body": "no access to this model" }));
    for _ in 0..3 {
        assert_eq!(stage.outcome(stage.run(&refused())).await, "provider_error: auth");
    }
    assert_eq!(stage.governor().account().latch(), None);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_wants_to_be_left_alone_for_ever_is_asked_again_in_a_week() {
    let stage = Plan::paused().start().await;
    let refused = after(&json!({ "status": 429, "retry_after_s": u64::MAX, "body": "later" }));
    assert_eq!(stage.outcome(stage.run(&refused)).await, "done");
}

#[tokio::test(start_paused = true)]
async fn runs_that_wait_for_a_key_go_on_when_their_model_gets_another_one() {
    let stage = Plan::paused().start().await;
    let fault = json!({ "fault": { "status": 401, "body": "bad key" } });
    let run = stage.run(&json!([fault, fault, { "text": "done" }]));
    stage.until(run.run, "parked", 1).await;
    let models = &stage.supervisor.services().models;
    models.insert(Model::new("m", Arc::new(Scripted::default())));
    stage.supervisor.look_again();
    assert_eq!(stage.outcome(run).await, "done");
}

#[tokio::test(start_paused = true)]
async fn live_runs_of_a_shut_account_stop_before_their_next_request_and_go_on_when_it_opens() {
    let stage = Plan::paused().start().await;
    let slow = json!([{ "text": "", "calls": [{ "name": "list", "arguments": {} }], "delay_ms": 5_000 }, { "text": "done" }]);
    let at_work = stage.run(&slow);
    stage.until(at_work.run, "turn_start", 1).await;
    let first = stage.run(&used_up());
    stage.until(first.run, "parked", 1).await;
    stage.until(at_work.run, "parked", 1).await;
    let kinds = stage.kinds(at_work.run).await;
    assert_eq!(kinds[kinds.len() - 3..], ["turn_end", "turn_start", "parked"]);
    stage.governor().account().open();
    assert_eq!(stage.outcome(at_work).await, "done");
    assert_eq!(stage.outcome(first).await, "done");
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_place_is_no_work() {
    let plan = Plan { rates: places(1), ..Plan::paused() };
    let stage = plan.start().await;
    let first = stage.run(&json!([{ "text": "done", "delay_ms": 100_000 }]));
    stage.until(first.run, "turn_start", 1).await;
    let limits = json!({ "limits": { "active_time_s": 50 } });
    let second = stage.submit("ws", &json!([{ "text": "done", "delay_ms": 10_000 }]), &limits);
    let end = stage.end(second).await;
    assert_eq!(end.outcome.to_string(), "done");
    assert!((10_000_000..11_000_000).contains(&end.active_us), "{end:?}");
    assert_eq!(stage.outcome(first).await, "done");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_for_a_place_is_paused_and_stopped_without_having_asked() {
    let plan = Plan { rates: places(1), ..Plan::paused() };
    let stage = plan.start().await;
    let first = stage.run(&json!([{ "text": "done", "delay_ms": 1_000_000 }]));
    stage.until(first.run, "turn_start", 1).await;
    let [paused, drained] = [(), ()].map(|()| stage.run(&json!([{ "text": "done" }])));
    for run in [&paused, &drained] {
        stage.until(run.run, "turn_start", 1).await;
    }
    stage.pause(paused.run).await.unwrap();
    stage.until(paused.run, "parked", 1).await;
    assert_eq!(stage.governor().view().in_flight, 1);
    stage.unpause(paused.run).await.unwrap();
    stage.until(paused.run, "unparked", 1).await;
    let began = Instant::now();
    let draining = tokio::spawn({
        let supervisor = stage.supervisor.clone();
        async move { supervisor.drain(Duration::from_secs(500)).await }
    });
    stage.until(drained.run, "interrupted", 1).await;
    stage.until(paused.run, "interrupted", 1).await;
    assert_eq!(began.elapsed(), Duration::ZERO, "they did not wait for the patience of the drain");
    draining.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn runs_that_follow_their_model_do_not_pile_up_behind_it() {
    let plan = Plan { rates: places(3), ..Plan::paused() };
    let stage = plan.settings(|settings| settings.follow_models = true).start().await;
    let script = json!([
        { "calls": [{ "name": "list", "arguments": {} }], "delay_ms": 1_000 },
        { "text": "done", "delay_ms": 1_000 },
    ]);
    let runs: Vec<_> = (0..30).map(|_| stage.run(&script)).collect();
    let mut most = 0;
    let ends = async {
        for run in runs {
            assert_eq!(stage.outcome(run).await, "done");
        }
    };
    let watch = async {
        loop {
            most = most.max(stage.supervisor.load().await.live);
            sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::select! { () = ends => {} () = watch => {} }
    assert!((3..=6).contains(&most), "{most} at once for three places");
}

/// Says what is left of its limit, and then nothing.
struct Telling;

impl ModelProvider for Telling {
    fn stream(&self, _: Request, _: CancellationToken) -> BoxStream<'static, Result<Delta, ModelError>> {
        let window = Window { limit: Some(10), remaining: Some(3), reset: Some(Duration::from_secs(30)) };
        let told = Delta::RateLimits(RateLimits { requests: Some(window), tokens: None });
        stream::iter([Ok(told)]).chain(stream::pending()).boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_head_of_an_answer_tells_of_the_limits_is_heeded_before_the_answer_is_over() {
    let plan = Plan { provider: Arc::new(Telling), rates: Rates::default(), ..Plan::paused() };
    let stage = plan.start().await;
    let run = stage.run(&Value::Null);
    let told = async {
        while stage.governor().view().requests_left != Some(3) {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(10), told).await.unwrap();
    assert_eq!(stage.governor().view().out, 1);
    stage.supervisor.cancel(run.run).await.unwrap();
    assert_eq!(stage.outcome(run).await, "cancelled");
}

/// A model of the scripted kind with an account of its own, which shuts.
fn model(name: &str, fallbacks: &[&str]) -> Model {
    Model {
        governor: Governor::new(Account::new(name), places(2)),
        fallbacks: fallbacks.iter().map(|name| (*name).into()).collect(),
        ..Model::new(name, Arc::new(Scripted::default()))
    }
}

/// A tree where `m` is used up and `b` goes on in its place.
async fn fallen_back(plan: Plan) -> (Stage, Arc<Model>, Arc<Model>) {
    let stage = plan.start().await;
    let models = &stage.supervisor.services().models;
    models.insert(model("m", &["b"]));
    models.insert(model("b", &[]));
    let [m, b] = ["m", "b"].map(|name| models.get(name).unwrap());
    (stage, m, b)
}

fn shut(model: &Model, reason: LatchReason, until: Option<Instant>) {
    assert!(model.governor.account().shut(Latched { reason, until, said: "no".into() }));
}

#[tokio::test(start_paused = true)]
async fn whoever_can_ask_another_model_does_not_wait_and_leaves_the_account_as_it_is() {
    let (stage, m, _) = fallen_back(Plan::paused().settings(|settings| settings.follow_models = true)).await;
    let until = Instant::now() + Duration::from_secs(1_000);
    shut(&m, LatchReason::RateLimit, Some(until));
    let began = Instant::now();
    // The first reply of a script answers the request that was not sent.
    let script = json!([{ "text": "of m" }, { "text": "of b", "delay_ms": 1_000 }]);
    let runs: Vec<_> = (0..6).map(|_| stage.run(&script)).collect();
    for run in runs {
        assert_eq!(&*stage.end(run).await.text, "of b");
    }
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(m.governor.account().latch().unwrap().until, Some(until), "nobody moved it");
}

#[tokio::test(start_paused = true)]
async fn runs_at_their_last_model_wait_for_its_account_without_a_slot() {
    let (stage, m, b) = fallen_back(Plan::paused()).await;
    shut(&m, LatchReason::Quota, None);
    let call = json!({ "calls": [{ "name": "list", "arguments": {} }], "delay_ms": 5_000 });
    let works = json!([{ "text": "" }, call, { "text": "done" }]);
    let runs: Vec<_> = (0..6).map(|_| stage.run(&works)).collect();
    for run in &runs {
        stage.until(run.run, "model_switched", 1).await;
    }
    shut(&b, LatchReason::Quota, None);
    assert_eq!(&*blocked(&stage).await.account, "b");
    let load = stage.supervisor.load().await;
    assert_eq!((load.live, load.held), (0, 6));
    assert!(b.governor.account().open());
    for run in runs {
        assert_eq!(stage.outcome(run).await, "done");
    }
}
