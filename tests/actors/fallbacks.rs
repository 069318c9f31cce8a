//! Runs whose model is given up, and that go on with another.

use std::{sync::Arc, time::Duration};

use herder::domain::{event::Event, id::RunId};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    http::provider,
    stage::{Plan, Stage},
    support::{
        chat,
        server::{Answer, Server},
    },
};

fn refused(status: u16, body: &str) -> Answer {
    Answer::Status { status, headers: Vec::new(), body: body.to_owned() }
}

const NO_KEY: &str = r#"{"error": {"message": "Incorrect API key provided", "code": "invalid_api_key"}}"#;

fn task() -> Value {
    json!({ "script": null })
}

async fn switches(stage: &Stage, run: RunId) -> Vec<(String, String, &'static str)> {
    let log = stage.log(run).await.into_iter();
    log.filter_map(|one| {
        let Event::ModelSwitched(switched) = one.fact.event else { return None };
        Some((switched.from.to_string(), switched.to.to_string(), switched.class.as_str()))
    })
    .collect()
}

fn switch(from: &str, to: &str, class: &'static str) -> (String, String, &'static str) {
    (from.to_owned(), to.to_owned(), class)
}

#[tokio::test]
async fn the_next_model_is_asked_for_the_same_turn_and_its_name_is_on_the_wire() {
    let first = Server::start(|_| refused(401, NO_KEY)).await;
    let second = Server::start(|request| {
        if request["messages"].as_array().unwrap().len() == 1 {
            chat::calls(&[("a".to_owned(), "read".to_owned(), json!({ "path": "a.txt" }))])
        } else {
            chat::text("well")
        }
    })
    .await;
    let plan = Plan { provider: provider(&first), ..Plan::default() };
    let plan = Plan { fallbacks: vec![("second", provider(&second)), ("third", provider(&first))], ..plan };
    let stage = plan.start().await;
    stage.write("ws", "a.txt", "noted\n");
    let submitted = stage.submit("ws", &Value::Null, &task());
    let run = submitted.run;
    let end = stage.end(submitted).await;
    assert_eq!((end.outcome.to_string(), &*end.text, end.turns), ("done".to_owned(), "well", 2));
    assert_eq!(switches(&stage, run).await, [switch("m", "second", "auth")]);
    assert_eq!((first.requests().len(), second.requests().len()), (1, 2));
    assert_eq!(second.requests()[0]["model"], "second");
}

#[tokio::test]
async fn each_model_is_tried_once_and_the_last_one_s_failure_is_the_run_s() {
    let first = Server::start(|_| refused(401, NO_KEY)).await;
    let quota = r#"{"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}"#;
    let second = Server::start(move |_| refused(429, quota)).await;
    let plan = Plan { provider: provider(&first), ..Plan::default() };
    let plan = Plan { fallbacks: vec![("second", provider(&second)), ("third", provider(&first))], ..plan };
    let stage = plan.start().await;
    let submitted = stage.submit("ws", &Value::Null, &task());
    let run = submitted.run;
    assert_eq!(stage.outcome(submitted).await, "provider_error: auth");
    let switches = switches(&stage, run).await;
    assert_eq!(switches, [switch("m", "second", "auth"), switch("second", "third", "quota")]);
    assert_eq!((first.requests().len(), second.requests().len()), (2, 1));
}

#[tokio::test]
async fn a_request_that_no_server_would_take_is_not_sent_to_another() {
    let first = Server::start(|_| refused(400, r#"{"error": {"message": "bad tool schema"}}"#)).await;
    let second = Server::start(|_| chat::text("well")).await;
    let plan = Plan { provider: provider(&first), ..Plan::default() };
    let stage = Plan { fallbacks: vec![("second", provider(&second))], ..plan }.start().await;
    assert_eq!(stage.outcome(stage.submit("ws", &Value::Null, &task())).await, "provider_error: invalid");
    assert_eq!(second.requests().len(), 0);
}

/// A run that went on with the second model, and whose process is gone.
async fn interrupted(second: &Server) -> (Plan, Arc<TempDir>, RunId) {
    let first = Server::start(|_| refused(401, NO_KEY)).await;
    let plan = Plan { provider: provider(&first), ..Plan::default() };
    let store = plan.store.clone();
    let stage = Plan { fallbacks: vec![("second", provider(second))], ..plan }.start().await;
    let submitted = stage.submit("ws", &Value::Null, &task());
    let run = submitted.run;
    second.asked(1).await;
    stage.until(run, "model_switched", 1).await;
    stage.supervisor.drain(Duration::ZERO).await;
    submitted.done.await.unwrap().end.unwrap_err();
    let folder = stage.folder.clone();
    (Plan { provider: provider(&first), store, ..Plan::default() }, folder, run)
}

#[tokio::test]
async fn a_run_that_is_taken_up_again_goes_on_with_the_model_that_it_was_at() {
    let second = Server::start(|_| Answer::Hang).await;
    let (plan, folder, run) = interrupted(&second).await;
    let answers = Server::start(|_| chat::text("well")).await;
    let plan = Plan { fallbacks: vec![("second", provider(&answers))], ..plan };
    let stage = plan.start_in(folder).await;
    let submitted = stage.supervisor.resume(run).await.unwrap();
    assert_eq!(stage.outcome(submitted).await, "done");
    assert_eq!(answers.requests()[0]["model"], "second");
}

#[tokio::test]
async fn a_run_whose_model_is_gone_cannot_go_on() {
    let second = Server::start(|_| Answer::Hang).await;
    let (plan, folder, run) = interrupted(&second).await;
    let stage = plan.start_in(folder).await;
    let end = stage.end(stage.supervisor.resume(run).await.unwrap()).await;
    assert_eq!(end.outcome.to_string(), "failed: setup");
    assert_eq!(end.error.as_deref(), Some("model \"second\" is not to be had"));
}
