//! `herder run`: what it prints where, what it ends with, and what it keeps.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    daemon::Daemon,
    support::{Ended, Place, assert_sound, call, field, until},
};

fn place(script: &Value) -> Place {
    let place = Place::new();
    place.write("script.json", script.to_string());
    place
}

const RUN: [&str; 8] =
    ["run", "Say hello", "--script", "script.json", "--state", "runs", "--policy", "trusted"];

#[test]
fn the_last_answer_is_on_stdout_and_what_happens_on_stderr() {
    let place = place(&json!([
        {"text": "I look.", "calls": [{"name": "bash", "arguments": {"command": "echo seen"}}]},
        {"text": "Hello.\nBye."},
    ]));
    // Elsewhere than its log, which its command could change otherwise.
    let run = [&RUN[..], &["--workspace", "work"]].concat();
    let ended = place.herder(&run).expect(0);
    assert_eq!(ended.out, "Hello.\nBye.\n");
    for kind in ["submitted", "run_start", "message", "call_started", "result", "run_end"] {
        assert!(ended.err.contains(&format!(" {kind} ")), "{kind} is not in\n{}", ended.err);
    }
    assert!(ended.err.contains("done (2 turns, 1 call, "), "{}", ended.err);

    let quiet = place.herder(&[&run[..], &["--quiet"]].concat()).expect(0);
    assert_eq!((quiet.out.as_str(), quiet.err.as_str()), ("Hello.\nBye.\n", ""));

    let json = place.herder(&[&run[..], &["--json"]].concat()).expect(0);
    let events = json.json();
    assert_eq!(json.err, "");
    assert_eq!(
        (&events[0]["kind"], &events.last().unwrap()["kind"]),
        (&json!("submitted"), &json!("run_end"))
    );
    assert_eq!(events.last().unwrap()["data"]["text"], "Hello.\nBye.");

    let listed = place.herder(&["ls", "--json", "--state", "runs"]).expect(0).json();
    assert_eq!(field(&listed, "outcome"), ["done"; 3], "one state keeps them all");
    assert_sound(&place.events("runs"));
}

#[test]
fn an_answer_by_a_schema_is_mended_and_is_bare_json_on_stdout() {
    let mended = place(&json!([{"text": "Two files."}, {"text": "```json\n{\"files\": 2}\n```"}]));
    let schema =
        json!({"type": "object", "properties": {"files": {"type": "integer"}}, "required": ["files"]});
    std::fs::write(mended.path("schema.json"), schema.to_string()).unwrap();
    let file = mended.path("schema.json").to_str().unwrap().to_owned();
    let ended = mended.herder(&[&RUN[..], &["--schema", &file]].concat()).expect(0);
    assert_eq!(ended.out, "{\"files\": 2}\n");

    std::fs::write(mended.path("schema.json"), r#"{"type": "objekt"}"#).unwrap();
    let ended = mended.herder(&[&RUN[..], &["--schema", &file]].concat()).expect(2);
    assert!(ended.err.contains("--schema") && ended.err.contains("not a JSON Schema"), "{}", ended.err);
}

#[test]
fn the_exit_code_is_the_outcome() {
    let refused = place(&json!([{"fault": {"status": 400, "body": "no such thing"}}]));
    let ended = refused.herder(&RUN).expect(1);
    assert_eq!(ended.out, "");
    let last = ended.err.lines().last().unwrap();
    assert!(
        last.starts_with("herder: the run ended as provider_error: invalid: ")
            && last.contains("no such thing"),
        "{last}"
    );
    let told = refused.herder(&[&RUN[..], &["--json"]].concat()).expect(1).json();
    let end = &told.last().unwrap()["data"];
    assert_eq!(end["outcome"], "provider_error");

    let endless = place(&json!([call("list", json!({})), call("list", json!({})), {"text": "x"}]));
    let ended = endless.herder(&[&RUN[..], &["--max-turns", "2"]].concat()).expect(1);
    assert!(ended.err.ends_with("herder: the run ended as budget: turns\n"), "{}", ended.err);

    let cut = place(&json!([{"text": "Half an ans", "stop": "length"}]));
    let ended = cut.herder(&RUN).expect(1);
    assert_eq!(ended.out, "Half an ans\n");
    assert!(ended.err.ends_with("herder: the run ended as blocked: truncated\n"), "{}", ended.err);
}

#[test]
fn a_run_that_cannot_be_is_told_and_leaves_nothing() {
    let place = place(&json!([{"txt": "x"}]));
    let told = |args: &[&str]| {
        let ended = place.herder(&[args, &["--state", "runs"]].concat()).expect(2);
        assert_eq!(ended.out, "");
        ended.err
    };
    assert!(
        told(&["run", "x", "--script", "script.json"])
            .starts_with("herder: script.json:1:7: unknown field 'txt'")
    );
    place.write("script.json", "[]");
    let run = |more: &[&str]| told(&[&["run", "x", "--script", "script.json"], more].concat());
    assert!(run(&["--policy", "lenient"]).starts_with("herder: there is no policy \"lenient\""));
    assert!(run(&["--workspace", "nowhere"]).starts_with("herder: workspace: nowhere does not exist"));
    assert!(run(&["--tools", "reed"]).starts_with("herder: tools: there is no tool \"reed\""));
    assert!(told(&["run", "", "--script", "script.json"]).starts_with("herder: the task is empty"));
    assert!(told(&["run", "x"]).starts_with("herder: model: is missing"));
    assert_eq!(place.names(), ["script.json", "work"]);
}

#[test]
fn a_tool_that_nobody_could_allow_is_told_and_not_offered() {
    let place = place(&json!([call("bash", json!({"command": "echo x > made"})), {"text": "I could not."}]));
    let ended = place.herder(&RUN[..6]).expect(0);
    assert!(
        ended.err.starts_with(
            "herder: policy edit-workspace asks a person about bash, and nobody is there to ask: the model is not \
             offered it; with --park people answer later, --policy trusted allows it\n"
        ),
        "{}",
        ended.err
    );
    assert_eq!(ended.out, "I could not.\n");
    assert!(!place.path("made").exists());
    let events = place.events("runs");
    let start = events.iter().find(|event| event["kind"] == "run_start").unwrap();
    assert!(!start["data"].to_string().contains("bash"), "{start}");
}

#[test]
fn a_signal_ends_the_command_and_leaves_no_process() {
    let waits = |place: &Place| format!("export MARK={}; echo up > up; sleep 300 & sleep 300", place.mark());
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let place = Place::new();
        let script = json!([call("bash", json!({"command": waits(&place)})), {"text": "x"}]);
        place.write("script.json", script.to_string());
        let run = place.start(&RUN);
        until("the command runs", || place.read("up") == "up\n");
        run.signal(signal);
        until("it is told", || place.read("err.txt").contains("once more stops at once"));
        run.signal(signal);
        assert_eq!(run.wait(), Some(code));
        assert_eq!(place.marked(), Vec::<String>::new());
        assert_eq!(place.read("out.txt"), "");
        let told = place.read("err.txt");
        let advised = told.lines().last().unwrap().split('`');
        let advice = advised.into_iter().find(|words| words.starts_with("herder show ")).unwrap();
        let words: Vec<&str> = advice.split(' ').skip(1).collect();
        assert!(place.herder(&words).expect(0).out.contains("\nstands     "), "{told}");
    }
}

