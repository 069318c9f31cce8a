//! A process that dies between writing a temporary file and renaming it.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
};

use rustix::fs::{CWD, Mode, OFlags};

use super::*;
use crate::domain::event::FileChange;
use crate::tool::workspace::{
    mutate::write,
    replace::digest,
    temp::{Temp, is_temporary},
};

const FOLDER: &str = "HERDER_TEST_WRITES_HALF_IN";

/// Not a test by itself: the process that the next one kills.
#[test]
fn half_a_write() {
    let Some(folder) = env::var_os(FOLDER) else { return };
    let folder = rustix::fs::openat(CWD, folder, OFlags::DIRECTORY, Mode::empty()).unwrap();
    let mut temp = Temp::create(&folder, Mode::RWXU).unwrap();
    temp.file.write_all(b"half").unwrap();
    println!("\nwritten");
    loop {
        std::thread::park();
    }
}

#[tokio::test]
async fn a_write_cut_off_by_a_kill_leaves_the_old_content_and_who_looks_what_came_of_it_sweeps_its_leftover()
{
    let place = Place::new();
    place.file("a.txt", "old");
    let child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "tool::workspace::tests::killed::half_a_write", "--nocapture"])
        .env(FOLDER, place.inside(""))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut child = Killed(child);
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "written"));

    // While its writer lives, another process leaves it alone.
    write(&place.to_write("b.txt"), "new").unwrap().prepared.commit().unwrap();
    assert_eq!(temporary(&place), 1);

    drop(child);
    assert_eq!(fs::read_to_string(place.inside("a.txt")).unwrap(), "old");
    assert_eq!(temporary(&place), 1);
    let hash = |text: &str| digest(&mut text.as_bytes()).unwrap();
    let path = place.to_write("a.txt").key().clone();
    let change = FileChange { path, before: Some(hash("old")), after: hash("half") };
    let workspace = Arc::new(Workspace::open(&place.inside(""), &[]).unwrap());
    assert_eq!(change_state(&workspace, &change).await, ChangeState::NotMade);
    assert_eq!(names(&place.inside("")), ["a.txt", "b.txt"]);
}

/// A child that does not outlive the test, however that ends.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn temporary(place: &Place) -> usize {
    names(&place.inside("")).iter().filter(|name| is_temporary(name.as_bytes())).count()
}
