//! SIGINT, SIGTERM and SIGKILL: what ends, what goes on later, and that no process of a tool is left.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Ended, Place, Started, assert_sound, bash, says, sorted, task, until, waits_for};

const BATCH: [&str; 8] = ["batch", "in.jsonl", "-o", "out.jsonl", "--policy", "trusted", "-j", "2"];

/// A command that would go on for minutes, with children in the background and in a session of their own.
fn endless(place: &Place, id: &str) -> Value {
    let mark = place.mark();
    bash(id, &format!("export MARK={mark}; echo up > up-{id}; sleep 300 & setsid sleep 300 & sleep 300"))
}

/// Says its first word later than anybody waits.
fn slow(id: &str) -> Value {
    task(id, json!([{"text": "ready", "delay_ms": 600_000}]))
}

fn turns_begun(place: &Place) -> usize {
    let seen = place.herder(&["events", "--all", "--json", "--state", "out.jsonl.state"]);
    seen.out.matches("\"turn_start\"").count()
}

fn told(place: &Place, text: &str) -> bool {
    place.read("err.txt").contains(text)
}

fn end_of(started: Started) -> i32 {
    started.wait().expect("it ends by itself")
}

#[test]
fn one_signal_lets_turns_end_and_the_same_command_goes_on() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let place = Place::new();
        let gated = |id| place.apart(id, json!([waits_for("../go"), {"text": "ready"}]));
        let mut tasks = vec![gated("a"), gated("b")];
        tasks.extend((0..30).map(|number| says(&format!("t{number}"), "x")));
        place.tasks("in.jsonl", &tasks);
        let batch = place.start(&[&BATCH[..], &["--drain", "600s"]].concat());
        until("both are in their turn", || turns_begun(&place) == 2);
        batch.signal(signal);
        until("it is told", || told(&place, "stopping: runs end their turn"));
        place.write("go", "");
        assert_eq!(end_of(batch), code);
        let err = place.read("err.txt");
        assert!(err.contains("herder: stopping: runs end their turn; once more stops at once"), "{err}");
        assert!(err.contains("herder: 32 tasks not finished; the same command continues"), "{err}");
        let events = place.events("out.jsonl.state");
        let of_kind = |kind: &str| events.iter().filter(|event| event["kind"] == kind).count();
        assert_eq!(
            (of_kind("message"), of_kind("turn_end")),
            (2, 2),
            "each ended its turn, none got further"
        );
        assert_eq!(of_kind("run_end"), 0);

        place.herder(&BATCH).expect(0);
        assert_eq!(place.results("out.jsonl").len(), 32);
        let events = place.events("out.jsonl.state");
        assert_sound(&events);
        assert_eq!(events.iter().filter(|event| event["kind"] == "submitted").count(), 32);
    }
}

#[test]
fn two_signals_stop_at_once_and_leave_no_process_of_a_tool() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let place = Place::new();
        place.tasks("in.jsonl", &[endless(&place, "a"), slow("b"), says("c", "x")]);
        let batch = place.start(&BATCH);
        until("the command runs", || place.read("work/up-a") == "up\n" && turns_begun(&place) == 2);
        assert!(!place.marked().is_empty());
        batch.signal(signal);
        until("it is told", || told(&place, "stopping: runs end their turn"));
        batch.signal(signal);
        assert_eq!(end_of(batch), code);
        assert!(told(&place, "herder: stopping now\n"), "{}", place.read("err.txt"));
        assert_eq!(place.marked(), Vec::<String>::new(), "nothing is left when it has ended");
        assert_eq!(place.results("out.jsonl"), Vec::<Value>::new());

        let rerun =
            ["batch", "in.jsonl", "-o", "out.jsonl", "--policy", "trusted", "--only", "a", "--only", "c"];
        place.herder(&rerun).expect(0);
        assert_eq!(sorted(crate::support::field(&place.results("out.jsonl"), "id")), ["a", "c"]);
    }
}

