//! A batch that asks people, and dies over it: what they say is taken once, and what they allow is done once.

use std::{fs, os::unix::process::ExitStatusExt};

use serde_json::{Value, json};

use crate::{
    points::times,
    process::{House, task},
    record::{Record, STATE},
    work::{armed, left_in, reaching_out},
};

/// Kinds of facts that come of asking.
pub(crate) const KINDS: &[&str] = &["approval_requested", "approval_resolved"];
/// Those that a batch shares with a daemon under pause.
const SHARED: &[&str] = &["parked", "unparked", "call_started", "result"];

#[test]
fn a_death_over_what_a_person_is_asked_asks_and_does_nothing_twice() {
    let (undisturbed, _) = drive(None);
    let kinds = KINDS.iter().chain(SHARED);
    for point in kinds.flat_map(|kind| [format!("{kind}.before"), format!("{kind}.after")]) {
        let mut deaths = Vec::new();
        for time in times() {
            let (record, died) = drive(Some((&point, time)));
            record.assert_equals(&undisturbed, &format!("{point} {time}"));
            if !died {
                break;
            }
            deaths.push(time);
        }
        assert!(!deaths.is_empty(), "{point} is never reached");
        println!("{point}: {deaths:?}");
    }
}

/// Works on the batch and approves of what it asks until it is done; each process is armed until one has died.
fn drive(killed_at: Option<(&str, usize)>) -> (Record, bool) {
    let house = House::new();
    house.configure(&reaching_out("", &house));
    fs::write(house.path("in.jsonl"), format!("{}\n", asks(&house))).unwrap();
    let mut died = false;
    let mut run = |args: &[&str]| {
        let mut command = house.command(args);
        if let Some((point, time)) = killed_at.filter(|_| !died) {
            command.env("FAILPOINTS", armed(point, time));
        }
        let said = fs::File::create(house.path("said.txt")).unwrap();
        let status = command.stderr(said).status().unwrap();
        house.assert_nothing_runs();
        died |= status.signal() == Some(9);
        status
    };
    let batch = ["batch", "../in.jsonl", "-o", "../out.jsonl", "--policy", "careful", "--park"];
    let approve = ["approve", "--all", "--state", "../out.jsonl.state"];
    for _ in 0..20 {
        if run(&[&batch[..], &["--durability", "process"]].concat()).code() == Some(0) {
            let record = Record::of(&house, STATE);
            assert_eq!(left_in(&house), ["b.txt"]);
            assert_eq!(fs::read_to_string(house.path("work/b.txt")).unwrap(), "b\n");
            let witness = fs::read_to_string(house.path("outside/witness")).unwrap_or_default();
            let seen = witness.lines().count();
            let in_doubt = record.in_doubt.contains("append");
            assert!(seen == 1 || seen == 0 && in_doubt, "{killed_at:?}: {seen} times, in doubt: {in_doubt}");
            return (record, died);
        }
        run(&approve);
    }
    panic!("{killed_at:?}: {}", fs::read_to_string(house.path("said.txt")).unwrap());
}

/// Two calls at once, then one: a person decides about each.
fn asks(house: &House) -> Value {
    let call =
        |id: &str, name: &str, arguments: Value| json!({"id": id, "name": name, "arguments": arguments});
    let write = call("write", "write", json!({"path": "b.txt", "content": "b\n"}));
    let append = call("append", "bash", json!({"command": "echo edits >> ../outside/witness"}));
    let list = call("list", "bash", json!({"command": "ls"}));
    task(house, "asks", json!([{"calls": [write, append]}, {"calls": [list]}, {"text": "ready"}]))
}
