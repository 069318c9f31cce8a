//! The daemon itself as its users have it: started, looked at, stopped and started again.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Place, Started, says, until};

/// A daemon in a place of its own.
pub(crate) struct Daemon {
    process: Started,
}

impl Daemon {
    /// Starts one and waits until it is ready.
    pub(crate) fn start(place: &Place) -> Self {
        Self::start_with(place, &[])
    }

    /// The same, with more flags.
    pub(crate) fn start_with(place: &Place, more: &[&str]) -> Self {
        let log = |name| fs::File::options().append(true).create(true).open(place.path(name)).unwrap();
        let mut command = place.command(&[&["serve", "--policy", "trusted", "--drain", "1s"], more].concat());
        let child = command.stdout(log("serve.txt")).stderr(log("serve.txt")).spawn().unwrap();
        let mut process = Started::from(child);
        until("the daemon is ready", || {
            assert!(!process.is_over(), "{}", place.read("serve.txt"));
            let status = place.herder(&["status", "--json"]);
            status.code == Some(0) && status.json()[0]["phase"] == "ready"
        });
        Self { process }
    }

    /// As a loss of power would, but for the disk.
    pub(crate) fn kill(self) {
        self.process.kill();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    #[track_caller]
    pub(crate) fn wait(self) -> Option<i32> {
        self.process.wait()
    }
}

/// What the daemon says of a run.
pub(crate) fn shown(place: &Place, run: &str) -> Value {
    place.herder(&["show", run, "--json"]).expect(0).json().remove(0)
}

/// Whether an event of this kind is in a run's log.
pub(crate) fn has(place: &Place, run: &str, kind: &str) -> bool {
    place.herder(&["events", run, "--json"]).out.contains(&format!("\"kind\":\"{kind}\""))
}

/// Submits a task with this script and gives its run's id.
#[track_caller]
pub(crate) fn submit(place: &Place, id: &str, script: &Value, more: &[&str]) -> String {
    let file = format!("{id}.script");
    place.write(&file, script.to_string());
    let args = ["submit", "Do it", "--id", id, "--script", &file, "-w", "work"];
    place.herder(&[&args, more].concat()).expect(0).out.trim().to_owned()
}

#[test]
fn a_daemon_is_looked_at_stopped_and_started_again_at_once() {
    let place = Place::new();
    let detached = place.herder(&["serve", "--detach", "--policy", "trusted"]).expect(0);
    assert!(detached.err.contains("answers at"), "{}", detached.err);
    let status = place.herder(&["status"]).expect(0).out;
    assert!(status.contains("runs       none\n"), "{status}");
    submit(&place, "slow", &serde_json::json!([{"text": "x", "delay_ms": 600_000}]), &[]);
    let status = place.herder(&["status", "--json"]).expect(0).json().remove(0);
    assert_eq!((&status["phase"], &status["runs"]["open"]), (&"ready".into(), &1.into()));
    assert_eq!(place.herder(&["reload"]).expect(0).out, "nothing has changed\n");
    assert_eq!(place.herder(&["stop", "--now", "--wait"]).expect(0).out, "stopped\n");
    let daemon = Daemon::start(&place);
    assert_eq!(shown(&place, "slow")["state"], "running", "it goes on");
    place.herder(&["cancel", "slow"]).expect(0);
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait(), Some(0));
}

#[test]
fn a_run_in_the_daemons_folder_is_refused_with_what_would_do_it() {
    let place = Place::new();
    let _daemon = Daemon::start(&place);
    place.write("script", "[{\"text\": \"hello\"}]");
    let ended = place.herder(&["run", "x", "--script", "script", "-w", "work"]).expect(2);
    assert!(ended.err.contains("`herder submit --follow` has it run the task"), "{}", ended.err);
    place.tasks("in.jsonl", &[says("a", "x")]);
    place.herder(&["batch", "in.jsonl", "-o", "out.jsonl"]).expect(0);
}
