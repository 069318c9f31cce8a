//! Runs with worktrees of their own, whose herder dies while it makes them, puts them away, or at any time.

use std::{
    fs,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    points::times,
    process::{self, House, lines},
    random::{Chance, number},
    record::{Record, STATE},
    work::armed,
};

/// Points that only runs with workspaces of their own reach.
pub(crate) const POINTS: &[&str] = &[
    "workspace.before",
    "workspace.after",
    "patch.before",
    "commit.before",
    "commit.after",
    "patch.after",
    "removal.before",
    "removal.after",
];

#[test]
fn a_death_while_a_worktree_is_made_or_put_away_loses_no_patch_and_leaves_nothing() {
    for point in POINTS {
        let mut deaths = Vec::new();
        for time in times() {
            let repository = Isolated::new(4);
            if !repository.dies(point, time) {
                break;
            }
            repository.ends(&format!("{point} {time}"));
            deaths.push(time);
        }
        assert!(!deaths.is_empty(), "{point} is never reached");
        println!("{point}: {deaths:?}");
    }
}

#[test]
fn a_second_death_at_what_the_first_left_of_a_worktree_changes_nothing() {
    for first in POINTS {
        for second in ["commit.after", "removal.after"] {
            let repository = Isolated::new(2);
            assert!(repository.dies(first, 1), "{first} is not reached");
            repository.dies(second, 1);
            repository.ends(&format!("{first}, then {second}"));
        }
    }
}

#[test]
fn every_run_has_its_patch_and_no_worktree_is_left_however_often_herder_is_killed() {
    let (tasks, kills) = (number("HERDER_TEST_TASKS", 12), number("HERDER_TEST_KILLS", 16));
    let mut chance = Chance::new();
    let repository = Isolated::new(tasks);
    let (mut deaths, mut starts) = (0, 0);
    while deaths < kills && starts < 4 * kills {
        starts += 1;
        let mut herder = repository.batch().spawn().unwrap();
        // The moment of a death is what this is about.
        std::thread::sleep(Duration::from_millis(30 + chance.below(250) as u64));
        let _ = herder.kill();
        deaths += usize::from(herder.wait().unwrap().signal() == Some(9));
    }
    println!("{tasks} tasks, {deaths} deaths, {starts} starts");
    repository.ends("random");
}

/// A batch whose runs have worktrees of a repository's.
struct Isolated {
    house: House,
    tasks: usize,
}

impl Isolated {
    fn new(tasks: usize) -> Self {
        let house = House::new();
        fs::write(house.path("work/a.txt"), "one\ntwo\n").unwrap();
        let repository = Self { house, tasks };
        repository.git(&["init", "-q", "-b", "main"]);
        repository.git(&["add", "-A"]);
        repository.git(&["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "first"]);
        let tasks = (0..tasks).map(|number| format!("{}\n", repository.task(number)));
        fs::write(repository.house.path("in.jsonl"), tasks.collect::<String>()).unwrap();
        repository
    }

    /// Even ones change something.
    fn task(&self, number: usize) -> Value {
        let edit = json!({"path": "a.txt", "old_text": "two", "new_text": format!("two {number}")});
        let write = json!({"path": "b.txt", "content": "b\n"});
        let changes =
            json!({"calls": [{"name": "edit", "arguments": edit}, {"name": "write", "arguments": write}]});
        let last = json!({"text": "ready", "delay_ms": number % 4 * 20});
        let script = if number.is_multiple_of(2) { json!([changes, last]) } else { json!([last]) };
        let mut task = process::task(&self.house, &format!("t{number}"), script);
        task["isolate"] = "worktree".into();
        task
    }

    fn batch(&self) -> Command {
        let args = ["batch", "../in.jsonl", "-o", "../out.jsonl", "--policy", "trusted", "-j", "4"];
        let mut command = self.house.command(&args);
        command.args(["--durability", "process"]);
        command
    }

    fn run(&self, killed_at: Option<(&str, usize)>) -> ExitStatus {
        let mut command = self.batch();
        if let Some((point, time)) = killed_at {
            command.env("FAILPOINTS", armed(point, time));
        }
        command.stderr(fs::File::create(self.house.path("said.txt")).unwrap()).status().unwrap()
    }

    fn dies(&self, point: &str, time: usize) -> bool {
        let status = self.run(Some((point, time)));
        let dead = status.signal() == Some(9);
        assert!(dead || status.code() == Some(0), "{point} {time}: {status}: {}", self.said());
        dead
    }

    fn said(&self) -> String {
        fs::read_to_string(self.house.path("said.txt")).unwrap_or_default()
    }

    #[track_caller]
    fn git(&self, args: &[&str]) -> String {
        let mut git = Command::new("git");
        git.args(args).current_dir(self.house.path("work")).env("HOME", self.house.path("."));
        let output = git.output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Goes on to the end: each run has its patch, and nothing but branches with work is left. Those in which herder died too
    /// often are given up.
    #[track_caller]
    fn ends(&self, how: &str) {
        let status = self.run(None);
        self.house.assert_nothing_runs();
        let results = lines(&fs::read_to_string(self.house.path("out.jsonl")).unwrap());
        assert_eq!(results.len(), self.tasks, "{how}: {status}: {}", self.said());
        let (done, given_up): (Vec<&Value>, Vec<&Value>) =
            results.iter().partition(|line| line["outcome"] == "done");
        assert!(given_up.iter().all(|line| line["detail"] == "restart_limit"), "{how}: {given_up:#?}");
        let record = Record::of_log(&self.house, STATE);
        given_up.iter().for_each(|line| record.assert_died_too_often(line["id"].as_str().unwrap(), how));
        for line in &done {
            let number: usize = line["id"].as_str().unwrap()[1..].parse().unwrap();
            assert_eq!(line["error"], Value::Null, "{how}: {line}");
            assert_eq!(line["files_changed"], if number.is_multiple_of(2) { 2 } else { 0 }, "{how}: {line}");
            if number.is_multiple_of(2) {
                let patch = fs::read_to_string(line["patch_path"].as_str().unwrap()).unwrap();
                assert!(
                    patch.contains(&format!("+two {number}\n")) && patch.contains("+++ b/b.txt"),
                    "{how}: {patch}"
                );
                let branch = line["branch"].as_str().unwrap();
                assert_eq!(self.git(&["show", &format!("{branch}:a.txt")]), format!("one\ntwo {number}\n"));
            }
        }
        let branches = self.git(&["branch", "--list", "herder/*"]);
        let with_work = results.iter().filter(|line| !line["branch"].is_null()).count();
        assert_eq!(branches.lines().count(), with_work, "{how}: {branches}{}", self.said());
        let kept =
            results.iter().filter(|line| line["outcome"] != "done" && !line["branch"].is_null()).count();
        assert_eq!(self.git(&["worktree", "list"]).lines().count(), 1 + kept, "{how}");
        self.git(&["fsck", "--strict"]);
        assert_eq!(self.git(&["status", "--porcelain"]), "", "{how}");
        let left = |folder: &str| fs::read_dir(self.house.path(folder)).map_or(0, Iterator::count);
        assert!(kept > 0 || left("out.jsonl.state/work") == 0, "{how}: something is left of workspaces");
        for folder in ["work/.git", "out.jsonl.state"] {
            assert!(locks(&self.house.path(folder)).is_empty(), "{how}: locks are left in {folder}");
        }
    }
}

fn locks(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            found.extend(locks(&path));
        } else if path.extension().is_some_and(|ending| ending == "lock") {
            found.push(path);
        }
    }
    found
}
