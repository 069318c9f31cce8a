//! Folders that were damaged, and runs that move from one to another: what the command says of them, and what it saves.

use std::fs;

use serde_json::json;

use crate::{
    daemon::Daemon,
    support::{Ended, Place, bash, call, field, says, sorted, task, until},
};

const BATCH: [&str; 4] = ["batch", "in.jsonl", "-o", "out.jsonl"];
const STATE: &str = "out.jsonl.state";

/// What is wrong with a folder, but for how full this machine's disk is.
pub(crate) fn troubles(place: &Place, state: &str) -> Vec<String> {
    let lines = place.herder(&["doctor", state, "--json"]).json();
    let lines = lines.iter().filter(|line| line["grade"] != "ok");
    let told = lines.map(|line| {
        format!("{}: {}", line["where"].as_str().unwrap_or_default(), line["what"].as_str().unwrap())
    });
    told.filter(|line| !line.contains("MiB free")).collect()
}

/// Mends a folder and gives what was done.
pub(crate) fn repair(place: &Place, state: &str) -> Vec<String> {
    let Ended { err, .. } = place.herder(&["doctor", state, "--repair"]);
    err.lines().filter_map(|line| line.strip_prefix("herder: repaired: ")).map(str::to_owned).collect()
}

/// A batch of twenty tasks with long answers that has ended.
fn ended() -> Place {
    let place = Place::new();
    place.write("work/a.txt", "alpha\n");
    let one = |number: usize| {
        let answer = format!("{number} {}", "word ".repeat(2_000));
        task(&format!("t{number:02}"), json!([call("read", json!({"path": "a.txt"})), {"text": answer}]))
    };
    place.tasks("in.jsonl", &(0..20).map(one).collect::<Vec<_>>());
    place.herder(&BATCH).expect(0);
    place
}

/// Results by task, but for what they say went wrong.
fn lines(place: &Place) -> Vec<String> {
    let mut lines = place.results("out.jsonl");
    lines.iter_mut().for_each(|line| line["error"] = json!(null));
    let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
    sorted(lines.iter().map(String::as_str).collect()).into_iter().map(str::to_owned).collect()
}

#[test]
fn one_flipped_byte_is_told_with_its_run_and_mended_and_the_batch_goes_on() {
    let place = ended();
    let before = lines(&place);
    assert_eq!(troubles(&place, STATE), [""; 0]);
    let db = rusqlite::Connection::open(place.path(STATE).join("log.db")).unwrap();
    let flip = "UPDATE append SET body = CAST(replace(CAST(body AS TEXT), 'alpha', 'alpho') AS BLOB)
                WHERE pos = (SELECT min(pos) FROM append WHERE CAST(body AS TEXT) LIKE '%alpha%')";
    assert_eq!(db.execute(flip, []).unwrap(), 1);
    drop(db);
    let found = troubles(&place, STATE);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("run ") && found[0].contains("the checksum does not match"), "{found:?}");
    let run = found[0].split([' ', ':']).nth(1).unwrap();
    let doctor = place.herder(&["doctor", STATE]).expect(1);
    assert!(
        doctor.out.contains("`herder doctor")
            || doctor.out.contains("herder doctor out.jsonl.state --repair"),
        "{}",
        doctor.out
    );
    let shown = place.herder(&["events", run, "--state", STATE]).expect(1);
    assert!(shown.err.contains("event log damaged at position"), "{}", shown.err);

    let done = repair(&place, STATE);
    assert_eq!(done.len(), 1, "{done:?}");
    assert!(done[0].starts_with("log.db: 1 runs ended where their logs are torn"), "{done:?}");
    assert_eq!(troubles(&place, STATE), [""; 0]);
    place.herder(&["events", run, "--state", STATE]).expect(0);
    // The task was done, and its answer is of record beside its log.
    let again = place.herder(&BATCH).expect(0);
    assert!(again.err.contains(" 20/20: 20 done"), "{}", again.err);
    assert_eq!(lines(&place), before);
}

#[test]
fn of_a_log_that_was_cut_off_what_can_be_read_is_saved_and_the_rest_is_done_again() {
    let place = ended();
    let log = place.path(STATE).join("log.db");
    let whole = fs::read(&log).unwrap();
    let cut = whole.len() / 4096 * 7 / 10 * 4096;
    fs::write(&log, &whole[..cut]).unwrap();
    let _ = fs::remove_file(place.path(STATE).join("log.db-wal"));
    assert_eq!(place.herder(&["doctor", STATE]).code, Some(1));
    let refused = place.herder(&BATCH).expect(2);
    assert!(refused.err.contains("herder doctor out.jsonl.state --repair"), "{}", refused.err);
    let done = repair(&place, STATE);
    assert!(
        done[0].contains("runs salvaged whole ") && done[0].contains("the damaged file is log.db.damaged-"),
        "{done:?}"
    );
    let aside = fs::read_dir(place.path(STATE)).unwrap().map(|entry| entry.unwrap().path());
    let aside = aside.into_iter().find(|path| path.to_string_lossy().contains("log.db.damaged-")).unwrap();
    assert_eq!(fs::read(aside).unwrap().len(), cut, "what was damaged is kept");
    assert_eq!(troubles(&place, STATE), [""; 0]);
    let again = place.herder(&[&BATCH[..], &["--retry-failed"]].concat()).expect(0);
    assert!(again.err.contains(" 20/20: 20 done"), "{}", again.err);
    let results = place.results("out.jsonl");
    assert_eq!((results.len(), sorted(field(&results, "id")).len()), (20, 20));
    assert_eq!(troubles(&place, STATE), [""; 0]);
}

