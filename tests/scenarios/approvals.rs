//! Calls that people decide about, in runs that wait for them: asked, answered by whatever way is open, done once.

use std::{
    fs,
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::{Ended, Place, Started, assert_sound, bash, call, field, says, task, until};

const STATE: &str = "out.jsonl.state";
const BATCH: [&str; 7] = ["batch", "in.jsonl", "-o", "out.jsonl", "--policy", "careful", "--park"];

fn place(tasks: &[Value]) -> Place {
    let place = Place::new();
    place.tasks("in.jsonl", tasks);
    place
}

/// A task whose one command leaves a line in `work/witness` each time that it runs.
fn witnessed(id: &str) -> Value {
    bash(id, "echo done >> witness")
}

fn slow(id: &str) -> Value {
    task(id, json!([{"text": "x", "delay_ms": 600_000}]))
}

impl Place {
    fn on_state(&self, args: &[&str]) -> Ended {
        self.herder(&[args, &["--state", STATE]].concat())
    }

    fn approvals(&self, more: &[&str]) -> Vec<Value> {
        let ended = self.on_state(&[&["approvals", "--json"], more].concat());
        if ended.code == Some(0) { ended.json() } else { Vec::new() }
    }

    fn until_asked(&self, count: usize) {
        until("people are asked", || self.approvals(&[]).len() == count);
    }

    /// Where answers lie for whoever has the state.
    fn answers(&self) -> PathBuf {
        let state = self.path(STATE).canonicalize().unwrap();
        let digest = Sha256::digest(state.as_os_str().as_bytes());
        let name: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        self.path(&format!("herder/answers-{name}"))
    }

    fn kinds(&self, kind: &str) -> Vec<Value> {
        self.events(STATE).into_iter().filter(|event| event["kind"] == kind).collect()
    }
}

#[test]
fn a_batch_ends_when_only_people_can_go_on_and_goes_on_with_what_they_said() {
    let place = place(&[witnessed("a"), says("b", "ready"), witnessed("c")]);
    let ended = place.herder(&BATCH).expect(1);
    let told = "herder: 2 tasks wait for approval: `herder approvals --state out.jsonl.state` shows what for; once it is \
                answered, run the same command again\n";
    assert!(ended.err.contains(told) && !ended.err.contains("not finished"), "{}", ended.err);
    assert!(!ended.err.contains("nobody is there to ask"), "{}", ended.err);
    let listed = place.on_state(&["approvals"]).expect(0).out;
    assert!(listed.contains("a.1") && listed.contains("echo done >> witness"), "{listed}");
    let shown = place.on_state(&["approvals", "show", "a.1"]).expect(0).out;
    assert!(shown.ends_with("\necho done >> witness\n") && shown.contains("policy careful"), "{shown}");
    let standing = place.on_state(&["ls"]).expect(0).out;
    assert!(standing.contains("waits for approval a.1"), "{standing}");
    assert_eq!(place.approvals(&["--task", "a"]).len(), 1);

    let would = place.on_state(&["approve", "--all", "--dry-run"]).expect(0).out;
    assert_eq!(would.lines().count(), 2, "{would}");
    let answer = ["approve", "a.1", "--command-id", "k1"];
    assert_eq!(place.on_state(&answer).expect(0).out, "a.1 approved\n");
    assert_eq!(place.on_state(&answer).expect(0).out, "a.1 approved already; nothing has changed\n");
    let other = place.on_state(&["reject", "a.1", "--command-id", "k1"]).expect(1).err;
    assert!(other.starts_with("herder: a.1: it was approved already by "), "{other}");
    assert!(other.ends_with("(command k1)\n"), "{other}");
    place.on_state(&["reject", "c.1", "--reason", "not this one"]).expect(0);

    place.herder(&BATCH).expect(0);
    assert_eq!(place.read("work/witness"), "done\n");
    let results = place.kinds("result");
    let told = results.iter().any(|result| {
        result["data"]["output"] == "denied: a person rejected it: not this one"
            && result["data"]["ok"] == false
    });
    assert!(told, "{results:?}");
    place.herder(&BATCH).expect(0);
    assert_eq!(place.read("work/witness"), "done\n");
    assert_eq!(place.on_state(&answer).expect(0).out, "a.1 approved already; nothing has changed\n");
    place.on_state(&["approve", "a.1"]).expect(1);
    place.on_state(&["approve", "a.2"]).expect(2);
    assert_sound(&place.events(STATE));
}

#[test]
fn what_was_asked_before_a_kill_is_answered_after_it_and_done_once() {
    let place = place(&[witnessed("a"), slow("b")]);
    let batch = place.start(&BATCH);
    place.until_asked(1);
    batch.kill();
    assert_eq!(place.approvals(&[]).len(), 1);
    place.on_state(&["approve", "a.1"]).expect(0);
    assert!(!place.path("work/witness").exists(), "nobody is at work");
    for _ in 0..2 {
        place.herder(&[&BATCH[..], &["--only", "a"]].concat()).expect(0);
        assert_eq!(place.read("work/witness"), "done\n");
    }
    assert_eq!(place.kinds("approval_resolved").len(), 1);
}

#[test]
fn a_batch_at_work_takes_answers_up() {
    let place = place(&[witnessed("a"), witnessed("b"), slow("c")]);
    let batch = place.start(&BATCH);
    place.until_asked(2);
    let said = place.on_state(&["approve", "a.1", "--command-id", "k", "--json"]).expect(0).json();
    assert_eq!((&said[0]["changed"], &said[0]["command_id"]), (&json!(true), &json!("k")));
    let again = place.on_state(&["approve", "a.1", "--command-id", "k", "--json"]).expect(0).json();
    assert_eq!(again[0]["changed"], false);
    let other = place.on_state(&["reject", "a.1", "--json"]).expect(1).json();
    assert_eq!(other[0]["code"], "resolved");
    place.on_state(&["reject", "b.1"]).expect(0);
    until("both have ended", || place.read("out.jsonl").lines().count() == 2);
    assert_eq!(place.read("work/witness"), "done\n");
    until("the answers are taken out", || fs::read_dir(place.answers()).unwrap().count() == 0);
    batch.kill();
}

#[test]
fn an_answer_that_was_left_for_a_process_that_went_away_is_taken_up_at_the_next_start() {
    let place = place(&[witnessed("a")]);
    place.herder(&BATCH).expect(1);
    let run = place.approvals(&[])[0]["run"].as_str().unwrap().to_owned();
    let answers = place.answers();
    fs::create_dir_all(&answers).unwrap();
    let answer = json!({"run": run, "approval": 1, "answer": {"approve": null}, "command": "k"});
    fs::write(answers.join("1.json"), answer.to_string()).unwrap();
    fs::write(answers.join("0.json"), "no answer").unwrap();
    place.herder(&BATCH).expect(0);
    assert_eq!(place.read("work/witness"), "done\n");
    assert!(answers.join("0.bad").exists());
}

#[test]
fn what_is_not_any_more_what_was_approved_is_asked_again_three_times_at_most() {
    let edit = call("edit", json!({"path": "f.txt", "old_text": "old", "new_text": "new"}));
    let place = place(&[task("a", json!([edit, {"text": "ready"}]))]);
    place.write("work/f.txt", "old\n");
    let mut content = "old\n".to_owned();
    for number in 1..=3 {
        place.herder(&BATCH).expect(1);
        let asked = place.approvals(&[]);
        assert_eq!(field(&asked, "what"), ["f.txt"]);
        assert_eq!(asked[0]["number"], number);
        let name = format!("a.{number}");
        let shown = place.on_state(&["approvals", "show", &name, "--color"]).expect(0).out;
        assert!(shown.contains("--- f.txt\n") || shown.contains("--- f.txt\u{1b}"), "{shown:?}");
        assert!(shown.contains("\u{1b}[31m") && shown.contains("\u{1b}[32m"), "{shown:?}");
        content.push_str("more\n");
        place.write("work/f.txt", &content);
        place.on_state(&["approve", &name]).expect(0);
    }
    place.herder(&BATCH).expect(0);
    assert_eq!(place.read("work/f.txt"), content, "nothing was done");
    let results = place.kinds("result");
    let said = results[0]["data"]["output"].as_str().unwrap();
    assert!(said.starts_with("denied: ") && said.ends_with("keeps changing"), "{said}");
    let all = place.approvals(&["--all"]);
    assert_eq!(all.iter().map(|one| &one["resolution"]["how"]).collect::<Vec<_>>(), ["superseded"; 3]);
    let late = place.on_state(&["approve", "a.1"]).expect(1).err;
    assert!(late.contains("what the call would do has changed"), "{late}");
}

#[test]
fn what_is_approved_for_the_run_is_not_asked_about_again_and_of_record() {
    let write = |path: &str| call("write", json!({"path": path, "content": "x"}));
    let script = json!([write("a.txt"), write("b.txt"), write("c.md"), {"text": "ready"}]);
    let place = place(&[task("a", script)]);
    place.herder(&BATCH).expect(1);
    let wrong = place.on_state(&["approve", "a.1", "--for-run", "/etc/*"]).expect(2).err;
    assert!(wrong.contains("relative to the workspace"), "{wrong}");
    place.on_state(&["approve", "a.1", "--for-run", "*.txt"]).expect(0);
    place.herder(&BATCH).expect(1);
    assert_eq!((place.read("work/a.txt"), place.read("work/b.txt")), ("x".to_owned(), "x".to_owned()));
    assert_eq!(field(&place.approvals(&[]), "what"), ["c.md"], "another kind of file is asked about");
    let rules: Vec<_> = place.kinds("decision").iter().map(|one| one["data"]["rule"].clone()).collect();
    assert_eq!(rules[1], "a person allowed write \"*.txt\" for this run");
    let all = place.approvals(&["--all"]);
    assert_eq!(all[0]["resolution"]["for_run"], "*.txt");
    place.on_state(&["approve", "--all"]).expect(0);
    place.herder(&BATCH).expect(0);
    assert_eq!(place.read("work/c.md"), "x");
}

#[test]
fn what_nobody_answers_in_time_is_denied() {
    let place = place(&[witnessed("a")]);
    place.herder(&[&BATCH[..], &["--approval-timeout", "1"]].concat()).expect(0);
    assert!(!place.path("work/witness").exists());
    assert_eq!(place.kinds("result")[0]["data"]["output"], "denied: nobody approved of it in time");
    assert_eq!(place.kinds("approval_resolved")[0]["data"]["resolution"], "expired");
    let late = place.on_state(&["approve", "a.1"]).expect(1).err;
    assert!(late.contains("nobody answered in time"), "{late}");
}

#[test]
fn without_anybody_to_ask_a_call_is_denied_and_nothing_is_read_from_stdin() {
    let place = place(&[]);
    place.write(
        "script.json",
        json!([call("bash", json!({"command": "echo x >> witness"})), {"text": "I could not."}]).to_string(),
    );
    let run = ["run", "x", "--script", "script.json", "--state", "runs", "-w", "work", "--policy", "careful"];
    for more in [&[][..], &["--json"], &["--quiet"]] {
        let mut command: Command = place.command(&[&run, more].concat());
        // It stays open, and nothing ever comes.
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take();
        let mut process = Started::from(child);
        until("it ends by itself", || process.is_over());
        assert_eq!(process.wait(), Some(0));
        drop(stdin);
    }
    assert!(!place.path("work/witness").exists());
    assert!(place.events("runs").iter().all(|event| event["kind"] != "approval_requested"));
}

#[test]
fn a_run_that_parks_says_how_it_is_answered_and_gone_on_with() {
    let place = place(&[]);
    place.write(
        "script.json",
        json!([call("bash", json!({"command": "echo x"})), {"text": "ready"}]).to_string(),
    );
    let run = ["run", "x", "--script", "script.json", "--state", "runs", "-w", "work", "--park"];
    let ended = place.herder(&run).expect(1);
    let last = ended.err.lines().last().unwrap();
    let told = "herder: the run has not ended; `herder approvals --state runs` says what it waits for; a daemon goes on with it: \
                `herder serve --state runs`; ";
    assert!(last.starts_with(told), "{last}");
    let help =
        place.herder(&["run", "--help"]).expect(0).out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("takes a daemon over its state, `herder serve`"), "{help}");
    let asked = place.herder(&["approvals", "--json", "--state", "runs"]).expect(0).json();
    let name = asked[0]["id"].as_str().unwrap();
    place.herder(&["approve", name, "--state", "runs"]).expect(0);
    let listed = place.herder(&["approvals", "--state", "runs"]).expect(0).out;
    assert_eq!(listed, "nobody is asked about anything\n");
}

