//! The service manager, played: it hands down a socket, and hears what the daemon says of itself.

use std::{
    collections::BTreeMap,
    fs,
    os::{
        fd::OwnedFd,
        unix::net::{UnixDatagram, UnixListener},
    },
    process::Stdio,
};

use herder::daemon::server::{
    Access, Limits, Listener, serve,
    systemd::{inherited, ready, reloading, status, stopping, watchdog},
};
use tokio_util::sync::CancellationToken;

use crate::{
    harness::{DEADLINE, Part, ask, say, soon, wait_for_the_end, who},
    process::until,
};

/// Where the manager listens for reports.
pub(crate) struct Manager {
    folder: tempfile::TempDir,
    socket: UnixDatagram,
}

impl Manager {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        socket.set_read_timeout(Some(DEADLINE)).unwrap();
        Self { folder, socket }
    }

    fn start(&self, part: &str, more: &[(&str, &str)]) -> Part {
        Part::start(part, "", |command| {
            command.env("NOTIFY_SOCKET", self.place()).envs(more.iter().copied());
        })
    }

    /// What `NOTIFY_SOCKET` says.
    pub(crate) fn place(&self) -> std::path::PathBuf {
        self.folder.path().join("notify")
    }

    /// Whether there has been no report so far.
    pub(crate) fn has_heard_nothing(&self) -> bool {
        self.socket.set_nonblocking(true).unwrap();
        self.socket.recv(&mut [0]).is_err()
    }

    /// The next report that is of more than what is going on.
    pub(crate) fn state(&self) -> BTreeMap<String, String> {
        loop {
            let report = self.report();
            if report.keys().any(|name| name != "STATUS") {
                return report;
            }
        }
    }

    /// The next report, by field.
    pub(crate) fn report(&self) -> BTreeMap<String, String> {
        let mut bytes = [0; 4096];
        let count = self.socket.recv(&mut bytes).unwrap();
        let text = String::from_utf8_lossy(&bytes[..count]);
        let field =
            |line: &str| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        text.lines().map(|line| field(line).unwrap()).collect()
    }
}

fn fields(wanted: &[(&str, &str)]) -> BTreeMap<String, String> {
    wanted.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[tokio::test]
#[ignore = "a part of other tests"]
async fn part_that_reports() {
    ready("takes tasks").await;
    status("12 runs\nREADY=0");
    reloading().await;
    ready("takes tasks again").await;
    stopping("drains").await;
}

#[test]
fn the_manager_hears_of_start_reload_and_end() {
    let manager = Manager::new();
    let part = manager.start("systemd::part_that_reports", &[]);
    let pid = part.child.id().to_string();
    let is_ready = |status| fields(&[("READY", "1"), ("MAINPID", &pid), ("STATUS", status)]);
    assert_eq!(manager.report(), is_ready("takes tasks"));
    assert_eq!(manager.report(), fields(&[("STATUS", "12 runs READY=0")]));
    let mut reload = manager.report();
    let since_boot = reload.remove("MONOTONIC_USEC").unwrap();
    assert!(since_boot.parse::<u64>().unwrap() > 0);
    assert_eq!(reload, fields(&[("RELOADING", "1")]));
    assert_eq!(manager.report(), is_ready("takes tasks again"));
    assert_eq!(manager.report(), fields(&[("STOPPING", "1"), ("STATUS", "drains")]));
    part.all();
}

#[test]
fn without_a_manager_reports_come_to_nothing() {
    let mut part = Part::start("systemd::part_that_reports", "", |command| {
        command.env_remove("NOTIFY_SOCKET");
    });
    assert!(part.child.wait().unwrap().success());
}

#[test]
fn a_manager_that_has_gone_harms_nobody() {
    let mut part = Part::start("systemd::part_that_reports", "", |command| {
        command.env("NOTIFY_SOCKET", "/no/such/socket");
    });
    assert!(part.child.wait().unwrap().success());
}

#[tokio::test]
#[ignore = "a part of another test"]
async fn part_that_reports_more_than_is_listened_to() {
    for number in 0..1_000 {
        status(&format!("{number} runs"));
    }
    fs::write(std::env::var_os("GOES_ON").unwrap(), "").unwrap();
    stopping("drains").await;
}

#[tokio::test]
async fn a_manager_that_does_not_listen_holds_nothing_up_and_hears_of_the_end_once_it_does() {
    let manager = Manager::new();
    let goes_on = manager.folder.path().join("goes-on");
    let more = [("GOES_ON", goes_on.to_str().unwrap())];
    let part = manager.start("systemd::part_that_reports_more_than_is_listened_to", &more);
    until("it goes on", || goes_on.exists()).await;
    assert_eq!(manager.report(), fields(&[("STATUS", "0 runs")]));
    assert_eq!(manager.state(), fields(&[("STOPPING", "1"), ("STATUS", "drains")]));
    part.all();
}

#[tokio::test]
#[ignore = "a part of other tests"]
async fn part_that_works_until_its_third_round() {
    let mut asked = 0;
    let alive = || {
        asked += 1;
        let works = asked < 3;
        if !works {
            status("stands still");
        }
        std::future::ready(works)
    };
    tokio::select! {
        () = watchdog(alive) => say("no watchdog"),
        _ = tokio::task::spawn_blocking(wait_for_the_end) => {}
    }
}

#[test]
fn the_watchdog_is_fed_only_as_long_as_the_work_goes_on() {
    let manager = Manager::new();
    let part =
        manager.start("systemd::part_that_works_until_its_third_round", &[("WATCHDOG_USEC", "100000")]);
    let fed = fields(&[("WATCHDOG", "1")]);
    assert_eq!([manager.report(), manager.report()], [fed.clone(), fed]);
    for _ in 0..3 {
        assert_eq!(manager.report()["STATUS"], "stands still");
    }
    part.all();
}

#[test]
fn a_watchdog_that_is_not_asked_for_or_is_another_processs_is_not_fed() {
    let cases: [&[(&str, &str)]; 3] =
        [&[], &[("WATCHDOG_USEC", "0")], &[("WATCHDOG_USEC", "100000"), ("WATCHDOG_PID", "1")]];
    for more in cases {
        let manager = Manager::new();
        let mut part = manager.start("systemd::part_that_works_until_its_third_round", more);
        part.hear("no watchdog");
    }
}

#[tokio::test]
#[ignore = "a part of another test"]
async fn part_that_is_handed_a_socket() {
    let handed = inherited().unwrap();
    assert_eq!((handed.unix.len(), handed.tcp.len()), (1, 0));
    let listeners = handed.unix.into_iter().map(|listener| Listener::inherited(listener).unwrap());
    let ending = CancellationToken::new();
    let serving = serve(who(), Access::own(), Limits::default(), listeners.collect(), ending.clone());
    let until = async {
        let mut stop = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).unwrap();
        say("serving");
        stop.recv().await;
        ending.cancel();
    };
    tokio::join!(serving, until);
    say("ended");
}

