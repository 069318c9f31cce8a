//! The daemon's start: what it finds in its place, what it leaves there, and whom it tells.

use std::{
    fs,
    os::unix::{fs::symlink, net::UnixListener},
    process::Stdio,
    time::{Duration, Instant},
};

use herder::daemon::wire::Code;
use rustix::process::Signal;
use serde_json::Value;

use crate::process::{Ended, House, mode, says, until};

#[tokio::test]
async fn after_a_crash_the_socket_is_in_the_way_of_nobody() {
    let house = House::new();
    let first = house.start(&[]).await;
    let run = first.submit(&says(&house, "one", 0)).await;
    first.until_run_ends(&run).await;
    first.kill();
    assert!(house.socket().exists());
    let second = house.start(&[]).await;
    assert_eq!(second.get(&format!("v1/runs/{run}")).await["outcome"], "done");
    second.stop().await;
    assert!(!house.socket().exists());
    house.assert_nothing_runs();
}

#[tokio::test]
async fn what_is_no_socket_is_left_alone_and_told_of() {
    let house = House::new();
    let place = house.path("dear.txt");
    fs::write(&place, "dear").unwrap();
    let named = ["serve", "--socket", place.to_str().unwrap()];
    let ended = house.herder(&named).expect(2);
    assert!(ended.err.contains("a regular file and no socket"), "{}", ended.err);
    assert_eq!(fs::read_to_string(&place).unwrap(), "dear");
    fs::remove_file(&place).unwrap();
    fs::create_dir(&place).unwrap();
    assert!(house.herder(&named).expect(2).err.contains("a folder and no socket"));
    assert!(place.is_dir());
}

#[tokio::test]
async fn a_second_daemon_is_told_the_number_of_the_first_and_does_it_no_harm() {
    let house = House::new();
    let first = house.start(&[]).await;
    let run = first.submit(&says(&house, "one", 300)).await;
    let running = format!("process {}", first.pid());
    let other = house.path("other");
    let other = other.to_str().unwrap();
    for args in [&["serve"][..], &["serve", "--detach"], &["serve", "--state", other]] {
        let ended = house.herder(args).expect(2);
        assert!(ended.err.contains("already running") && ended.err.contains(&running), "{}", ended.err);
    }
    let elsewhere = house.path("run/else.sock");
    let ended = house.herder(&["serve", "--socket", elsewhere.to_str().unwrap()]).expect(2);
    assert!(ended.err.contains("in use by") && ended.err.contains(&running), "{}", ended.err);
    assert!(!elsewhere.exists());
    assert_eq!(first.until_run_ends(&run).await["outcome"], "done");
    first.stop().await;
}

#[tokio::test]
async fn a_socket_path_that_is_too_long_is_told_with_its_length_and_the_limit() {
    let house = House::new();
    for letter in ["a", "ä"] {
        // No component may be longer than 255 bytes; two of them differ only at their end.
        let folder = house.path("run").join(letter.repeat(150 / letter.len()));
        fs::create_dir_all(&folder).unwrap();
        let places = ["x", "y"].map(|end| folder.join(format!("{end}.sock")));
        for place in &places {
            let bytes = place.as_os_str().len();
            for command in [&["serve"][..], &["serve", "--detach"], &["status"]] {
                let mut args = command.to_vec();
                args.extend(["--socket", place.to_str().unwrap()]);
                let ended = house.herder(&args).expect(2);
                let told = format!("{bytes} bytes long, and 107 is the most");
                assert!(ended.err.contains(&told), "{args:?}: {}", ended.err);
                assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
            }
        }
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    }
    assert!(house.processes().is_empty());
}

#[tokio::test]
async fn a_state_folder_may_have_a_long_name_of_any_letters() {
    let house = House::new();
    let state = house.path(&"ä".repeat(100)).join("b".repeat(150));
    let mut daemon = house.launch(&["--state", state.to_str().unwrap()]);
    daemon.is_ready().await;
    let run = daemon.submit(&says(&house, "one", 0)).await;
    assert_eq!(daemon.until_run_ends(&run).await["outcome"], "done");
    daemon.stop().await;
}

