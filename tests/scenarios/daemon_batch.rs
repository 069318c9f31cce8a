//! Batches that the daemon runs: the same results as in the foreground, each once, however often somebody leaves and comes
//! back, and though the daemon dies meanwhile.

use std::collections::BTreeSet;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    daemon::Daemon,
    support::{Place, field, says, task, until, waits_for},
};

const BATCH: [&str; 7] = ["batch", "in.jsonl", "-o", "out.jsonl", "-j", "2", "--daemon"];

fn fails(id: &str) -> Value {
    task(id, json!([{"fault": {"status": 400}}]))
}

/// Two turns, and a moment of thought before each.
fn paced(id: &str) -> Value {
    let list = json!({"calls": [{"name": "list", "arguments": {}}], "delay_ms": 100});
    task(id, json!([list, {"text": "ready", "delay_ms": 100}]))
}

/// Ends once the file `go` is there.
fn gated(id: &str) -> Value {
    task(id, json!([waits_for("go"), {"text": "ready"}]))
}

/// A result without what differs from one time to the next.
fn comparable(mut line: Value) -> (String, Value) {
    let id = line["id"].as_str().unwrap().to_owned();
    for name in ["run", "queued_ms", "duration_ms", "active_ms"] {
        assert!(line.as_object_mut().unwrap().remove(name).is_some_and(|value| !value.is_null()), "{name}");
    }
    (id, line)
}

/// The summary without times.
fn summary(told: &str) -> String {
    let line = told.lines().find(|line| line.contains(" queued, ")).unwrap_or_else(|| panic!("{told}"));
    let start = line.find(' ').unwrap();
    line[start..line.rfind(", ").unwrap()].to_owned()
}

#[test]
fn results_and_the_summary_are_those_of_the_foreground() {
    let place = Place::new();
    let _daemon = Daemon::start(&place);
    let mut tasks = vec![fails("f"), paced("p")];
    tasks.extend((0..20).map(|number| says(&format!("t{number}"), "hello")));
    tasks[3]["labels"] = json!({"team": "x"});
    tasks[3]["meta"] = json!({"row": 7});
    place.tasks("in.jsonl", &tasks);
    let args = ["batch", "in.jsonl", "--policy", "trusted", "--include", "messages", "-o", "fg.jsonl"];
    let foreground = place.herder(&args).expect(1);
    let daemon = place.herder(&[&BATCH[..], &["--include", "messages"]].concat()).expect(1);
    assert_eq!(daemon.out, "");
    assert_eq!(summary(&daemon.err), summary(&foreground.err));
    let lines = |name: &str| {
        let mut lines: Vec<_> = place.results(name).into_iter().map(comparable).collect();
        lines.sort_by(|a, b| a.0.cmp(&b.0));
        lines
    };
    assert_eq!(lines("out.jsonl"), lines("fg.jsonl"));
    let stdout = place.herder(&["batch", "in.jsonl", "--daemon", "--keep-order"]).expect(1).json();
    let ids: Vec<&str> = tasks.iter().map(|task| task["id"].as_str().unwrap()).collect();
    assert_eq!(field(&stdout, "id"), ids);
    let told = place.herder(&[&BATCH[..], &["--json"]].concat()).expect(1).err;
    let last: Value = serde_json::from_str(told.lines().last().unwrap()).unwrap();
    assert_eq!((&last["total"], &last["ended"], &last["unfinished"]), (&json!(22), &json!(22), &json!(0)));
}

#[test]
fn a_batch_goes_on_without_whoever_watches_it_and_is_attached_to_again() {
    let place = Place::new();
    let _daemon = Daemon::start(&place);
    place.tasks("in.jsonl", &[says("a", "x"), gated("g"), says("b", "y")]);
    for signal in [Signal::INT, Signal::TERM] {
        let watcher = place.start(&BATCH);
        until("results are there", || place.results("out.jsonl").len() == 2);
        watcher.signal(signal);
        std::fs::remove_file(place.path("out.jsonl")).unwrap();
        assert_eq!(watcher.wait(), Some(if signal == Signal::INT { 130 } else { 143 }));
        let err = place.read("err.txt");
        assert!(err.contains("detached: batch in.jsonl goes on; the same command attaches again"), "{err}");
    }
    place.tasks("more.jsonl", &[says("a", "x"), gated("g"), says("b", "y"), says("c", "z")]);
    let busy = place.herder(&["batch", "more.jsonl", "-o", "out.jsonl", "--daemon"]);
    assert_eq!(busy.code, Some(1), "{}", busy.err);
    assert!(busy.err.contains("the batch of out.jsonl, ") && !busy.err.contains(" key"), "{}", busy.err);
    place.write("work/go", "");
    place.herder(&BATCH).expect(0);
    assert_eq!(
        BTreeSet::from_iter(field(&place.results("out.jsonl"), "id")),
        BTreeSet::from(["a", "b", "g"])
    );
    assert_eq!(place.results("out.jsonl").len(), 3);
    let batch = place.herder(&["batches", "--json"]).expect(0).json().remove(0);
    assert_eq!((&batch["state"], &batch["ended"]), (&json!("ended"), &json!({"done": 3})));
    place.herder(&["wait", "in.jsonl"]).expect(0);

    let detached =
        place.herder(&["batch", "in.jsonl", "-o", "other.jsonl", "--daemon", "--detach"]).expect(0);
    place.herder(&["wait", detached.out.trim()]).expect(0);
    assert_eq!(place.results("other.jsonl").len(), 0, "nobody was there to write it");
    place.herder(&["batch", "in.jsonl", "-o", "other.jsonl", "--daemon"]).expect(0);
    assert_eq!(place.results("other.jsonl").len(), 3);
}

