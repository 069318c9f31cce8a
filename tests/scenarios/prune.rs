//! `herder prune` and the retention of a daemon: what is old goes, whoever holds the folder is asked or named, and what is left
//! is sound.

use std::fs;

use rustix::process::Signal;
use serde_json::json;

use crate::{
    daemon::{Daemon, submit},
    mending::troubles,
    support::{Ended, Place, bash, field, says, task, until},
};

const BATCH: [&str; 4] = ["batch", "in.jsonl", "-o", "out.jsonl"];
const STATE: &str = "out.jsonl.state";
/// Where a daemon keeps its runs.
const HOME: &str = ".local/state/herder";

fn prune(place: &Place, more: &[&str], code: i32) -> (u64, u64, u64) {
    let report =
        place.herder(&[&["prune", "--json", "--older-than"], more].concat()).expect(code).json().remove(0);
    let count = |name: &str| report[name].as_u64().unwrap();
    (count("runs"), count("batches"), count("unfinished"))
}

fn spilled(place: &Place, state: &str) -> usize {
    fs::read_dir(place.path(state).join("spill")).map_or(0, Iterator::count)
}

#[test]
fn a_batch_that_has_ended_goes_with_its_outputs_and_is_not_run_again() {
    let place = Place::new();
    place.tasks("in.jsonl", &[bash("long", "seq 100000"), says("a", "x"), says("b", "y")]);
    let whole = [&BATCH[..], &["--policy", "trusted"]].concat();
    place.herder(&[&whole[..], &["--first", "2"]].concat()).expect(0);
    assert_eq!(prune(&place, &["0s", "--state", STATE], 0), (0, 0, 1), "a task is left");
    place.herder(&whole).expect(0);
    assert_eq!(spilled(&place, STATE), 1);
    assert_eq!(prune(&place, &["1h", "--state", STATE], 0), (0, 0, 0));
    assert_eq!(prune(&place, &["0s", "--state", STATE, "--dry-run"], 0), (3, 1, 0));
    assert_eq!(place.herder(&["ls", "--json", "--state", STATE]).json().len(), 3, "it was only looked");
    let told = place.herder(&["prune", "--older-than", "0s", "--state", STATE]).expect(0).out;
    assert!(told.starts_with("removed 3 runs, 1 batch; the log has "), "{told}");
    assert_eq!(place.herder(&["ls", "--state", STATE]).expect(0).err, "herder: no runs\n");
    assert_eq!((spilled(&place, STATE), troubles(&place, STATE)), (0, Vec::new()));
    let results = place.read("out.jsonl");
    let again = place.herder(&whole).expect(4);
    assert!(again.err.contains("out.jsonl: has content but no journal beside it"), "{}", again.err);
    assert_eq!(place.read("out.jsonl"), results);
}

#[test]
fn a_batch_with_a_failed_task_is_kept_if_that_is_asked() {
    let place = Place::new();
    place.tasks("in.jsonl", &[says("a", "x"), task("f", json!([{"fault": {"status": 401, "body": "no"}}]))]);
    place.herder(&BATCH).expect(1);
    assert_eq!(prune(&place, &["0s", "--state", STATE, "--keep-failed"], 0), (0, 0, 0));
    assert_eq!(prune(&place, &["0s", "--state", STATE], 0), (2, 1, 0));
}

#[test]
fn a_folder_that_is_in_use_is_refused_by_its_process_and_one_that_is_none_is_not_made() {
    let place = Place::new();
    place.tasks("in.jsonl", &[says("a", "x"), task("slow", json!([{"text": "x", "delay_ms": 600_000}]))]);
    let batch = place.start(&BATCH);
    until("one task is done", || place.results("out.jsonl").len() == 1);
    let refused = place.herder(&["prune", "--older-than", "0s", "--state", STATE]).expect(2);
    assert!(refused.err.contains(&format!("in use by process {}", batch.pid())), "{}", refused.err);
    assert_eq!(
        prune(&place, &["0s", "--state", STATE, "--dry-run"], 0),
        (0, 0, 0),
        "looking is in nobody's way"
    );
    drop(batch);
    assert_eq!(prune(&place, &["0s", "--state", STATE], 0), (0, 0, 0), "the slow one is open");
    let none = place.herder(&["prune", "--older-than", "0s", "--state", "nowhere"]).expect(2);
    assert!(none.err.contains("no herder state here"), "{}", none.err);
    assert!(!place.path("nowhere").exists());
    let wrong = place.herder(&["prune", "--older-than", "soon"]).expect(2);
    assert!(wrong.err.contains("want a length of time, as 30d"), "{}", wrong.err);
}

