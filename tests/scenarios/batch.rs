//! Whole batches: the demo, a thousand tasks, and what is on stdout, in OUT and in the journal.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Read},
    os::unix::fs::PermissionsExt,
    process::Stdio,
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Ended, Place, assert_sound, call, field, is_state, says, sorted, task, until};

#[test]
fn the_demo_ends_well_with_every_change_in_its_files() {
    let place = Place::new();
    let ended = place.herder(&["demo", "try"]).expect(0);
    assert_eq!(ended.out, "");
    assert!(ended.err.contains("herder batch try/tasks.jsonl -o try/results.jsonl --policy trusted"));
    let results = place.results("try/results.jsonl");
    assert_eq!((results.len(), BTreeSet::from_iter(field(&results, "id")).len()), (50, 50));
    assert_eq!(BTreeSet::from_iter(field(&results, "outcome")), BTreeSet::from(["done"]));
    let log = place.read("try/workspace/CHANGELOG.md");
    assert_eq!(log.lines().filter(|line| line.starts_with("- ")).count(), 44, "{log}");
    assert!(!place.read("try/workspace/TODO.md").contains("[ ]"));
    assert_sound(&place.events("try/results.jsonl.state"));

    let again = place.herder(&["demo", "try"]).expect(2);
    assert_eq!(again.err, "herder: try is not empty; name a new folder\n");
    place.write("file", "");
    let file = place.herder(&["demo", "file"]).expect(2);
    assert_eq!(file.err, "herder: file is no folder; name a new one\n");
}

#[test]
fn a_thousand_tasks_of_five_turns_are_done_and_their_log_is_contiguous() {
    let place = Place::new();
    let tasks: Vec<Value> = (0..1_000).map(five_turns).collect();
    for shared in 0..10 {
        place.write(&format!("work/shared-{shared}.txt"), "top\n<end>\n");
    }
    place.tasks("in.jsonl", &tasks);
    let ended = place.herder(&["batch", "in.jsonl", "-o", "out.jsonl", "-j", "100"]).expect(0);
    assert_eq!(ended.out, "");
    assert!(ended.err.contains(" 1000/1000: 1000 done, 0 running, 0 queued"), "{}", ended.err);

    let results = place.results("out.jsonl");
    assert_eq!(results.len(), 1_000);
    let wanted: BTreeSet<&str> = tasks.iter().map(|task| task["id"].as_str().unwrap()).collect();
    assert_eq!(BTreeSet::from_iter(field(&results, "id")), wanted);
    assert_eq!(BTreeSet::from_iter(field(&results, "outcome")), BTreeSet::from(["done"]));
    assert_eq!(BTreeSet::from_iter(field(&results, "run")).len(), 1_000);
    assert!(results.iter().all(|line| line["turns"] == 5 && line["calls"] == 4 && line["attempt"] == 1));

    let events = place.events("out.jsonl.state");
    assert_sound(&events);
    let of_kind = |kind: &str| events.iter().filter(|event| event["kind"] == kind).count();
    assert_eq!((of_kind("run_end"), of_kind("turn_start"), of_kind("result")), (1_000, 5_000, 4_000));
    let failed: Vec<_> =
        events.iter().filter(|event| event["kind"] == "result" && event["data"]["ok"] != true).collect();
    assert_eq!(failed, Vec::<&Value>::new());
    let mut lines = BTreeSet::new();
    for shared in 0..10 {
        lines.extend(place.read(&format!("work/shared-{shared}.txt")).lines().map(str::to_owned));
    }
    assert_eq!(lines.len(), 1_002, "each task's line, the first and the last");
}

/// Writes a file, reads it, changes it, and adds a line to a file that a hundred tasks change.
fn five_turns(number: usize) -> Value {
    let own = format!("own-{number}.txt");
    let shared = format!("shared-{}.txt", number % 10);
    let line = format!("line {number}\n<end>");
    task(
        &format!("t{number}"),
        json!([
            call("write", json!({"path": own, "content": "one\n"})),
            call("read", json!({"path": own})),
            call("edit", json!({"path": own, "old_text": "one", "new_text": "two"})),
            call("edit", json!({"path": shared, "old_text": "<end>", "new_text": line})),
            {"text": "ready"},
        ]),
    )
}

