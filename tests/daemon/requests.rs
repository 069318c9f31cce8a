//! Requests that are too large, broken off, or nonsense, put to the daemon's own routes.

use std::fs;

use herder::daemon::wire::Code;
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, net::UnixStream};

use crate::{
    harness::{assert_refused, connect, exchange, soon},
    process::{Daemon, House, says, until},
};

const MIB: usize = 1 << 20;

/// The most memory that the daemon has ever held.
fn peak(daemon: &Daemon) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix("kB").unwrap().trim().parse::<usize>().unwrap() * 1024
}

fn post(path: &str, length: usize, end: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: localhost\r\n{end}content-length: {length}\r\n\r\n")
}

/// Sends so many bytes without a line's end, as far as the daemon takes them.
async fn pour(stream: &mut UnixStream, bytes: usize) {
    let piece = vec![b'a'; MIB];
    for _ in 0..bytes / MIB {
        if soon(stream.write_all(&piece)).await.is_err() {
            return;
        }
    }
}

/// Inputs in the daemon's folder.
fn inputs(house: &House) -> usize {
    fs::read_dir(house.state().join("batches")).unwrap().count()
}

#[tokio::test]
async fn a_body_that_is_larger_than_its_route_takes_is_refused() {
    let house = House::new();
    let daemon = house.start(&[]).await;
    let run = daemon.submit(&says(&house, "one", 600_000)).await;
    let say = json!({"text": "a".repeat(10 * MIB)});
    for path in [format!("v1/runs/{run}/steer"), "v1/runs/x/steer".to_owned(), "v1/stop".to_owned()] {
        daemon.refuses(&path, say.clone(), Code::TooLarge).await;
    }
    let small = json!({"text": "a".repeat(MIB / 2)});
    daemon.post(&format!("v1/runs/{run}/steer"), small).await;
    let mut task = says(&house, "two", 0);
    task["meta"] = "a".repeat(10 * MIB).into();
    daemon.submit(&task).await;
    task["meta"] = "a".repeat(65 * MIB).into();
    let refused = daemon.submit_with(&task, None).await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::TooLarge), "{refused}");
    daemon.kill();
}

#[tokio::test]
async fn a_body_that_breaks_off_changes_nothing() {
    let house = House::new();
    let daemon = house.start(&[]).await;
    for path in ["/v1/runs", "/v1/batches", "/v1/stop"] {
        let mut stream = connect(&house.socket()).await;
        let sent = format!("{}{{\"task\": \"do", post(path, 1000, ""));
        stream.write_all(sent.as_bytes()).await.unwrap();
        drop(stream);
    }
    // One that is done sending is told.
    let mut stream = connect(&house.socket()).await;
    stream.write_all(post("/v1/batches", 1000, "").as_bytes()).await.unwrap();
    stream.write_all(b"{\"task\": \"do").await.unwrap();
    stream.shutdown().await.unwrap();
    let answer = crate::harness::rest(stream).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400 "), "{answer}");
    until("nothing is left of it", || inputs(&house) == 0).await;
    let status = daemon.status().await;
    assert_eq!((status.phase.as_str(), status.runs.total, status.open_batches), ("ready", 0, 0));
    daemon.stop().await;
}

#[tokio::test]
async fn after_a_line_that_is_no_text_the_connection_serves_the_next_request() {
    let house = House::new();
    let daemon = house.start(&[]).await;
    for path in ["/v1/batches", "/v1/runs"] {
        let bad = b"{\"id\": \"one\", \"task\": \"\xff\xfe\"}\n";
        let good = format!("{}\n", says(&house, "two", 0));
        let mut stream = connect(&house.socket()).await;
        for (body, end) in [(&bad[..], ""), (good.as_bytes(), "connection: close\r\n")] {
            stream.write_all(post(path, body.len(), end).as_bytes()).await.unwrap();
            stream.write_all(body).await.unwrap();
        }
        let answers = crate::harness::rest(stream).await;
        let statuses: Vec<&str> =
            answers.match_indices("HTTP/1.1 ").map(|(at, _)| &answers[at + 9..at + 12]).collect();
        assert_eq!(statuses, ["422", "201"], "{answers}");
        assert!(answers.contains("\"code\":\"invalid_input\""), "{answers}");
    }
    daemon.until("v1/status", |status| status["runs"]["ended"]["done"] == 2).await;
    daemon.stop().await;
}

#[tokio::test]
async fn fifty_megabytes_without_a_line_end_are_a_mistake_and_not_kept() {
    let house = House::new();
    let daemon = house.start(&[]).await;
    let mut stream = connect(&house.socket()).await;
    stream.write_all(post("/v1/batches", 50 * MIB, "connection: close\r\n").as_bytes()).await.unwrap();
    pour(&mut stream, 50 * MIB).await;
    let answer = exchange(stream, "").await;
    assert_refused(&answer, 422, "invalid_input");
    assert!(answer.len() < 2_000, "{} bytes", answer.len());
    until("nothing is left of it", || inputs(&house) == 0).await;
    assert!(peak(&daemon) < 400 * MIB, "{} MiB", peak(&daemon) / MIB);
    daemon.stop().await;
}

#[tokio::test]
async fn clients_that_send_much_and_hang_up_cost_no_memory_and_leave_nothing() {
    let house = House::new();
    let daemon = house.start(&[]).await;
    let clients = (0..50).map(|_| async {
        let mut stream = connect(&house.socket()).await;
        stream.write_all(post("/v1/batches", 60 * MIB, "").as_bytes()).await.unwrap();
        pour(&mut stream, 50 * MIB).await;
    });
    futures_util::future::join_all(clients).await;
    until("nothing is left of it", || inputs(&house) == 0).await;
    println!("peak {} MiB, now {} MiB", peak(&daemon) / MIB, daemon.memory().await >> 20);
    assert!(peak(&daemon) < 200 * MIB, "{} MiB", peak(&daemon) / MIB);
    let run = daemon.submit(&says(&house, "one", 0)).await;
    assert_eq!(daemon.until_run_ends(&run).await["outcome"], "done");
    daemon.stop().await;
}

#[tokio::test]
async fn what_is_no_json_or_no_route_is_answered_with_a_code() {
    let house = House::new();
    let daemon = house.start(&[]).await;
    let ask = async |method: &str, path: &str, body: &str| {
        let head = format!("{method} {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n");
        let text = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
        exchange(connect(&house.socket()).await, &text).await
    };
    assert_refused(&ask("POST", "/v1/runs", "{").await, 422, "invalid_input");
    assert_refused(&ask("POST", "/v1/runs", "").await, 422, "invalid_input");
    assert_refused(&ask("POST", "/v1/batches", "").await, 422, "invalid_input");
    assert_refused(&ask("POST", "/v1/stop", "{").await, 400, "bad_request");
    assert_refused(&ask("POST", "/v1/stop", "{\"later\": true}").await, 400, "bad_request");
    assert_refused(&ask("GET", "/v1/nothing", "").await, 404, "unknown_route");
    assert_refused(&ask("DELETE", "/v1/runs", "").await, 405, "method_not_allowed");
    assert_refused(&ask("GET", "/v1/runs/%ff", "").await, 404, "unknown_route");
    assert_refused(&ask("GET", "/v1/runs?limit=many", "").await, 400, "bad_request");
    let status: Value = daemon.get("v1/status").await;
    assert_eq!(status["runs"]["total"], 0);
    daemon.stop().await;
}
