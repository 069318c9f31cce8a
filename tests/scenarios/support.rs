//! A folder to work in, the command, and the ways to look at what it leaves.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::TempDir;
use uuid::Uuid;

/// Far more than anything here takes, so that only what hangs fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    pub(crate) fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }

    /// Stdout as lines of JSON.
    pub(crate) fn json(&self) -> Vec<Value> {
        json_lines(&self.out)
    }

    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "stdout:\n{}\nstderr:\n{}", self.out, self.err);
        self
    }
}

/// A folder of a test's own. A mark in it is found again in every process that a task of the test starts.
pub(crate) struct Place {
    folder: TempDir,
    mark: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        let place = Self { folder: TempDir::new().unwrap(), mark: format!("mark-{}", Uuid::now_v7()) };
        fs::create_dir(place.path("work")).unwrap();
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn mark(&self) -> &str {
        &self.mark
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// A task in a new folder of its own, where its commands wait for nobody else's.
    pub(crate) fn apart(&self, id: &str, script: Value) -> Value {
        fs::create_dir(self.path(id)).unwrap();
        json!({"id": id, "task": format!("do {id}"), "workspace": id, "script": script})
    }

    pub(crate) fn tasks(&self, name: &str, tasks: &[Value]) {
        let lines: String = tasks.iter().map(|task| format!("{task}\n")).collect();
        self.write(name, lines);
    }

    /// The lines of JSON in a file that may still be written.
    pub(crate) fn results(&self, name: &str) -> Vec<Value> {
        let text = self.read(name);
        json_lines(&text[..text.rfind('\n').map_or(0, |end| end + 1)])
    }

    /// The names in the folder, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// The command, in this folder and with nothing of the machine's own configuration.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_herder"));
        self.set_out(command.args(args));
        command
    }

    /// The same by way of a shell, whose script has the command as `"$0" "$@"`.
    pub(crate) fn shell(&self, script: &str, args: &[&str]) -> Command {
        let mut command = Command::new("sh");
        self.set_out(command.args(["-c", script, env!("CARGO_BIN_EXE_herder")]).args(args));
        command
    }

    fn set_out(&self, command: &mut Command) {
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.folder.path())
            .env("TMPDIR", self.folder.path())
            .env("XDG_RUNTIME_DIR", self.folder.path())
            .current_dir(self.folder.path())
            .stdin(Stdio::null());
    }

    pub(crate) fn herder(&self, args: &[&str]) -> Ended {
        Ended::of(&self.command(args).output().unwrap())
    }

    /// Starts the command and goes on; its stderr is in `err.txt`, its stdout in `out.txt`.
    pub(crate) fn start(&self, args: &[&str]) -> Started {
        let file = |name| fs::File::create(self.path(name)).unwrap();
        let child = self.command(args).stdout(file("out.txt")).stderr(file("err.txt")).spawn().unwrap();
        Started(child)
    }

    /// Every event in a state folder.
    pub(crate) fn events(&self, state: &str) -> Vec<Value> {
        self.herder(&["events", "--all", "--json", "--state", state]).expect(0).json()
    }

    /// Processes that carry the mark in their command line or environment.
    pub(crate) fn marked(&self) -> Vec<String> {
        let holds = |path: PathBuf| {
            fs::read(path).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(&self.mark))
        };
        let entries = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        let processes = entries.filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok());
        processes
            .filter(|entry| holds(entry.path().join("cmdline")) || holds(entry.path().join("environ")))
            .map(|entry| fs::read_to_string(entry.path().join("stat")).unwrap_or_default())
            .filter(|stat| !stat.is_empty() && !stat.contains(") Z "))
            .collect()
    }

    #[track_caller]
    pub(crate) fn assert_nothing_marked_runs(&self) {
        until("no marked process is left", || self.marked().is_empty());
    }
}

/// A command under way; it is killed if the test gives up.
pub(crate) struct Started(Child);

impl Started {
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = i32::try_from(self.pid()).ok().and_then(rustix::process::Pid::from_raw).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// As a loss of power would, but for the disk.
    pub(crate) fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    pub(crate) fn is_over(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }

    #[track_caller]
    pub(crate) fn wait(mut self) -> Option<i32> {
        until("the command ends", || self.is_over());
        self.0.wait().unwrap().code()
    }
}

impl From<Child> for Started {
    fn from(child: Child) -> Self {
        Self(child)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for something to become true.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn json_lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}")))
        .collect()
}

/// A task in the folder `work`.
pub(crate) fn task(id: &str, script: Value) -> Value {
    json!({"id": id, "task": format!("do {id}"), "workspace": "work", "script": script})
}

/// A reply that calls one tool.
pub(crate) fn call(name: &str, arguments: Value) -> Value {
    json!({"calls": [{"name": name, "arguments": arguments}]})
}

/// A reply whose call ends once there is this file.
pub(crate) fn waits_for(file: &str) -> Value {
    call("bash", json!({"command": format!("until [ -e {file} ]; do sleep 0.02; done")}))
}

/// A task that runs one command.
pub(crate) fn bash(id: &str, command: &str) -> Value {
    task(id, json!([call("bash", json!({"command": command})), {"text": "ready"}]))
}

/// A task that takes no turn but the last one.
pub(crate) fn says(id: &str, text: &str) -> Value {
    task(id, json!([{"text": text}]))
}

/// A field of each line, in their order.
pub(crate) fn field<'a>(lines: &'a [Value], name: &str) -> Vec<&'a str> {
    lines.iter().map(|line| line[name].as_str().unwrap_or_default()).collect()
}

pub(crate) fn sorted(mut texts: Vec<&str>) -> Vec<&str> {
    texts.sort_unstable();
    texts
}

/// Whether there is a state folder with a log.
pub(crate) fn is_state(path: &Path) -> bool {
    path.join("log.db").exists()
}

/// Checks what every log keeps: events without a gap, one end a run and that the last, and places without a hole.
#[track_caller]
pub(crate) fn assert_sound(events: &[Value]) {
    let places: Vec<u64> = events.iter().map(|event| event["pos"].as_u64().unwrap()).collect();
    assert_eq!(places, (1..=events.len() as u64).collect::<Vec<_>>());
    let mut runs: std::collections::BTreeMap<&str, Vec<&Value>> = std::collections::BTreeMap::new();
    for event in events {
        runs.entry(event["run"].as_str().unwrap()).or_default().push(event);
    }
    for (run, events) in runs {
        let numbers: Vec<u64> = events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
        assert_eq!(numbers, (1..=events.len() as u64).collect::<Vec<_>>(), "{run}");
        let ends: Vec<usize> =
            (0..events.len()).filter(|place| events[*place]["kind"] == "run_end").collect();
        assert_eq!(ends, [events.len() - 1], "{run}");
    }
}