#[test]
fn each_result_is_written_once_though_the_daemon_is_killed_and_started_again() {
    let place = Place::new();
    let mut daemon = Daemon::start(&place);
    let mut tasks: Vec<Value> = (0..36).map(|number| paced(&format!("t{number}"))).collect();
    // The batch does not end before the last kill: a call that a kill interrupts is in doubt, the next one waits again.
    let go = || waits_for("../go");
    let last = |number| place.apart(&format!("t{number}"), json!([go(), go(), go(), {"text": "ready"}]));
    tasks.extend((36..40).map(last));
    place.tasks("in.jsonl", &tasks);
    let watcher = place.start(&["batch", "in.jsonl", "-o", "out.jsonl", "-j", "8", "--daemon"]);
    for enough in [5, 20] {
        until("results come", || place.results("out.jsonl").len() >= enough);
        daemon.kill();
        daemon = Daemon::start(&place);
    }
    place.write("go", "");
    assert_eq!(watcher.wait(), Some(0), "{}", place.read("err.txt"));
    let results = place.results("out.jsonl");
    assert_eq!((results.len(), BTreeSet::from_iter(field(&results, "id")).len()), (40, 40));
    assert!(place.read("err.txt").contains("herder: the daemon went away; waits 30 s for it"));
    drop(daemon);
}

