//! A folder with a configuration, and the command in it.

use std::{fs, process::Stdio};

use serde_json::Value;
use tempfile::TempDir;
use tokio::{process::Command, time::timeout};

use crate::support::server::DEADLINE;

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "stdout:\n{}\nstderr:\n{}", self.out, self.err);
        self
    }

    /// Stdout as lines of JSON.
    pub(crate) fn json(&self) -> Vec<Value> {
        self.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// A folder of a test's own.
pub(crate) struct Place(TempDir);

impl Place {
    /// A folder whose `h.toml` says this.
    pub(crate) fn new(config: &str) -> Self {
        let place = Self(TempDir::new().unwrap());
        fs::write(place.0.path().join("h.toml"), config).unwrap();
        place
    }

    /// Writes a file of the user's own configuration.
    pub(crate) fn write_users(&self, name: &str, text: &str) {
        let folder = self.0.path().join("herder");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(name), text).unwrap();
    }

    /// The command with its configuration, and nothing of the machine's.
    pub(crate) fn command(&self, variables: &[(&str, &str)], args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_herder"));
        command
            .args(["--config", "h.toml"])
            .args(args)
            .env_clear()
            .env("HOME", self.0.path())
            .env("XDG_CONFIG_HOME", self.0.path())
            .env("XDG_RUNTIME_DIR", self.0.path())
            .envs(variables.iter().copied())
            .current_dir(self.0.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Runs it to its end, which must come in good time.
    pub(crate) async fn herder(&self, variables: &[(&str, &str)], args: &[&str]) -> Ended {
        let output = timeout(DEADLINE, self.command(variables, args).output()).await.unwrap().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Ended { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }
}