#[test]
fn a_daemon_is_asked_and_keeps_what_is_open() {
    let place = Place::new();
    let daemon = Daemon::start(&place);
    let run = submit(
        &place,
        "long",
        &json!([
            {"calls": [{"name": "bash", "arguments": {"command": "seq 100000"}}]}, {"text": "ready"}
        ]),
        &[],
    );
    place.herder(&["wait", &run]).expect(0);
    submit(&place, "slow", &json!([{"text": "x", "delay_ms": 600_000}]), &[]);
    place.tasks("in.jsonl", &[says("a", "x"), says("b", "y")]);
    place.herder(&[&BATCH[..], &["--daemon"]].concat()).expect(0);
    assert_eq!(spilled(&place, HOME), 1);
    assert_eq!(prune(&place, &["1h"], 0), (0, 0, 0));
    assert_eq!(prune(&place, &["0s", "--dry-run"], 0), (3, 1, 0));
    // The folder is the daemon's, wherever it is named.
    assert_eq!(prune(&place, &["0s", "--state", HOME], 0), (3, 1, 0));
    assert_eq!(field(&place.herder(&["ls", "--json"]).json(), "task_id"), ["slow"]);
    assert_eq!(place.herder(&["batches", "--json"]).expect(0).json().len(), 0);
    assert_eq!(spilled(&place, HOME), 0);
    assert_eq!(fs::read_dir(place.path(HOME).join("batches")).unwrap().count(), 0);
    place.herder(&["show", &run]).expect(2);
    let audit = place.herder(&["audit", "--json"]).expect(0).json();
    let audited = audit.iter().rfind(|entry| entry["verb"] == "prune").unwrap();
    assert_eq!(audited["changed"], true);
    assert!(audited["detail"].as_str().unwrap().contains("runs 3, batches 1"), "{audited}");

    let elsewhere = ["prune", "--older-than", "0s", "--state", HOME, "--socket", "nobody.sock"];
    assert!(place.herder(&elsewhere).expect(2).err.contains("in use by process "));
    // What comes now has places of its own.
    let next = submit(&place, "next", &json!([{"text": "y"}]), &[]);
    place.herder(&["wait", &next]).expect(0);
    place.herder(&["cancel", "slow"]).expect(0);
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait(), Some(0));
    assert_eq!(troubles(&place, HOME), [""; 0]);
    let _daemon = Daemon::start(&place);
    assert_eq!(field(&place.herder(&["ls", "--json"]).json(), "task_id"), ["slow", "next"]);
}

#[test]
fn a_daemon_with_a_retention_removes_what_is_old_when_it_starts() {
    let place = Place::new();
    let daemon = Daemon::start(&place);
    let run = submit(&place, "old", &json!([{"text": "x"}]), &[]);
    place.herder(&["wait", &run]).expect(0);
    submit(&place, "failed", &json!([{"fault": {"status": 401, "body": "no"}}]), &[]);
    place.herder(&["wait", "failed"]).expect(1);
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait(), Some(0));
    fs::create_dir_all(place.path(".config/herder")).unwrap();
    place.write(".config/herder/config.toml", "[retention]\nolder_than = \"0s\"\n");
    let _daemon = Daemon::start(&place);
    until("the old run is gone", || field(&place.herder(&["ls", "--json"]).json(), "task_id") == ["failed"]);
    let audit = || place.herder(&["audit", "--json"]).expect(0).json();
    until("it is of record", || {
        audit()
            .iter()
            .any(|entry| entry["verb"] == "prune" && entry["changed"] == true && entry["user"].is_null())
    });
}

#[test]
fn a_workspace_that_was_kept_goes_with_its_run_and_the_repository_forgets_it() {
    let place = Place::new();
    let git = |args: &[&str]| {
        let ended = Ended::of(&place.shell("git -C work \"$@\"", args).output().unwrap()).expect(0);
        ended.out
    };
    git(&["init", "-q"]);
    place.write("work/a.txt", "alpha\n");
    git(&["add", "."]);
    git(&["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "first"]);
    let write = json!({"calls": [{"name": "write", "arguments": {"path": "b.txt", "content": "beta\n"}}]});
    place.tasks("in.jsonl", &[task("f", json!([write, {"fault": {"status": 401, "body": "no"}}]))]);
    place.herder(&[&BATCH[..], &["--isolate", "worktree"]].concat()).expect(1);
    assert_eq!(git(&["worktree", "list"]).lines().count(), 2, "it was kept");
    assert!(fs::read_dir(place.path(STATE).join("patches")).unwrap().count() > 0);
    assert_eq!(prune(&place, &["0s", "--state", STATE], 0), (1, 1, 0));
    assert_eq!(git(&["worktree", "list"]).lines().count(), 1);
    for name in ["work", "patches"] {
        assert_eq!(fs::read_dir(place.path(STATE).join(name)).map_or(0, Iterator::count), 0, "{name}");
    }
    assert_eq!(troubles(&place, STATE), [""; 0]);
}
