//! `show`, `events` and `ls` of a state folder: on what has ended, and beside a process that writes.

use std::{
    io::{BufRead, BufReader, Read},
    process::Stdio,
};

use serde_json::{Value, json};

use crate::support::{Place, bash, call, field, is_state, says, sorted, task, until};

const STATE: [&str; 2] = ["--state", "out.jsonl.state"];

fn with_state<'a>(args: &[&'a str]) -> Vec<&'a str> {
    [args, &STATE].concat()
}

/// A batch that has ended: one task is done with a call, one is refused by its model.
fn ended() -> Place {
    let place = Place::new();
    place.write("work/a.txt", "alpha\n");
    let mut good = task("good", json!([call("read", json!({"path": "a.txt"})), {"text": "two\nlines"}]));
    good["script"][0]["usage"] = json!({"input": 1_500, "output": 20});
    good["facts"] = json!({"os": "linux"});
    place.tasks("in.jsonl", &[good, task("bad", json!([{"fault": {"status": 401, "body": "no such key"}}]))]);
    place.herder(&["batch", "in.jsonl", "-o", "out.jsonl", "-j", "1"]).expect(1);
    place
}

#[test]
fn a_run_is_shown_in_short_by_its_task_or_the_beginning_of_its_id() {
    let place = ended();
    let shown = place.herder(&with_state(&["show", "good"])).expect(0).out;
    for row in
        ["task id    good", "task       do good", "stands     done", "turns      2 of 50", "calls      1"]
    {
        assert!(shown.lines().any(|line| line == row), "{row:?} is not in\n{shown}");
    }
    assert!(shown.ends_with("text       two\n           lines\n"), "{shown}");
    let bad = place.herder(&with_state(&["show", "bad"])).expect(0).out;
    assert!(bad.contains("stands     provider_error: auth\n") && bad.contains("no such key"), "{bad}");

    let data = place.herder(&with_state(&["show", "good", "--json"])).expect(0).json().remove(0);
    assert_eq!(
        (&data["task_id"], &data["outcome"], &data["phase"], &data["state"]),
        (&json!("good"), &json!("done"), &json!("done"), &json!("ended"))
    );
    let run = data["id"].as_str().unwrap();
    let (first, last) = run.split_at(run.len() - 1);
    for name in [run, &run.to_uppercase()] {
        assert_eq!(place.herder(&with_state(&["show", name])).expect(0).out, shown);
    }
    let ids = field(&place.herder(&with_state(&["ls", "--json"])).expect(0).json(), "id")
        .iter()
        .filter(|id| id.starts_with(first))
        .count();
    assert_eq!((ids, last.len()), (1, 1));
    assert_eq!(place.herder(&with_state(&["show", first])).expect(0).out, shown);
}

#[test]
fn a_conversation_is_shown_for_people_and_for_programs() {
    let place = ended();
    let spoken = place.herder(&with_state(&["show", "good", "--messages"])).expect(0).out;
    assert!(
        spoken.starts_with("[system]\nKnown facts:\n- os: linux\n\n[user]\ndo good\n\n[assistant]\n"),
        "{spoken}"
    );
    assert!(spoken.contains(" read {\"path\":\"a.txt\"}\n"), "{spoken}");
    assert!(spoken.ends_with("[assistant]\ntwo\nlines\n"), "{spoken}");
    let messages =
        place.herder(&with_state(&["show", "good", "--messages", "--json"])).expect(0).json().remove(0);
    assert_eq!(
        field(messages.as_array().unwrap(), "role"),
        ["system", "user", "assistant", "tool", "assistant"]
    );
}

#[test]
fn events_are_one_line_each() {
    let place = ended();
    let text = place.herder(&with_state(&["events", "good"])).expect(0).out;
    let kinds =
        ["submitted", "run_start", "turn_start", "message", "decision", "call_started", "result", "turn_end"];
    for (line, kind) in text.lines().zip(kinds) {
        assert!(line.contains(kind), "{kind} is not in {line:?}");
    }
    assert!(text.lines().last().unwrap().contains("run_end          done (2 turns, 1 call, "), "{text}");
    assert_eq!(text.lines().count(), 12);
    let events = place.herder(&with_state(&["events", "good", "--json"])).expect(0).json();
    assert_eq!(events.len(), 12);
    let keys: Vec<&str> = events[0].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(sorted(keys), sorted(vec!["v", "pos", "run", "seq", "at", "turn", "kind", "data"]));
    assert_eq!(place.herder(&with_state(&["events", "good", "--follow", "--json"])).expect(0).json(), events);
}

