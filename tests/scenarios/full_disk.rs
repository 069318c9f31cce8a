//! A disk that is really full: a small file system of the test's own, which only some machines let it mount.

use std::{collections::BTreeSet, process::Command};

use crate::{
    mending::troubles,
    support::{Place, Started, assert_sound, field, says, until},
};

/// Fills a file system in `small` but for a little, has the command work there, and makes room once it is told to. What was
/// written there is copied away at the end, since it goes with the command.
const SCRIPT: &str = "
    mount -t tmpfs -o size=64m tmpfs small || exit 77
    head -c 62m /dev/zero > small/ballast
    (until [ -e room ]; do sleep 0.05; done; rm small/ballast) &
    \"$0\" \"$@\"
    code=$?
    wait
    cp -r small/state saved
    exit $code";

#[test]
fn a_batch_waits_while_its_disk_is_full_and_then_loses_nothing() {
    let mounts = Command::new("unshare").args(["-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]).output();
    match mounts {
        Ok(output) if output.status.success() => {}
        refused => {
            let why = refused.map_or_else(
                |error| error.to_string(),
                |output| String::from_utf8_lossy(&output.stderr).into_owned(),
            );
            eprintln!(
                "NOT TESTED: a full disk; this machine lets nobody mount a file system of their own: {why}"
            );
            return;
        }
    }
    let place = Place::new();
    std::fs::create_dir(place.path("small")).unwrap();
    let answer = "word ".repeat(13_000);
    let tasks: Vec<_> = (0..40).map(|number| says(&format!("t{number:02}"), &answer)).collect();
    place.tasks("in.jsonl", &tasks);
    let file = |name| std::fs::File::create(place.path(name)).unwrap();
    let args = ["batch", "in.jsonl", "-o", "out.jsonl", "--state", "small/state", "-j", "4"];
    let mut unshared = place.shell("exec unshare -m sh -c \"$SCRIPT\" \"$0\" \"$@\"", &args);
    let unshared = unshared.env("SCRIPT", SCRIPT).stdout(file("out.txt")).stderr(file("err.txt"));
    let mut batch = Started::from(unshared.spawn().unwrap());
    until("the disk is full", || {
        assert!(!batch.is_over(), "{}", place.read("err.txt"));
        place.read("err.txt").contains("the log's disk is full")
    });
    assert!(place.results("out.jsonl").len() < 40);
    place.write("room", "");
    assert_eq!(batch.wait(), Some(0), "{}", place.read("err.txt"));
    assert!(place.read("err.txt").contains("the log is written again"), "{}", place.read("err.txt"));
    let results = place.results("out.jsonl");
    assert_eq!((results.len(), BTreeSet::from_iter(field(&results, "id")).len()), (40, 40));
    assert!(
        results
            .iter()
            .all(|line| line["outcome"] == "done" && line["attempt"] == 1 && line["text"] == answer.as_str())
    );
    assert_sound(&place.events("saved"));
    assert_eq!(troubles(&place, "saved"), [""; 0]);
}
