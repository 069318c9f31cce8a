//! The whole daemon under a service manager, which is played: what it is told, and the socket that it hands down.

use std::{
    os::{fd::OwnedFd, unix::net::UnixListener},
    process::Stdio,
};

use rustix::process::Signal;
use serde_json::json;

use crate::{
    process::{Daemon, House, says},
    systemd::Manager,
};

fn managed(house: &House, manager: &Manager, more: &[(&str, &str)]) -> Daemon {
    let mut command = house.command(&["serve", "--durability", "process"]);
    command.env("NOTIFY_SOCKET", manager.place()).envs(more.iter().copied());
    house.launched(command)
}

#[tokio::test]
async fn the_manager_is_told_when_it_is_ready_when_it_reloads_and_when_it_ends() {
    let house = House::new();
    let first = house.start(&[]).await;
    let run = first.submit(&says(&house, "one", 300)).await;
    first.kill();
    let manager = Manager::new();
    let mut daemon = managed(&house, &manager, &[]);
    let ready = manager.state();
    assert_eq!((&*ready["READY"], &*ready["MAINPID"]), ("1", &*daemon.pid().to_string()));
    // What was left is taken up by then.
    assert_eq!(daemon.status().await.phase, "ready");
    daemon.until_run_ends(&run).await;
    house.configure("[supervisor]\nmax_live_runs = 7\n");
    daemon.signal(Signal::HUP);
    let reload = manager.state();
    assert_eq!(reload["RELOADING"], "1");
    assert!(reload["MONOTONIC_USEC"].parse::<u64>().unwrap() > 0);
    assert_eq!(manager.state()["READY"], "1");
    assert_eq!(daemon.status().await.max_live_runs, 7);
    house.configure("[supervisor\n");
    daemon.signal(Signal::HUP);
    assert_eq!(manager.state()["RELOADING"], "1");
    assert_eq!(manager.state()["READY"], "1");
    assert_eq!(daemon.status().await.max_live_runs, 7);
    daemon.signal(Signal::TERM);
    assert_eq!(manager.state()["STOPPING"], "1");
    assert_eq!(daemon.ended().await, Some(0));
    house.assert_nothing_runs();
}

#[tokio::test]
async fn its_watchdog_is_fed_until_it_has_ended() {
    let house = House::new();
    let manager = Manager::new();
    let mut daemon = managed(&house, &manager, &[("WATCHDOG_USEC", "200000")]);
    daemon.is_ready().await;
    let mut fed = 0;
    while fed < 3 {
        fed += usize::from(manager.report().contains_key("WATCHDOG"));
    }
    daemon.submit(&says(&house, "one", 600_000)).await;
    daemon.until("v1/status", |status| status["load"]["thinking"] == 1).await;
    daemon.signal(Signal::TERM);
    while !manager.report().contains_key("STOPPING") {}
    // It drains, which may take longer than the watchdog waits.
    while !manager.report().contains_key("WATCHDOG") {}
    daemon.post("v1/stop", json!({"now": true})).await;
    assert_eq!(daemon.ended().await, Some(0));
}

#[tokio::test]
async fn a_daemon_that_cannot_start_is_never_ready() {
    let house = House::new();
    let first = house.start(&[]).await;
    let manager = Manager::new();
    let mut second = managed(&house, &manager, &[]);
    assert_eq!(second.ended().await, Some(2));
    assert!(manager.has_heard_nothing());
    first.stop().await;
}

#[tokio::test]
async fn a_socket_that_is_handed_down_is_served_before_it_is_ready_and_left_in_its_place() {
    let house = House::new();
    std::fs::create_dir(house.path("run/herder")).unwrap();
    let listener = UnixListener::bind(house.socket()).unwrap();
    let script =
        "exec 3<&0 </dev/null; LISTEN_FDS=1 LISTEN_PID=$$; export LISTEN_FDS LISTEN_PID; exec \"$0\" \"$@\"";
    for _ in 0..2 {
        let mut command = house.shell(script, &["serve", "--durability", "process", "--policy", "trusted"]);
        command.stdin(Stdio::from(OwnedFd::from(listener.try_clone().unwrap())));
        let mut daemon = house.launched(command);
        daemon.is_ready().await;
        assert_eq!(daemon.status().await.socket, house.socket().display().to_string());
        // Commands have neither the socket nor what tells of it.
        let look = "env | grep LISTEN; readlink /proc/self/fd/3; readlink /proc/$$/fd/* | grep socket; true";
        let run = daemon.submit(&crate::process::runs(&house, "one", look)).await;
        assert_eq!(daemon.until_run_ends(&run).await["outcome"], "done");
        let detail = daemon.get(&format!("v1/runs/{run}?messages=true")).await;
        let messages = detail["messages"].to_string();
        assert!(!messages.contains("LISTEN_FDS=") && !messages.contains("socket:["), "{messages}");
        daemon.signal(Signal::TERM);
        assert_eq!(daemon.ended().await, Some(0), "{}", daemon.said());
        assert!(house.socket().exists());
    }
}