#[test]
fn a_batch_that_has_ended_is_given_more_and_not_something_else() {
    let place = Place::new();
    let _daemon = Daemon::start(&place);
    place.tasks("in.jsonl", &[says("a", "x"), fails("f")]);
    place.herder(&BATCH).expect(1);
    place.herder(&[&BATCH[..], &["--retry-failed"]].concat()).expect(1);
    let attempts = |name: &str| {
        let mut all: Vec<_> = place.results(name);
        all.sort_by_key(|line| line["id"].to_string());
        all.iter().map(|line| line["attempt"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(attempts("out.jsonl"), [1, 2]);

    place.tasks("in.jsonl", &[says("a", "x"), fails("f"), says("g", "y")]);
    place.herder(&BATCH).expect(1);
    assert_eq!(attempts("out.jsonl"), [1, 2, 1]);

    place.tasks("in.jsonl", &[says("a", "other"), fails("f"), says("g", "y")]);
    let refused = place.herder(&BATCH).expect(4);
    assert!(
        refused.err.contains("1 line changed") && refused.err.contains("--restart-stale"),
        "{}",
        refused.err
    );
    assert!(refused.err.contains("the batch of out.jsonl, "), "{}", refused.err);
    assert_eq!(attempts("out.jsonl"), [1, 2, 1]);
    place.herder(&[&BATCH[..], &["--restart-stale"]].concat()).expect(1);
    assert_eq!(place.results("out.jsonl").iter().filter(|line| line["text"] == "other").count(), 1);

    let foreground = place.herder(&["batch", "in.jsonl", "-o", "out.jsonl"]).expect(4);
    assert!(foreground.err.contains("no journal beside it"), "{}", foreground.err);
    place.herder(&["batch", "in.jsonl", "-o", "fg.jsonl"]).expect(1);
    let daemon = place.herder(&["batch", "in.jsonl", "-o", "fg.jsonl", "--daemon"]).expect(4);
    assert!(daemon.err.contains("fg.jsonl.state is its journal; leave --daemon out"), "{}", daemon.err);
}

#[test]
fn a_task_that_is_given_another_attempt_meanwhile_has_the_result_of_the_latest() {
    let place = Place::new();
    let _daemon = Daemon::start(&place);
    place.tasks("in.jsonl", &[fails("f"), gated("g")]);
    let attempts = |lines: &[Value]| {
        let attempt = |line: &Value| format!("{}{}", line["id"].as_str().unwrap(), line["attempt"]);
        lines.iter().map(attempt).collect::<Vec<_>>()
    };
    let again = |batch: &str| {
        let requeue = ["requeue", "--batch", batch, "--task", "f"];
        place.herder(&requeue).expect(0);
        until("the second attempt has ended", || {
            let ended = ["ls", "--batch", batch, "--task", "f", "--standing", "ended", "--json"];
            place.herder(&ended).json().len() == 2
        });
    };
    let watcher = place.start(&[&BATCH[..], &["--keep-order"]].concat());
    until("its first result is there", || place.results("out.jsonl").len() == 1);
    again("in.jsonl");
    place.write("work/go", "");
    assert_eq!(watcher.wait(), Some(1), "{}", place.read("err.txt"));
    assert_eq!(attempts(&place.results("out.jsonl")), ["f2", "g1"]);
    let summary = summary(&place.read("err.txt"));
    assert!(summary.contains(" 1 done, 1 "), "{summary}");
}

#[test]
fn a_batch_that_was_halted_or_cancelled_goes_on_if_that_is_said() {
    let place = Place::new();
    let _daemon = Daemon::start(&place);
    place.tasks("in.jsonl", &[fails("f"), says("a", "x"), says("b", "y"), says("c", "z")]);
    let args = ["batch", "in.jsonl", "-o", "out.jsonl", "-j", "1", "--daemon"];
    let halted = place.herder(&[&args[..], &["--halt", "now,fail=1"]].concat()).expect(3);
    assert!(halted.err.contains("the same command with --retry-failed goes on"), "{}", halted.err);
    assert!(place.results("out.jsonl").len() < 4);
    place.herder(&[&args[..], &["--retry-failed"]].concat()).expect(1);
    assert_eq!(place.results("out.jsonl").len(), 4);

    place.tasks("in.jsonl", &[gated("g"), says("a", "x")]);
    let watcher = place.start(&["batch", "in.jsonl", "-o", "new.jsonl", "-j", "1", "--daemon"]);
    until("it is under way", || place.herder(&["ls", "--standing", "running", "--json"]).json().len() == 1);
    assert_eq!(place.herder(&["cancel", "--batch", "in.jsonl"]).expect(0).out, "cancelled 1\n");
    assert_eq!(watcher.wait(), Some(1));
    assert!(place.read("err.txt").contains("cancelled: 1 task not finished"), "{}", place.read("err.txt"));
    place.herder(&["wait", "in.jsonl"]).expect(1);
}

#[test]
fn a_batch_is_held_and_retuned_as_a_whole() {
    let place = Place::new();
    let _daemon = Daemon::start(&place);
    place.tasks("in.jsonl", &[gated("g"), says("a", "x"), says("b", "y")]);
    let args = ["batch", "in.jsonl", "-o", "out.jsonl", "-j", "1", "--daemon", "--detach"];
    let id = place.herder(&args).expect(0).out.trim().to_owned();
    assert_eq!(place.herder(&["pause", "--batch", "in.jsonl", "--soft"]).expect(0).out, "paused 1\n");
    let state = || place.herder(&["batches", "--json"]).expect(0).json()[0]["state"].clone();
    assert_eq!(state(), "paused");
    place.write("work/go", "");
    until("what was live has ended", || {
        place.herder(&["ls", "--batch", &id, "--outcome", "done", "--json"]).json().len() == 1
    });
    assert_eq!(place.herder(&["set", "--batch", &id, "concurrency=3"]).expect(0).out, "changed\n");
    assert_eq!(place.herder(&["resume", "--batch", &id]).expect(0).out, "resumed 1\n");
    place.herder(&["wait", &id]).expect(0);
    assert_eq!(state(), "ended");
}

#[test]
fn parts_of_a_batch_may_be_chosen_one_after_the_other() {
    let place = Place::new();
    let _daemon = Daemon::start(&place);
    let ids = ["a", "b", "c", "d"];
    place.tasks("in.jsonl", &ids.map(|id| says(id, "hello")));
    for (chosen, results) in
        [(&["--first", "2"][..], 2), (&["--only", "d"], 3), (&[], 4), (&["--only", "a"], 4)]
    {
        place.herder(&[&BATCH[..], chosen].concat()).expect(0);
        let found: BTreeSet<String> =
            field(&place.results("out.jsonl"), "id").into_iter().map(str::to_owned).collect();
        assert_eq!(found.len(), results, "{chosen:?}: {found:?}");
    }
}
