//! Attaching to a batch, against a daemon that breaks off, goes on, and says what it was sent.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Json, Router,
    extract::{Query, Request},
    routing::{get, post},
};
use clap::Parser;
use indicatif::MultiProgress;
use serde_json::{Value, json};

use super::*;
use crate::{
    app::{batch::Results, batches::SubmitError},
    cli::{
        batch::BatchArgs,
        fake::{Fake, parts},
        progress::ProgressMode,
    },
    domain::id::BatchId,
};

/// Far more than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn result(id: &str, outcome: &str) -> String {
    let run = uuid::Uuid::from_bytes([id.as_bytes()[0]; 16]);
    let detail = (outcome == "budget").then_some("turns");
    format!("{}\n", json!({"id": id, "run": run, "outcome": outcome, "detail": detail, "text": "x"}))
}

fn view(state: &str) -> Value {
    json!({"id": "b1", "name": "in.jsonl", "state": state, "created_at": "", "tasks": 3, "waiting": 0, "open": 0, "running": 0,
        "ended": {}, "concurrency": null, "cost_usd": null, "error": null,
        "usage": {"input": 1, "output": 1, "cached": 0, "estimated": false}})
}

/// Of record is what `record` says; connections that follow give what `followed` says, one after the other, and break
/// off unless they are the last. Then the batch is `state`.
fn daemon(record: &[String], followed: Vec<Vec<String>>, state: &'static str) -> Fake {
    Fake::start(router(record, followed, state))
}

fn router(record: &[String], followed: Vec<Vec<String>>, state: &'static str) -> Router {
    let record = record.to_vec();
    let connections = Arc::new(AtomicUsize::new(0));
    let results = move |Query(query): Query<HashMap<String, String>>| {
        let (record, followed, connections) = (record.clone(), followed.clone(), connections.clone());
        async move {
            if !query.contains_key("follow") {
                return parts(record, false);
            }
            let number = connections.fetch_add(1, Ordering::SeqCst);
            parts(followed[number].clone(), number + 1 < followed.len())
        }
    };
    Router::new()
        .route("/v1/batches/b1/results", get(results))
        .route("/v1/batches/b1", get(move || async move { Json(view(state)) }))
}

fn batch(fake: &Fake, keep_order: bool) -> Batch {
    Batch {
        id: "b1".to_owned(),
        name: "in.jsonl".to_owned(),
        tasks: ["a", "b", "c"].map(Into::into).into(),
        chosen: vec![0, 1, 2],
        out: Some(fake.path("out.jsonl")),
        keep_order,
        with_messages: false,
    }
}

async fn attach(fake: &Fake, keep_order: bool, stopping: Stopping) -> (Exit, String) {
    let shown = shown::Shown::new(ProgressMode::None, false, &MultiProgress::new(), 3);
    let attached = Attached::new(fake.client(), batch(fake, keep_order), shown, stopping).watch();
    let exit = tokio::time::timeout(PATIENCE, attached).await.expect("does not hang").expect("attached");
    (exit, std::fs::read_to_string(fake.path("out.jsonl")).expect("results"))
}

fn unstopped() -> Stopping {
    Stopping::by(std::future::pending())
}

#[tokio::test]
async fn a_connection_that_breaks_off_within_a_line_loses_and_repeats_nothing() {
    let [a, b, c] = ["a", "b", "c"].map(|id| result(id, "done"));
    let (half, _) = c.split_at(20);
    let first = vec![a.clone(), b.clone(), half.to_owned()];
    let second = vec![b.clone(), a.clone(), c.clone()];
    let fake = daemon(std::slice::from_ref(&a), vec![first, second], "ended");
    std::fs::write(fake.path("out.jsonl"), result("z", "done")).expect("written");
    assert_eq!(attach(&fake, false, unstopped()).await, (Exit::Done, [a, b, c].concat()));
}

#[tokio::test]
async fn a_daemon_that_went_away_is_waited_for() {
    let [a, b] = ["a", "b"].map(|id| result(id, "done"));
    let first = Arc::new(tokio::sync::Notify::new());
    let followed = first.clone();
    let results = move |Query(query): Query<HashMap<String, String>>| {
        let followed = followed.clone();
        async move {
            if query.contains_key("follow") {
                followed.notify_one();
            }
            parts(Vec::new(), query.contains_key("follow"))
        }
    };
    let fake = Fake::start(Router::new().route("/v1/batches/b1/results", get(results)));
    let shown = shown::Shown::new(ProgressMode::None, false, &MultiProgress::new(), 3);
    let attached = Attached::new(fake.client(), batch(&fake, false), shown, unstopped());
    let attached = tokio::spawn(attached.watch());
    first.notified().await;
    let fake = fake.restarted(router(&[], vec![vec![a.clone(), b.clone()]], "halted"));
    let exit = tokio::time::timeout(PATIENCE, attached).await.expect("does not hang").expect("no panic");
    assert_eq!(exit.expect("attached"), Exit::Halted);
    let out = std::fs::read_to_string(fake.path("out.jsonl")).expect("results");
    assert_eq!(out, [a, b].concat());
}

