//! A batch that was killed, cut short or changed, and the same command again.

use std::{collections::BTreeSet, fs};

use herder::store::{
    folder::StateFolder,
    sqlite::{Options, SqliteStore},
};
use serde_json::{Value, json};

use crate::support::{
    Place, assert_sound, bash, call, field, is_state, says, sorted, task, until, waits_for,
};

const BATCH: [&str; 8] = ["batch", "in.jsonl", "-o", "out.jsonl", "--policy", "trusted", "-j", "4"];

/// Tells in a file of its own that it ran; then takes a moment.
fn witnessed(count: usize) -> Vec<Value> {
    let one = |number: usize| {
        task(
            &format!("t{number:02}"),
            json!([
                call("bash", json!({"command": format!("echo x >> ran-{number:02}")})),
                {"text": "ready", "delay_ms": 40},
            ]),
        )
    };
    (0..count).map(one).collect()
}

/// How often each task's command ran.
fn witnesses(place: &Place, count: usize) -> Vec<usize> {
    (0..count).map(|number| place.read(&format!("work/ran-{number:02}")).lines().count()).collect()
}

fn distinct(lines: &[Value], name: &str) -> usize {
    BTreeSet::from_iter(field(lines, name)).len()
}

#[test]
fn what_is_done_before_a_kill_stays_done_and_the_rest_follows() {
    let place = Place::new();
    place.tasks("in.jsonl", &witnessed(40));
    let mut settled = BTreeSet::new();
    for killed_at in [3, 12, 25] {
        let batch = place.start(&BATCH);
        until("some results", || place.results("out.jsonl").len() >= killed_at);
        batch.kill();
        let results = place.results("out.jsonl");
        let now: BTreeSet<(String, String)> = results
            .iter()
            .map(|line| (line["id"].as_str().unwrap().to_owned(), line["run"].as_str().unwrap().to_owned()))
            .collect();
        assert!(now.is_superset(&settled), "what was told stays told, by the same run");
        settled = now;
    }
    let ended = place.herder(&BATCH).expect(0);
    assert!(ended.err.contains(" 40/40: 40 done, 0 running, 0 queued"), "{}", ended.err);
    let results = place.results("out.jsonl");
    assert_eq!((results.len(), distinct(&results, "id"), distinct(&results, "run")), (40, 40, 40));
    assert!(results.iter().all(|line| line["attempt"] == 1 && line["outcome"] == "done"));
    let events = place.events("out.jsonl.state");
    let in_doubt = events.iter().filter(|event| event["kind"] == "result" && event["data"]["ok"] != true);
    let in_doubt = BTreeSet::from_iter(in_doubt.map(|event| event["run"].as_str().unwrap()));
    for (number, ran) in witnesses(&place, 40).into_iter().enumerate() {
        // A command that a kill left in doubt is told to the model and not repeated.
        let line = results.iter().find(|line| line["id"] == format!("t{number:02}")).unwrap();
        let doubted = in_doubt.contains(line["run"].as_str().unwrap());
        assert!(ran == 1 || ran == 0 && doubted, "t{number:02} ran {ran} times");
    }
    assert!(in_doubt.len() <= 12, "four at once, three kills");
    assert_sound(&events);
    assert_eq!(events.iter().filter(|event| event["kind"] == "submitted").count(), 40);

    let ended = place.herder(&BATCH).expect(0);
    assert!(ended.err.contains(" 40/40: 40 done"), "{}", ended.err);
    assert_eq!(place.events("out.jsonl.state").len(), events.len(), "nothing was left to do");
}

