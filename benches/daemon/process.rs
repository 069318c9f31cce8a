//! A daemon of the bench's own: the `herder` program over a state folder, and a client that costs next to nothing.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};

/// Far longer than a daemon takes to start.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct Daemon {
    child: Child,
    socket: PathBuf,
    folder: TempDir,
    /// From its start until it takes work.
    pub(crate) ready_after: Duration,
}

impl Daemon {
    /// Starts a daemon over what `fill` puts into its state, and waits until it takes work.
    pub(crate) async fn start(fill: impl FnOnce(&Path)) -> Self {
        // Beside the build: temporary files may lie in memory, which no log does.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let (state, socket) = (folder.path().join("state"), PathBuf::from("herder.sock"));
        fill(&state);
        let began = Instant::now();
        let child = herder(folder.path())
            .args(["serve", "--policy", "trusted", "--jobs", "20000", "--state", "state", "--socket"])
            .arg(&socket)
            .spawn()
            .unwrap();
        let mut daemon = Self { child, socket: folder.path().join(socket), folder, ready_after: PATIENCE };
        while !daemon.is_ready().await {
            assert!(began.elapsed() < PATIENCE, "no daemon answers");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        daemon.ready_after = began.elapsed();
        daemon
    }

    async fn is_ready(&self) -> bool {
        let Ok(stream) = UnixStream::connect(&self.socket).await else { return false };
        Connection(stream).ask("GET", "/readyz", "").await.0 == 200
    }

    pub(crate) async fn connect(&self) -> Connection {
        Connection(UnixStream::connect(&self.socket).await.unwrap())
    }

    /// One question over a connection of its own.
    pub(crate) async fn ask(&self, method: &str, path: &str, body: &str) -> serde_json::Value {
        let (status, body) = self.connect().await.ask(method, path, body).await;
        assert!((200..300).contains(&status), "{path}: {status} {}", String::from_utf8_lossy(&body));
        serde_json::from_slice(&body).unwrap()
    }

    /// Follows events, not a word of which has been read yet.
    pub(crate) async fn follow(&self, path: &str) -> Events {
        let mut stream = UnixStream::connect(&self.socket).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: herder\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        Events { stream, buffer: vec![0; 64 << 10], after_newline: false }
    }

    /// A command of the same program that asks this daemon.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = herder(self.folder.path());
        command.args(args).args(["--socket", "herder.sock"]).stdout(Stdio::null());
        command
    }

    /// Where runs work.
    pub(crate) fn workspace(&self) -> String {
        self.folder.path().display().to_string()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // What it has not written is the bench's own.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program, or another build of it that `HERDER` names, with nothing of the machine's own configuration. A socket's path must be short, so `folder` is where it is.
fn herder(folder: &Path) -> Command {
    let program = std::env::var_os("HERDER").unwrap_or_else(|| env!("CARGO_BIN_EXE_herder").into());
    let mut command = Command::new(program);
    command.env_clear().env("HOME", folder).current_dir(folder).stdin(Stdio::null()).stderr(Stdio::null());
    command
}

/// A connection that is kept.
pub(crate) struct Connection(UnixStream);

impl Connection {
    /// Sends a request and reads the whole answer.
    pub(crate) async fn ask(&mut self, method: &str, path: &str, body: &str) -> (u16, Vec<u8>) {
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: herder\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}"
        );
        self.0.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::with_capacity(4096);
        let head = loop {
            if let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            assert_ne!(self.0.read_buf(&mut answer).await.unwrap(), 0, "{path}: no answer");
        };
        let text = std::str::from_utf8(&answer[..head]).unwrap();
        let status = text[9..12].parse().unwrap();
        let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        let length: usize = length.parse().unwrap();
        while answer.len() < head + length {
            assert_ne!(self.0.read_buf(&mut answer).await.unwrap(), 0, "{path}: half an answer");
        }
        (status, answer.split_off(head))
    }
}

/// A stream of events.
pub(crate) struct Events {
    stream: UnixStream,
    buffer: Vec<u8>,
    after_newline: bool,
}

impl Events {
    /// Reads what is there; how many events ended in it, and signs of life. Nothing once the stream is over.
    pub(crate) async fn read(&mut self) -> Option<usize> {
        let count = self.stream.read(&mut self.buffer).await.ok().filter(|count| *count > 0)?;
        let mut ended = 0;
        for byte in &self.buffer[..count] {
            let is_newline = *byte == b'\n';
            ended += usize::from(is_newline && self.after_newline);
            self.after_newline = is_newline;
        }
        Some(ended)
    }
}
