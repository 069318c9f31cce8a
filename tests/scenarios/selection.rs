//! Which tasks of a batch run, in which order, how often, and when the batch gives up.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{Place, assert_sound, field, says, sorted, task, until, waits_for};

/// Is refused by its model at once, for good.
fn refused(id: &str) -> Value {
    task(id, json!([{"fault": {"status": 401, "body": "no such key"}}]))
}

fn numbered(count: usize) -> Vec<Value> {
    (0..count).map(|number| says(&format!("t{number:02}"), "hello")).collect()
}

#[test]
fn results_come_in_the_order_of_the_input_if_it_is_to_be_kept() {
    let place = Place::new();
    let tasks =
        (0..5).map(|number| place.apart(&format!("t{number}"), json!([waits_for("go"), {"text": "x"}])));
    place.tasks("in.jsonl", &tasks.collect::<Vec<_>>());
    let args = ["batch", "in.jsonl", "-o", "out.jsonl", "-j", "5", "--policy", "trusted"];
    let batch = place.start(&args);
    for (ended, number) in (0..5).rev().enumerate() {
        place.write(&format!("t{number}/go"), "");
        until("its result", || place.results("out.jsonl").len() == ended + 1);
    }
    assert_eq!(batch.wait(), Some(0));
    assert_eq!(field(&place.results("out.jsonl"), "id"), ["t4", "t3", "t2", "t1", "t0"]);
    place.herder(&[&args[..], &["--keep-order"]].concat()).expect(0);
    assert_eq!(field(&place.results("out.jsonl"), "id"), ["t0", "t1", "t2", "t3", "t4"]);
    let faster =
        |number: u64| task(&format!("t{number}"), json!([{"text": "x", "delay_ms": 500 - 100 * number}]));
    place.tasks("more.jsonl", &(0..5).map(faster).collect::<Vec<_>>());
    let ended = place.herder(&["batch", "more.jsonl", "--keep-order"]).expect(0);
    assert_eq!(field(&ended.json(), "id"), ["t0", "t1", "t2", "t3", "t4"]);
}

#[test]
fn a_few_tasks_can_be_tried_before_the_rest() {
    let place = Place::new();
    place.tasks("in.jsonl", &numbered(6));
    let batch = |more: &[&str]| {
        place.herder(&[&["batch", "in.jsonl", "-o", "out.jsonl"], more].concat()).expect(0);
        place.results("out.jsonl")
    };
    assert_eq!(sorted(field(&batch(&["--first", "2"]), "id")), ["t00", "t01"]);
    assert_eq!(
        sorted(field(&batch(&["--only", "t05", "--only", "t03"]), "id")),
        ["t00", "t01", "t03", "t05"]
    );
    assert_eq!(batch(&[]).len(), 6);
    let runs =
        BTreeSet::from_iter(field(&place.events("out.jsonl.state"), "run").iter().map(ToString::to_string));
    assert_eq!(runs.len(), 6, "no task ran twice");
}