#[tokio::test]
async fn a_task_that_is_given_another_attempt_meanwhile_has_one_line_that_of_the_latest() {
    let [first, b, c] = [("a", "budget"), ("b", "done"), ("c", "done")].map(|(id, how)| result(id, how));
    let again = result("a", "done").replace(&"61".repeat(4), &"71".repeat(4));
    assert_ne!(again, result("a", "done"), "another run");
    let followed = vec![first.clone(), b.clone(), again.clone(), c.clone()];
    for (keep_order, record, expected) in [
        (false, vec![], [&b, &again, &c]),
        (true, vec![], [&again, &b, &c]),
        (false, vec![first.clone()], [&b, &again, &c]),
    ] {
        let fake = daemon(&record, vec![followed.clone()], "ended");
        let expected = expected.map(String::as_str).concat();
        assert_eq!(attach(&fake, keep_order, unstopped()).await, (Exit::Done, expected), "{keep_order}");
    }
}

#[tokio::test]
async fn what_comes_again_after_its_line_was_written_in_order_is_written_at_the_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out.jsonl");
    let mut results = Results::to_file(&out, []).expect("made").in_order([0, 1].into());
    for (place, line) in [(0, "a1\n"), (0, "a2\n"), (1, "b1\n")] {
        results.write(place, line.into()).await.expect("written");
    }
    results.finish().await.expect("written");
    assert_eq!(std::fs::read_to_string(&out).expect("results"), "a1\nb1\na2\n");
}

#[tokio::test]
async fn a_batch_that_cannot_be_worked_on_any_more_is_not_waited_for() {
    let a = result("a", "done");
    let fake = daemon(std::slice::from_ref(&a), vec![Vec::new(); 1_000], "broken");
    assert_eq!(attach(&fake, false, unstopped()).await, (Exit::NotDone, a));
}

#[tokio::test]
async fn results_are_in_the_order_of_the_input_if_that_is_wanted() {
    let [a, b, c] = ["a", "b", "c"].map(|id| result(id, "done"));
    let followed = vec![c.clone(), a.clone(), b.clone()];
    let fake = daemon(std::slice::from_ref(&c), vec![followed], "ended");
    assert_eq!(attach(&fake, true, unstopped()).await, (Exit::Done, [a, b, c].concat()));
}

#[tokio::test]
async fn the_exit_code_is_that_of_the_foreground() {
    let [a, b, c] = [("a", "done"), ("b", "budget"), ("c", "done")].map(|(id, outcome)| result(id, outcome));
    for (lines, state, want) in [
        (vec![a.clone(), b.clone(), c.clone()], "ended", Exit::NotDone),
        (vec![a.clone(), b], "halted", Exit::Halted),
        (vec![a.clone(), c], "cancelled", Exit::NotDone),
    ] {
        let fake = daemon(&[], vec![lines], state);
        assert_eq!(attach(&fake, false, unstopped()).await.0, want, "{state}");
    }
    // What is none of this input's tasks is neither written nor counted.
    let fake = daemon(&[], vec![vec![a.clone(), result("z", "failed")]], "halted");
    assert_eq!(attach(&fake, false, unstopped()).await, (Exit::Halted, a));
}

#[tokio::test]
async fn a_signal_detaches_and_leaves_what_has_come() {
    let a = result("a", "done");
    let record = a.clone();
    let (seen, told) = tokio::sync::oneshot::channel();
    let seen = Arc::new(Mutex::new(Some(seen)));
    let results = move |Query(query): Query<HashMap<String, String>>| {
        let (record, seen) = (record.clone(), seen.clone());
        async move {
            if !query.contains_key("follow") {
                return parts(vec![record], false);
            }
            if let Some(seen) = seen.lock().expect("unpoisoned").take() {
                seen.send(()).expect("heard");
            }
            axum::body::Body::from_stream(futures_util::stream::pending::<Result<String, std::io::Error>>())
        }
    };
    let router = Router::new()
        .route("/v1/batches/b1/results", get(results))
        .route("/v1/batches/b1", get(|| async { Json(view("open")) }));
    let fake = Fake::start(router);
    let stopping = Stopping::by(async {
        told.await.expect("told");
        Exit::Interrupted
    });
    assert_eq!(attach(&fake, false, stopping).await, (Exit::Interrupted, a));
}

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    batch: BatchArgs,
}

