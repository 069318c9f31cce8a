//! Commands that ask the daemon, where there is none, or another than they know: what they say and how they end.

use std::{
    io::{BufRead, BufReader, Read, Write},
    os::unix::net::{UnixListener, UnixStream},
};

use serde_json::{Value, json};

use crate::support::{Ended, Place, until};

/// A body that is never ended: what it begins with is told, and nothing more comes.
const ENDLESS: &str = "200 OK\r\ntransfer-encoding: chunked";

/// Answers a request for a path with a status and a body, as a daemon that speaks this version, for as long as the test runs.
fn answering(place: &Place, version: u32, answer: impl Fn(&str) -> (&'static str, Value) + Send + 'static) {
    let listener = UnixListener::bind(place.path("d.sock")).unwrap();
    std::thread::spawn(move || {
        let mut endless = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let request = request(&stream);
            let (status, body) = answer(&request);
            let head = format!("HTTP/1.1 {status}\r\nherder-api: {version}\r\nconnection: close");
            if status == ENDLESS {
                let answer = format!("{head}\r\n\r\n{:x}\r\n{body}\n\r\n", body.to_string().len() + 1);
                stream.write_all(answer.as_bytes()).unwrap();
                endless.push(stream);
                continue;
            }
            let body = if body.is_null() { String::new() } else { body.to_string() };
            let answer = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            // A client that has seen enough is no concern of this.
            let _ = stream.write_all(answer.as_bytes());
        }
    });
}

/// The method and the path of a request, once all of it was read.
fn request(stream: &UnixStream) -> String {
    let mut reader = BufReader::new(stream);
    let (mut first, mut length, mut chunked) = (None, 0, false);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(number) = line.strip_prefix("content-length: ") {
            length = number.parse().unwrap();
        }
        chunked |= line == "transfer-encoding: chunked";
        first.get_or_insert(line);
    }
    if chunked {
        let mut line = String::new();
        while line != "0\r\n" {
            line.clear();
            reader.read_line(&mut line).unwrap();
        }
        reader.read_line(&mut line).unwrap();
    }
    reader.read_exact(&mut vec![0; length]).unwrap();
    let first = first.unwrap();
    let (request, _) = first.rsplit_once(' ').unwrap();
    let (method, path) = request.split_once(' ').unwrap();
    format!("{} {path}", method.to_uppercase())
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
    answering(&place, 2, |_| ("200 OK", json!({})));
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
        let refusal = json!({"code": code, "message": "it is so", "mistakes": ["line 1"]});
        answering(&place, 1, move |_| (status, refusal.clone()));
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

fn usage() -> Value {
    json!({"input": 1000, "output": 20, "cached": 0, "estimated": false})
}

fn run(id: &str, state: &str, phase: &str) -> Value {
    json!({"id": id, "task_id": format!("task-{id}"), "attempt": 1, "about": "Do it", "model": "m", "labels": {},
        "priority": 0, "state": state, "phase": phase, "turns": 2, "calls": 1, "submitted_at": "2026-11-30T08:00:00Z",
        "said": "Let me see.", "usage": usage()})
}

/// A daemon with two runs, of which one ends before anything can be done to it.
fn with_two_runs() -> Place {
    let place = Place::new();
    answering(&place, 1, |request| match request {
        "GET /v1/status" => ("200 OK", status()),
        "POST /v1/runs/a/cancel" | "POST /v1/pause" => ("200 OK", json!({"changed": true, "seq": 7})),
        "POST /v1/runs/b/cancel" => ("409 Conflict", json!({"code": "ended", "message": "run b has ended"})),
        "GET /v1/runs/a" => {
            let mut run = run("a", "running", "thinking: waits for the model");
            let more = json!({"task": "Do it", "workspace": "/w", "max_turns": 50, "events": 9});
            run.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            ("200 OK", run)
        }
        list if list.starts_with("GET /v1/runs?") => {
            let runs =
                [run("a", "running", "acting: bash runs"), run("b", "queued", "queued: waits for a slot")];
            ("200 OK", json!({"runs": runs, "counts": {"total": 3, "open": 2, "ended": {"done": 1}}}))
        }
        other => panic!("{other}"),
    });
    place
}

fn status() -> Value {
    let load = json!({"live": 1, "queued": 1, "held": 0, "thinking": 0, "acting": 1, "calls_running": 1, "calls_waiting": 0});
    json!({"version": "0.1.0", "api": 1, "pid": 1, "state": "/s", "socket": "d.sock", "started_at": "", "phase": "ready",
        "max_live_runs": 100, "load": load, "rates": {"turns_per_s": 0.0, "tokens_per_s": 0.0, "runs_per_min": 0.0},
        "runs": {"total": 3, "open": 2, "ended": {"done": 1}}, "open_usage": usage(), "open_batches": 0, "paused": [],
        "followers": 0})
}

