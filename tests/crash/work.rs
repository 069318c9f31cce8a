//! A small batch in which everything happens once, the witness of what it does outside, and its undisturbed course.

use std::{
    fs,
    os::unix::{fs::PermissionsExt, process::ExitStatusExt},
    process::ExitStatus,
    sync::LazyLock,
};

use serde_json::{Value, json};

use crate::{
    process::{self, House},
    record::{Record, STATE},
};

/// The command tool appends its idempotency key to the witness, which no tool but that and `bash` can reach.
const CONFIG: &str = r#"
[command_tools.note]
description = "Notes that it was called."
command = ["sh", "-c", "echo note $HERDER_IDEMPOTENCY_KEY >> ../outside/witness"]
schema = { type = "object", properties = {}, additionalProperties = false }

[models.first]
provider = "scripted"
fallbacks = ["second"]

[models.second]
provider = "scripted"

[models.priced]
provider = "scripted"
input_usd_per_mtok = 0.1
output_usd_per_mtok = 0.4
"#;

/// The batch in a folder of its own.
pub(crate) struct Work {
    pub(crate) house: House,
}

/// How it goes when nobody disturbs it.
pub(crate) static UNDISTURBED: LazyLock<Record> = LazyLock::new(|| {
    let work = Work::new();
    assert_eq!(work.run(None).code(), Some(1), "one task ends at a limit: {}", work.said());
    let record = Record::of(&work.house, STATE);
    assert_eq!(record.results.len(), 5);
    record
});

/// With commands that reach the witness, which lies outside of the workspace.
pub(crate) fn reaching_out(config: &str, house: &House) -> String {
    let outside = house.path("outside");
    fs::create_dir_all(&outside).unwrap();
    format!("{config}\n[confine]\nwrite_roots = [{outside:?}]\n")
}

impl Work {
    pub(crate) fn new() -> Self {
        let house = House::new();
        house.configure(&reaching_out(CONFIG, &house));
        fs::write(house.path("work/fixed.txt"), "fixed\n").unwrap();
        fs::write(house.path("work/a.txt"), "one\ntwo\n").unwrap();
        fs::set_permissions(house.path("work/a.txt"), fs::Permissions::from_mode(0o640)).unwrap();
        let lines: String = tasks(&house).iter().map(|task| format!("{task}\n")).collect();
        fs::write(house.path("in.jsonl"), lines).unwrap();
        Self { house }
    }

    /// Runs the batch, or goes on with it, to its end; or to its death, where the point is reached this many times.
    pub(crate) fn run(&self, killed_at: Option<(&str, usize)>) -> ExitStatus {
        let args = ["batch", "../in.jsonl", "-o", "../out.jsonl", "--policy", "trusted", "-j", "3"];
        let mut command = self.house.command(&args);
        command.args(["--durability", "process"]);
        if let Some((point, time)) = killed_at {
            command.env("FAILPOINTS", armed(point, time));
        }
        let said = fs::File::create(self.house.path("said.txt")).unwrap();
        command.stderr(said).status().unwrap()
    }

    /// The same, and whether it was killed. Nothing of it runs then.
    pub(crate) fn dies(&self, point: &str, time: usize) -> bool {
        let status = self.run(Some((point, time)));
        let dead = status.signal() == Some(9);
        assert!(dead || status.code() == Some(1), "{point} {time}: {status}: {}", self.said());
        self.house.assert_nothing_runs();
        dead
    }

    pub(crate) fn said(&self) -> String {
        fs::read_to_string(self.house.path("said.txt")).unwrap_or_default()
    }

    /// Goes on to the end, and finds all of it as if nothing had happened.
    #[track_caller]
    pub(crate) fn ends_as_undisturbed(&self, how: &str) {
        let status = self.run(None);
        assert_eq!(status.code(), Some(1), "{how}: {}", self.said());
        self.house.assert_nothing_runs();
        let record = Record::of(&self.house, STATE);
        record.assert_equals(&UNDISTURBED, how);
        let text = |name: &str| fs::read_to_string(self.house.path(name)).unwrap_or_default();
        assert_eq!(
            (text("work/a.txt"), text("work/b.txt")),
            ("ONE\ntwo\n".to_owned(), "b\n".to_owned()),
            "{how}"
        );
        let mode = fs::metadata(self.house.path("work/a.txt")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640, "{how}");
        assert_eq!(left_in(&self.house), ["a.txt", "b.txt", "fixed.txt"], "{how}");
        let witness = text("outside/witness");
        for (word, call) in [("edits", "append"), ("note", "note")] {
            let seen = witness.lines().filter(|line| line.starts_with(word)).count();
            let in_doubt = record.in_doubt.contains(call);
            assert!(
                seen == 1 || seen == 0 && in_doubt,
                "{how}: {word} was done {seen} times, in doubt: {in_doubt}"
            );
        }
    }
}

/// What `FAILPOINTS` says for a death where the point is reached this many times.
pub(crate) fn armed(point: &str, time: usize) -> String {
    match time {
        0 | 1 => format!("{point}=return"),
        _ => format!("{point}={}*off->return", time - 1),
    }
}

/// The names in the workspace, sorted.
pub(crate) fn left_in(house: &House) -> Vec<String> {
    let entries = fs::read_dir(house.path("work")).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn call(id: &str, name: &str, arguments: Value) -> Value {
    json!({"id": id, "name": name, "arguments": arguments})
}

fn with(mut task: Value, name: &str, value: Value) -> Value {
    task[name] = value;
    task
}

fn tasks(house: &House) -> Vec<Value> {
    let task = |id: &str, script: Value| process::task(house, id, script);
    let read = |id: &str| json!({"calls": [call(id, "read", json!({"path": "fixed.txt"}))]});
    let edit = call("edit", "edit", json!({"path": "a.txt", "old_text": "one", "new_text": "ONE"}));
    let append = call("append", "bash", json!({"command": "echo edits >> ../outside/witness"}));
    let write = call("write", "write", json!({"path": "b.txt", "content": "b\n"}));
    let again = json!({"fault": {"status": 503, "retry_after_s": 0}});
    let limited = task("limited", json!([read("r1"), read("r2"), read("r3")]));
    let refused = json!({"fault": {"status": 401}});
    let formal = task("formal", json!([{"text": "no JSON"}, {"text": "{}"}]));
    vec![
        task("edits", json!([{"calls": [edit]}, {"calls": [append]}, read("r1"), {"text": "edited"}])),
        task(
            "writes",
            json!([{"calls": [write, call("note", "note", json!({}))]}, again, {"text": "written"}]),
        ),
        with(with(limited, "limits", json!({"max_turns": 2})), "model", json!("priced")),
        with(task("switches", json!([refused, {"text": "switched"}])), "model", json!("first")),
        with(formal, "response_format", json!({"type": "json_object"})),
    ]
}
