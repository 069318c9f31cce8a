//! A disk that is really full: a small file system of the test's own, which only some machines let it mount.

use std::{collections::BTreeSet, process::Command};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    mending::troubles,
    support::{Ended, Place, Started, assert_sound, field, says, until},
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

/// Whether this machine lets a test mount a file system of its own; if not, says so.
#[expect(clippy::print_stderr, reason = "what was not tested is not passed over in silence")]
fn may_mount() -> bool {
    let mounted = Command::new("unshare").args(["-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]).output();
    let why = match mounted {
        Ok(output) if output.status.success() => return true,
        Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    eprintln!("NOT TESTED: a full disk; this machine lets nobody mount a file system of their own: {why}");
    false
}

/// The command in a place where what it mounts is seen by it alone.
fn unshared(place: &Place, script: &str, args: &[&str]) -> Command {
    std::fs::create_dir(place.path("small")).unwrap();
    let mut command = place.shell("exec unshare -m sh -c \"$SCRIPT\" \"$0\" \"$@\"", args);
    command.env("SCRIPT", script);
    command
}

fn long_answer() -> String {
    "word ".repeat(13_000)
}

/// Tasks with more to say than the small disk has room for.
fn forty_long_answers() -> Place {
    let place = Place::new();
    let tasks: Vec<_> = (0..40).map(|number| says(&format!("t{number:02}"), &long_answer())).collect();
    place.tasks("in.jsonl", &tasks);
    place
}

#[test]
fn a_batch_waits_while_its_disk_is_full_and_then_loses_nothing() {
    if !may_mount() {
        return;
    }
    let place = forty_long_answers();
    let file = |name| std::fs::File::create(place.path(name)).unwrap();
    let args = ["batch", "in.jsonl", "-o", "out.jsonl", "--state", "small/state", "-j", "4"];
    let mut command = unshared(&place, SCRIPT, &args);
    let command = command.stdout(file("out.txt")).stderr(file("err.txt"));
    let mut batch = Started::from(command.spawn().unwrap());
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
    assert!(results.iter().all(|line| line["outcome"] == "done"
        && line["attempt"] == 1
        && line["text"] == long_answer().as_str()));
    assert_sound(&place.events("saved"));
    assert_eq!(troubles(&place, "saved"), [""; 0]);
}

/// Prunes on a disk with room for a few pages of the log, and again once there is more.
const PRUNE: &str = "
    mount -t tmpfs -o size=64m tmpfs small || exit 77
    \"$0\" batch in.jsonl -o out.jsonl --state small/state || exit 78
    cat /dev/zero > small/ballast 2>/dev/null; truncate -s -64K small/ballast
    \"$0\" prune --older-than 0s --state small/state 2> told; echo $? > full
    rm small/ballast
    \"$0\" prune --older-than 0s --state small/state --json";

#[test]
fn on_a_full_disk_prune_says_so_instead_of_waiting_for_room() {
    if !may_mount() {
        return;
    }
    let place = Place::new();
    let tasks: Vec<_> =
        (0..40).map(|number| says(&format!("t{number:02}"), &"word ".repeat(2_000))).collect();
    place.tasks("in.jsonl", &tasks);
    let pruned = Ended::of(&unshared(&place, PRUNE, &[]).output().unwrap()).expect(0);
    assert_eq!(place.read("full").trim(), "1", "{}", place.read("told"));
    let told = "the log's disk is full; make a little room first, then do the same again";
    assert!(place.read("told").contains(told), "{}", place.read("told"));
    let report = pruned.json().remove(0);
    assert_eq!((&report["runs"], &report["batches"]), (&40.into(), &1.into()), "nothing was half done");
}

/// Fills the disk under a batch, and tells which process that is.
const STOPPED: &str = "
    mount -t tmpfs -o size=64m tmpfs small || exit 77
    head -c 62m /dev/zero > small/ballast
    \"$0\" \"$@\" &
    echo $! > pid
    wait $!";

#[test]
fn a_batch_that_is_stopped_while_its_disk_is_full_ends_within_the_grace_of_its_tools() {
    if !may_mount() {
        return;
    }
    let place = forty_long_answers();
    let file = |name| std::fs::File::create(place.path(name)).unwrap();
    // Whoever waited for turns to end would do so for ever.
    let args = ["batch", "in.jsonl", "-o", "small/out.jsonl", "-j", "4", "--drain", "600s"];
    let mut command = unshared(&place, STOPPED, &args);
    let command = command.stdout(file("out.txt")).stderr(file("err.txt"));
    let batch = Started::from(command.spawn().unwrap());
    until("the disk is full", || place.read("err.txt").contains("the log's disk is full"));
    until("its number is told", || place.read("pid").ends_with('\n'));
    let pid = Pid::from_raw(place.read("pid").trim().parse().unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    // A line that waits for room is given up, which is told in place of the signal.
    let code = batch.wait();
    assert!(matches!(code, Some(143 | 1)), "{code:?}: {}", place.read("err.txt"));
}
