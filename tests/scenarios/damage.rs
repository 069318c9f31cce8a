//! What is lost of a log in a rude way: it is told as it is, nothing is done again for it, and what can be read is saved.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

use serde_json::{Value, json};

use crate::{
    daemon::{Daemon, submit},
    mending::{repair, troubles},
    support::{Place, call, field, json_lines, sorted, task, until},
};

const BATCH: [&str; 6] = ["batch", "in.jsonl", "-o", "out.jsonl", "--policy", "trusted"];
const STATE: &str = "out.jsonl.state";
const TASKS: usize = 12;

/// A batch that has ended, each task of which left a line in `work/witness` and a long answer.
fn ended() -> Place {
    let place = Place::new();
    place.tasks("in.jsonl", &(0..TASKS).map(noted).collect::<Vec<_>>());
    place.herder(&BATCH).expect(0);
    assert_eq!(witnessed(&place), TASKS);
    place
}

/// A task that leaves a line in `work/witness` and a long answer.
fn noted(number: usize) -> Value {
    let note = call("bash", json!({"command": format!("echo {number} >> witness")}));
    task(&format!("t{number:02}"), json!([note, {"text": "word ".repeat(2_000)}]))
}

fn witnessed(place: &Place) -> usize {
    place.read("work/witness").lines().count()
}

fn log(place: &Place) -> PathBuf {
    place.path(STATE).join("log.db")
}

fn db(place: &Place) -> rusqlite::Connection {
    rusqlite::Connection::open(log(place)).unwrap()
}

/// Damages the last append of the run of task `t03` that says `part`, and gives the run.
fn flip(place: &Place, part: &str) -> String {
    let results = place.results("out.jsonl");
    let run = results.iter().find(|line| line["id"] == "t03").unwrap()["run"].as_str().unwrap().to_owned();
    let flip = "UPDATE append SET body = CAST(replace(CAST(body AS TEXT), ?1, upper(?1)) AS BLOB)
                WHERE pos = (SELECT max(append.pos) FROM append JOIN run ON run = run.pos
                             WHERE task_id = 't03' AND instr(CAST(body AS TEXT), ?1))";
    assert_eq!(db(place).execute(flip, [part]).unwrap(), 1);
    run
}

#[test]
fn a_log_that_is_gone_is_told_and_not_begun_anew() {
    type Wound = fn(&PathBuf);
    let wounds: [(&str, Wound, &str); 4] = [
        ("removed", |log| fs::remove_file(log).unwrap(), "the log is gone, though the folder was used"),
        ("emptied", |log| fs::write(log, "").unwrap(), "the log is gone, though the folder was used"),
        (
            "only what goes before it is left",
            |log| {
                fs::remove_file(log).unwrap();
                fs::write(log.with_file_name("log.db-wal"), vec![7; 9_000]).unwrap();
            },
            "the log is damaged",
        ),
        (
            "a folder",
            |log| {
                fs::remove_file(log).unwrap();
                fs::create_dir(log).unwrap();
            },
            "a folder is where the log should be",
        ),
    ];
    for (what, wound, told) in wounds {
        let place = ended();
        wound(&log(&place));
        let results = place.read("out.jsonl");
        let doctor = place.herder(&["doctor", STATE]).expect(1);
        assert!(doctor.out.contains("bad   log.db: "), "{what}: {}", doctor.out);
        let dry = [&BATCH[..], &["--dry-run"]].concat();
        for args in [&BATCH[..], &dry, &["ls", "--state", STATE]] {
            let refused = place.herder(args).expect(2);
            let said: Vec<&str> = refused.err.lines().collect();
            assert!(matches!(said[..], [one] if one.contains(told)), "{what}: {args:?}: {}", refused.err);
        }
        assert_eq!((place.read("out.jsonl"), witnessed(&place)), (results, TASKS), "{what}");
    }
}