#[test]
fn a_kill_before_the_first_result_loses_nothing() {
    let place = Place::new();
    // No run ends before there is the file, each waits for it in a life of its own.
    let go = || waits_for("go");
    let slow = |id: &str| task(id, json!([call("list", json!({})), go(), go(), {"text": "ready"}]));
    place.tasks("in.jsonl", &["a", "b", "c"].map(slow));
    for _ in 0..2 {
        let batch = place.start(&BATCH);
        until("a log", || is_state(&place.path("out.jsonl.state")));
        until("a result of a tool", || {
            let seen = place.herder(&["events", "--all", "--json", "--state", "out.jsonl.state"]);
            seen.out.contains("\"result\"")
        });
        batch.kill();
        assert_eq!(place.read("out.jsonl"), "");
    }
    place.write("work/go", "");
    place.herder(&BATCH).expect(0);
    let results = place.results("out.jsonl");
    assert_eq!(sorted(field(&results, "id")), ["a", "b", "c"]);
    let events = place.events("out.jsonl.state");
    assert_sound(&events);
    assert_eq!(distinct(&events, "run"), 3, "runs go on, they do not start over");
}

#[test]
fn what_the_results_tell_and_a_journal_that_lost_its_end_does_not_is_not_done_again() {
    let place = Place::new();
    let noted = |id: &str| {
        let note = call("bash", json!({"command": format!("echo {id} >> noted")}));
        task(id, json!([note, {"text": "ready"}]))
    };
    place.tasks("in.jsonl", &[noted("a")]);
    place.herder(&BATCH).expect(0);
    let log = place.path("out.jsonl.state/log.db");
    let earlier = fs::read(&log).unwrap();
    place.tasks("in.jsonl", &[noted("a"), noted("b")]);
    place.herder(&BATCH).expect(0);
    // As if what was written since had been in a write-ahead log that is gone.
    fs::write(&log, earlier).unwrap();
    let told = place.read("out.jsonl");
    for args in [&BATCH[..], &[&BATCH[..], &["--dry-run"]].concat()] {
        let refused = place.herder(args).expect(4);
        assert!(refused.err.contains("does not know of (b; 1 in all)"), "{}", refused.err);
        assert_eq!((place.read("out.jsonl"), place.read("work/noted")), (told.clone(), "a\nb\n".to_owned()));
    }
    fs::remove_file(place.path("out.jsonl")).unwrap();
    place.herder(&BATCH).expect(0);
    assert_eq!(place.read("work/noted"), "a\nb\nb\n");
}

#[test]
fn results_are_made_anew_from_the_journal_whatever_became_of_their_file() {
    let place = Place::new();
    place.tasks("in.jsonl", &[says("a", "x"), says("b", "y"), says("c", "z")]);
    place.herder(&BATCH).expect(0);
    let lines = || sorted(place.read("out.jsonl").lines().collect()).join("\n");
    let whole = place.read("out.jsonl");
    let told = lines();
    let events = place.events("out.jsonl.state").len();
    let torn = &whole[..whole.len() - 10];
    for damaged in [Some(format!("{whole}{{\"id\": \"gar")), Some(torn.to_owned()), Some(String::new()), None]
    {
        match damaged {
            Some(text) => place.write("out.jsonl", text),
            None => fs::remove_file(place.path("out.jsonl")).unwrap(),
        }
        place.herder(&BATCH).expect(0);
        assert_eq!(lines(), told);
    }
    assert_eq!(place.events("out.jsonl.state").len(), events);
    assert!(!place.path("out.jsonl.new").exists());
}

#[test]
fn results_without_their_journal_are_not_written_over() {
    let place = Place::new();
    place.tasks("in.jsonl", &[says("a", "x")]);
    place.write("out.jsonl", "precious\n");
    let ended = place.herder(&BATCH).expect(4);
    assert_eq!(
        ended.err,
        "herder: out.jsonl: has content but no journal beside it that knows of it (out.jsonl.state); move it away, name another OUT, or give \
         --daemon if that is how it came to be\n"
    );
    assert_eq!(place.read("out.jsonl"), "precious\n");
    assert!(!place.path("out.jsonl.state").exists());

    // A journal that holds nothing yet is none either.
    drop(SqliteStore::open(&empty_journal(&place), Options::default()).unwrap());
    let ended = place.herder(&[&BATCH[..], &["--state", "empty"]].concat()).expect(4);
    assert!(ended.err.contains("no journal beside it that knows of it (empty)"), "{}", ended.err);
    assert_eq!(place.read("out.jsonl"), "precious\n");
}

