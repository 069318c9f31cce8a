//! Runs of the daemon: submitted, followed, listed, spoken to, held, ended, given another attempt; and what is refused.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    daemon::{Daemon, has, shown, submit},
    support::{Place, call, field, until},
};

/// Calls a command that ends once the file `go-NAME` is there.
fn gate(name: &str) -> Value {
    let command = format!("until [ -e go-{name} ]; do sleep 0.02; done");
    call("bash", json!({"command": command}))
}

fn open(place: &Place, name: &str) {
    place.write(&format!("work/go-{name}"), "");
}

fn endless() -> Value {
    json!([{"text": "x", "delay_ms": 600_000}])
}

#[test]
fn a_task_is_followed_word_by_word_and_in_order() {
    let place = Place::new();
    let _daemon = Daemon::start(&place);
    let list = |text: &str| json!({"text": text, "calls": [{"name": "list", "arguments": {}}]});
    place.write("script", json!([list("First."), list("Second."), {"text": "Last."}]).to_string());
    let args = ["submit", "Look\ntwice", "--script", "script", "-w", "work", "--follow"];
    let ended = place.herder(&args).expect(0);
    let run = ended.out.lines().next().unwrap();
    let told: Vec<&str> = ended.out.lines().skip(2).collect();
    let calls = |text: &'static str| [text, "→ list {}", "← ok", "  The folder is empty."];
    let last = told.last().unwrap();
    let want = [&["Look", "twice"][..], &calls("First."), &calls("Second."), &["Last."]].concat();
    assert_eq!(told[..told.len() - 1], want[..]);
    assert!(last.starts_with("run_end done (3 turns, 2 calls, "), "{last}");
    assert_eq!(place.herder(&["logs", run]).expect(0).out, ended.out[run.len() + 1..]);
    assert_eq!(place.herder(&["logs", "-f", run]).expect(0).out, ended.out[run.len() + 1..]);

    let seqs = |args: &[&str]| -> Vec<u64> {
        let events = place.herder(args).expect(0).json();
        events.iter().map(|event| event["seq"].as_u64().unwrap()).collect()
    };
    let all: Vec<u64> = (1..=shown(&place, run)["events"].as_u64().unwrap()).collect();
    assert_eq!(seqs(&["events", run, "--json"]), all);
    assert_eq!(seqs(&["events", run, "--json", "--follow", "--after", "3"]), all[3..]);
    assert_eq!(seqs(&["logs", run, "--json"]), all);
    assert_eq!(seqs(&["events", "--all", "--json"]), all);
}

#[test]
fn a_run_that_is_not_done_ends_whoever_waits_for_it_with_one() {
    let place = Place::new();
    let _daemon = Daemon::start(&place);
    place.write("script", json!([{"fault": {"status": 400}}]).to_string());
    let args = ["submit", "Do it", "--script", "script", "-w", "work", "--id", "a"];
    let ended = place.herder(&[&args[..], &["--wait", "--json", "--key", "K"]].concat()).expect(1);
    let lines = ended.json();
    assert_eq!((&lines[0]["changed"], &lines[1]["outcome"]), (&json!(true), &json!("provider_error")));
    let again = place.herder(&[&args[..], &["--json", "--key", "K"]].concat()).expect(0).json();
    assert_eq!((&again[0]["id"], &again[0]["changed"]), (&lines[0]["id"], &json!(false)));
    let told = place.herder(&["wait", "a"]).expect(1).out;
    assert!(told.ends_with("  a  provider_error: invalid: HTTP 400\n"), "{told}");
    assert_eq!(place.herder(&["submit", "other", "--model", "scripted:x", "--key", "K"]).expect(2).out, "");
}

