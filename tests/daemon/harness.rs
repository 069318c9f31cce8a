//! A server to talk to, a client without manners, and processes of one's own to start, kill and hand sockets to.

use std::{
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use axum::{Extension, Json, Router, routing::get};
use herder::daemon::server::{
    Access, Caller, Limits, Listener, serve,
    socket::{SocketPath, Surroundings, bind, locate},
};
use serde_json::json;
use tempfile::TempDir;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::UnixStream,
    task::JoinHandle,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

/// Longer than anything here takes, so that what hangs is told from what is slow.
pub(crate) const DEADLINE: Duration = Duration::from_secs(90);

pub(crate) async fn soon<T>(work: impl Future<Output = T>) -> T {
    timeout(DEADLINE, work).await.expect("this does not hang")
}

/// A place that a person named.
pub(crate) fn named(path: &Path) -> SocketPath {
    locate(Some(path), &Surroundings::of_this_process()).unwrap()
}

/// A place of herder's own under `dir`.
pub(crate) fn own(dir: &Path) -> SocketPath {
    let around = Surroundings { runtime_dir: Some(dir.to_owned()), ..Surroundings::of_this_process() };
    locate(None, &around).unwrap()
}

/// A server over a Unix socket.
pub(crate) struct Running {
    pub(crate) path: PathBuf,
    pub(crate) ending: CancellationToken,
    pub(crate) task: JoinHandle<()>,
    _folder: TempDir,
}

pub(crate) fn start(router: Router, limits: Limits) -> Running {
    let folder = tempfile::tempdir().unwrap();
    let place = own(folder.path());
    let listener = Listener::bound(bind(&place, None).unwrap()).unwrap();
    let ending = CancellationToken::new();
    let serving = serve(router, Access::own(), limits, vec![listener], ending.clone());
    Running { path: place.path().to_owned(), ending, task: tokio::spawn(serving), _folder: folder }
}

/// Says who is calling, as the routes see it.
pub(crate) fn who() -> Router {
    async fn tell(Extension(caller): Extension<Caller>) -> Json<serde_json::Value> {
        Json(json!({ "via": format!("{:?}", caller.via), "role": format!("{:?}", caller.role) }))
    }
    Router::new().route("/who", get(tell)).route("/healthz", get(|| async { "ok" }))
}

pub(crate) async fn connect(path: &Path) -> UnixStream {
    soon(UnixStream::connect(path)).await.unwrap()
}

/// Sends these bytes and reads until the server closes.
pub(crate) async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, sent: &str) -> String {
    soon(stream.write_all(sent.as_bytes())).await.unwrap();
    rest(stream).await
}

/// What still comes, until the server closes; a reset counts as that.
pub(crate) async fn rest(mut stream: impl AsyncRead + Unpin) -> String {
    let mut text = Vec::new();
    let _ = soon(stream.read_to_end(&mut text)).await;
    String::from_utf8_lossy(&text).into_owned()
}

/// A whole request, after which the connection is to be closed.
pub(crate) fn request(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
}

pub(crate) async fn ask(socket: &Path, path: &str) -> String {
    exchange(connect(socket).await, &request(path)).await
}

/// Asserts the status and, where there is one, the code of an answer.
pub(crate) fn assert_refused(answer: &str, status: u16, code: &str) {
    assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    let body: serde_json::Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!(body["code"], code, "{answer}");
    assert!(body["message"].as_str().is_some_and(|message| !message.is_empty()), "{answer}");
}

/// A process that runs one of the tests that are marked as being parts of others. Killed when dropped.
pub(crate) struct Part {
    pub(crate) child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Part {
    /// `shell` comes before the program in a line of the shell's, and may set what a process inherits.
    pub(crate) fn start(name: &str, shell: &str, prepare: impl FnOnce(&mut Command)) -> Self {
        Self::start_as(&std::env::current_exe().unwrap(), name, shell, prepare)
    }

    /// The same, from a copy of this program.
    pub(crate) fn start_as(
        program: &Path,
        name: &str,
        shell: &str,
        prepare: impl FnOnce(&mut Command),
    ) -> Self {
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("{shell} exec \"$0\" \"$@\"")).arg(program);
        command.args(["--exact", name, "--ignored", "--nocapture"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        prepare(&mut command);
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// Waits for a line that the process says.
    pub(crate) fn hear(&mut self, wanted: &str) {
        let mut heard = String::new();
        while !heard.lines().any(|line| line == wanted) {
            assert_ne!(self.lines.read_line(&mut heard).unwrap(), 0, "it ended, and said: {heard}");
        }
    }

    /// Waits for a line that begins so, and returns the rest of it.
    pub(crate) fn hear_after(&mut self, beginning: &str) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.lines.read_line(&mut line).unwrap(), 0, "it ended");
            if let Some(rest) = line.strip_prefix(beginning) {
                return rest.trim_end().to_owned();
            }
        }
    }

    /// Everything that it says until it ends.
    pub(crate) fn all(mut self) -> String {
        drop(self.child.stdin.take());
        let mut text = String::new();
        self.lines.read_to_string(&mut text).unwrap();
        text
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a part says to the test that started it.
pub(crate) fn say(text: &str) {
    use std::io::Write;
    let mut out = std::io::stdout();
    // The test runner's own line may not have ended.
    write!(out, "\n{text}\n").unwrap();
    out.flush().unwrap();
}

/// Waits in a part until the test lets go of it.
pub(crate) fn wait_for_the_end() {
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}