fn empty_journal(place: &Place) -> std::path::PathBuf {
    StateFolder::open_for_writing(&place.path("empty")).unwrap().log()
}

#[test]
fn a_changed_line_is_refused_by_name_or_starts_again() {
    let place = Place::new();
    place.tasks("in.jsonl", &[says("a", "x"), says("b", "y")]);
    place.herder(&BATCH).expect(0);
    let before = place.read("out.jsonl");
    place.tasks("in.jsonl", &[says("a", "x"), says("b", "changed")]);
    let ended = place.herder(&BATCH).expect(4);
    assert_eq!(
        ended.err,
        "herder: out.jsonl.state: the journal does not fit the input: 1 line changed since the journal was written \
         (\"b\"); undo the change, or give --restart-stale to run them again\n"
    );
    assert_eq!(place.read("out.jsonl"), before);

    place.herder(&[&BATCH[..], &["--restart-stale"]].concat()).expect(0);
    let results = place.results("out.jsonl");
    let b = results.iter().find(|line| line["id"] == "b").unwrap();
    assert_eq!((results.len(), &b["attempt"], &b["text"]), (2, &json!(2), &json!("changed")));
    place.herder(&BATCH).expect(0);
    assert_sound(&place.events("out.jsonl.state"));
}

#[test]
fn a_changed_line_of_a_run_that_was_killed_starts_again_and_its_old_run_is_ended() {
    let place = Place::new();
    place.tasks("in.jsonl", &[task("a", json!([{"text": "old", "delay_ms": 600_000}]))]);
    let batch = place.start(&BATCH);
    until("a log", || is_state(&place.path("out.jsonl.state")));
    until("a turn", || {
        let seen = place.herder(&["events", "--all", "--json", "--state", "out.jsonl.state"]);
        seen.out.contains("\"turn_start\"")
    });
    batch.kill();
    place.tasks("in.jsonl", &[says("a", "new")]);
    place.herder(&BATCH).expect(4);
    place.herder(&[&BATCH[..], &["--restart-stale"]].concat()).expect(0);
    let events = place.events("out.jsonl.state");
    assert_sound(&events);
    let ends: Vec<&str> = events
        .iter()
        .filter(|event| event["kind"] == "run_end")
        .map(|event| event["data"]["outcome"].as_str().unwrap())
        .collect();
    assert_eq!(ends, ["cancelled", "done"]);
}

#[test]
fn a_kill_between_two_attempts_does_not_use_the_second_one_up() {
    let place = Place::new();
    let drops: Vec<Value> = (0..5).map(|_| json!({"fault": "drop"})).collect();
    place.tasks("in.jsonl", &[task("weak", json!(drops))]);
    let batch_args = [&BATCH[..], &["--retries", "1"]].concat();
    let batch = place.start(&batch_args);
    until("a log", || is_state(&place.path("out.jsonl.state")));
    until("the first attempt has failed", || {
        place.herder(&["events", "--all", "--json", "--state", "out.jsonl.state"]).out.contains("\"run_end\"")
    });
    batch.kill();
    place.herder(&batch_args).expect(1);
    let results = place.results("out.jsonl");
    assert_eq!((results.len(), &results[0]["attempt"]), (1, &json!(2)));
    let events = place.events("out.jsonl.state").len();
    place.herder(&batch_args).expect(1);
    assert_eq!(place.events("out.jsonl.state").len(), events, "no attempt is left");
}