#[tokio::test]
async fn without_any_umask_nothing_of_it_is_open_to_others() {
    let house = House::new();
    let args = ["serve", "--listen", "127.0.0.1:0", "--durability", "process"];
    let mut daemon = house.launched(house.shell("umask 000; exec \"$0\" \"$@\"", &args));
    daemon.is_ready().await;
    daemon.batch(&[says(&house, "one", 0)], &[]).await;
    assert_eq!(mode(house.socket().parent().unwrap()), 0o700);
    assert_eq!(mode(&house.socket()), 0o600);
    assert_eq!(mode(&house.state().join("token")), 0o600);
    let mut open = vec![house.state()];
    while let Some(path) = open.pop() {
        assert_eq!(mode(&path) & 0o077, 0, "{} is open to others", path.display());
        if path.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_folder_that_others_could_have_prepared_is_refused() {
    let house = House::new();
    let folder = house.path("run/herder");
    fs::create_dir(&folder).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(&folder, open).unwrap();
    for args in [&["serve"][..], &["serve", "--detach"]] {
        let ended = house.herder(args).expect(2);
        assert!(ended.err.contains("written to by other users"), "{}", ended.err);
    }
    fs::remove_dir(&folder).unwrap();
    fs::create_dir(house.path("elsewhere")).unwrap();
    symlink(house.path("elsewhere"), &folder).unwrap();
    assert!(house.herder(&["serve"]).expect(2).err.contains("symbolic link"));
    assert_eq!(fs::read_dir(house.path("elsewhere")).unwrap().count(), 0);
    house.assert_nothing_runs();
}

#[tokio::test]
async fn a_port_is_opened_by_the_token_in_a_new_state_folder() {
    let house = House::new();
    let daemon = house.start(&["--listen", "127.0.0.1:0"]).await;
    let address = daemon.status().await.listen.unwrap().parse().unwrap();
    let token = fs::read_to_string(house.state().join("token")).unwrap().trim().to_owned();
    let place = herder::daemon::client::Place::Port { address, token };
    let client = herder::daemon::client::Client::new(place).unwrap();
    let status: Value = client.get(&crate::process::route("v1/status")).await.unwrap();
    assert_eq!(status["pid"], daemon.pid());
    let task = says(&house, "one", 0).to_string();
    let submitted: Result<Value, _> =
        client.submit(&crate::process::route("v1/runs"), "application/json", task, None).await;
    assert_eq!(
        submitted.unwrap_err().code(),
        Some(Code::Forbidden),
        "a command that a model runs can read the token"
    );
    daemon.stop().await;
}

#[tokio::test]
async fn detached_it_answers_once_the_command_returns_and_outlives_it() {
    let house = House::new();
    let ended = house.herder(&["serve", "--detach", "--durability", "process"]).expect(0);
    let status: Value = house.client().get(&crate::process::route("v1/status")).await.unwrap();
    assert_eq!(status["phase"], "ready");
    let pid = status["pid"].to_string();
    assert!(ended.err.contains(&format!("daemon {pid} answers")), "{}", ended.err);
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let session = stat.rsplit_once(") ").unwrap().1.split(' ').nth(3).unwrap().to_owned();
    assert_eq!(session, pid, "it leads a session of its own");
    assert_eq!(mode(&house.state().join("daemon.log")), 0o600);
    house.herder(&["stop", "--wait"]).expect(0);
    house.assert_nothing_runs();
    assert!(!house.socket().exists());
}

#[tokio::test]
async fn detached_what_keeps_it_from_starting_is_told_and_nothing_is_left() {
    let house = House::new();
    let fails = |args: &[&str], code: i32, told: &str| {
        let mut all = vec!["serve", "--detach"];
        all.extend(args);
        let ended = house.herder(&all).expect(code);
        assert!(ended.err.contains(told), "{args:?}: {}", ended.err);
        house.assert_nothing_runs();
        assert!(!house.socket().exists(), "{args:?}");
    };
    house.configure("[supervisor]\nmax_live_runs = \"many\"\n");
    fails(&[], 2, "max_live_runs");
    house.configure("[daemon.roles]\nnobody-of-this-name = \"viewer\"\n");
    fails(&[], 2, "nobody-of-this-name");
    house.configure("");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    fails(&["--listen", &address], 2, &address);
    fails(&["--listen", "192.0.2.1:7070"], 2, "192.0.2.1");
    fs::write(house.path("file"), "").unwrap();
    let state = house.path("file/state");
    fails(&["--state", state.to_str().unwrap()], 2, "file/state");
    let foreign = house.path("work");
    fs::write(foreign.join("x"), "").unwrap();
    fails(&["--state", foreign.to_str().unwrap()], 2, "not a herder state folder");
    let log = house.path("none/daemon.log");
    fails(&["--log-file", log.to_str().unwrap()], 1, "none/daemon.log");
}

#[tokio::test]
async fn detached_a_state_that_another_process_has_is_told_and_left() {
    let house = House::new();
    let first = house.start(&[]).await;
    let place = house.path("run/b.sock");
    let ended = house.herder(&["serve", "--detach", "--socket", place.to_str().unwrap()]).expect(2);
    assert!(ended.err.contains(&format!("process {}", first.pid())), "{}", ended.err);
    assert!(!place.exists());
    assert_eq!(house.processes().len(), 1);
    first.stop().await;
}

/// What never answers takes the place of a daemon that takes long to start.
#[tokio::test]
async fn a_signal_while_it_detaches_leaves_nothing() {
    let house = House::new();
    // A lock that is held keeps the daemon from binding for as long as it is.
    fs::create_dir(house.path("run/herder")).unwrap();
    fs::set_permissions(house.path("run/herder"), std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .unwrap();
    let lock = fs::File::create(house.path("run/herder/herder.sock.lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let mut command = house.command(&["serve", "--detach"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        until("the daemon is started", || house.processes().len() == 2).await;
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal).unwrap();
        let ended = Ended::of(&child.wait_with_output().unwrap());
        assert_eq!(ended.code, Some(code), "{}", ended.err);
        house.assert_nothing_runs();
    }
}

#[tokio::test]
async fn a_socket_that_is_taken_by_no_herder_is_told_as_that_and_not_removed() {
    let house = House::new();
    fs::create_dir(house.path("run/herder")).unwrap();
    fs::set_permissions(house.path("run/herder"), std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .unwrap();
    let _other = UnixListener::bind(house.socket()).unwrap();
    let since = Instant::now();
    let ended = house.herder(&["serve"]).expect(2);
    assert!(ended.err.contains("already running"), "{}", ended.err);
    assert!(since.elapsed() < Duration::from_secs(60));
    std::os::unix::net::UnixStream::connect(house.socket()).unwrap();
}