#[test]
fn runs_are_listed_and_narrowed() {
    let place = ended();
    let table = place.herder(&with_state(&["ls"])).expect(0).out;
    let mut lines = table.lines();
    let heads: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
    assert_eq!(heads, ["RUN", "TASK", "TRY", "STANDS", "TURNS", "CALLS", "TOKENS", "COST", "TIME"]);
    assert!(lines.next().unwrap().contains("good") && lines.next().unwrap().contains("bad"), "{table}");
    let listed = |more: &[&str]| {
        let runs = place.herder(&with_state(&[&["ls", "--json"], more].concat())).expect(0).json();
        field(&runs, "task_id").iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(listed(&[]), ["good", "bad"]);
    assert_eq!(listed(&["--outcome", "provider_error"]), ["bad"]);
    assert_eq!(listed(&["--outcome", "budget"]), [""; 0]);
    assert_eq!(listed(&["--limit", "1"]), ["bad"]);
    assert_eq!(listed(&["--batch", "in.jsonl"]), ["good", "bad"]);
    assert_eq!(listed(&["--outcome", "auth"]), ["bad"]);
    assert_eq!(listed(&["--standing", "ended", "--since", "1h"]), ["good", "bad"]);
    assert_eq!(listed(&["--standing", "queued,running"]), [""; 0]);
    assert_eq!(listed(&["--model", "scripted:inline", "--task", "bad"]), ["bad"]);
    let one = place.herder(&with_state(&["ls", "--limit", "1"])).expect(0);
    assert!(one.err.starts_with("herder: 2 runs: 1 done, 1 provider_error; showing 1; log "), "{}", one.err);
    let none = place.herder(&with_state(&["ls", "--outcome", "budget"])).expect(0);
    assert_eq!((none.out.as_str(), none.err.as_str()), ("", "herder: no runs\n"));
}

#[test]
fn what_is_not_there_is_told() {
    let place = ended();
    for command in ["show", "events"] {
        let none = place.herder(&with_state(&[command, "ugly"])).expect(2);
        assert_eq!(none.err, "herder: no run or task is called \"ugly\"; `herder ls` shows what there is\n");
        let many = place.herder(&with_state(&[command, "0"])).expect(2);
        assert_eq!(many.err, "herder: \"0\" is the beginning of 2 run ids; give more of it\n");
    }
    let batch = place.herder(&with_state(&["ls", "--batch", "other"])).expect(2);
    assert_eq!(batch.err, "herder: there is no batch \"other\"; want one of: in.jsonl\n");
    for args in [&["ls"][..], &["show", "x"], &["events", "--all"]] {
        let state = place.herder(&[args, &["--state", "nowhere"]].concat()).expect(2);
        assert_eq!(state.err, "herder: nowhere: no herder state here; check the path given by --state\n");
    }
    assert!(!place.path("nowhere").exists());
}

#[test]
fn a_log_is_read_beside_the_process_that_writes_it() {
    let place = Place::new();
    let waits = "until [ -e go ]; do sleep 0.05; done";
    place.tasks("in.jsonl", &[bash("a", waits), bash("b", waits), says("quick", "x")]);
    let batch = place.start(&["batch", "in.jsonl", "-o", "out.jsonl", "--policy", "trusted"]);
    until("a log", || is_state(&place.path("out.jsonl.state")));
    let show = |task: &str| place.herder(&with_state(&["show", task, "--json"]));
    let stands = |task: &str, how: &str| show(task).out.contains(&format!("acting: bash {how}"));
    let pairs = [("a", "b"), ("b", "a")];
    let mut held = None;
    until("one acts and the other waits for it", || {
        held = pairs
            .into_iter()
            .find(|(acts, waits)| stands(acts, "runs") && stands(waits, "waits for its lock or permit"));
        held.is_some()
    });
    let (acts, waits) = held.unwrap();
    let shown = show(waits).expect(0).json().remove(0);
    assert_eq!(
        (&shown["open_calls"][0]["tool"], &shown["open_calls"][0]["waits"]),
        (&json!("bash"), &json!(true))
    );
    assert_eq!(shown["outcome"], Value::Null);
    let listed = place.herder(&with_state(&["ls"])).expect(0).out;
    assert_eq!(listed.lines().count(), 4, "{listed}");
    for stands in ["acting: bash runs", "acting: bash waits for its lock or permit"] {
        assert!(listed.contains(stands), "{listed}");
    }
    let listed = place.herder(&with_state(&["ls", "--json"])).expect(0).json();
    let waiting = listed.iter().find(|run| run["task_id"] == waits).unwrap();
    assert_eq!((&waiting["phase"], &waiting["open_calls"]), (&shown["phase"], &shown["open_calls"]));

    let follow = place.command(&with_state(&["events", acts, "--json", "--follow"]));
    let mut follow = { follow }.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(follow.stdout.take().unwrap());
    let mut seen = String::new();
    while !seen.contains("call_started") {
        assert_ne!(lines.read_line(&mut seen).unwrap(), 0, "the run has not ended");
    }
    place.write("work/go", "");
    lines.read_to_string(&mut seen).unwrap();
    assert!(follow.wait().unwrap().success());
    let seen = crate::support::json_lines(&seen);
    assert_eq!(seen.last().unwrap()["kind"], "run_end");
    let numbers: Vec<u64> = seen.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=seen.len() as u64).collect::<Vec<_>>());
    assert_eq!(batch.wait(), Some(0));
}