#[test]
fn a_batch_that_nobody_could_answer_or_go_on_with_does_not_park() {
    let place = place(&[witnessed("a")]);
    let told = place.herder(&["batch", "in.jsonl", "--policy", "careful", "--park"]).expect(2).err;
    assert!(told.contains("--park: ") && told.contains("keep it with -o FILE or --state DIR"), "{told}");
    let told = place.herder(&[&BATCH[..], &["--daemon"]].concat()).expect(2).err;
    assert!(told.contains("as its own [approvals] says"), "{told}");
    let denied = place.herder(&BATCH[..6]).expect(0);
    assert!(denied.err.contains("with --park people answer later"), "{}", denied.err);
    assert!(place.kinds("approval_requested").is_empty());
    assert!(!place.path("work/witness").exists());
}

#[test]
fn a_batch_that_goes_on_where_nobody_can_be_asked_denies_what_was_asked_before() {
    let place = place(&[witnessed("a"), says("b", "ready")]);
    place.herder(&BATCH).expect(1);
    assert_eq!(place.approvals(&[]).len(), 1);
    let ended = place.herder(&["batch", "in.jsonl", "-o", "out.jsonl", "--policy", "trusted"]).expect(0);
    assert!(ended.err.contains("nobody is there to ask: its calls are denied"), "{}", ended.err);
    assert!(place.approvals(&[]).is_empty());
    assert_eq!(place.kinds("result")[0]["data"]["output"], "denied: nobody approved of it in time");
    assert_eq!(field(&place.results("out.jsonl"), "outcome"), ["done", "done"]);
    assert!(!place.path("work/witness").exists());
    assert_sound(&place.events(STATE));
}

