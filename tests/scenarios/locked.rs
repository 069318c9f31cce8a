//! Several processes at one state folder: one has it, the others are told so, and a stranger in its log is waited for.

use std::{process::Stdio, time::Duration};

use serde_json::json;

use crate::support::{Ended, Place, assert_sound, call, field, until};

const RUN: [&str; 8] = ["run", "Do it", "--script", "script.json", "--state", "runs", "--policy", "trusted"];

#[test]
fn of_eight_that_start_at_once_over_a_new_folder_each_has_it_alone_or_is_refused() {
    let place = Place::new();
    place.write("script.json", json!([call("list", json!({})), {"text": "ready"}]).to_string());
    let start = |_| {
        let mut command = place.command(&RUN);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let all: Vec<_> = (0..8).map(start).collect();
    let ended: Vec<Ended> =
        all.into_iter().map(|child| Ended::of(&child.wait_with_output().unwrap())).collect();
    let (done, refused): (Vec<&Ended>, Vec<_>) = ended.iter().partition(|ended| ended.code == Some(0));
    assert!(!done.is_empty() && done.iter().all(|ended| ended.out == "ready\n"), "{ended:?}");
    for ended in refused {
        assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""), "{ended:?}");
        assert!(ended.err.starts_with("herder: runs: in use by "), "{ended:?}");
    }
    let listed = place.herder(&["ls", "--json", "--state", "runs"]).expect(0).json();
    assert_eq!(field(&listed, "outcome"), vec!["done"; done.len()]);
    assert_sound(&place.events("runs"));
}

#[test]
fn a_run_waits_for_a_stranger_that_holds_its_log_for_a_moment() {
    let place = Place::new();
    let gate = "echo up > up; until [ -e go ]; do sleep 0.02; done";
    place
        .write("script.json", json!([call("bash", json!({"command": gate})), {"text": "ready"}]).to_string());
    let run = place.start(&[&RUN[..], &["--workspace", "work"]].concat());
    until("the command runs", || place.read("work/up") == "up\n");
    let stranger = rusqlite::Connection::open(place.path("runs/log.db")).unwrap();
    stranger.busy_timeout(Duration::from_secs(30)).unwrap();
    stranger.execute_batch("BEGIN IMMEDIATE").unwrap();
    place.write("work/go", "");
    // That it holds the log for so long is what this is about.
    std::thread::sleep(Duration::from_secs(2));
    stranger.execute_batch("COMMIT").unwrap();
    assert_eq!(run.wait(), Some(0), "{}", place.read("err.txt"));
    assert_eq!(place.read("out.txt"), "ready\n");
    assert_sound(&place.events("runs"));
}