#[test]
fn a_folder_that_is_in_use_is_looked_over_and_not_mended() {
    let place = Place::new();
    place.tasks("in.jsonl", &[says("a", "x"), task("slow", json!([{"text": "x", "delay_ms": 600_000}]))]);
    let batch = place.start(&BATCH);
    until("one task is done", || place.results("out.jsonl").len() == 1);
    assert_eq!(troubles(&place, STATE), [""; 0]);
    let refused = place.herder(&["doctor", STATE, "--repair"]).expect(2);
    assert!(refused.err.contains(&format!("in use by process {}", batch.pid())), "{}", refused.err);
    drop(batch);
    let none = place.herder(&["doctor", "work"]).expect(2);
    assert!(none.err.contains("no herder state here"), "{}", none.err);
}

#[test]
fn runs_move_from_one_folder_to_another_as_they_are_and_only_once() {
    let place = ended();
    let told = place.herder(&["export", "t07", "-o", "one.jsonl", "--state", STATE]).expect(0);
    assert_eq!(told.err, "herder: one.jsonl: runs 1\n");
    let taken = place.herder(&["import", "one.jsonl", "--state", "archive"]).expect(0);
    assert!(taken.err.ends_with(": imported into archive\n"), "{}", taken.err);
    let events = |state: &str| {
        let events = place.herder(&["events", "t07", "--json", "--state", state]).expect(0).json();
        // A place is the folder's own.
        events
            .into_iter()
            .map(|mut event| {
                event["pos"].take();
                event
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(events("archive"), events(STATE));
    let again = place.herder(&["import", "one.jsonl", "--state", "archive"]).expect(0);
    assert!(again.err.ends_with(": unchanged, it was in archive already\n"), "{}", again.err);

    let piped = place
        .shell("\"$0\" export --all --state out.jsonl.state | \"$0\" import - --state \"$1\"", &["copy"]);
    let mut piped = piped;
    assert!(piped.output().unwrap().status.success());
    assert_eq!(place.herder(&["ls", "--json", "--state", "copy"]).json().len(), 20);
    let found = troubles(&place, "copy");
    assert!(found.iter().all(|line| line.contains("has runs, and is not of record itself")), "{found:?}");

    let text = place.read("one.jsonl");
    let cut = &text[..text.trim_end().rfind('\n').unwrap() + 1];
    for changed in [text.replace("alpha", "alpho"), cut.to_owned(), "{}\n".to_owned()] {
        place.write("changed.jsonl", changed);
        let refused = place.herder(&["import", "changed.jsonl", "--state", "other"]).expect(2);
        assert!(refused.err.starts_with("herder: changed.jsonl: "), "{}", refused.err);
        assert!(!place.path("other").exists(), "nothing was written");
    }
    place.herder(&["export", "nobody", "--state", STATE]).expect(2);
}

#[test]
fn a_run_that_is_taken_from_a_herder_at_work_and_resumed_elsewhere_leaves_that_one_alone() {
    let place = Place::new();
    let command = "until [ -e go ]; do sleep 0.02; done; echo done >> witness";
    place.tasks("in.jsonl", &[bash("a", command)]);
    let batch = place.start(&[&BATCH[..], &["--policy", "trusted"]].concat());
    let events = |state: &str| place.herder(&["events", "--all", "--json", "--state", state]);
    until("the command runs", || place.path(STATE).exists() && events(STATE).out.contains("command_group"));
    place.herder(&["export", "a", "-o", "a.jsonl", "--state", STATE]).expect(0);
    let taken = place.herder(&["import", "a.jsonl", "--state", "copy"]).expect(0).err;
    assert!(
        taken.ends_with(": imported into copy; it has not ended, and is held until it is resumed\n"),
        "{taken}"
    );
    {
        let _daemon = Daemon::start_with(&place, &["--state", "copy"]);
        place.herder(&["resume", "a"]).expect(0);
        place.herder(&["wait", "a"]).expect(0);
    }
    let copy = events("copy").expect(0).json();
    let result = copy.iter().find(|event| event["kind"] == "result").unwrap();
    assert!(result["data"]["output"].as_str().unwrap().starts_with("outcome unknown: "), "{result}");
    assert!(!place.path("work/witness").exists(), "the command is at it still");
    place.write("work/go", "");
    assert_eq!(batch.wait(), Some(0));
    assert_eq!(place.read("work/witness"), "done\n");
    let original = events(STATE).expect(0).json();
    let result = original.iter().find(|event| event["kind"] == "result").unwrap();
    assert_eq!(result["data"]["ok"], true, "{result}");
}
