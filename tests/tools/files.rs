//! The file tools on files that are not as usual.

use std::{
    fs,
    os::unix::{
        fs::{MetadataExt, PermissionsExt, symlink},
        net::UnixListener,
    },
};

use herder::{domain::call::Failure, tool::Output};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use serde_json::json;

use crate::harness::Scene;

fn failed(text: impl Into<String>) -> Output {
    Output::failed(Failure::Failed, text)
}

fn make(scene: &Scene, name: &str, kind: FileType, device: u64) -> bool {
    let path = scene.path("ws").join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    mknodat(CWD, path, kind, Mode::from_raw_mode(0o644), device).is_ok()
}

#[tokio::test]
async fn an_edit_keeps_a_script_executable_and_a_write_does_too() {
    let scene = Scene::new();
    let hook = scene.path("ws/hook.sh");
    fs::write(&hook, "#!/bin/sh\necho X\n").unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    let edits = json!([{"old_text": "X", "new_text": "Y"}]);
    assert_eq!(scene.call("edit", json!({"path": "hook.sh", "edits": edits})).await.failure, None);
    assert_eq!(fs::metadata(&hook).unwrap().mode() & 0o7777, 0o755);
    assert_eq!(scene.bash(json!({"command": "./hook.sh"})).await, Output::ok("Y\n"));
    let content = "#!/bin/sh\necho Z\n";
    assert_eq!(scene.call("write", json!({"path": "hook.sh", "content": content})).await.failure, None);
    assert_eq!(scene.bash(json!({"command": "./hook.sh; ls -A"})).await, Output::ok("Z\nhook.sh\n"));
}

#[tokio::test]
async fn a_pipe_a_socket_and_a_device_are_refused_by_their_kind_and_skipped_by_a_search() {
    let scene = Scene::new();
    assert!(make(&scene, "logs/live.pipe", FileType::Fifo, 0));
    let _socket = UnixListener::bind(scene.path("ws/logs/a.sock")).unwrap();
    let mut special = vec![("logs/live.pipe", "a named pipe"), ("logs/a.sock", "a socket")];
    if make(&scene, "logs/zero", FileType::CharacterDevice, makedev(1, 5)) {
        special.push(("logs/zero", "a device"));
    }
    for (path, kind) in special {
        let why = format!("{path} is {kind}, not a regular file");
        assert_eq!(scene.call("read", json!({"path": path})).await, failed(&why));
        assert_eq!(scene.call("write", json!({"path": path, "content": ""})).await, failed(&why));
        assert_eq!(scene.call("grep", json!({"path": path, "pattern": "x"})).await, failed(&why));
    }
    fs::write(scene.path("ws/logs/a.txt"), "x\n").unwrap();
    let found = scene.call("grep", json!({"path": ".", "pattern": "x"})).await;
    assert_eq!(found, Output::ok("logs/a.txt:1:x\n"));
}

#[tokio::test]
async fn a_search_does_not_wait_for_a_pipe_or_a_device_in_the_place_of_its_rules() {
    let scene = Scene::new();
    fs::write(scene.path("ws/a.txt"), "x\n").unwrap();
    assert!(make(&scene, "one/.gitignore", FileType::Fifo, 0));
    assert!(make(&scene, "two/.ignore", FileType::Fifo, 0));
    assert!(make(&scene, "three/.git/info/exclude", FileType::Fifo, 0));
    fs::create_dir(scene.path("ws/four")).unwrap();
    symlink("/dev/zero", scene.path("ws/four/.gitignore")).unwrap();
    for folder in ["one", "two", "three", "four"] {
        fs::write(scene.path("ws").join(folder).join("b.txt"), "x\n").unwrap();
    }
    let found = scene.call("grep", json!({"path": ".", "pattern": "x", "glob": "*.txt"})).await;
    let expected = "a.txt:1:x\nfour/b.txt:1:x\none/b.txt:1:x\nthree/b.txt:1:x\ntwo/b.txt:1:x\n";
    assert_eq!(found, Output::ok(expected));
}