#[test]
fn once_their_process_was_killed_it_is_said_of_open_runs_that_nobody_is_at_work_on_them() {
    let place = Place::new();
    let thinks = task("thinks", json!([{"text": "x", "delay_ms": 600_000}]));
    place.tasks("in.jsonl", &[thinks, bash("acts", "echo > begun; sleep 300"), says("waits", "x")]);
    let batch = place.start(&["batch", "in.jsonl", "-o", "out.jsonl", "--policy", "trusted", "-j", "2"]);
    until("the command runs", || place.path("work/begun").exists());
    let stand = || -> Vec<(String, String)> {
        let listed = place.herder(&with_state(&["ls", "--json"])).expect(0).json();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        listed.iter().map(|run| (text(&run["state"]), text(&run["phase"]))).collect()
    };
    let running = || stand().iter().filter(|(state, _)| state == "running").count();
    until("both are seen to be at work", || running() == 2);
    batch.kill();

    for (state, phase) in stand() {
        assert_eq!(state, "queued");
        let told = phase.ends_with(": nobody is at work on it; it goes on at the next start");
        assert!(told && (phase.starts_with("interrupted: ") || phase.starts_with("queued: ")), "{phase}");
    }
    let listed = place.herder(&with_state(&["ls"])).expect(0).out;
    assert_eq!(listed.matches("interrupted: nobody is at work on it").count(), 2, "{listed}");
    assert_eq!(place.herder(&with_state(&["ls", "--standing", "running"])).expect(0).out, "");
    let shown = place.herder(&with_state(&["show", "acts"])).expect(0).out;
    assert!(shown.contains("\nstands     interrupted: nobody is at work on it; "), "{shown}");
    assert!(!shown.contains(" bash runs"), "{shown}");
    let shown = place.herder(&with_state(&["show", "acts", "--json"])).expect(0).json().remove(0);
    assert_eq!(shown["open_calls"][0]["waits"], true, "{shown}");
}

#[test]
fn a_reader_that_has_seen_enough_ends_the_listing_quietly() {
    let place = Place::new();
    let long = "words ".repeat(2_000);
    let tasks: Vec<Value> = (0..100).map(|number| says(&format!("t{number}"), &long)).collect();
    place.tasks("in.jsonl", &tasks);
    place.herder(&["batch", "in.jsonl", "-o", "out.jsonl"]).expect(0);
    for args in [&["events", "--all", "--json"][..], &["events", "--all"], &["ls", "--json"], &["ls"]] {
        let mut command = place.command(&with_state(args));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        BufReader::with_capacity(1, child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        assert!(first.ends_with('\n'));
        let mut told = String::new();
        child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
        // A table that was written whole before its reader went is followed by how much of it there is.
        let told = if told.starts_with("herder: 100 runs: 100 done; showing 50; log ") { "" } else { &told };
        assert_eq!((child.wait().unwrap().code(), told), (Some(0), ""), "{args:?}");
    }
}