#[test]
fn a_log_that_is_gone_is_missed_where_results_are_elsewhere() {
    let place = Place::new();
    place.tasks("in.jsonl", &[task("a", json!([{"text": "x"}]))]);
    let batch = ["batch", "in.jsonl", "-o", "out.jsonl", "--state", "kept"];
    place.herder(&batch).expect(0);
    fs::remove_file(place.path("kept/log.db")).unwrap();
    let refused = place.herder(&batch).expect(2);
    assert!(refused.err.contains("kept/log.db: the log is gone"), "{}", refused.err);
    place.write("mine.jsonl", "{}\n");
    let other = place.herder(&["batch", "in.jsonl", "-o", "mine.jsonl"]).expect(4);
    assert!(other.err.contains("has content but no journal beside it"), "{}", other.err);
}

#[test]
fn damage_in_a_run_that_had_ended_is_told_and_its_end_is_kept_and_says_so() {
    let place = ended();
    let run = flip(&place, "witness");
    let listed = place.herder(&["ls", "--json", "--state", STATE]).expect(0).json();
    let phases: Vec<&str> = sorted(field(&listed, "phase"));
    assert_eq!(phases[TASKS - 2..], ["done", "done: its log is damaged"]);
    let shown = place.herder(&["show", "t03", "--state", STATE]).expect(1);
    assert!(
        shown.err.contains(&run) && shown.err.contains("`herder doctor STATE --repair`"),
        "{}",
        shown.err
    );
    let found = troubles(&place, STATE);
    assert!(matches!(&found[..], [one] if one.starts_with(&format!("run {run}: its log"))), "{found:?}");
    assert_eq!(repair(&place, STATE).len(), 1);
    assert_eq!(troubles(&place, STATE), [""; 0]);
    let shown = place.herder(&["show", "t03", "--state", STATE, "--json"]).expect(0).json().remove(0);
    assert_eq!(shown["outcome"], "done");
    let error = shown["error"].as_str().unwrap();
    assert!(
        error.contains("the log of this run is damaged from event ")
            && error.contains("its end is known from beside it"),
        "{error}"
    );
    place.herder(&BATCH).expect(0);
    assert_eq!(witnessed(&place), TASKS);
}

#[test]
fn all_sound_runs_are_exported_and_each_damaged_one_is_named() {
    let place = ended();
    let run = flip(&place, "witness");
    let told = place.herder(&["export", "--all", "-o", "all.jsonl", "--state", STATE]).expect(1);
    let said: Vec<&str> = told.err.lines().collect();
    assert_eq!(said.len(), 2, "{}", told.err);
    let left_out = format!("herder: run {run}: left out: event log damaged at position ");
    assert!(said[0].starts_with(&left_out), "{}", told.err);
    assert_eq!(said[1], format!("herder: all.jsonl: runs {}", TASKS - 1));
    let piped = place.herder(&["export", "--all", "--state", STATE]).expect(1);
    assert_eq!(piped.out, place.read("all.jsonl"));
    place.herder(&["import", "all.jsonl", "--state", "copy"]).expect(0);
    assert_eq!(place.herder(&["ls", "--json", "--state", "copy"]).json().len(), TASKS - 1);
    let one = place.herder(&["export", "t03", "-o", "one.jsonl", "--state", STATE]).expect(1);
    assert!(one.err.contains("event log damaged") && !one.err.contains("cannot be written"), "{}", one.err);
    assert!(!place.path("one.jsonl").exists());
}

#[test]
fn a_run_whose_row_is_lost_is_not_run_again_and_is_put_back() {
    let place = ended();
    let before = place.results("out.jsonl");
    assert_eq!(db(&place).execute("DELETE FROM run WHERE task_id = 't03'", []).unwrap(), 1);
    let refused = place.herder(&BATCH).expect(2);
    assert!(
        refused.err.contains("the run of task t03")
            && refused.err.contains("`herder doctor out.jsonl.state --repair`"),
        "{}",
        refused.err
    );
    assert_eq!(witnessed(&place), TASKS);
    let found = troubles(&place, STATE);
    assert!(matches!(&found[..], [one] if one.contains("the run of task t03 is not known")), "{found:?}");
    let told = place.herder(&["export", "--all", "--state", STATE]).expect(1);
    assert_eq!(
        told.err,
        "herder: the run of task t03: left out: its row is lost; `herder doctor STATE --repair` puts it back\n"
    );
    let done = repair(&place, STATE);
    assert!(matches!(&done[..], [one] if one.starts_with("log.db: 1 runs put back")), "{done:?}");
    assert_eq!(troubles(&place, STATE), [""; 0]);
    place.herder(&BATCH).expect(0);
    assert_eq!(witnessed(&place), TASKS, "nothing is done again");
    let by_id = |lines: Vec<Value>| lines.iter().map(|line| (line["id"].to_string(), line.clone())).collect();
    let by_id = |lines| -> std::collections::BTreeMap<String, Value> { by_id(lines) };
    assert_eq!(by_id(place.results("out.jsonl")), by_id(before), "the results say which run it was");
}

