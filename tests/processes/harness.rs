//! A folder, a runner, and a mark in the environment by which every process of a test is found again.

use std::{
    ffi::OsString,
    fs,
    path::Path,
    time::{Duration, Instant},
};

use herder::tool::process::{CommandSpec, Finished, ProcessRunner, SpawnError, environment};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Far more than anything here takes, so that only what hangs fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Scene {
    pub(crate) folder: TempDir,
    pub(crate) runner: ProcessRunner,
    mark: String,
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self::marked(Uuid::now_v7().to_string())
    }

    pub(crate) fn marked(mark: String) -> Self {
        let runner = ProcessRunner::with_executable(env!("CARGO_BIN_EXE_herder"));
        Self { folder: TempDir::new().unwrap(), runner, mark }
    }

    pub(crate) fn mark(&self) -> &str {
        &self.mark
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// `bash -c script`, in the folder, with a short grace.
    pub(crate) fn bash(&self, script: &str) -> CommandSpec {
        let mark = (OsString::from("HERDER_TEST_MARK"), OsString::from(&self.mark));
        CommandSpec {
            args: vec!["-c".into(), script.into()],
            env: environment(std::env::vars_os(), &[], [mark]),
            grace: Duration::from_millis(500),
            ..CommandSpec::new("bash", self.path())
        }
    }

    pub(crate) async fn run(&self, spec: CommandSpec) -> Finished {
        self.try_run(spec).await.unwrap()
    }

    pub(crate) async fn try_run(&self, spec: CommandSpec) -> Result<Finished, SpawnError> {
        let never = CancellationToken::new();
        tokio::time::timeout(PATIENCE, self.runner.run(spec, &never)).await.expect("hangs")
    }

    /// Runs a command that makes the file `ready`, and cancels it then.
    pub(crate) async fn run_until_ready(&self, spec: CommandSpec) -> Finished {
        let cancel = CancellationToken::new();
        self.run_while(spec, &cancel, async {
            self.until_file("ready").await;
            cancel.cancel();
        })
        .await
    }

    /// Runs a command, and once it is known to have started does something meanwhile.
    pub(crate) async fn run_while(
        &self,
        spec: CommandSpec,
        cancel: &CancellationToken,
        meanwhile: impl Future<Output = ()>,
    ) -> Finished {
        let running = self.runner.start(spec).await.unwrap();
        let (done, ()) = tokio::join!(tokio::time::timeout(PATIENCE * 2, running.wait(cancel)), meanwhile);
        done.expect("hangs")
    }

    /// Processes of this test that are there now, as `pid command line`.
    pub(crate) fn processes(&self) -> Vec<String> {
        let own = std::process::id().to_string();
        let entries = fs::read_dir("/proc").unwrap().flatten();
        entries
            .filter(|entry| entry.file_name() != *own && holds(&entry.path().join("environ"), &self.mark))
            .map(|entry| {
                let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
                let line = String::from_utf8_lossy(&line).replace('\0', " ");
                format!("{} {line}", entry.file_name().display())
            })
            .collect()
    }

    pub(crate) fn assert_nothing_runs(&self) {
        assert_eq!(self.processes(), Vec::<String>::new());
    }

    /// For when nobody can say that the end has come: looks until it has.
    pub(crate) async fn until_nothing_runs(&self) {
        until("everything has ended", || self.processes().is_empty()).await;
    }

    pub(crate) async fn until_file(&self, name: &str) -> String {
        let path = self.path().join(name);
        let text = || fs::read_to_string(&path).unwrap_or_default();
        until(name, || text().ends_with('\n')).await;
        text()
    }
}

pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "waited in vain until: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn holds(path: &Path, mark: &str) -> bool {
    fs::read(path).is_ok_and(|bytes| bytes.windows(mark.len()).any(|window| window == mark.as_bytes()))
}