#[tokio::test]
async fn a_socket_that_is_handed_down_is_served_and_left_in_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("herder.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let handed = OwnedFd::from(listener.try_clone().unwrap());
    let shell = "exec 3<&0 </dev/null; LISTEN_FDS=1 LISTEN_PID=$$; export LISTEN_FDS LISTEN_PID;";
    let mut part = Part::start("systemd::part_that_is_handed_a_socket", shell, |command| {
        command.stdin(Stdio::from(handed));
    });
    // It need not even have started: the connection waits.
    let answer = ask(&path, "/who").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    part.hear("serving");
    let pid = rustix::process::Pid::from_child(&part.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    soon(async { part.hear("ended") }).await;
    assert!(path.exists());
}

#[test]
#[ignore = "a part of another test"]
fn part_that_is_handed_a_file() {
    say(&inherited().unwrap_err().to_string());
}

#[test]
fn what_is_handed_down_and_no_socket_is_refused() {
    let shell = "exec 3</dev/null; LISTEN_FDS=1; export LISTEN_FDS;";
    let said = Part::start("systemd::part_that_is_handed_a_file", shell, |_| {}).all();
    assert!(said.contains("socket 0 from the service manager"), "{said}");
}

#[test]
fn the_units_agree_on_the_socket_and_leave_time_for_an_orderly_end() {
    let read = |name: &str| {
        let path = format!("{}/config/systemd/{name}", env!("CARGO_MANIFEST_DIR"));
        fs::read_to_string(path).unwrap()
    };
    let (service, socket) = (read("herder.service"), read("herder.socket"));
    let value = |unit: &str, key: &str| {
        let lines = unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        lines.map(str::to_owned).next().unwrap_or_else(|| panic!("no {key}"))
    };
    assert!(value(&service, "ExecStart").ends_with(&format!("--socket {}", value(&socket, "ListenStream"))));
    let drain = 25 + Limits::default().grace.as_secs();
    assert!(value(&service, "TimeoutStopSec").parse::<u64>().unwrap() > drain);
    assert_eq!(value(&service, "KillMode"), "mixed");
    assert_eq!(value(&service, "OOMPolicy"), "continue");
}