#[test]
fn a_seed_draws_one_order() {
    let place = Place::new();
    place.tasks("in.jsonl", &numbered(20));
    let order = |seed: &str| {
        let ended = place.herder(&["batch", "in.jsonl", "-j", "1", "--shuffle", "--seed", seed]).expect(0);
        field(&ended.json(), "id").iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let first = order("7");
    assert_eq!(first, order("7"));
    assert_ne!(first, order("8"));
    assert!(!first.is_sorted());
}

#[test]
fn a_task_of_high_priority_starts_first_though_it_comes_last() {
    let place = Place::new();
    let mut tasks = numbered(60);
    tasks.push(
        json!({"id": "urgent", "task": "x", "workspace": "work", "priority": 5, "script": [{"text": "y"}]}),
    );
    place.tasks("in.jsonl", &tasks);
    place.herder(&["batch", "in.jsonl", "-o", "out.jsonl", "-j", "1"]).expect(0);
    assert_eq!(field(&place.results("out.jsonl"), "id")[0], "urgent");
}

#[test]
fn a_task_can_be_sampled_more_than_once() {
    let place = Place::new();
    place.tasks("in.jsonl", &numbered(2));
    let args = ["batch", "in.jsonl", "-o", "out.jsonl", "--repeat", "3"];
    place.herder(&args).expect(0);
    let results = place.results("out.jsonl");
    assert_eq!(sorted(field(&results, "id")), ["t00#1", "t00#2", "t00#3", "t01#1", "t01#2", "t01#3"]);
}

#[test]
fn a_task_that_fails_in_passing_gets_another_attempt_and_one_line() {
    let place = Place::new();
    let drops: Vec<Value> = (0..5).map(|_| json!({"fault": "drop"})).collect();
    place.tasks("in.jsonl", &[task("weak", json!(drops)), refused("barred")]);
    let ended = place.herder(&["batch", "in.jsonl", "-o", "out.jsonl", "--retries", "1"]).expect(1);
    assert!(ended.err.contains("2/2: 2 provider_error"), "{}", ended.err);
    let results = place.results("out.jsonl");
    let weak = results.iter().find(|line| line["id"] == "weak").unwrap();
    let barred = results.iter().find(|line| line["id"] == "barred").unwrap();
    assert_eq!((results.len(), &weak["attempt"], &weak["detail"]), (2, &json!(2), &json!("transient")));
    assert_eq!(
        (&barred["attempt"], &barred["detail"]),
        (&json!(1), &json!("auth")),
        "no use in trying again"
    );
    let events = place.events("out.jsonl.state");
    assert_sound(&events);
    let submitted: Vec<&Value> = events
        .iter()
        .filter(|event| event["kind"] == "submitted" && event["data"]["task_id"] == "weak")
        .collect();
    assert_eq!(submitted.len(), 2);
    assert_eq!(submitted[1]["data"]["predecessor"], submitted[0]["run"]);
}

#[test]
fn failed_tasks_get_another_attempt_when_it_is_asked_for() {
    let place = Place::new();
    place.tasks("in.jsonl", &[says("good", "x"), refused("barred")]);
    let batch = |more: &[&str]| {
        place.herder(&[&["batch", "in.jsonl", "-o", "out.jsonl"], more].concat()).expect(1);
        let results = place.results("out.jsonl");
        assert_eq!(sorted(field(&results, "id")), ["barred", "good"]);
        let attempt = |id| results.iter().find(|line| line["id"] == id).unwrap()["attempt"].as_u64().unwrap();
        (attempt("good"), attempt("barred"))
    };
    assert_eq!(batch(&[]), (1, 1));
    assert_eq!(batch(&[]), (1, 1));
    assert_eq!(batch(&["--retry-failed=budget"]), (1, 1));
    assert_eq!(batch(&["--retry-failed=auth"]), (1, 2));
    assert_eq!(batch(&["--retry-failed"]), (1, 3));
    let ended = place.herder(&["batch", "in.jsonl", "-o", "out.jsonl", "--retry-failed=nonsense"]).expect(2);
    assert!(ended.err.contains("want nothing, or one of budget, cancelled, blocked"), "{}", ended.err);
}

#[test]
fn a_batch_that_halts_soon_starts_nothing_more_and_lets_runs_end() {
    let place = Place::new();
    let mut tasks = vec![refused("bad-1"), refused("bad-2")];
    tasks.extend(numbered(30));
    place.tasks("in.jsonl", &tasks);
    let args = ["batch", "in.jsonl", "-o", "out.jsonl", "-j", "1"];
    let ended = place.herder(&[&args[..], &["--halt", "soon,fail=2"]].concat()).expect(3);
    assert!(ended.err.contains("halted: "), "{}", ended.err);
    let results = place.results("out.jsonl");
    assert_eq!(field(&results, "id")[..2], ["bad-1", "bad-2"]);
    // The next one may have had its slot before the second failure was known.
    assert!(results.len() <= 4, "{}", results.len());
    assert!(field(&results, "outcome")[2..].iter().all(|outcome| *outcome == "done"));

    place.herder(&args).expect(1);
    assert_eq!(place.results("out.jsonl").len(), 32);
    assert_sound(&place.events("out.jsonl.state"));
}

#[test]
fn a_batch_that_halts_shows_how_a_task_failed_whose_next_attempt_waited_for_room() {
    let place = Place::new();
    let drops: Vec<Value> = (0..5).map(|_| json!({"fault": "drop"})).collect();
    let bad = json!([{"fault": {"status": 401, "body": "no such key"}, "delay_ms": 3_000}]);
    // More than are on their way at once.
    let late = numbered(40);
    place.tasks("in.jsonl", &[vec![task("weak", json!(drops)), task("bad", bad)], late].concat());
    let args = ["batch", "in.jsonl", "-o", "out.jsonl", "-j", "1", "--retries", "1"];
    place.herder(&[&args[..], &["--halt", "soon,fail=1"]].concat()).expect(3);
    let mut results = place.results("out.jsonl");
    results.retain(|line| line["outcome"] != "done");
    assert_eq!(sorted(field(&results, "id")), ["bad", "weak"]);
    assert_eq!((&results[0]["attempt"], &results[1]["attempt"]), (&json!(1), &json!(1)));
}

#[test]
fn a_batch_that_halts_now_interrupts_what_runs_and_goes_on_later() {
    let place = Place::new();
    let slow = task("slow", json!([{"text": "x", "delay_ms": 600_000}]));
    place.tasks("in.jsonl", &[slow, refused("bad"), says("late", "x")]);
    let args = ["batch", "in.jsonl", "-o", "out.jsonl", "-j", "2", "--halt", "now,fail=30%"];
    let ended = place.herder(&args[..]).expect(3);
    assert!(ended.err.contains("not finished; the same command continues"), "{}", ended.err);
    let halted = place.herder(&[&args[..], &["--retry-failed", "--json"]].concat()).expect(3).err;
    let last: Value = serde_json::from_str(halted.lines().last().unwrap()).unwrap();
    let ended = last["ended"].as_u64().unwrap();
    assert_eq!((&last["halted"], &last["unfinished"]), (&json!(true), &json!(3 - ended)));
    let rerun = place.herder(&["batch", "in.jsonl", "-o", "out.jsonl", "--only", "late"]).expect(0);
    assert!(rerun.err.contains("1/1: 1 done"), "{}", rerun.err);
    let listed = place.herder(&["ls", "--json", "--state", "out.jsonl.state"]).expect(0).json();
    let slow = listed.iter().find(|run| run["task_id"] == "slow").unwrap();
    assert_eq!(slow["outcome"], Value::Null, "interrupted, not ended");
}

#[test]
fn a_dry_run_says_what_would_run_and_changes_nothing() {
    let place = Place::new();
    place.tasks("in.jsonl", &numbered(3));
    let before = place.names();
    let args = ["batch", "in.jsonl", "-o", "out.jsonl", "--dry-run"];
    let ended = place.herder(&args).expect(0);
    assert_eq!(
        ended.out,
        "3 tasks, 3 chosen: 3 would start, 0 would go on, 0 have ended. Nothing was run.\n"
    );
    assert_eq!(place.names(), before);

    place.herder(&["batch", "in.jsonl", "-o", "out.jsonl", "--first", "1"]).expect(0);
    let out = place.read("out.jsonl");
    place.write("out.jsonl", format!("{out}torn"));
    let told = place.herder(&[&args[..], &["--json"]].concat()).expect(0).json();
    assert_eq!((&told[0]["start"], &told[0]["settled"]), (&json!(2), &json!(1)));
    assert_eq!(place.read("out.jsonl"), format!("{out}torn"));
}