#[test]
fn of_a_file_whose_first_page_is_gone_every_run_is_saved() {
    let place = ended();
    let before = sorted(field(&json_lines(&events(&place)), "run")).len();
    let mut bytes = fs::read(log(&place)).unwrap();
    bytes[..4096].fill(0);
    fs::write(log(&place), bytes).unwrap();
    place.herder(&BATCH).expect(2);
    let done = repair(&place, STATE);
    let told = format!("log.db: runs salvaged whole {TASKS}, in part 0 ");
    assert!(done[0].starts_with(&told), "{done:?}");
    let mode = log(&place).metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(troubles(&place, STATE), [""; 0]);
    assert_eq!(sorted(field(&json_lines(&events(&place)), "run")).len(), before);
    place.herder(&BATCH).expect(0);
    assert_eq!(witnessed(&place), TASKS);
}

#[test]
fn of_half_a_file_everything_on_the_pages_that_are_left_is_saved_and_counted() {
    let place = ended();
    let bytes = fs::read(log(&place)).unwrap();
    fs::write(log(&place), &bytes[..bytes.len() / 8192 * 4096]).unwrap();
    let done = repair(&place, STATE);
    let count = |name: &str| -> usize {
        let rest = done[0].split(name).nth(1).unwrap();
        rest.split_whitespace().next().unwrap().trim_matches([',', ':']).parse().unwrap()
    };
    let (whole, part) = (count("whole "), count("in part "));
    assert!(whole > 0 && whole < TASKS, "{done:?}");
    let listed = place.herder(&["ls", "--json", "--state", STATE]).expect(0).json();
    assert_eq!(listed.len(), whole + part, "{done:?}");
    assert_eq!(troubles(&place, STATE), [""; 0]);
}

#[test]
fn a_run_of_which_only_the_end_is_left_is_counted_and_shown_as_that() {
    let place = ended();
    let rest = "PRAGMA secure_delete = ON;
                DELETE FROM append WHERE run = (SELECT pos FROM run WHERE task_id = 't03');";
    db(&place).execute_batch(rest).unwrap();
    let mut bytes = fs::read(log(&place)).unwrap();
    bytes[..4096].fill(0);
    fs::write(log(&place), bytes).unwrap();
    let done = repair(&place, STATE);
    let told = format!("log.db: runs salvaged whole {}, in part 1 (", TASKS - 1);
    assert!(done[0].starts_with(&told) && done[0].contains("of 1 of them only the end is left"), "{done:?}");
    let shown = place.herder(&["show", "t03", "--state", STATE]).expect(1);
    let says =
        ["of task t03 has ended: done", "the rest of its log is lost", "the table `damaged` of log.db"];
    assert!(says.iter().all(|part| shown.err.contains(part)), "{}", shown.err);
    place.herder(&["show", "t04", "--state", STATE]).expect(0);
}