#[tokio::test]
async fn every_line_is_sent_with_what_is_chosen_and_the_same_key_each_time() {
    type Asked = Vec<(String, Option<String>, String)>;
    let asked: Arc<Mutex<Asked>> = Arc::default();
    let take = {
        let asked = asked.clone();
        move |request: Request| async move {
            let (head, body) = request.into_parts();
            let key = head.headers.get("idempotency-key").map(|key| key.to_str().expect("text").to_owned());
            let body = axum::body::to_bytes(body, 1 << 20).await.expect("a body");
            let query = head.uri.query().unwrap_or_default().to_owned();
            let body = String::from_utf8(body.to_vec()).expect("text");
            asked.lock().expect("unpoisoned").push((query, key, body));
            Json(json!({"id": "b1", "changed": true, "tasks": 2}))
        }
    };
    let fake = Fake::start(Router::new().route("/v1/batches", post(take)));
    let input = fake.path("in.jsonl");
    std::fs::write(&input, "{\"task\": \"t\"}\n{\"task\": \"u\"}\n{\"id\": \"c\", \"task\": \"v\"}\n")
        .expect("written");
    let out = fake.path("out.jsonl");
    let line =
        ["x", &input.display().to_string(), "--daemon", "-j", "3", "--halt", "soon,fail=10%", "--first", "2"]
            .map(str::to_owned);
    let args = Line::try_parse_from(line).expect("read").batch;
    let tasks = with_flags(&args.task, |rules| tasks(&args, rules)).expect("tasks");
    let chosen = chosen(&args, &tasks).expect("chosen");
    let input = Arc::new((tasks, chosen));
    for _ in 0..2 {
        submit(&fake.client(), &args, Some(&out), &input).await.expect("submitted");
        std::fs::write(&out, "").expect("written");
    }
    let asked = asked.lock().expect("unpoisoned");
    assert_eq!(asked[0], asked[1], "whether OUT is there or not");
    let (query, key, body) = &asked[0];
    assert!(query.ends_with("&concurrency=3&halt=soon%2Cfail%3D10%25&first=2"), "{query}");
    assert!(key.as_ref().is_some_and(|key| key.starts_with("batch-out-")));
    let here = std::env::current_dir().expect("a folder").canonicalize().expect("real");
    let here = here.display();
    assert_eq!(
        *body,
        format!(
            "{{\"id\":\"line-1\",\"task\":\"t\",\"workspace\":\"{here}\"}}\n{{\"id\":\"line-2\",\"task\":\"u\",\"workspace\":\"{here}\"}}\n{{\"id\":\"c\",\"task\":\"v\",\"workspace\":\"{here}\"}}\n"
        )
    );
    assert_eq!(key_of_streams(), None);
}

/// From stdin to stdout.
fn key_of_streams() -> Option<String> {
    key(None, Path::new("-"))
}

#[test]
fn a_file_that_has_no_results_is_not_written_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out.jsonl");
    assert!(holds_results(&out));
    for (content, holds) in
        [(String::new(), true), (result("a", "done"), true), ("notes\n".to_owned(), false)]
    {
        std::fs::write(&out, content).expect("written");
        assert_eq!(holds_results(&out), holds);
    }
    let journal = beside(&out);
    std::fs::create_dir(&journal).expect("made");
    std::fs::write(journal.join("log.db"), "").expect("written");
    std::fs::write(&out, "").expect("written");
    let told = check_out(&out).expect_err("refused");
    assert_eq!(Exit::of(&told), Exit::Misfit);
}

#[test]
fn what_the_daemon_says_of_the_batch_of_a_key_is_said_of_the_files() {
    let busy = SubmitError::Busy { id: BatchId::new(uuid::Uuid::nil()) }.to_string();
    let out = of_files(&busy, Some(Path::new("out.jsonl")), Path::new("in.jsonl"));
    assert!(out.starts_with("the batch of out.jsonl, 0") && !out.contains("key"), "{out}");
    let input = of_files(&busy, None, Path::new("in.jsonl"));
    assert!(input.starts_with("the batch of in.jsonl, 0") && !input.contains("key"), "{input}");
}
