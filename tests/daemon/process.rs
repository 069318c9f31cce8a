//! The daemon as a process: started in a folder of its own, waited for by condition, killed when a test is over.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use herder::daemon::{
    client::{Client, ClientError, Route},
    wire::{Code, Status},
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Far more than anything here takes, so that only what hangs fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// Between two looks at whether something has become true.
const PAUSE: Duration = Duration::from_millis(15);

/// Where a daemon and its clients live: home, runtime folder, state and configuration are all in here.
pub(crate) struct House {
    folder: TempDir,
}

impl House {
    pub(crate) fn new() -> Self {
        Self::within(TempDir::new().unwrap())
    }

    pub(crate) fn within(folder: TempDir) -> Self {
        let house = Self { folder };
        for name in ["run", "work"] {
            fs::create_dir(house.path(name)).unwrap();
        }
        fs::set_permissions(house.path("run"), fs::Permissions::from_mode(0o700)).unwrap();
        house
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path("run/herder/herder.sock")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.path("state/herder")
    }

    pub(crate) fn configure(&self, text: &str) {
        fs::create_dir_all(self.path("config/herder")).unwrap();
        fs::write(self.path("config/herder/config.toml"), text).unwrap();
    }

    /// The command, with nothing of the machine's own configuration.
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
            .env("XDG_RUNTIME_DIR", self.path("run"))
            .env("XDG_STATE_HOME", self.path("state"))
            .env("XDG_CONFIG_HOME", self.path("config"))
            .current_dir(self.path("work"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
    }

    pub(crate) fn herder(&self, args: &[&str]) -> Ended {
        Ended::of(&self.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap())
    }

    /// Starts a daemon and returns at once.
    pub(crate) fn launch(&self, args: &[&str]) -> Daemon {
        let mut all = vec!["serve", "--durability", "process"];
        all.extend(args);
        self.launched(self.command(&all))
    }

    pub(crate) fn launched(&self, mut command: Command) -> Daemon {
        let errors = self.path("serve.txt");
        let file = fs::File::create(&errors).unwrap();
        let since = Instant::now();
        let child = command.stderr(file).spawn().unwrap();
        Daemon { child, errors, since, client: self.client() }
    }

    /// Starts a daemon and returns once it takes everything.
    pub(crate) async fn start(&self, args: &[&str]) -> Daemon {
        let mut daemon = self.launch(args);
        daemon.is_ready().await;
        daemon
    }

    pub(crate) fn client(&self) -> Client {
        Client::at_socket(&self.socket()).unwrap()
    }

    /// Every event of record.
    pub(crate) fn events(&self) -> Vec<Value> {
        let state = self.state();
        let args = ["events", "--all", "--json", "--state", state.to_str().unwrap()];
        self.herder(&args).expect(0).json()
    }

    /// Processes of this house that are not dead: each has its folder in the environment.
    pub(crate) fn processes(&self) -> Vec<String> {
        let mark = format!("HOME={}\0", self.folder.path().display());
        let holds =
            |path: PathBuf| fs::read(path).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(&mark));
        let entries = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        entries
            .filter(|entry| holds(entry.path().join("environ")))
            .map(|entry| fs::read_to_string(entry.path().join("stat")).unwrap_or_default())
            .filter(|stat| !stat.is_empty() && !stat.contains(") Z "))
            .collect()
    }

    #[track_caller]
    pub(crate) fn assert_nothing_runs(&self) {
        let start = Instant::now();
        while !self.processes().is_empty() {
            assert!(start.elapsed() < PATIENCE, "still there: {:?}", self.processes());
            std::thread::sleep(PAUSE);
        }
    }
}

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

    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "stdout:\n{}\nstderr:\n{}", self.out, self.err);
        self
    }

    pub(crate) fn json(&self) -> Vec<Value> {
        lines(&self.out)
    }
}

/// A daemon under way.
pub(crate) struct Daemon {
    pub(crate) child: Child,
    pub(crate) client: Client,
    since: Instant,
    errors: PathBuf,
}