#[test]
fn a_changed_line_that_is_not_chosen_stays_stale() {
    let place = Place::new();
    place.tasks("in.jsonl", &[says("a", "x"), says("b", "y")]);
    place.herder(&BATCH).expect(0);
    place.tasks("in.jsonl", &[says("a", "changed"), says("b", "y"), says("c", "z")]);
    place.herder(&[&BATCH[..], &["--only", "c"]].concat()).expect(0);
    let ended = place.herder(&BATCH).expect(4);
    assert!(ended.err.contains("1 line changed since the journal was written (\"a\")"), "{}", ended.err);
}

#[test]
fn spelling_a_line_differently_changes_nothing() {
    let place = Place::new();
    place.write("in.jsonl", r#"{"id":"a","task":"x","workspace":"work","script":[{"text":"hé"}]}"#);
    place.herder(&BATCH).expect(0);
    place.write(
        "in.jsonl",
        "\n { \"script\": [ {\"text\": \"h\\u00e9\"} ], \"workspace\": \"work\", \"task\": \"x\", \"id\": \"a\" } \r\n",
    );
    place.herder(&BATCH).expect(0);
}

#[test]
fn a_missing_line_is_refused_and_an_added_one_runs() {
    let place = Place::new();
    place.tasks("in.jsonl", &[says("a", "x"), says("b", "y")]);
    place.herder(&BATCH).expect(0);
    let out = place.read("out.jsonl");
    place.tasks("in.jsonl", &[says("a", "x")]);
    let ended = place.herder(&BATCH).expect(4);
    assert_eq!(
        ended.err,
        "herder: out.jsonl.state: the journal does not fit the input: the input lacks 1 line of the journal (\"b\"); \
         put back what is missing, or write to another OUT\n"
    );
    assert_eq!(place.read("out.jsonl"), out);
    place.tasks("in.jsonl", &[says("new", "z"), says("b", "y"), says("a", "x")]);
    place.herder(&BATCH).expect(0);
    assert_eq!(sorted(field(&place.results("out.jsonl"), "id")), ["a", "b", "new"]);
    assert_eq!(distinct(&place.events("out.jsonl.state"), "run"), 3);
}

#[test]
fn a_state_folder_of_something_else_is_refused_and_left_as_it_is() {
    let place = Place::new();
    place.tasks("in.jsonl", &[says("a", "x")]);
    place.tasks("other.jsonl", &[says("z", "x")]);
    place.herder(&["batch", "other.jsonl", "-o", "other-out.jsonl"]).expect(0);
    let ended = place.herder(&["batch", "in.jsonl", "-o", "out.jsonl", "--state", "other-out.jsonl.state"]);
    assert!(ended.expect(4).err.contains("the input lacks 1 line of the journal (\"z\")"));

    place.write("script.json", r#"[{"text": "hi"}]"#);
    place.herder(&["run", "x", "--script", "script.json", "--state", "runs"]).expect(0);
    let ended = place.herder(&["batch", "in.jsonl", "-o", "out.jsonl", "--state", "runs"]).expect(4);
    assert_eq!(
        ended.err,
        "herder: runs: holds runs of another kind than this batch's (runs that are of no batch); name another OUT or \
         --state\n"
    );
    assert!(!place.path("out.jsonl").exists());

    fs::create_dir(place.path("files")).unwrap();
    place.write("files/notes.txt", "mine");
    let ended = place.herder(&["batch", "in.jsonl", "-o", "out.jsonl", "--state", "files"]).expect(2);
    assert!(ended.err.contains("files: not a herder state folder and not empty"), "{}", ended.err);
    assert_eq!(fs::read_dir(place.path("files")).unwrap().count(), 1);
}

#[test]
fn a_second_process_on_one_journal_is_refused_by_the_pid_of_the_first() {
    let place = Place::new();
    place.tasks("in.jsonl", &[task("a", json!([{"text": "x", "delay_ms": 600_000}]))]);
    let first = place.start(&BATCH);
    until("the first holds its folder", || {
        place.read("out.jsonl.state/lock").contains(&first.pid().to_string())
    });
    let ended = place.herder(&BATCH).expect(2);
    let holder = format!("out.jsonl.state: in use by process {};", first.pid());
    assert!(ended.err.contains(&holder), "{}", ended.err);
    first.kill();
}

#[test]
fn a_journal_of_a_newer_version_is_refused_and_left_as_it_is() {
    let place = Place::new();
    place.tasks("in.jsonl", &[says("a", "x")]);
    place.herder(&BATCH).expect(0);
    place.write("out.jsonl.state/format", "herder state 2\n");
    let out = place.read("out.jsonl");
    let told = "out.jsonl.state: state format 2 is newer than this version's 1; use a newer herder";
    for args in [
        &BATCH[..],
        &["ls", "--state", "out.jsonl.state"],
        &["batch", "in.jsonl", "-o", "out.jsonl", "--dry-run"],
    ] {
        let ended = place.herder(args).expect(6);
        assert!(ended.err.contains(told), "{}", ended.err);
    }
    assert_eq!(
        (place.read("out.jsonl"), place.read("out.jsonl.state/format")),
        (out, "herder state 2\n".to_owned())
    );
}

#[test]
fn a_call_in_doubt_is_told_to_the_model_and_not_repeated() {
    let place = Place::new();
    place.tasks("in.jsonl", &[bash("a", &format!("echo x >> ran; : {}; sleep 300", place.mark()))]);
    let batch = place.start(&BATCH);
    until("the command runs", || place.read("work/ran") == "x\n");
    batch.kill();
    place.assert_nothing_marked_runs();
    place.herder(&BATCH).expect(0);
    assert_eq!(place.read("work/ran"), "x\n");
    let events = place.events("out.jsonl.state");
    let result = events.iter().find(|event| event["kind"] == "result").unwrap();
    assert!(result["data"]["output"].as_str().unwrap().contains("outcome unknown"), "{result}");
    assert_sound(&events);
}

#[test]
fn a_run_whose_log_is_damaged_is_named_and_the_others_go_on() {
    let place = Place::new();
    let gated = |id| place.apart(id, json!([call("list", json!({})), waits_for("../go"), {"text": "x"}]));
    place.tasks("in.jsonl", &[gated("a"), gated("b"), says("c", "x")]);
    let batch = place.start(&BATCH);
    until("a log", || is_state(&place.path("out.jsonl.state")));
    until("all are under way", || {
        let seen = place.herder(&["events", "--all", "--json", "--state", "out.jsonl.state"]).out;
        seen.matches("\"kind\":\"result\"").count() == 2 && seen.contains("\"run_end\"")
    });
    batch.kill();
    place.write("go", "");
    let log = rusqlite::Connection::open(place.path("out.jsonl.state/log.db")).unwrap();
    let damaged = "UPDATE append SET body = x'00' WHERE first_seq > 1
        AND run = (SELECT pos FROM run WHERE task_id = 'a')";
    assert!(log.execute(damaged, []).unwrap() > 0);
    drop(log);

    let ended = place.herder(&BATCH).expect(1);
    let results = place.results("out.jsonl");
    assert_eq!(sorted(field(&results, "id")), ["a", "b", "c"]);
    let failed = results.iter().find(|line| line["id"] == "a").unwrap();
    assert_eq!((&failed["outcome"], &failed["detail"]), (&json!("failed"), &json!("store")));
    let run = failed["run"].as_str().unwrap();
    let told: Vec<&str> = ended.err.lines().filter(|line| line.contains(run)).collect();
    assert_eq!(told.len(), 1, "{}", ended.err);
    assert!(told[0].contains("damaged") && told[0].contains("seq"), "{}", told[0]);
    // What was set aside is no reason to name it again.
    let again = place.herder(&BATCH).expect(1);
    assert!(!again.err.contains(run), "{}", again.err);
}
