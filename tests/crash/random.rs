//! A batch that is killed again and again, wherever it happens to be.
//!
//! By itself 60 tasks and 25 deaths. All of it, with the seed of an earlier time:
//! `HERDER_TEST_TASKS=500 HERDER_TEST_KILLS=200 HERDER_TEST_SEED=1 cargo nextest run --test crash random --no-capture`

use std::{
    collections::BTreeSet,
    fs,
    os::unix::process::ExitStatusExt,
    process::Command,
    time::{Duration, SystemTime},
};

use herder::crash::Point;
use serde_json::{Value, json};

use crate::{
    process::{House, task},
    record::{Record, STATE},
    work::{armed, left_in, reaching_out},
};

/// Files that all the tasks share; each has a line for every task.
const FILES: usize = 5;

/// Places that every start reaches many times.
const OFTEN: &[Point] = &[
    Point::BeforeAppend,
    Point::AfterAppend,
    Point::BeforeRequest,
    Point::AfterRequest,
    Point::BeforeCall,
    Point::AfterCall,
    Point::GuardStarted,
    Point::CommandLaunched,
    Point::CommandStarted,
    Point::CommandEnded,
    Point::TempWritten,
    Point::BeforeRename,
    Point::AfterRename,
    Point::BeforeLine,
    Point::HalfOfLine,
    Point::AfterLine,
];

const CONFIG: &str = r#"
[command_tools.note]
description = "Notes that it was called."
command = ["sh", "-c", "echo note $HERDER_TASK_ID $HERDER_IDEMPOTENCY_KEY >> ../outside/witness"]
schema = { type = "object", properties = {}, additionalProperties = false }
"#;

/// Of the four sorts of calls, people are asked about one.
const POLICY: &str = r#"
name = "asks"
[[rule]]
tools = ["write"]
decision = "ask"
[[rule]]
decision = "allow"
"#;

#[test]
fn nothing_is_lost_or_done_twice_however_often_herder_is_killed() {
    let (tasks, kills) = (number("HERDER_TEST_TASKS", 60), number("HERDER_TEST_KILLS", 25));
    let mut chance = Chance::new();
    let house = house(tasks);
    let (mut deaths, mut starts) = (0, 0);
    let last = loop {
        starts += 1;
        let mut command = batch(&house);
        // Half of the deaths come at a place that changes something, half at any time.
        let at_a_point = chance.below(2) == 0;
        if deaths < kills && at_a_point {
            let point = OFTEN[chance.below(OFTEN.len())];
            command.env("FAILPOINTS", armed(point.as_str(), 1 + chance.below(6)));
        }
        let mut herder = command.spawn().unwrap();
        if deaths < kills && !at_a_point {
            // The moment of a death is what this is about.
            std::thread::sleep(Duration::from_millis(100 + chance.below(300) as u64));
            let _ = herder.kill();
        }
        let status = herder.wait().unwrap();
        house.assert_nothing_runs();
        if status.signal() == Some(9) {
            deaths += 1;
        } else if results(&house) == tasks {
            break status;
        } else {
            assert_eq!(status.code(), Some(1), "what is left waits for people");
        }
        // What was asked so far is decided between two lives.
        let _ = house.command(&["approve", "--all", "--state", "../out.jsonl.state"]).status().unwrap();
    };
    let record = Record::of(&house, STATE);
    let given_up: BTreeSet<&str> = record
        .results
        .iter()
        .filter(|(_, told)| told[1] == "restart_limit")
        .map(|(id, _)| id.as_str())
        .collect();
    println!(
        "{tasks} tasks, {deaths} deaths, {starts} starts; in doubt: {}; given up: {}",
        record.in_doubt.len(),
        given_up.len()
    );
    assert_eq!(record.results.len(), tasks);
    assert_eq!(last.code(), Some(i32::from(!given_up.is_empty())));
    assert!(record.results.iter().all(|(id, told)| told[0] == "done" || given_up.contains(id.as_str())));
    given_up.iter().for_each(|task| record.assert_died_too_often(task, "random"));
    check_files(&house, tasks, &given_up);
    check_witness(&house, tasks, &record, &given_up);
}

fn results(house: &House) -> usize {
    fs::read_to_string(house.path("out.jsonl")).unwrap_or_default().lines().count()
}

