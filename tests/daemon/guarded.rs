//! What runs could do to the daemon that runs them: where their commands may write, and what a file says of them.

use std::{fs, time::Duration};

use herder::tool::process::confine::{Files, support};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::process::{Daemon, House, PATIENCE};

/// Lets `echo` run unasked, wherever it writes to.
const POLICY: &str = "name = \"some\"\n\n[[rule]]\ntools = [\"bash\"]\ncommand = [\"echo\"]\ndecision = \"allow\"\n\n[[rule]]\ndecision = \"ask\"\n";

fn serve<'a>(house: &House, more: &[&'a str]) -> Vec<&'a str> {
    fs::write(house.path("rules.toml"), POLICY).unwrap();
    let mut args = vec!["--policy", "../rules.toml"];
    args.extend(more);
    args
}

fn is_confined() -> bool {
    support().files != Files::Absent
}

#[tokio::test]
async fn no_run_works_where_its_commands_could_answer_for_people() {
    if !is_confined() {
        return;
    }
    let house = House::new();
    let daemon = house.start(&serve(&house, &[])).await;
    for (workspace, holds) in [("..", "/"), ("../state", "/state/herder"), ("../run", "/run/herder")] {
        fs::write(house.path("work/script.json"), r#"[{"text": "ready"}]"#).unwrap();
        let submit = ["submit", "Do it", "--script", "script.json", "-w", workspace];
        let told = house.herder(&submit).expect(2).err;
        assert!(told.contains("answer for the people") && told.contains(holds), "{workspace}: {told}");
        let at = house.path("work").join(workspace);
        let task = json!({"id": "a", "task": "Do it", "script": [{"text": "ready"}], "workspace": at});
        let refused = daemon.batch_with(&[task], &[], None).await.unwrap_err().to_string();
        assert!(
            refused.contains("line 1: workspace: ") && refused.contains("answer for the people"),
            "{refused}"
        );
    }
    let task =
        json!({"id": "b", "task": "Do it", "script": [{"text": "ready"}], "workspace": house.path("work")});
    let run = daemon.submit(&task).await;
    assert_eq!(daemon.until_run_ends(&run).await["outcome"], "done");
    daemon.stop().await;
}

#[tokio::test]
async fn a_run_that_was_taken_on_before_is_not_worked_on_where_it_could_answer() {
    if !is_confined() {
        return;
    }
    let house = House::new();
    house.configure("[approvals]\nask = false\n");
    let daemon = house.start(&serve(&house, &[])).await;
    let script = json!([
        {"text": "x", "delay_ms": 600_000},
    ]);
    let task = json!({"id": "a", "task": "Do it", "script": script, "workspace": house.path("")});
    let run = daemon.submit(&task).await;
    daemon.until(&format!("v1/runs/{run}"), |run| run["state"] == "running").await;
    daemon.kill();
    house.configure("");
    let daemon = house.start(&serve(&house, &[])).await;
    let ended = daemon.until_run_ends(&run).await;
    assert_ne!(ended["outcome"], "done", "{ended}");
    assert!(ended.to_string().contains("answer for the people"), "{ended}");
    daemon.stop().await;
}

#[tokio::test]
async fn the_daemon_does_not_start_where_commands_may_write_to_its_state_or_the_place_of_answers() {
    if !is_confined() {
        return;
    }
    let house = House::new();
    let refused = |more: &[&str], told: &str| {
        let args = [&["serve"][..], &serve(&house, more)].concat();
        let said = house.herder(&args).expect(2).err;
        assert!(said.contains("answer for the people") && said.contains(told), "{said}");
    };
    let shared = TempDir::new_in("/dev/shm").unwrap();
    let state = shared.path().join("state");
    refused(&["--state", state.to_str().unwrap()], "keep the state elsewhere with --state DIR");
    for (root, told) in [("state", "--state DIR"), ("run", "XDG_RUNTIME_DIR")] {
        house.configure(&format!("[confine]\nwrite_roots = [\"{}\"]\n", house.path(root).display()));
        refused(&[], told);
    }
}

/// The file with one more event after its last, and a seal that fits.
fn forged(file: &str, event: impl FnOnce(&Value) -> Value) -> String {
    let mut lines: Vec<String> = file.lines().map(str::to_owned).collect();
    let mut seal: Value = serde_json::from_str(&lines.pop().unwrap()).unwrap();
    let last: Value = serde_json::from_str(lines.last().unwrap()).unwrap();
    lines.push(event(&last).to_string());
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    seal["events"] = json!(seal["events"].as_u64().unwrap() + 1);
    let digest = Sha256::digest(&text);
    seal["sha256"] = digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into();
    format!("{text}{seal}\n")
}

async fn until_asked(daemon: &Daemon) -> Value {
    let asked = async {
        loop {
            let open = daemon.get("v1/approvals").await;
            if let Some(first) = open["approvals"].get(0) {
                return first.clone();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, asked).await.expect("people are asked")
}

#[tokio::test]
async fn a_file_that_says_that_a_call_was_approved_has_nobody_make_it() {
    let house = House::new();
    let daemon = house.start(&["--policy", "careful"]).await;
    let script = json!([{"calls": [{"name": "bash", "arguments": {"command": "echo done >> witness"}}]}, {"text": "ready"}]);
    let task = json!({"id": "a", "task": "Do it", "script": script, "workspace": house.path("work")});
    let run = daemon.submit(&task).await;
    until_asked(&daemon).await;
    let file = house.herder(&["export", "a"]).expect(0).out;
    let mut asked = file.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let asked = asked.rfind(|line| line["kind"] == "approval_requested").unwrap();
    daemon.kill();
    let approved = forged(&file, |last| {
        let mut line = last.clone();
        line["pos"] = json!(last["pos"].as_u64().unwrap() + 1);
        line["seq"] = json!(last["seq"].as_u64().unwrap() + 1);
        line["kind"] = "approval_resolved".into();
        line["data"] =
            json!({"approval": 1, "call": asked["data"]["call"], "resolution": "approved", "command": "k"});
        line
    });
    fs::write(house.path("forged.jsonl"), approved).unwrap();
    let other = house.path("other");
    let other = other.to_str().unwrap();
    house.herder(&["import", "../forged.jsonl", "--state", other]).expect(0);
    let daemon = house.start(&["--policy", "careful", "--state", other]).await;
    house.herder(&["resume", "a"]).expect(0);
    let ended = daemon.until_run_ends(&run).await;
    assert_eq!((&ended["outcome"], house.path("work/witness").exists()), (&json!("done"), false), "{ended}");
    daemon.stop().await;
}