#[test]
fn results_on_stdout_are_the_only_thing_there_and_go_on_after_their_reader_has_gone() {
    let place = Place::new();
    let tasks: Vec<Value> = (0..30).map(|number| says(&format!("t{number}"), "hello")).collect();
    place.tasks("in.jsonl", &tasks);
    let ended = place.herder(&["batch", "in.jsonl"]).expect(0);
    assert_eq!(ended.json().len(), 30);

    let args = ["batch", "in.jsonl", "--state", "kept", "-j", "2"];
    let mut child = place.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::with_capacity(1, child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let mut told = String::new();
    child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{told}");
    assert!(!told.contains("panick") && told.contains("30/30: 30 done"), "{told}");
    let events = place.events("kept");
    assert_sound(&events);
    assert_eq!(events.iter().filter(|event| event["kind"] == "run_end").count(), 30);
    let again = place.herder(&args).expect(0);
    assert_eq!(again.json().len(), 30, "what is of record is told again");
}

#[test]
fn a_result_has_every_key_and_echoes_labels_and_meta() {
    let place = Place::new();
    let mut one = says("a", "hello");
    one["labels"] = json!({"team": "x"});
    one["meta"] = json!({"row": 7});
    one["script"][0]["usage"] = json!({"input": 10, "output": 4});
    place.tasks("in.jsonl", &[one]);
    let results = place.herder(&["batch", "in.jsonl", "-l", "run=1"]).expect(0).json();
    let keys: Vec<&str> = results[0].as_object().unwrap().keys().map(String::as_str).collect();
    let wanted = "id run attempt outcome detail text turns calls usage cost_usd queued_ms duration_ms active_ms \
                  error labels meta model branch base patch_path files_changed";
    assert_eq!(sorted(keys), sorted(wanted.split_whitespace().collect()));
    assert_eq!(results[0]["labels"], json!({"run": "1", "team": "x"}));
    assert_eq!(results[0]["meta"], json!({"row": 7}));
    assert_eq!(results[0]["usage"], json!({"input": 10, "output": 4, "cached": 0, "estimated": false}));
}

#[test]
fn the_conversation_is_in_the_results_if_it_is_asked_for() {
    let place = Place::new();
    place.write("work/a.txt", "alpha\n");
    let mut one = task("a", json!([call("read", json!({"path": "a.txt"})), {"text": "read"}]));
    one["system"] = json!("Be brief.");
    place.tasks("in.jsonl", &[one]);
    let results = place.herder(&["batch", "in.jsonl", "-o", "out.jsonl", "--include", "messages"]).expect(0);
    assert_eq!(results.out, "");
    let line = place.results("out.jsonl").remove(0);
    let roles: Vec<&str> = field(line["messages"].as_array().unwrap(), "role");
    assert_eq!(roles, ["system", "user", "assistant", "tool", "assistant"]);
    assert_eq!(line["messages"][2]["tool_calls"][0]["id"], line["messages"][3]["tool_call_id"]);
    assert!(line["messages"][3]["content"].as_str().unwrap().contains("alpha"));
}

#[test]
fn progress_and_the_summary_can_be_had_as_json() {
    let place = Place::new();
    place.tasks("in.jsonl", &[says("a", "x"), says("b", "y")]);
    let args = ["batch", "in.jsonl", "-o", "out.jsonl", "--json", "--policy", "trusted"];
    let told = place.herder(&args).expect(0).err;
    let last: Value = serde_json::from_str(told.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&last["total"], &last["ended"], &last["outcomes"]),
        (&json!(2), &json!(2), &json!({"done": 2}))
    );
    assert_eq!((&last["halted"], &last["unfinished"]), (&json!(false), &json!(0)));
    // Nor does a warning break the form.
    let told = place.herder(&["batch", "in.jsonl", "-o", "other.jsonl", "--json"]).expect(0).err;
    let first = &crate::support::json_lines(&told)[0]["message"];
    assert!(first.as_str().unwrap().starts_with("policy edit-workspace asks a person about bash"), "{told}");
    // Without a file to write, the end comes right behind the last task's.
    let told = place.herder(&["batch", "in.jsonl", "--json"]).expect(0).err;
    let last: Value = serde_json::from_str(told.lines().last().unwrap()).unwrap();
    assert_eq!((&last["ended"], &last["queued"]), (&json!(2), &json!(0)));
    assert_eq!(place.herder(&[&args[..], &["--progress", "none"]].concat()).expect(0).err, "");
}

#[test]
fn a_tool_that_nobody_could_allow_is_told_and_not_offered() {
    let place = Place::new();
    place.tasks("in.jsonl", &[crate::support::bash("a", "echo x > made")]);
    let ended = place.herder(&["batch", "in.jsonl", "-o", "out.jsonl"]).expect(0);
    assert!(ended.err.contains("policy edit-workspace asks a person about bash"), "{}", ended.err);
    assert!(ended.err.contains("--policy trusted allows it"), "{}", ended.err);
    let events = place.events("out.jsonl.state");
    let result = events.iter().find(|event| event["kind"] == "result").unwrap();
    assert_eq!(result["data"]["ok"], false);
    assert!(!place.path("work/made").exists());
    let start = events.iter().find(|event| event["kind"] == "run_start").unwrap();
    assert!(!start["data"].to_string().contains("bash"), "{start}");
}

#[test]
fn a_batch_that_is_kept_nowhere_leaves_nothing_however_it_ends() {
    let place = Place::new();
    place.tasks("in.jsonl", &[says("a", "x"), task("b", json!([{"text": "x", "delay_ms": 600_000}]))]);
    let passing = || place.names().into_iter().find(|name| name.starts_with("herder-batch-"));

    place.herder(&["batch", "in.jsonl", "--only", "a"]).expect(0);
    assert_eq!(place.names(), ["in.jsonl", "work"]);

    let batch = place.start(&["batch", "in.jsonl"]);
    until("a result", || place.results("out.txt").len() == 1);
    let folder = place.path(&passing().expect("it is on disk meanwhile"));
    assert!(is_state(&folder));
    assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    batch.signal(Signal::TERM);
    until("it is told", || place.read("err.txt").contains("once more stops at once"));
    batch.signal(Signal::TERM);
    assert_eq!(batch.wait(), Some(143));
    assert_eq!(passing(), None);
    assert!(place.read("err.txt").contains("not finished; their log is gone"), "{}", place.read("err.txt"));

    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let failed = place.command(&["batch", "in.jsonl", "--only", "a"]).stdout(full).output().unwrap();
    let failed = Ended::of(&failed).expect(1);
    assert!(failed.err.contains("herder: stdout: cannot be written: "), "{}", failed.err);
    assert_eq!(passing(), None);
}