#[test]
fn runs_of_the_daemon_are_listed_and_shown_as_those_of_a_folder() {
    let place = with_two_runs();
    let listed = place.herder(&[&["ls"][..], &SOCKET].concat()).expect(0);
    let lines: Vec<Vec<&str>> = listed.out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["RUN", "TASK", "TRY", "STANDS", "TURNS", "CALLS", "TOKENS", "COST", "TIME"]);
    assert_eq!(lines[1], ["a", "task-a", "1", "acting:", "bash", "runs", "2", "1", "1.0k", "-", "-"]);
    assert_eq!(listed.err, "herder: 3 runs: 2 open, 1 done; showing 2\n");
    let variable = place.command(&["ls", "--json"]).env("HERDER_SOCKET", "d.sock").output().unwrap();
    assert_eq!(Ended::of(&variable).expect(0).json()[1]["task_id"], "task-b");
    let shown = place.herder(&[&["show", "a"][..], &SOCKET].concat()).expect(0).out;
    assert!(shown.contains("stands     thinking: waits for the model\nturns      2 of 50\n"), "{shown}");
}

#[test]
fn what_is_done_to_many_is_told_in_one_line() {
    let place = with_two_runs();
    let cancel = |args: &[&str]| place.herder(&[&["cancel"], args, &SOCKET].concat());
    assert_eq!(cancel(&["-l", "team=x"]).expect(0).out, "cancelled 1, 1 had ended\n");
    let named = cancel(&["a", "b"]).expect(1);
    let told = (named.out.as_str(), named.err.as_str());
    assert_eq!(told, ("cancelled 1, 1 had ended\n", "herder: b: run b has ended\n"));
    let lines = cancel(&["a", "b", "--json"]).expect(1).json();
    assert_eq!(lines[0], json!({"target": "a", "changed": true, "seq": 7}));
    assert_eq!((&lines[1]["target"], &lines[1]["code"]), (&json!("b"), &json!("ended")));
    let dry = cancel(&["-l", "team=x", "--dry-run"]).expect(0);
    assert_eq!(
        (dry.out.lines().count(), dry.err.as_str()),
        (3, "herder: would be cancelled: 2 runs; nothing was done\n")
    );
    assert!(cancel(&[]).expect(2).err.contains("or say --all"));
    let paused = place.herder(&[&["pause", "--all", "--soft"][..], &SOCKET].concat()).expect(0);
    assert_eq!(paused.out, "paused 1\n");
}

#[test]
fn a_signal_ends_the_watching_of_a_batch_and_not_the_batch() {
    let result = json!({"id": "line-1", "run": "0198c2a1-0000-7000-8000-000000000001", "outcome": "done", "detail": null});
    let batch = json!({"id": "b1", "name": "in.jsonl", "state": "open", "created_at": "", "tasks": 2, "waiting": 0,
        "open": 1, "ended": {"done": 1}, "usage": usage()});
    let place = Place::new();
    place.write("in.jsonl", "{\"task\": \"t\"}\n{\"task\": \"u\"}\n");
    let line = result.clone();
    answering(&place, 1, move |request| match request {
        "POST /v1/batches?name=in.jsonl" => ("201 Created", json!({"id": "b1", "changed": true, "tasks": 2})),
        "GET /v1/batches/b1" => ("200 OK", batch.clone()),
        "GET /v1/batches/b1/results" => ("200 OK", Value::Null),
        "GET /v1/batches/b1/results?follow=true" => (ENDLESS, line.clone()),
        other => panic!("{other}"),
    });
    let args = ["batch", "in.jsonl", "-o", "out.jsonl", "--daemon", "--progress", "none"];
    let watching = place.start(&[&args[..], &SOCKET].concat());
    until("a result", || place.results("out.jsonl") == [result.clone()]);
    watching.signal(rustix::process::Signal::INT);
    assert_eq!(watching.wait(), Some(130));
    assert_eq!(
        place.read("err.txt"),
        "herder: detached: batch in.jsonl goes on; the same command attaches again; `herder cancel --batch b1` ends it\n"
    );
    let detached = place.herder(&[&args[..], &["--detach"], &SOCKET].concat()).expect(0);
    assert_eq!(detached.out, "b1\n");
}