#[test]
fn a_run_that_ends_with_its_turn_is_done_in_spite_of_a_signal() {
    let place = place(&json!([{"text": "Hello.", "delay_ms": 1_000}]));
    let run = place.start(&[&RUN[..], &["--quiet"]].concat());
    until("it thinks", || {
        place.herder(&["events", "--all", "--json", "--state", "runs"]).out.contains("\"turn_start\"")
    });
    run.signal(Signal::INT);
    assert_eq!(run.wait(), Some(0));
    assert_eq!(place.read("out.txt"), "Hello.\n");
}

#[test]
fn a_run_that_was_killed_goes_on_in_a_daemon_over_its_folder_and_repeats_nothing() {
    let place = Place::new();
    let endless = format!("echo b >> ran; : {}; sleep 300", place.mark());
    let bash = |command: &str| call("bash", json!({ "command": command }));
    let script = json!([bash("echo a >> ran"), bash(&endless), bash("echo c >> ran"), {"text": "Hello."}]);
    place.write("script.json", script.to_string());
    let run = place.start(&[&RUN[..], &["--workspace", "work"]].concat());
    until("the second command runs", || place.read("work/ran") == "a\nb\n");
    run.kill();
    place.assert_nothing_marked_runs();
    let left = place.herder(&["ls", "--json", "--state", "runs"]).expect(0).json().remove(0);
    assert_eq!(left["state"], "queued", "{left}");
    assert!(left["phase"].as_str().unwrap().contains("nobody is at work on it"), "{left}");

    let daemon = Daemon::start_with(&place, &["--state", "runs"]);
    let id = left["id"].as_str().unwrap();
    place.herder(&["wait", id]).expect(0);
    let shown = place.herder(&["show", id, "--json"]).expect(0).json().remove(0);
    assert_eq!((&shown["text"], &shown["turns"]), (&json!("Hello."), &json!(4)));
    assert_eq!(place.read("work/ran"), "a\nb\nc\n");
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait(), Some(0));
    let events = place.events("runs");
    assert_sound(&events);
    let results: Vec<_> = events.iter().filter(|event| event["kind"] == "result").collect();
    let failures: Vec<_> = results.iter().map(|result| result["data"]["failure"].as_str()).collect();
    assert_eq!(failures, [None, Some("outcome_unknown"), None]);
    // The folder is free for the next one.
    place.write("script.json", json!([{"text": "Again."}]).to_string());
    assert_eq!(place.herder(&RUN).expect(0).out, "Again.\n");
}

#[test]
fn runs_are_kept_in_the_users_state_folder_if_none_is_named() {
    let place = place(&json!([{"text": "hi"}]));
    place.herder(&["ls"]).expect(5);
    let mut command = place.command(&["run", "x", "--script", "script.json", "--quiet"]);
    assert!(command.env("XDG_STATE_HOME", place.path("xdg")).status().unwrap().success());
    assert!(place.path("xdg/herder/log.db").exists());
}

#[test]
fn herder_may_open_more_files_than_it_was_started_with_and_its_tools_may_not() {
    // The parent of a command's parent is herder.
    let limits = "ulimit -Sn; ulimit -Hn; read -r _ _ _ herder _ < /proc/$PPID/stat; \
                  grep 'open files' /proc/$herder/limits > herder";
    let place = place(&json!([call("bash", json!({"command": limits})), {"text": "x"}]));
    let lowered = "ulimit -Sn 300; ulimit -Hn 3000; exec \"$0\" \"$@\"";
    let ended = Ended::of(&place.shell(lowered, &RUN).output().unwrap());
    ended.expect(0);
    let events = place.events("runs");
    let result = events.iter().find(|event| event["kind"] == "result").unwrap();
    assert!(result["data"]["output"].as_str().unwrap().starts_with("300\n3000\n"), "{result}");
    let herder = place.read("herder");
    assert_eq!(herder.split_whitespace().skip(3).take(2).collect::<Vec<_>>(), ["3000", "3000"], "{herder}");
}