impl Daemon {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it takes everything; tells how long that took from its start.
    pub(crate) async fn is_ready(&mut self) -> Duration {
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("it ended ({status}) and said: {}", self.said());
            }
            if let Ok(status) = self.client.get::<Status>(&Route::to(["v1", "status"])).await
                && status.phase == "ready"
            {
                assert_eq!(status.pid, self.pid());
                return self.since.elapsed();
            }
            assert!(self.since.elapsed() < PATIENCE, "not ready; it said: {}", self.said());
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// What it has written to stderr.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(&self.errors).unwrap_or_default()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// As a loss of power would, but for the disk.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its end.
    pub(crate) async fn ended(&mut self) -> Option<i32> {
        let since = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(since.elapsed() < PATIENCE, "it does not end; it said: {}", self.said());
            tokio::time::sleep(PAUSE).await;
        }
    }

    pub(crate) async fn stop(mut self) {
        let _: Value = self.post("v1/stop", json!({})).await;
        assert_eq!(self.ended().await, Some(0), "{}", self.said());
    }

    pub(crate) async fn status(&self) -> Status {
        self.client.get(&Route::to(["v1", "status"])).await.unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.client.get(&route(path)).await.unwrap_or_else(|error| panic!("GET {path}: {error}"))
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Value {
        self.client.post(&route(path), &body).await.unwrap_or_else(|error| panic!("POST {path}: {error}"))
    }

    pub(crate) async fn patch(&self, path: &str, body: Value) -> Value {
        self.client.patch(&route(path), &body).await.unwrap_or_else(|error| panic!("PATCH {path}: {error}"))
    }

    /// Asserts that something is refused, and with which code.
    pub(crate) async fn refuses(&self, path: &str, body: Value, code: Code) {
        let answer: Result<Value, ClientError> = self.client.post(&route(path), &body).await;
        assert_eq!(answer.as_ref().map_err(ClientError::code), Err(Some(code)), "POST {path}");
    }

    /// Submits one task and returns the id of its run.
    pub(crate) async fn submit(&self, task: &Value) -> String {
        let answer = self.submit_with(task, None).await.unwrap();
        assert_eq!(answer["changed"], true);
        answer["id"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn submit_with(&self, task: &Value, key: Option<&str>) -> Result<Value, ClientError> {
        self.client.submit(&route("v1/runs"), "application/json", task.to_string(), key).await
    }

    pub(crate) async fn batch(&self, tasks: &[Value], options: &[(&str, &str)]) -> String {
        self.batch_with(tasks, options, None).await.unwrap()["id"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn batch_with(
        &self,
        tasks: &[Value],
        options: &[(&str, &str)],
        key: Option<&str>,
    ) -> Result<Value, ClientError> {
        let text: String = tasks.iter().map(|task| format!("{task}\n")).collect();
        let route = options.iter().fold(route("v1/batches"), |route, (name, value)| route.with(name, value));
        self.client.submit(&route, "application/jsonl", text, key).await
    }

    /// Waits until what is at `path` is as wanted, and returns it.
    pub(crate) async fn until(&self, path: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let since = Instant::now();
        loop {
            let found = self.get(path).await;
            if holds(&found) {
                return found;
            }
            assert!(since.elapsed() < PATIENCE, "waited in vain for {path}, which is {found:#}");
            tokio::time::sleep(PAUSE).await;
        }
    }

    pub(crate) async fn until_run_ends(&self, run: &str) -> Value {
        self.until(&format!("v1/runs/{run}"), |run| run["state"] == "ended").await
    }

    pub(crate) async fn until_batch_ends(&self, batch: &str) -> Value {
        self.until(&format!("v1/batches/{batch}"), |batch| batch["state"] == "ended").await
    }

    /// The result lines of a batch.
    pub(crate) async fn results(&self, batch: &str) -> Vec<Value> {
        let mut lines = self.client.lines(&Route::to(["v1", "batches", batch, "results"])).await.unwrap();
        let mut results = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            results.push(serde_json::from_slice(line).unwrap());
        }
        results
    }

    /// Bytes of memory that it holds.
    pub(crate) async fn memory(&self) -> u64 {
        self.status().await.rss_bytes.unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A path of the API, with its parameters.
pub(crate) fn route(path: &str) -> Route {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .fold(Route::to(path.split('/')), |route, (name, value)| route.with(name, value))
}

/// Waits for something to become true.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < PATIENCE, "waited in vain: {what}");
        tokio::time::sleep(PAUSE).await;
    }
}

pub(crate) fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}")))
        .collect()
}

/// A task in the folder `work`.
pub(crate) fn task(house: &House, id: &str, script: Value) -> Value {
    json!({"id": id, "task": format!("do {id}"), "workspace": house.path("work"), "script": script})
}

/// A task whose model answers once, after this long.
pub(crate) fn says(house: &House, id: &str, delay_ms: u64) -> Value {
    task(house, id, json!([{"text": "ready", "delay_ms": delay_ms}]))
}

/// A task whose model takes so many turns, each after this long.
pub(crate) fn takes_turns(house: &House, id: &str, turns: usize, delay_ms: u64) -> Value {
    let turn = json!({"calls": [{"name": "list", "arguments": {}}], "delay_ms": delay_ms});
    let mut script = vec![turn; turns - 1];
    script.push(json!({"text": "ready", "delay_ms": delay_ms}));
    task(house, id, script.into())
}

/// A task whose model runs one command and is then done.
pub(crate) fn runs(house: &House, id: &str, command: &str) -> Value {
    let call = json!({"calls": [{"name": "bash", "arguments": {"command": command}}]});
    task(house, id, json!([call, {"text": "ready"}]))
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

pub(crate) fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}