#[test]
fn runs_are_listed_and_counted_by_what_narrows_them() {
    let place = Place::new();
    let _daemon = Daemon::start(&place);
    for (id, team) in [("a", "x"), ("b", "y")] {
        submit(&place, id, &json!([{"text": "hello"}]), &["-l", &format!("team={team}"), "--wait"]);
    }
    submit(&place, "c", &endless(), &["-l", "team=y"]);
    let ids = |args: &[&str]| {
        let runs = place.herder(&[&["ls", "--json"], args].concat()).expect(0).json();
        field(&runs, "task_id").join(" ")
    };
    assert_eq!(ids(&[]), "a b c");
    assert_eq!(ids(&["-l", "team=y"]), "b c");
    assert_eq!(ids(&["--outcome", "done"]), "a b");
    until("it runs", || ids(&["--standing", "running"]) == "c");
    assert_eq!(ids(&["--limit", "1", "--since", "1h"]), "c");
    assert_eq!(place.herder(&["ls", "--task", "none"]).expect(0).err, "herder: no runs\n");
    let table = place.herder(&["ls"]).expect(0).out;
    assert!(table.starts_with("RUN ") && table.lines().count() == 4, "{table}");

    let csv = place.herder(&["stats", "--by", "label:team", "--csv"]).expect(0).out;
    assert!(csv.starts_with("label:team,runs,done,") && csv.contains("\nx,1,1,"), "{csv}");
    let stats = place.herder(&["stats", "--by", "outcome", "--json"]).expect(0).json();
    assert_eq!(sorted_pairs(&stats), [("done", 2), ("open", 1)]);
    let models = place.herder(&["models", "--json"]).expect(0).json();
    assert_eq!((&models[0]["provider"], &models[0]["open_runs"]), (&json!("scripted"), &json!(1)));
    let verbs = place.herder(&["audit", "--json", "--verb", "submit"]).expect(0).json();
    assert_eq!(verbs.len(), 3);
    assert_eq!(place.herder(&["batches"]).expect(0).err, "herder: no batches\n");
}

fn sorted_pairs(stats: &[Value]) -> Vec<(&str, u64)> {
    let mut pairs: Vec<_> =
        stats.iter().map(|row| (row["group"].as_str().unwrap(), row["runs"].as_u64().unwrap())).collect();
    pairs.sort_unstable();
    pairs
}

#[test]
fn what_is_said_to_a_run_is_heard_before_its_next_turn_or_where_it_would_end() {
    let place = Place::new();
    let _daemon = Daemon::start(&place);
    submit(&place, "a", &json!([gate("a"), {"text": "one"}, {"text": "two"}]), &[]);
    until("its command runs", || has(&place, "a", "call_started"));
    let refused = place.herder(&["steer", "a", "no", "--turn", "7"]).expect(1);
    assert!(refused.err.contains("turn 1 now"), "{}", refused.err);
    assert_eq!(place.herder(&["steer", "a", "Be brief", "--turn", "1"]).expect(0).out, "");
    assert_eq!(place.herder(&["follow-up", "a", "And now?", "--json"]).expect(0).json()[0]["changed"], true);
    open(&place, "a");
    place.herder(&["wait", "a"]).expect(0);
    let messages = place.herder(&["show", "a", "--messages", "--json"]).expect(0).json().remove(0);
    let said: Vec<&str> = field(messages.as_array().unwrap(), "content");
    assert_eq!(said[said.len() - 4..], ["Be brief", "one", "And now?", "two"]);
    assert_eq!(place.herder(&["steer", "a", "late"]).expect(1).out, "");
    assert_eq!(place.herder(&["follow-up", "none", "x"]).expect(2).out, "");
}

#[test]
fn a_run_is_held_before_its_next_request_and_goes_on_with_other_limits() {
    let place = Place::new();
    let _daemon = Daemon::start(&place);
    submit(&place, "a", &json!([gate("a"), {"text": "one"}]), &[]);
    until("its command runs", || has(&place, "a", "call_started"));
    assert_eq!(place.herder(&["pause", "a", "--dry-run"]).expect(0).out.lines().count(), 2);
    assert_eq!(place.herder(&["pause", "a"]).expect(0).out, "paused 1\n");
    assert_eq!(place.herder(&["pause", "a"]).expect(0).out, "paused 0, 1 was so already\n");
    open(&place, "a");
    until("it is held", || shown(&place, "a")["state"] == "paused");
    assert_eq!(place.herder(&["set", "a", "max_turns=7"]).expect(0).out, "changed\n");
    assert_eq!(shown(&place, "a")["max_turns"], 7);
    assert_eq!(place.herder(&["resume", "a", "--json"]).expect(0).json()[0]["target"], "a");
    place.herder(&["wait", "a"]).expect(0);
    assert_eq!(place.herder(&["pause", "a"]).expect(1).out, "paused 0, 1 had ended\n");
}

#[test]
fn everything_or_a_model_is_held_and_let_go() {
    let place = Place::new();
    let _daemon = Daemon::start(&place);
    for whole in [&["--all"][..], &["--all", "--soft"], &["--model", "scripted:inline"]] {
        let verb = |verb| [&[verb][..], whole].concat();
        assert_eq!(place.herder(&verb("pause")).expect(0).out, "paused 1\n");
        let id = format!("task{}", whole.join(""));
        submit(&place, &id, &json!([{"text": "x"}]), &[]);
        let status = place.herder(&["status", "--json"]).expect(0).json().remove(0);
        assert_eq!(status["paused"].as_array().unwrap().len(), 1, "{status}");
        let waited = place.herder(&["wait", &id, "--timeout", "1s"]).expect(1);
        assert!(waited.err.contains("the time is over"), "{}", waited.err);
        let resume: Vec<&str> = verb("resume").into_iter().filter(|word| *word != "--soft").collect();
        assert_eq!(place.herder(&resume).expect(0).out, "resumed 1\n");
        place.herder(&["wait", &id]).expect(0);
    }
}

