//! Commands that ask the daemon, where there is none, or another than they know: what they say and how they end.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixListener,
};

use serde_json::json;

use crate::support::Place;

/// Answers every request with these headers and this body, for as long as the test runs.
fn answering(place: &Place, head: &'static str, body: String) {
    let listener = UnixListener::bind(place.path("d.sock")).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let _head: Vec<String> = lines.map(Result::unwrap).take_while(|line| !line.is_empty()).collect();
            let length = body.len();
            let answer =
                format!("HTTP/1.1 {head}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
            // A client that has seen enough is no concern of this.
            let _ = stream.write_all(answer.as_bytes());
        }
    });
}

const SOCKET: [&str; 2] = ["--socket", "d.sock"];

#[test]
fn without_a_daemon_every_command_says_so_in_one_sentence() {
    let place = Place::new();
    place.write("in.jsonl", "{\"task\": \"t\"}\n");
    for args in [
        &["ls"][..],
        &["show", "x"],
        &["events", "x"],
        &["logs", "x"],
        &["wait", "x"],
        &["submit", "t"],
        &["steer", "x", "t"],
        &["follow-up", "x", "t"],
        &["cancel", "x"],
        &["pause", "--all"],
        &["resume", "-l", "a=b"],
        &["requeue", "--outcome", "failed"],
        &["set", "max_live_runs=2"],
        &["batches"],
        &["models"],
        &["stats"],
        &["audit"],
        &["status"],
        &["stop"],
        &["reload"],
        &["batch", "in.jsonl", "--daemon"],
    ] {
        let told = place.herder(&[&SOCKET, args].concat()).expect(5);
        let want = "herder: no daemon answers at d.sock; `herder serve --detach` starts one\n";
        assert_eq!((told.out.as_str(), told.err.as_str()), ("", want), "{args:?}");
    }
}

#[test]
fn without_a_daemon_runs_are_read_where_run_keeps_them() {
    let place = Place::new();
    let told = place.herder(&["ls"]).expect(5);
    assert!(told.err.contains("no daemon answers at ") && told.err.lines().count() == 1, "{}", told.err);
    place.write("script.json", json!([{"text": "x"}]).to_string());
    place.herder(&["run", "t", "--script", "script.json"]).expect(0);
    for args in [&["ls"][..], &["events", "--all"]] {
        let read = place.herder(args).expect(0);
        assert!(read.err.starts_with("herder: no daemon answers; read from "), "{}", read.err);
        assert!(read.out.lines().count() > 1, "{}", read.out);
    }
    // Who says where the daemon is, means the daemon.
    place.herder(&["ls", "--socket", "d.sock"]).expect(5);
}

#[test]
fn a_daemon_of_another_version_is_not_asked() {
    let place = Place::new();
    answering(&place, "200 OK\r\nherder-api: 2", "{}".to_owned());
    for args in [&["ls"][..], &["status"], &["submit", "t"]] {
        let told = place.herder(&[args, &SOCKET].concat()).expect(6);
        assert!(
            told.err.starts_with("herder: the daemon at d.sock speaks version 2 of the API"),
            "{}",
            told.err
        );
        assert_eq!(told.err.lines().count(), 1);
    }
}

#[test]
fn a_refusal_ends_the_command_by_its_kind() {
    for (status, code, exit) in [
        ("404 Not Found", "unknown_run", 2),
        ("409 Conflict", "ended", 1),
        ("422 Unprocessable Entity", "invalid_input", 2),
    ] {
        let place = Place::new();
        let head = Box::leak(format!("{status}\r\nherder-api: 1").into_boxed_str());
        answering(
            &place,
            head,
            json!({"code": code, "message": "it is so", "mistakes": ["line 1"]}).to_string(),
        );
        let told = place.herder(&[&["steer", "x", "t"][..], &SOCKET].concat()).expect(exit);
        assert_eq!(told.err, "herder: it is so\nherder: line 1\n");
    }
}

#[test]
fn what_only_the_daemon_can_do_takes_no_state_folder_and_no_policy() {
    let place = Place::new();
    place.write("in.jsonl", "{\"task\": \"t\"}\n");
    for (args, flag) in [
        (&["cancel", "x", "--state", "s"][..], "--state"),
        (&["submit", "t", "--policy", "trusted"], "--policy"),
        (&["submit", "t", "--stall", "60"], "--stall"),
        (&["batch", "in.jsonl", "--daemon", "--state", "s"], "--state"),
        (&["batch", "in.jsonl", "--daemon", "--drain", "5"], "--drain"),
    ] {
        let told = place.herder(args).expect(2);
        assert!(told.err.starts_with(&format!("herder: {flag}: ")), "{}", told.err);
    }
}

#[test]
fn the_input_of_a_batch_is_checked_before_the_daemon_is_asked() {
    let place = Place::new();
    place.write("in.jsonl", "{\"task\": \"t\", \"workspace\": \"nowhere\"}\n{\"tsk\": \"t\"}\n");
    let told = place.herder(&[&["batch", "in.jsonl", "--daemon"][..], &SOCKET].concat()).expect(2);
    assert!(
        told.err.contains("in.jsonl:1: workspace: ") && told.err.contains("in.jsonl:2: tsk: "),
        "{}",
        told.err
    );
}