#[tokio::test]
async fn endless_devices_are_refused_and_an_empty_file_and_an_offset_too_far_are_told() {
    let scene = Scene::new();
    symlink("/dev/urandom", scene.path("ws/random")).unwrap();
    fs::write(scene.path("ws/empty.txt"), "").unwrap();
    fs::write(scene.path("ws/short.txt"), "1\n2\n3\n").unwrap();
    for path in ["/dev/zero", "/dev/stdin", "/proc/self/fd/0", "random"] {
        let why = failed(format!("{path} is outside the workspace"));
        assert_eq!(scene.call("read", json!({"path": path})).await, why);
    }
    assert_eq!(scene.call("read", json!({"path": "empty.txt"})).await, Output::ok("The file is empty."));
    let beyond = "offset 9999 is beyond the end of short.txt, which has 3 lines";
    assert_eq!(scene.call("read", json!({"path": "short.txt", "offset": 9999})).await, failed(beyond));
}

#[tokio::test]
async fn a_change_through_a_link_out_of_the_workspace_is_refused_whether_or_not_there_is_a_file() {
    let scene = Scene::new();
    fs::create_dir(scene.path("outside")).unwrap();
    fs::write(scene.path("outside/target.txt"), "keep").unwrap();
    symlink(scene.path("outside/target.txt"), scene.path("ws/todo.md")).unwrap();
    symlink(scene.path("outside/missing.txt"), scene.path("ws/new.txt")).unwrap();
    let edits = json!([{"old_text": "keep", "new_text": "lose"}]);
    for (name, path, arguments) in [
        ("write", "todo.md", json!({"path": "todo.md", "content": "changed"})),
        ("write", "new.txt", json!({"path": "new.txt", "content": "x"})),
        ("edit", "todo.md", json!({"path": "todo.md", "edits": edits})),
    ] {
        let why = failed(format!("{path} is outside the workspace"));
        assert_eq!(scene.call(name, arguments).await, why);
    }
    assert_eq!(fs::read_to_string(scene.path("outside/target.txt")).unwrap(), "keep");
    assert!(!scene.path("outside/missing.txt").exists());
}

#[tokio::test]
async fn a_change_of_a_file_with_another_name_outside_leaves_that_one_as_it_was() {
    let scene = Scene::new();
    fs::write(scene.path("shared.txt"), "keep").unwrap();
    fs::hard_link(scene.path("shared.txt"), scene.path("ws/shared.txt")).unwrap();
    let edits = json!([{"old_text": "keep", "new_text": "lose"}]);
    assert_eq!(scene.call("edit", json!({"path": "shared.txt", "edits": edits})).await.failure, None);
    assert_eq!(fs::read_to_string(scene.path("ws/shared.txt")).unwrap(), "lose");
    assert_eq!(fs::read_to_string(scene.path("shared.txt")).unwrap(), "keep");
}

/// Where the tests run as root, no file is shut to it unless it gives its rights up, before there are other threads.
#[test]
fn what_a_search_cannot_read_is_a_warning_no_match_an_answer_and_a_bad_pattern_an_error() {
    let work = async {
        let scene = Scene::new();
        fs::write(scene.path("ws/ok.txt"), "needle\n").unwrap();
        fs::write(scene.path("ws/locked.txt"), "needle\n").unwrap();
        fs::set_permissions(scene.path("ws/locked.txt"), fs::Permissions::from_mode(0o000)).unwrap();
        fs::create_dir(scene.path("ws/shut")).unwrap();
        fs::set_permissions(scene.path("ws/shut"), fs::Permissions::from_mode(0o000)).unwrap();
        symlink("missing", scene.path("ws/broken")).unwrap();
        let grep = async |pattern: &str| scene.call("grep", json!({"path": ".", "pattern": pattern})).await;
        let warning = "[3 paths could not be searched: broken, locked.txt, shut.]\n";
        assert_eq!(grep("needle").await, Output::ok(format!("ok.txt:1:needle\n{warning}")));
        assert_eq!(grep("nothing-here").await, Output::ok(format!("No matches.\n{warning}")));
        let bad = grep("(unclosed").await;
        assert_eq!(bad.failure, Some(Failure::Failed));
        assert!(
            bad.text.starts_with("the pattern \"(unclosed\" is not a valid regular expression: "),
            "{}",
            bad.text
        );
        assert_eq!(
            scene.call("read", json!({"path": "locked.txt"})).await,
            failed("cannot open locked.txt: Permission denied (os error 13)")
        );
        fs::set_permissions(scene.path("ws/shut"), fs::Permissions::from_mode(0o700)).unwrap();
    };
    let unprivileged = move || {
        let none = rustix::thread::CapabilitySet::empty();
        let sets = rustix::thread::CapabilitySets { effective: none, permitted: none, inheritable: none };
        rustix::thread::set_capabilities(None, sets).unwrap();
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work);
    };
    std::thread::spawn(unprivileged).join().unwrap();
}
