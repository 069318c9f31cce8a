//! The file tools while a hostile process keeps changing what their paths lead to.

use std::{
    collections::BTreeSet,
    env, fs,
    io::Read,
    os::unix::fs::{MetadataExt, symlink},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with};
use serde_json::{Value, json};

use crate::harness::Scene;

const PLACE: &str = "HERDER_TEST_HOSTILE_IN";
const ROUNDS: usize = 150;

/// Not a test by itself: the hostile process of the next one, which ends with its stdin.
#[test]
fn what_the_hostile_process_does() {
    let Some(place) = env::var_os(PLACE).map(PathBuf::from) else { return };
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let at = |name: &str| place.join("ws").join(name);
    let swap = |one: &str, other: &str| {
        let _ = renameat_with(CWD, at(one), CWD, at(other), RenameFlags::EXCHANGE);
    };
    loop {
        swap("sub", "link-to-folder");
        swap("file.txt", "link-to-file");
        swap("plain.txt", "pipe");
        swap("device-link", "other.txt");
        let _ = symlink("../outside/canary-new", at("new.txt"));
        let _ = fs::rename(at("parent"), at("moved"));
        let _ = symlink("../outside", at("parent"));
        let _ = fs::hard_link(place.join("outside/canary-linked"), at("hard.tmp"));
        let _ = fs::rename(at("hard.tmp"), at("hard.txt"));
        let _ = fs::remove_file(at("parent"));
        if fs::rename(at("moved"), at("parent")).is_err() {
            // Made anew by a write meanwhile.
            let _ = fs::remove_dir_all(at("parent"));
            let _ = fs::rename(at("moved"), at("parent"));
        }
        let _ = fs::remove_file(at("new.txt"));
    }
}

#[tokio::test]
async fn nothing_outside_is_read_changed_or_made_while_paths_are_swapped_under_the_tools() {
    let scene = Scene::new();
    lay_out(&scene);
    let before = outside(&scene);
    let hostile = Hostile::start(&scene.path("."));
    let mut answers = BTreeSet::new();
    let (mut done, mut refused) = (0, 0);
    for round in 0..ROUNDS {
        for (name, arguments) in calls(round) {
            let output = scene.call(name, arguments.clone()).await;
            for secret in ["secret", "canary"] {
                assert!(!output.text.contains(secret), "{name} {arguments}: {}", output.text);
            }
            *if output.failure.is_none() { &mut done } else { &mut refused } += 1;
            answers.insert((name, output.failure.is_none()));
        }
    }
    drop(hostile);
    assert_eq!(outside(&scene), before);
    assert_eq!(temporary_below(&scene.path("ws")), Vec::<PathBuf>::new());
    assert!(done > 0 && refused > 0, "{done} done, {refused} refused: the race was not run");
    for name in ["read", "write", "edit", "list", "grep"] {
        assert!(answers.contains(&(name, true)), "{name} never worked: {answers:?}");
    }
}

fn calls(round: usize) -> Vec<(&'static str, Value)> {
    let paths = [
        "sub/a.txt",
        "file.txt",
        "plain.txt",
        "other.txt",
        "parent/child/c.txt",
        "new.txt",
        "link-to-folder/a.txt",
        "link-to-file",
        "pipe",
        "device-link",
        "sub/../file.txt",
        "/proc/self/cwd/file.txt",
    ];
    let read = paths.iter().map(|path| ("read", json!({"path": path})));
    let content = format!("inside {round}\n");
    let write =
        ["sub/a.txt", "sub/made/b.txt", "file.txt", "plain.txt", "new.txt", "parent/child/c.txt", "hard.txt"];
    let write = write.iter().map(|path| ("write", json!({"path": path, "content": content})));
    let edits = json!([{"old_text": "inside", "new_text": "inside again"}]);
    let edit = ["sub/a.txt", "file.txt", "other.txt", "parent/child/c.txt", "hard.txt"];
    let edit = edit.iter().map(|path| ("edit", json!({"path": path, "edits": edits})));
    let list = [".", "sub", "parent/child"].iter().map(|path| ("list", json!({"path": path})));
    let grep = [".", "sub"].iter().map(|path| ("grep", json!({"path": path, "pattern": "inside|secret"})));
    read.chain(write).chain(edit).chain(list).chain(grep).collect()
}

fn lay_out(scene: &Scene) {
    for folder in ["ws/sub", "ws/parent/child", "outside/child"] {
        fs::create_dir_all(scene.path(folder)).unwrap();
    }
    for file in ["sub/a.txt", "file.txt", "plain.txt", "other.txt", "parent/child/c.txt", "hard.txt"] {
        fs::write(scene.path("ws").join(file), "inside\n").unwrap();
    }
    for file in ["a.txt", "canary-linked", "canary-a", "child/c.txt"] {
        // One that is no secret: whoever links a file into the workspace has it read there.
        let content = if file == "canary-linked" { "linked inside\n" } else { "secret inside\n" };
        fs::write(scene.path("outside").join(file), content).unwrap();
    }
    // Rules that would hide everything, should they be read.
    fs::write(scene.path("outside/.gitignore"), "*\n").unwrap();
    symlink("../outside", scene.path("ws/link-to-folder")).unwrap();
    symlink("../outside/canary-a", scene.path("ws/link-to-file")).unwrap();
    symlink("/dev/zero", scene.path("ws/device-link")).unwrap();
    mknodat(CWD, scene.path("ws/pipe"), FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
}

/// Names, contents and identities of all that is outside, but for how many links there are.
fn outside(scene: &Scene) -> Vec<(PathBuf, u64, i64, String)> {
    let mut found = Vec::new();
    let mut folders = vec![scene.path("outside")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let facts = fs::symlink_metadata(&path).unwrap();
            if facts.is_dir() {
                folders.push(path.clone());
            }
            let content = fs::read_to_string(&path).unwrap_or_default();
            found.push((path, facts.ino(), facts.mtime_nsec(), content));
        }
    }
    found.sort();
    found
}

fn temporary_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if fs::symlink_metadata(&path).unwrap().is_dir() {
            found.extend(temporary_below(&path));
        } else if path.file_name().unwrap().to_string_lossy().starts_with(".herder-") {
            found.push(path);
        }
    }
    found
}

/// A process that does not outlive the test.
struct Hostile(Child);

impl Hostile {
    fn start(place: &Path) -> Self {
        let child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "races::what_the_hostile_process_does", "--nocapture"])
            .env(PLACE, place)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn();
        Self(child.unwrap())
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