#[test]
fn a_flipped_byte_amid_what_a_killed_batch_had_not_yet_folded_in_is_told_and_what_lies_behind_is_saved() {
    let place = Place::new();
    let mut tasks: Vec<Value> = (0..TASKS).map(noted).collect();
    tasks.push(task("slow", json!([{"text": "x", "delay_ms": 600_000}])));
    place.tasks("in.jsonl", &tasks);
    let batch = place.start(&BATCH);
    until("all but one are done", || place.results("out.jsonl").len() == TASKS);
    batch.kill();
    let ahead = log(&place).with_file_name("log.db-wal");
    let mut bytes = fs::read(&ahead).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x41;
    fs::write(&ahead, &bytes).unwrap();
    let file = fs::read(log(&place)).unwrap();

    for args in [&BATCH[..], &["ls", "--state", STATE]] {
        let refused = place.herder(args).expect(2);
        assert!(refused.err.contains("the log is damaged; nothing was changed"), "{args:?}: {}", refused.err);
    }
    let found = place.herder(&["doctor", STATE]).expect(1);
    assert!(found.out.contains("the write-ahead log is damaged "), "{}", found.out);
    assert!(found.out.contains(" bytes in; ") && !found.out.contains("sound"), "{}", found.out);
    assert!(fs::read(&ahead).unwrap() == bytes && fs::read(log(&place)).unwrap() == file);

    let done = repair(&place, STATE);
    assert!(done[0].starts_with("log.db: runs salvaged whole "), "{done:?}");
    assert!(!done[0].contains("start anew"), "{done:?}");
    let aside = fs::read_dir(place.path(STATE)).unwrap().map(|entry| entry.unwrap().path());
    let aside: Vec<PathBuf> = aside.filter(|path| path.to_string_lossy().contains(".damaged-")).collect();
    assert!(aside.iter().any(|path| fs::read(path).unwrap() == bytes), "{aside:?}");
    assert_eq!(troubles(&place, STATE), [""; 0]);
    let listed = place.herder(&["ls", "--json", "--state", STATE]).expect(0).json();
    assert_eq!(sorted(field(&listed, "task_id")).len(), TASKS + 1, "{done:?}");
    place.herder(&BATCH).expect(1);
    let mut lines: Vec<String> = place.read("work/witness").lines().map(str::to_owned).collect();
    lines.sort();
    lines.dedup();
    assert_eq!((lines.len(), witnessed(&place)), (TASKS, TASKS), "nothing is done again");
}

fn events(place: &Place) -> String {
    place.herder(&["events", "--all", "--json", "--state", STATE]).expect(0).out
}

#[test]
fn runs_that_cannot_be_read_are_named_where_approvals_are_listed() {
    let place = Place::new();
    let asks = |id: &str| task(id, json!([call("bash", json!({"command": "echo witness"})), {"text": "x"}]));
    place.tasks("in.jsonl", &[asks("t03"), asks("b")]);
    place.herder(&["batch", "in.jsonl", "-o", "out.jsonl", "--park"]).expect(1);
    let approvals = || place.herder(&["approvals", "--json", "--state", STATE]).expect(0);
    assert_eq!((approvals().json().len(), approvals().err.as_str()), (2, ""));
    let flip = "UPDATE append SET body = x'5b' WHERE run = (SELECT pos FROM run WHERE task_id = 't03')
                AND first_seq > 1 AND instr(CAST(body AS TEXT), 'turn_start')";
    assert!(db(&place).execute(flip, []).unwrap() > 0);
    let run: [u8; 16] =
        db(&place).query_row("SELECT id FROM run WHERE task_id = 't03'", [], |row| row.get(0)).unwrap();
    let told = approvals();
    assert_eq!(told.json().len(), 1);
    let run = uuid::Uuid::from_bytes(run).to_string();
    assert!(told.err.lines().count() == 1 && told.err.contains(&run), "{}", told.err);
    assert!(told.err.contains("`herder doctor STATE`"), "{}", told.err);
}

#[test]
fn a_daemon_names_runs_that_it_cannot_read_where_approvals_are_listed() {
    let place = Place::new();
    let _daemon = Daemon::start(&place);
    let run = submit(&place, "t03", &json!([{"text": "x"}]), &[]);
    place.herder(&["wait", &run]).expect(0);
    let approvals = || place.herder(&["approvals", "--all"]).expect(0);
    assert_eq!(approvals().err, "");
    let db = rusqlite::Connection::open(place.path(".local/state/herder/log.db")).unwrap();
    db.busy_timeout(std::time::Duration::from_secs(30)).unwrap();
    assert!(db.execute("UPDATE append SET body = x'5b' WHERE first_seq > 1", []).unwrap() > 0);
    let told = approvals().err;
    assert!(told.lines().count() == 1 && told.contains(&run), "{told}");
}
