//! The program as a daemon over a folder of the test's own.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use herder::{
    app::state::State,
    daemon::{
        client::{Client, Route},
        wire::{Health, Status, Submitted},
    },
    domain::{
        event::Envelope,
        id::{Pos, RunId},
    },
    store::RunFilter,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tempfile::TempDir;

pub(super) struct Daemon {
    child: Child,
    socket: PathBuf,
    client: Client,
    folder: TempDir,
}

impl Daemon {
    pub(super) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("herder.sock");
        let child = Command::new(env!("CARGO_BIN_EXE_herder"))
            .args([
                "serve",
                "--policy",
                "trusted",
                "--jobs",
                "1000",
                "--state",
                "state",
                "--socket",
                "herder.sock",
            ])
            .env_clear()
            .env("HOME", folder.path())
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let client = Client::at_socket(&socket).unwrap();
        let daemon = Self { child, socket, client, folder };
        let ready = async { while daemon.client.get::<Health>(&Route::to(["readyz"])).await.is_err() {} };
        super::in_time(ready).await;
        daemon
    }

    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Writes a file that tasks can read.
    pub(super) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join(name), text).unwrap();
    }

    pub(super) async fn status(&self) -> Status {
        self.client.get(&Route::to(["v1", "status"])).await.unwrap()
    }

    pub(super) async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> T {
        self.client.post(&Route::to(["v1"].into_iter().chain(path.split('/'))), body).await.unwrap()
    }

    /// Submits a task that works in this folder; the id of its run.
    pub(super) async fn submit(&self, task: &Value) -> String {
        self.send(Route::to(["v1", "runs"]), std::slice::from_ref(task)).await
    }

    /// Submits tasks that work in this folder, all at once; the id of their batch.
    pub(super) async fn submit_batch(&self, tasks: &[Value]) -> String {
        self.send(Route::to(["v1", "batches"]).with("concurrency", tasks.len()), tasks).await
    }

    async fn send(&self, route: Route, tasks: &[Value]) -> String {
        let line = |task: &Value| {
            let mut task = task.clone();
            task["workspace"] = self.folder.path().to_str().into();
            format!("{task}\n")
        };
        let lines: String = tasks.iter().map(line).collect();
        let submitted: Submitted = self.client.submit(&route, "application/json", lines, None).await.unwrap();
        submitted.id
    }

    /// Everything that is of record.
    pub(super) async fn log(&self) -> Vec<Envelope> {
        let store = self.state().store.clone();
        let (mut log, mut after) = (Vec::new(), Pos::START);
        loop {
            let page = store.read_all(after, 1_000).await.unwrap();
            let Some(last) = page.last() else { return log };
            after = last.pos;
            log.extend(page);
        }
    }

    /// The batch of each run that has one.
    pub(super) async fn batches_of_runs(&self) -> BTreeMap<RunId, String> {
        let records = self.state().store.runs(RunFilter::default()).await.unwrap();
        records.iter().filter_map(|record| Some((record.run, record.batch?.to_string()))).collect()
    }

    fn state(&self) -> State {
        State::to_read(&self.folder.path().join("state")).unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Nothing is asked of it any more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