#[test]
fn a_drain_whose_time_is_up_interrupts_the_rest_and_leaves_no_process() {
    let place = Place::new();
    place.tasks("in.jsonl", &[endless(&place, "a")]);
    let batch = place.start(&[&BATCH[..], &["--drain", "1s"]].concat());
    until("the command runs", || place.read("work/up-a") == "up\n");
    batch.signal(Signal::TERM);
    assert_eq!(end_of(batch), 143);
    assert_eq!(place.marked(), Vec::<String>::new());
    let events = place.events("out.jsonl.state");
    assert_eq!(events.iter().filter(|event| event["kind"] == "run_end").count(), 0);
}

#[test]
fn a_kill_leaves_no_process_of_a_tool() {
    let place = Place::new();
    place.write("tool.toml", format!(
        "[command_tools.wait]\ndescription = \"d\"\ncommand = [\"sh\", \"-c\", \"echo up > up-own; MARK={} sleep 300\"]\n\
         schema = {{ type = \"object\" }}\n",
        place.mark(),
    ));
    let other =
        json!({"id": "own", "task": "x", "workspace": "other", "script": [{"calls": [{"name": "wait"}]}]});
    std::fs::create_dir(place.path("other")).unwrap();
    place.tasks("in.jsonl", &[endless(&place, "a"), other]);
    let batch = place.start(&[&BATCH[..], &["--config", "tool.toml"]].concat());
    until("both commands run", || place.read("work/up-a") == "up\n" && place.read("other/up-own") == "up\n");
    until("they are seen", || place.marked().len() >= 4);
    batch.kill();
    place.assert_nothing_marked_runs();
}

#[test]
fn a_batch_that_is_done_when_the_signal_comes_is_done() {
    let place = Place::new();
    place.tasks("in.jsonl", &[task("a", json!([{"text": "x", "delay_ms": 1_000}]))]);
    let batch = place.start(&BATCH);
    until("it thinks", || turns_begun(&place) == 1);
    batch.signal(Signal::INT);
    assert_eq!(end_of(batch), 0, "its only run ended with its turn");
    assert_eq!(place.results("out.jsonl").len(), 1);
}

#[test]
fn signals_are_heeded_while_nobody_reads_the_results() {
    let place = Place::new();
    let long = "x".repeat(4_000);
    let tasks: Vec<Value> = (0..300).map(|number| says(&format!("t{number}"), &long)).collect();
    place.tasks("in.jsonl", &tasks);
    let (_unread, out) = std::io::pipe().unwrap();
    let err = std::fs::File::create(place.path("err.txt")).unwrap();
    let args =
        ["batch", "in.jsonl", "-o", "-", "--state", "out.jsonl.state", "-j", "2", "--progress", "none"];
    let child = place.command(&args).stdout(out).stderr(err).spawn().unwrap();
    let batch = Started::from(child);
    let mut seen = 0;
    until("it waits for a reader", || {
        let before = std::mem::replace(&mut seen, turns_begun(&place));
        seen > 64 && seen == before
    });
    assert!(seen < 300, "it waits for whoever reads");
    batch.signal(Signal::INT);
    until("it is told", || told(&place, "stopping: runs end their turn"));
    batch.signal(Signal::INT);
    let code = end_of(batch);
    assert_eq!(code, 130);
}

#[test]
fn results_that_cannot_be_written_stop_everything_and_leave_no_process() {
    let place = Place::new();
    let mut tasks = vec![endless(&place, "a")];
    let late = |number| place.apart(&format!("t{number}"), json!([waits_for("../work/up-a"), {"text": "x"}]));
    tasks.extend((1..=4).map(late));
    place.tasks("in.jsonl", &tasks);
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let args = ["batch", "in.jsonl", "--policy", "trusted", "--state", "kept", "-j", "5"];
    let ended = Ended::of(&place.command(&args).stdout(full).output().unwrap()).expect(1);
    assert!(place.path("work/up-a").exists(), "the command was under way");
    assert_eq!(place.marked(), Vec::<String>::new(), "nothing is left when it has ended");
    let last = ended.err.lines().last().unwrap();
    assert!(last.starts_with("herder: stdout: cannot be written: "), "{}", ended.err);
}