#[test]
fn what_was_asked_before_a_kill_is_denied_where_nobody_can_be_asked_any_more() {
    let place = place(&[witnessed("a"), slow("b")]);
    let batch = place.start(&BATCH);
    place.until_asked(1);
    batch.kill();
    place.herder(&[&BATCH[..6], &["--only", "a"]].concat()).expect(0);
    assert_eq!(place.kinds("result")[0]["data"]["output"], "denied: nobody approved of it in time");
    assert!(!place.path("work/witness").exists());
}

#[test]
fn a_run_that_waits_for_people_ends_when_its_batch_is_stopped_and_is_still_asked_about() {
    let place = place(&[witnessed("a"), slow("b")]);
    let batch = place.start(&[&BATCH[..], &["--drain", "1s"]].concat());
    place.until_asked(1);
    let since = std::time::Instant::now();
    batch.signal(rustix::process::Signal::INT);
    assert_eq!(batch.wait(), Some(130));
    assert!(since.elapsed() < Duration::from_secs(40));
    assert_eq!(place.approvals(&[]).len(), 1);
}

#[test]
fn a_model_can_neither_answer_for_itself_nor_write_over_what_is_of_record() {
    let answer = json!({"run": "x", "approval": 1, "answer": {"approve": null}, "command": "k"}).to_string();
    let write = |path: &str| call("write", json!({"path": path, "content": answer}));
    let script = json!([
        write("out.jsonl.state/answers/1.json"),
        write("out.jsonl.state/log.db"),
        write("out.jsonl"),
        call("read", json!({"path": "out.jsonl.state/log.db"})),
        {"text": "ready"}
    ]);
    let place = place(&[]);
    place.write("in.jsonl", json!({"id": "a", "task": "t", "script": script, "workspace": "."}).to_string());
    place.herder(&["batch", "in.jsonl", "-o", "out.jsonl", "--policy", "edit-workspace"]).expect(0);
    let results = place.kinds("result");
    assert_eq!(results.len(), 4);
    for result in &results {
        let told = result["data"]["output"].as_str().unwrap();
        assert!(told.contains("one of herder's own files"), "{told}");
    }
    assert!(!place.path("out.jsonl.state/answers").exists());
}