#[test]
fn a_run_or_one_call_of_it_is_cancelled_and_its_task_gets_another_attempt() {
    let place = Place::new();
    let _daemon = Daemon::start(&place);
    let sleep = call("bash", json!({"command": "sleep 300"}));
    submit(&place, "a", &json!([sleep, {"text": "went on", "delay_ms": 600_000}]), &[]);
    until("its command runs", || has(&place, "a", "call_started"));
    let open = shown(&place, "a")["open_calls"][0]["call"].as_str().unwrap().to_owned();
    assert_eq!(place.herder(&["cancel", "a", "--call", &open]).expect(0).out, "cancelled\n");
    until("the run goes on", || shown(&place, "a")["turns"] == 2);
    assert_eq!(place.herder(&["cancel", "a", "--call", &open]).expect(2).out, "");
    assert_eq!(place.herder(&["requeue", "a"]).expect(1).out, "requeued 0, 1 had not ended\n");
    assert_eq!(place.herder(&["cancel", "a"]).expect(0).out, "cancelled 1\n");
    place.herder(&["wait", "a"]).expect(1);
    assert_eq!(shown(&place, "a")["outcome"], "cancelled");
    let again = place.herder(&["cancel", "a"]).expect(0).out;
    assert_eq!(again, "cancelled 0, 1 had ended or was ending already\n");
    assert_eq!(place.herder(&["requeue", "--outcome", "cancelled"]).expect(0).out, "requeued 1\n");
    assert_eq!(shown(&place, "a")["attempt"], 2);
    let dry = place.herder(&["cancel", "--all", "--dry-run"]).expect(0).err;
    assert!(dry.contains("everything: 1 open runs, 0 batches; nothing was done"), "{dry}");
    assert_eq!(place.herder(&["cancel", "--all"]).expect(0).out, "cancelled 1\n");
}

#[test]
fn what_cannot_be_done_is_refused_and_nothing_is_done() {
    let place = Place::new();
    let _daemon = Daemon::start(&place);
    let told = |args: &[&str], code: i32, want: &str| {
        let ended = place.herder(args).expect(code);
        assert!(ended.err.contains(want), "{args:?}: {}", ended.err);
        assert!(ended.err.starts_with("herder: "), "{}", ended.err);
    };
    told(&["submit", "x"], 2, "model: is missing");
    told(&["submit", "x", "--model", "none:x"], 2, "no provider is called \"none\"");
    told(&["submit", "x", "--policy", "trusted"], 2, "is the daemon's own setting");
    told(&["show", "none"], 2, "no run or task is called \"none\"");
    told(&["logs", "none"], 2, "no run or task is called \"none\"");
    told(&["wait", "none"], 2, "no run, task or batch is called \"none\"");
    told(&["cancel"], 2, "or say --all");
    told(&["cancel", "--batch", "none"], 2, "none");
    told(&["pause", "--model", "none"], 2, "none");
    told(&["set", "max_live_runs=0"], 2, "max_live_runs");
    told(&["set", "--batch", "none", "concurrency=1"], 2, "none");
    assert_eq!(place.herder(&["ls", "--json"]).expect(0).out, "");
}

#[test]
fn whoever_follows_may_leave_and_the_run_goes_on() {
    let place = Place::new();
    let _daemon = Daemon::start(&place);
    submit(&place, "a", &endless(), &[]);
    let follower = place.start(&["logs", "-f", "a"]);
    until("it follows", || place.read("out.txt").contains("Do it"));
    follower.signal(Signal::INT);
    assert_eq!(follower.wait(), Some(130));
    place.write("script", endless().to_string());
    let submitter = place.start(&["submit", "x", "--script", "script", "--wait"]);
    until("it is submitted", || {
        place.read("out.txt").ends_with('\n') && !place.read("out.txt").contains("Do")
    });
    submitter.signal(Signal::INT);
    assert_eq!(submitter.wait(), Some(130));
    assert!(place.read("err.txt").contains("goes on; `herder logs -f "), "{}", place.read("err.txt"));
    let open = place.herder(&["ls", "--json", "--standing", "queued,running"]).expect(0).json();
    assert_eq!(open.len(), 2);
}
