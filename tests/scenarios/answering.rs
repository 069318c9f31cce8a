//! Answers to approvals: several at once, what is shown of them afterwards, and what the record says of who gave them.

use serde_json::json;

use crate::support::{Ended, Place, bash, call, task};

const STATE: &str = "out.jsonl.state";
const BATCH: [&str; 7] = ["batch", "in.jsonl", "-o", "out.jsonl", "--policy", "careful", "--park"];

/// Three tasks, a, b and c, that wait for an answer about one command each.
fn asked() -> Place {
    let place = Place::new();
    place.tasks("in.jsonl", &["a", "b", "c"].map(|id| bash(id, "echo done >> witness")));
    let told = place.herder(&BATCH).expect(1).err;
    assert!(told.contains("0 queued, 3 waiting: approval"), "{told}");
    place
}

fn on_state(place: &Place, args: &[&str]) -> Ended {
    place.herder(&[args, &["--state", STATE]].concat())
}

fn open(place: &Place) -> usize {
    on_state(place, &["approvals", "--json"]).expect(0).json().len()
}

#[test]
fn of_several_names_none_is_answered_if_one_is_no_approvals() {
    let place = asked();
    for verb in ["approve", "reject"] {
        for more in [&[][..], &["--dry-run"]] {
            let ended =
                on_state(&place, &[&[verb, "a.1", "nobody.1", "b.1", "c.2"], more].concat()).expect(2);
            assert_eq!(ended.out, "");
            let told: Vec<&str> = ended.err.lines().collect();
            assert_eq!(told.len(), 3, "{told:?}");
            assert!(told[0].starts_with("herder: nobody.1: no run or task is called"), "{told:?}");
            assert!(
                told[1].starts_with("herder: c.2: ") && told[1].contains("has no approval 2"),
                "{told:?}"
            );
            assert_eq!(told[2], "herder: nothing was answered");
        }
    }
    assert_eq!(open(&place), 3);
    on_state(&place, &["approve", "b.1"]).expect(0);
    let late = on_state(&place, &["approve", "a.1", "b.1", "c.1"]).expect(1);
    assert_eq!(late.out, "a.1 approved\nc.1 approved\n", "what has an answer keeps no other back");
    assert!(late.err.starts_with("herder: b.1: it was approved already"), "{}", late.err);
    assert_eq!(open(&place), 0);
}

#[test]
fn a_run_does_not_wait_for_an_approval_any_more_that_was_answered() {
    let place = asked();
    let standing = |id: &str| {
        let shown = on_state(&place, &["show", id, "--json"]).expect(0).json().remove(0);
        (shown["state"].as_str().unwrap().to_owned(), shown["phase"].as_str().unwrap().to_owned())
    };
    assert_eq!(standing("a"), ("paused".to_owned(), "waits for approval a.1".to_owned()));
    on_state(&place, &["approve", "a.1"]).expect(0);
    let answered = "answered: nobody is at work on it; it goes on at the next start";
    assert_eq!(standing("a"), ("queued".to_owned(), answered.to_owned()));
    let listed = on_state(&place, &["ls", "--standing", "queued"]).expect(0).out;
    assert!(listed.contains("answered: nobody is at work on it") && !listed.contains("waits"), "{listed}");
    assert_eq!(standing("b").1, "waits for approval b.1");
}

#[test]
fn the_record_says_in_words_who_answered_what_and_how() {
    let place = asked();
    on_state(&place, &["approve", "a.1", "--command-id", "k1", "--for-run", "=echo done >> witness"])
        .expect(0);
    on_state(&place, &["reject", "b.1", "--command-id", "k2", "--reason", "not now"]).expect(0);
    let events = on_state(&place, &["events", "--all"]).expect(0).out;
    let resolved: Vec<&str> = events.lines().filter(|line| line.contains("approval_resolved")).collect();
    assert_eq!(resolved.len(), 2, "{events}");
    assert!(resolved[0].contains(" approved by "), "{resolved:?}");
    assert!(
        resolved[0].ends_with(r#" (command k1), as is every bash that fits "=echo done >> witness""#),
        "{resolved:?}"
    );
    assert!(resolved[1].contains(" rejected by "), "{resolved:?}");
    assert!(resolved[1].ends_with(r#" (command k2): "not now""#), "{resolved:?}");

    let line = |id: &str| {
        let shown = on_state(&place, &["show", id]).expect(0).out;
        shown.lines().find(|line| line.starts_with("approval ")).expect("a line").to_owned()
    };
    assert!(line("a").starts_with("approval   a.1 bash echo done >> witness: approved by "), "{}", line("a"));
    assert!(line("a").ends_with(" (command k1), for run =echo done >> witness"), "{}", line("a"));
    assert!(line("b").contains(": not now at ") && line("b").ends_with(" (command k2)"), "{}", line("b"));
    assert_eq!(line("c"), "approval   c.1 bash echo done >> witness: waits for an answer");
}

#[test]
fn the_record_says_of_an_approval_that_expired_and_of_a_call_that_was_denied() {
    let place = Place::new();
    let secret = call("read", json!({"path": ".env"}));
    place.tasks("in.jsonl", &[bash("late", "echo x"), task("secret", json!([secret, {"text": "ready"}]))]);
    place.write("work/.env", "KEY=1");
    place.herder(&[&BATCH[..], &["--approval-timeout", "1"]].concat()).expect(0);
    let events = on_state(&place, &["events", "--all"]).expect(0).out;
    let found = |what: &str| events.lines().find(|line| line.contains(what)).unwrap_or_default().to_owned();
    assert!(found("approval_requested").contains("; denied by itself at "), "{events}");
    assert!(found("approval_resolved").contains(" expired"), "{events}");
    assert!(found(" denied: rule 1 of policy careful").contains("secrets are closed"), "{events}");
}

#[test]
fn names_of_approvals_are_short_and_stand_for_them_also_once_they_are_answered() {
    let place = asked();
    let script = json!([call("bash", json!({"command": "echo x"})), {"text": "ready"}]);
    place.write("script.json", script.to_string());
    for _ in 0..2 {
        let run = ["run", "x", "--script", "script.json", "-w", "work", "--policy", "careful", "--park"];
        on_state(&place, &run).expect(1);
    }
    on_state(&place, &["reject", "b.1"]).expect(0);
    let listed = on_state(&place, &["approvals", "--all"]).expect(0).out;
    let names: Vec<&str> = listed.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names[..3], ["a.1", "b.1", "c.1"], "{listed}");
    assert_eq!(names.len(), 5, "{listed}");
    for (name, asked) in
        names.iter().zip(on_state(&place, &["approvals", "--all", "--json"]).expect(0).json())
    {
        assert!(name.len() <= 25, "{name}");
        assert_eq!(asked["name"], *name);
        let shown = on_state(&place, &["approvals", "show", name, "--json"]).expect(0).json();
        assert_eq!(shown[0]["id"], asked["id"], "{name}");
    }
}

#[test]
fn approvals_take_only_filters_that_they_can_be_narrowed_by() {
    let place = Place::new();
    for command in ["approvals", "approve", "reject"] {
        let help = place.herder(&[command, "--help"]).expect(0).out;
        assert!(help.contains("--label") && !help.contains("--outcome") && !help.contains("--standing"));
        assert!(place.herder(&[command, "--outcome", "done"]).expect(2).err.contains("unexpected argument"));
    }
}
