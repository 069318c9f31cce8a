//! Going on from a run that has ended, without a daemon.

use serde_json::json;

use crate::support::{Place, bash, call, says};

const STATE: &str = "out.jsonl.state";

#[test]
fn a_run_of_a_folder_is_gone_on_from_in_that_folder() {
    let place = Place::new();
    place.tasks("in.jsonl", &[says("a", "first words")]);
    let batch = ["batch", "in.jsonl", "-o", "out.jsonl", "--policy", "trusted"];
    place.herder(&batch).expect(0);
    let script = json!([call("bash", json!({"command": "echo done >> witness"})), {"text": "more words"}]);
    place.write("script.json", script.to_string());
    let go_on = ["continue", "a", "Now the rest.", "--script", "script.json", "--state", STATE];
    let ended = place.herder(&[&go_on[..], &["--policy", "trusted", "--max-turns", "5"]].concat()).expect(0);
    assert_eq!(ended.out, "more words\n");
    assert_eq!(place.read("work/witness"), "done\n");

    let runs = place.herder(&["ls", "--json", "--state", STATE]).expect(0).json();
    let run = runs.iter().find(|run| run["task_id"].is_null()).expect("the new run");
    let shown =
        place.herder(&["show", run["id"].as_str().unwrap(), "--json", "--state", STATE]).expect(0).json();
    let old = runs.iter().find(|run| run["task_id"] == "a").expect("the old run");
    assert_eq!((&shown[0]["parent"], &shown[0]["max_turns"]), (&old["id"], &json!(5)));
    let messages = ["show", run["id"].as_str().unwrap(), "--messages", "--state", STATE];
    let said = place.herder(&messages).expect(0).out;
    assert!(said.contains("first words") && said.contains("Now the rest."), "{said}");
    let parked = place.herder(&[&go_on[..], &["--policy", "careful", "--park"]].concat()).expect(1).err;
    assert!(parked.contains("`herder approvals --state out.jsonl.state` says what it waits for"), "{parked}");
    // The batch is what it was.
    place.herder(&batch).expect(0);
    assert_eq!(place.read("out.jsonl").lines().count(), 1);
}

#[test]
fn what_cannot_be_gone_on_from_is_told_and_makes_nothing() {
    let place = Place::new();
    place.tasks("in.jsonl", &[bash("a", "echo x")]);
    place.herder(&["batch", "in.jsonl", "-o", "out.jsonl", "--policy", "careful", "--park"]).expect(1);
    let told = |args: &[&str], code| place.herder(args).expect(code).err;
    let open = told(&["continue", "a", "x", "--state", STATE], 1);
    assert!(open.contains("has not ended"), "{open}");
    let unknown = told(&["continue", "b", "x", "--state", STATE], 2);
    assert!(unknown.contains("no run or task is called \"b\""), "{unknown}");
    let keyed = told(&["continue", "a", "x", "--key", "k", "--state", STATE], 2);
    assert!(keyed.contains("--key: only a daemon keeps keys"), "{keyed}");
    told(&["continue", "a", "x", "--state", "nowhere"], 2);
    assert!(!place.path("nowhere").exists());
}