#[test]
fn people_are_not_asked_where_commands_that_run_unasked_could_answer() {
    let place = place(&[]);
    place.write(
        "in.jsonl",
        json!({"id": "a", "task": "t", "script": [{"text": "x"}], "workspace": "."}).to_string(),
    );
    let rules = "name = \"some\"\n\n[[rule]]\ncommand = [\"echo\"]\ndecision = \"allow\"\n\n[[rule]]\ndecision = \"ask\"\n";
    place.write("rules.toml", rules);
    let batch = ["batch", "in.jsonl", "-o", "out.jsonl", "--policy", "rules.toml", "--park"];
    let told = place.herder(&batch).expect(2).err;
    assert!(told.contains("keep the state elsewhere with --state DIR"), "{told}");
    assert!(!place.path(STATE).exists(), "nothing ran");
}

#[test]
fn an_answer_that_cannot_be_given_keeps_no_other_back() {
    let place = place(&[witnessed("a"), witnessed("b"), slow("c")]);
    let batch = place.start(&BATCH);
    place.until_asked(2);
    place.on_state(&["approve", "a.1", "--command-id", "k"]).expect(0);
    until("it was taken out", || fs::read_dir(place.answers()).unwrap().count() == 0);
    fs::remove_dir(place.answers()).unwrap();
    fs::write(place.answers(), "no folder").unwrap();
    let ended = place.on_state(&["approve", "b.1", "a.1", "--command-id", "k"]).expect(1);
    assert_eq!(ended.out, "a.1 approved already; nothing has changed\n");
    assert!(ended.err.starts_with("herder: b.1: "), "{}", ended.err);
    batch.kill();
}