/// Each task's line is changed once; a run that was given up may not have come so far.
fn check_files(house: &House, tasks: usize, given_up: &BTreeSet<&str>) {
    let names: Vec<String> = (0..FILES).map(|file| format!("shared-{file}.txt")).collect();
    let (own, shared): (Vec<String>, Vec<String>) =
        left_in(house).into_iter().partition(|name| name.starts_with("own-"));
    assert_eq!(shared, names);
    let written: BTreeSet<String> = own.into_iter().collect();
    for number in (0..tasks).filter(|number| !given_up.contains(id(*number).as_str())) {
        assert!(written.contains(&format!("own-{}.txt", id(number))), "{}", id(number));
    }
    let all: String =
        names.iter().map(|name| fs::read_to_string(house.path("work").join(name)).unwrap()).collect();
    assert_eq!(all.lines().count(), tasks);
    for number in 0..tasks {
        let id = id(number);
        let is_done = all.lines().any(|line| line == format!("{id} done"));
        let is_open = all.lines().any(|line| line == format!("{id} open"));
        assert!(is_done != is_open && (is_done || given_up.contains(id.as_str())), "{id} in {all}");
    }
}

/// What cannot be told from outside is done once, or at most once if nobody knows.
fn check_witness(house: &House, tasks: usize, record: &Record, given_up: &BTreeSet<&str>) {
    let witness = fs::read_to_string(house.path("outside/witness")).unwrap();
    let keys: BTreeSet<&str> = witness.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    let notes = witness.lines().filter(|line| line.starts_with("note ")).count();
    assert_eq!(keys.len(), notes, "a key is used twice");
    for number in 0..tasks {
        let id = id(number);
        for (word, call) in [("bash", "append"), ("note", "note")] {
            let line = format!("{word} {id}");
            let seen =
                witness.lines().filter(|one| *one == line || one.starts_with(&format!("{line} "))).count();
            let is_open = record.in_doubt.contains(&format!("{call}-{id}")) || given_up.contains(id.as_str());
            assert!(seen == 1 || seen == 0 && is_open, "{line}: {seen} times");
        }
    }
}

fn house(tasks: usize) -> House {
    let house = House::new();
    house.configure(&reaching_out(CONFIG, &house));
    fs::write(house.path("policy.toml"), POLICY).unwrap();
    let lines: String = (0..tasks).map(|number| format!("{}\n", work(&house, number))).collect();
    fs::write(house.path("in.jsonl"), lines).unwrap();
    for file in 0..FILES {
        let of_file = (0..tasks).filter(|number| number % FILES == file);
        let text: String = of_file.map(|number| format!("{} open\n", id(number))).collect();
        fs::write(house.path(&format!("work/shared-{file}.txt")), text).unwrap();
    }
    house
}

fn id(number: usize) -> String {
    format!("t{number:04}")
}

/// One change of each sort, each in a turn of its own, in an order that differs from task to task.
fn work(house: &House, number: usize) -> Value {
    let id = id(number);
    let path = format!("shared-{}.txt", number % FILES);
    let mut changes = vec![
        ("edit", json!({"path": path, "old_text": format!("{id} open"), "new_text": format!("{id} done")})),
        ("bash", json!({"command": format!("echo bash {id} >> ../outside/witness")})),
        ("note", json!({})),
        ("write", json!({"path": format!("own-{id}.txt"), "content": id})),
    ];
    changes.rotate_left(number % 4);
    let mut script: Vec<Value> = changes
        .into_iter()
        .map(|(tool, arguments)| {
            let call = if tool == "bash" { "append" } else { tool };
            let call = json!({"id": format!("{call}-{id}"), "name": tool, "arguments": arguments});
            json!({"calls": [call], "delay_ms": number % 4 * 30})
        })
        .collect();
    script.push(json!({"text": "ready"}));
    task(house, &id, script.into())
}

fn batch(house: &House) -> Command {
    let args =
        ["batch", "../in.jsonl", "-o", "../out.jsonl", "--policy", "../policy.toml", "-j", "4", "--park"];
    let mut command = house.command(&args);
    command.args(["--durability", "process"]);
    command
}

pub(crate) fn number(name: &str, otherwise: usize) -> usize {
    std::env::var(name).ok().map_or(otherwise, |text| text.parse().unwrap())
}

/// Numbers that look random; the seed is told.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new() -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let seed = number("HERDER_TEST_SEED", now.subsec_micros() as usize);
        println!("HERDER_TEST_SEED={seed}");
        Self(seed as u64)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % end as u64).unwrap()
    }
}
