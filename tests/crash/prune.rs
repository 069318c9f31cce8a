//! A death while old runs are removed: each of them is whole or gone, what is to stay stays, and the next time finishes.

use std::{collections::BTreeMap, fs, os::unix::process::ExitStatusExt, process::ExitStatus};

use serde_json::{Value, json};

use crate::{
    points::times,
    process::{House, task},
    work::armed,
};

pub(crate) const POINTS: &[&str] = &["prune.before", "prune.forgotten", "prune.after"];

const STATE: &str = "../out.jsonl.state";
/// The runs that stay: they did not end as done.
const KEPT: [&str; 1] = ["kept"];

#[test]
fn a_death_while_old_runs_are_removed_loses_nothing_else() {
    let whole = House::new();
    begin(&whole);
    let before = logs(&whole);
    assert_eq!(before.len(), 4);
    for point in POINTS {
        let mut deaths = Vec::new();
        for time in times() {
            let house = House::new();
            let copied = std::process::Command::new("cp")
                .arg("-r")
                .args([whole.path("out.jsonl.state"), house.path("out.jsonl.state")])
                .status();
            assert!(copied.unwrap().success());
            let died = prune(&house, Some((point, time))).signal() == Some(9);
            for (run, log) in logs(&house) {
                assert_eq!(Some(&log), before.get(&run), "{point} {time}: {run}");
            }
            assert!(prune(&house, None).success(), "{point} {time}");
            let left = logs(&house);
            assert_eq!(left.values().map(|log| task_of(log)).collect::<Vec<_>>(), KEPT, "{point} {time}");
            assert!(left.iter().all(|(run, log)| before.get(run) == Some(log)), "{point} {time}");
            let spilled = fs::read_dir(house.path("out.jsonl.state/spill")).unwrap().count();
            assert_eq!(spilled, KEPT.len(), "{point} {time}");
            let told = house.herder(&["doctor", STATE, "--json"]).json();
            let is_trouble = |line: &&Value| {
                // The batch of the run that came from elsewhere is not here, and how full a disk is is no matter.
                let what = line["what"].as_str().unwrap();
                line["grade"] != "ok" && !what.starts_with("it has runs") && !what.contains("MiB free")
            };
            assert_eq!(told.iter().find(is_trouble), None, "{point} {time}");
            if !died {
                break;
            }
            deaths.push(time);
        }
        assert!(deaths.len() > 1, "{point} is reached for a batch and for runs of none: {deaths:?}");
        println!("{point}: {deaths:?}");
    }
}

/// A batch that is done, and two runs of another: one that is done, and one that is not. Each has an output beside the log.
fn begin(house: &House) {
    let long = json!({"calls": [{"id": "c", "name": "bash", "arguments": {"command": "seq 100000"}}]});
    let done = |id: &str| task(house, id, json!([long, {"text": "ready"}]));
    let fails = task(house, "kept", json!([long, {"fault": {"status": 401}}]));
    run(house, &[done("other"), fails], "other.jsonl", 1);
    run(house, &[done("a"), done("b")], "out.jsonl", 0);
    let moved = [
        &["export", "--all", "--state", "../other.jsonl.state", "-o", "../moved.jsonl"][..],
        &["import", "../moved.jsonl", "--state", STATE],
    ];
    for args in moved {
        assert!(house.command(args).status().unwrap().success(), "{args:?}");
    }
    let spill = |run: &str, state: &str| house.path(&format!("{state}/spill/{run}"));
    for run in logs(house).keys().filter(|run| !spill(run, "out.jsonl.state").exists()) {
        fs::rename(spill(run, "other.jsonl.state"), spill(run, "out.jsonl.state")).unwrap();
    }
}

fn run(house: &House, tasks: &[Value], out: &str, code: i32) {
    let text: String = tasks.iter().map(|task| format!("{task}\n")).collect();
    fs::write(house.path("in.jsonl"), text).unwrap();
    let out = format!("../{out}");
    let args = ["batch", "../in.jsonl", "-o", &out, "--policy", "trusted"];
    let status = house.command(&args).status().unwrap();
    assert_eq!(status.code(), Some(code));
}

fn prune(house: &House, killed_at: Option<(&str, usize)>) -> ExitStatus {
    let mut command = house.command(&["prune", "--older-than", "0s", "--keep-failed", "--state", STATE]);
    if let Some((point, time)) = killed_at {
        command.env("FAILPOINTS", armed(point, time));
    }
    command.status().unwrap()
}

/// Every event of each run.
fn logs(house: &House) -> BTreeMap<String, Vec<Value>> {
    let mut logs: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for event in house.herder(&["events", "--all", "--json", "--state", STATE]).expect(0).json() {
        logs.entry(event["run"].as_str().unwrap().to_owned()).or_default().push(event);
    }
    logs
}

fn task_of(log: &[Value]) -> &str {
    log[0]["data"]["task_id"].as_str().unwrap()
}
