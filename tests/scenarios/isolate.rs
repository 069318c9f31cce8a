//! Runs with workspaces of their own: what they change, what stays of them, and what is left of the user's tree: all of it.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::{
    daemon::{Daemon, shown, submit},
    support::{Ended, Place, Started, call, until, waits_for},
};

pub(crate) const OUT: &str = "out.jsonl";
pub(crate) const STATE: &str = "out.jsonl.state";
pub(crate) const BATCH: [&str; 6] = ["batch", "in.jsonl", "-o", OUT, "--policy", "trusted"];

#[track_caller]
pub(crate) fn git(place: &Place, folder: &str, args: &[&str]) -> String {
    let mut git = Command::new("git");
    git.args(args).current_dir(place.path(folder)).env("HOME", place.path("."));
    for who in ["AUTHOR", "COMMITTER"] {
        git.env(format!("GIT_{who}_NAME"), "a").env(format!("GIT_{who}_EMAIL"), "a@b");
    }
    let output = git.output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

/// The folder `work` is a repository with one commit.
pub(crate) fn repository() -> Place {
    let place = Place::new();
    git(&place, "work", &["init", "-q", "-b", "main"]);
    place.write("work/a.txt", "one\ntwo\nthree\n");
    place.write("work/.gitignore", "*.log\n.env.test\n");
    fs::create_dir(place.path("work/sub")).unwrap();
    place.write("work/sub/s.txt", "s\n");
    git(&place, "work", &["add", "-A"]);
    git(&place, "work", &["commit", "-q", "-m", "first"]);
    place
}

/// What tells whether somebody touched the repository's own tree, its index, or what is checked out.
pub(crate) fn state_of(place: &Place) -> (String, String, String) {
    let of = |args: &[&str]| git(place, "work", args);
    (of(&["status", "--porcelain"]), of(&["rev-parse", "HEAD"]), of(&["symbolic-ref", "HEAD"]))
}

pub(crate) fn task(id: &str, isolate: &str, script: Value) -> Value {
    json!({"id": id, "task": format!("do {id}"), "workspace": "work", "isolate": isolate, "script": script})
}

pub(crate) fn edit(new: &str) -> Value {
    call("edit", json!({"path": "a.txt", "old_text": "two", "new_text": new}))
}

pub(crate) fn bash(command: &str) -> Value {
    call("bash", json!({"command": command}))
}

pub(crate) fn done() -> Value {
    json!({"text": "ready"})
}

fn fails() -> Value {
    json!({"fault": {"status": 400}})
}

/// The one result with this id.
#[track_caller]
pub(crate) fn result(place: &Place, id: &str) -> Value {
    let mut found = place.results(OUT).into_iter().filter(|line| line["id"] == id);
    let line = found.next().unwrap_or_else(|| panic!("no result of {id}"));
    assert!(found.next().is_none(), "one result of {id}");
    line
}

pub(crate) fn diff(place: &Place, id: &str) -> String {
    place.herder(&["diff", id, "--state", STATE]).expect(0).out
}

pub(crate) fn worktrees(place: &Place) -> usize {
    git(place, "work", &["worktree", "list"]).lines().count()
}

pub(crate) fn names_below(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

#[test]
fn runs_that_edit_one_file_at_once_each_have_their_own_and_the_repository_is_not_touched() {
    let place = repository();
    let before = state_of(&place);
    let look = bash("echo new > new.txt; echo x > x.log; git status --short");
    let tasks: Vec<Value> = (0..20)
        .map(|n| task(&format!("t{n}"), "worktree", json!([edit(&format!("two {n}")), look, done()])))
        .collect();
    place.tasks("in.jsonl", &tasks);
    place.herder(&[&BATCH[..], &["-j", "20"]].concat()).expect(0);
    assert_eq!(state_of(&place), before);
    git(&place, "work", &["fsck", "--strict"]);
    for n in 0..20 {
        let line = result(&place, &format!("t{n}"));
        assert_eq!((&line["outcome"], &line["files_changed"]), (&json!("done"), &json!(2)), "{line}");
        assert_eq!(line["base"], json!(before.1));
        let patch = fs::read_to_string(line["patch_path"].as_str().unwrap()).unwrap();
        assert!(patch.contains(&format!("-two\n+two {n}\n")) && patch.contains("+++ b/new.txt"), "{patch}");
        assert!(!patch.contains("x.log"), "{patch}");
        let branch = line["branch"].as_str().unwrap();
        assert_eq!(
            git(&place, "work", &["show", &format!("{branch}:a.txt")]),
            format!("one\ntwo {n}\nthree")
        );
        let log = git(&place, "work", &["log", "--format=%an %s", &format!("main..{branch}")]);
        assert_eq!(log, format!("herder do t{n}"));
    }
    assert_eq!(worktrees(&place), 1, "none is left");
    assert_eq!(names_below(&place.path(&format!("{STATE}/work"))), [""; 0]);
}

#[test]
fn patches_are_applied_together_or_not_at_all() {
    let place = repository();
    place.tasks(
        "in.jsonl",
        &[
            task("edits", "worktree", json!([edit("TWO"), done()])),
            task("also", "worktree", json!([edit("2"), done()])),
            task("adds", "copy", json!([bash("printf 'a\\0b' > b.bin; rm sub/s.txt"), done()])),
            task("looks", "worktree", json!([bash("ls"), done()])),
        ],
    );
    place.herder(&BATCH).expect(0);
    let looks = result(&place, "looks");
    assert_eq!(
        (&looks["branch"], &looks["patch_path"], &looks["files_changed"]),
        (&Value::Null, &Value::Null, &json!(0))
    );
    let apply = |args: &[&str]| -> Ended { place.herder(&[&["apply", "--state", STATE][..], args].concat()) };
    let clean = git(&place, "work", &["status", "--porcelain"]);
    let refused = apply(&["edits", "also"]).expect(1);
    assert!(refused.err.contains("also (run ") && refused.err.contains("a.txt"), "{}", refused.err);
    apply(&["edits", "--check"]).expect(0);
    assert_eq!(git(&place, "work", &["status", "--porcelain"]), clean, "nothing was changed");
    apply(&["looks"]).expect(0);
    apply(&["edits"]).expect(0);
    apply(&["adds"]).expect(0);
    assert_eq!(place.read("work/a.txt"), "one\nTWO\nthree\n");
    assert_eq!(fs::read(place.path("work/b.bin")).unwrap(), b"a\0b");
    assert!(!place.path("work/sub/s.txt").exists());
    let stat = place.herder(&["diff", "edits", "--stat", "--state", STATE]).expect(0).out;
    assert!(stat.contains("a.txt") && stat.contains("1 file"), "{stat}");
    place.herder(&["diff", "none", "--state", STATE]).expect(2);
}

#[test]
fn what_failed_is_kept_where_it_is_and_what_changed_nothing_is_not() {
    let place = repository();
    place.tasks(
        "in.jsonl",
        &[
            task("worktree", "worktree", json!([edit("TWO"), fails()])),
            task("copy", "copy", json!([edit("TWO"), fails()])),
            task("empty", "worktree", json!([fails()])),
        ],
    );
    place.herder(&BATCH).expect(1);
    for id in ["worktree", "copy"] {
        let run = place.herder(&["show", id, "--json", "--state", STATE]).expect(0).json().remove(0);
        let kept = run["kept"].as_str().unwrap();
        assert_eq!(fs::read_to_string(format!("{kept}/a.txt")).unwrap(), "one\nTWO\nthree\n");
        assert_eq!(run["files_changed"], 1);
        assert!(diff(&place, id).contains("+TWO"));
    }
    let line = result(&place, "worktree");
    let branch = line["branch"].as_str().unwrap();
    assert_eq!(git(&place, "work", &["rev-parse", branch]), line["base"].as_str().unwrap());
    assert_eq!(result(&place, "empty")["branch"], Value::Null);
    assert_eq!(worktrees(&place), 2);
    assert_eq!(git(&place, "work", &["branch", "--list", "herder/empty*"]), "");

    let again = place.herder(&[&BATCH[..], &["--retry-failed"]].concat()).expect(1);
    assert_eq!(worktrees(&place), 3, "another attempt has another one: {}", again.err);
}

#[test]
fn a_run_goes_on_in_its_own_workspace_after_a_kill_and_its_result_is_whole() {
    let place = repository();
    let go = place.path("go").display().to_string();
    let gated = |id: &str, isolate: &str| {
        task(id, isolate, json!([edit(id), bash("echo once >> once.txt"), waits_for(&go), done()]))
    };
    place.tasks("in.jsonl", &[gated("a", "worktree"), gated("b", "copy"), gated("c", "worktree")]);
    let batch = place.start(&BATCH);
    until("commands have run", || {
        let seen = place.herder(&["events", "--all", "--json", "--state", STATE]);
        seen.out.matches("\"kind\":\"result\"").count() == 6
    });
    batch.kill();
    assert_eq!(worktrees(&place), 3);
    place.write("go", "");
    place.herder(&BATCH).expect(0);
    for id in ["a", "b", "c"] {
        let patch = diff(&place, id);
        assert!(patch.contains(&format!("-two\n+{id}\n")), "{patch}");
        assert_eq!(patch.matches("\n+once\n").count(), 1, "{patch}");
    }
    assert_eq!(worktrees(&place), 1);
}

#[test]
fn a_run_whose_end_is_on_disk_has_its_patch_though_herder_died_before_it_was_made() {
    let place = repository();
    fs::create_dir(place.path("bin")).unwrap();
    let found = std::env::var("PATH").unwrap();
    let real =
        found.split(':').map(|folder| format!("{folder}/git")).find(|git| Path::new(git).exists()).unwrap();
    // Git that does not come to a diff, for as long as a file says so.
    let blocked = place.path("blocked").display().to_string();
    let script = format!(
        "#!/bin/sh\ncase \" $* \" in *\" diff \"*) [ ! -e {blocked} ] || exec sleep 600;; esac\nexec {real} \"$@\"\n"
    );
    place.write("bin/git", script);
    fs::set_permissions(place.path("bin/git"), fs::Permissions::from_mode(0o755)).unwrap();
    place.write("blocked", "");
    place.tasks("in.jsonl", &[task("a", "worktree", json!([edit("TWO"), done()]))]);
    let mut command = place.command(&BATCH);
    command.env("PATH", format!("{}:{found}", place.path("bin").display()));
    let batch = Started::from(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    until("the end is of record", || {
        place.herder(&["events", "--all", "--json", "--state", STATE]).out.contains("\"kind\":\"run_end\"")
    });
    batch.kill();
    assert!(place.results(OUT).is_empty(), "no line is written before the patch is made");
    place.herder(&BATCH).expect(0);
    let line = result(&place, "a");
    assert_eq!((&line["outcome"], &line["files_changed"]), (&json!("done"), &json!(1)), "{line}");
    assert!(diff(&place, "a").contains("+TWO"));
    assert_eq!(worktrees(&place), 1);
}

#[test]
fn a_workspace_that_is_gone_ends_the_run_and_is_not_made_anew() {
    let place = repository();
    place.tasks(
        "in.jsonl",
        &[task("a", "worktree", json!([edit("TWO"), {"text": "x", "delay_ms": 600_000}]))],
    );
    let batch = place.start(&BATCH);
    until("the edit", || {
        place.herder(&["events", "--all", "--json", "--state", STATE]).out.contains("\"kind\":\"result\"")
    });
    batch.kill();
    let work = place.path(&format!("{STATE}/work"));
    let tree = names_below(&work).into_iter().find(|name| work.join(name).is_dir()).unwrap();
    fs::remove_dir_all(work.join(tree)).unwrap();
    place.herder(&BATCH).expect(1);
    let line = result(&place, "a");
    assert_eq!((&line["outcome"], &line["detail"]), (&json!("failed"), &json!("setup")));
    assert!(line["error"].as_str().unwrap().contains("is gone"), "{line}");
    assert_eq!((worktrees(&place), &line["patch_path"]), (1, &Value::Null));
}

#[test]
fn a_task_in_a_subfolder_works_in_that_of_its_worktree_and_uncommitted_changes_stay_behind() {
    let place = repository();
    place.write("work/a.txt", "dirty\n");
    place.write("work/.env.test", "SECRET=1\n");
    place.write("work/sub/local.log", "log\n");
    let config = "[isolate]\ncopy = [\"**/*.log\", \".env.test\"]\nsetup = \"echo made > setup.log\"\n";
    place.write("herder.toml", config);
    let mut sub = task("sub", "worktree", json!([bash("pwd; ls -A; cat ../a.txt; echo t > s.txt"), done()]));
    sub["workspace"] = json!("work/sub");
    let top = task("top", "worktree", json!([bash("cat .env.test; ls sub"), done()]));
    place.tasks("in.jsonl", &[sub, top]);
    let before = state_of(&place);
    let ended = place.herder(&[&BATCH[..], &["--config", "herder.toml"]].concat()).expect(0);
    assert_eq!(ended.err.matches("not committed").count(), 1, "{}", ended.err);
    let said = |id: &str| {
        let events = place.herder(&["events", id, "--json", "--state", STATE]).expect(0).json();
        let result = events.iter().find(|event| event["kind"] == "result").unwrap();
        result["data"]["output"].as_str().unwrap().to_owned()
    };
    let seen = said("sub");
    assert!(seen.lines().next().unwrap().ends_with("/sub"), "{seen}");
    assert!(seen.contains("two") && seen.contains("local.log") && seen.contains("setup.log"), "{seen}");
    assert!(said("top").contains("SECRET=1") && said("top").contains("local.log"));
    let patch = diff(&place, "sub");
    assert!(patch.contains("+++ b/sub/s.txt") && !patch.contains("local.log"), "{patch}");
    assert_eq!(result(&place, "top")["files_changed"], 0, "what was brought along is no change");
    assert_eq!(state_of(&place), before);
}

#[test]
fn a_setup_command_that_fails_ends_the_run_with_what_it_said() {
    let place = repository();
    place.write("herder.toml", "[isolate]\nsetup = \"echo no such package; exit 3\"\n");
    place.tasks("in.jsonl", &[task("a", "worktree", json!([done()]))]);
    place.herder(&[&BATCH[..], &["--config", "herder.toml"]].concat()).expect(1);
    let line = result(&place, "a");
    assert_eq!((&line["outcome"], &line["detail"]), (&json!("failed"), &json!("setup")));
    assert_eq!(line["error"], "the setup command exited with 3:\nno such package");
}

#[test]
fn what_cannot_be_isolated_is_told_before_anything_runs() {
    let place = repository();
    let refused = |what: &str, folder: &str, isolate: &str| {
        let mut line = task("a", isolate, json!([done()]));
        line["workspace"] = json!(folder);
        place.tasks("in.jsonl", &[line]);
        let ended = place.herder(&BATCH).expect(2);
        assert!(ended.err.contains("isolate: ") && ended.err.contains(what), "{}", ended.err);
        assert!(!place.path(STATE).exists());
    };
    fs::create_dir(place.path("plain")).unwrap();
    refused("is in no git repository", "plain", "worktree");
    fs::create_dir(place.path("empty")).unwrap();
    git(&place, "empty", &["init", "-q"]);
    refused("has no commit yet", "empty", "worktree");
    git(&place, ".", &["clone", "-q", "--bare", "work", "bare"]);
    refused("bare repository", "bare", "worktree");
    git(&place, "work", &["worktree", "add", "-q", "--detach", "../linked"]);
    refused("is a worktree of another repository", "linked", "copy");
    fs::create_dir(place.path("work/fresh")).unwrap();
    refused("is not in the commit", "work/fresh", "worktree");
    place.write("work/.gitmodules", "");
    git(&place, "work", &["add", ".gitmodules"]);
    git(&place, "work", &["commit", "-q", "-m", "second"]);
    refused("has submodules", "work", "worktree");
    refused("unknown variant 'tree', expected one of 'none', 'copy', 'worktree'", "work", "tree");
}

#[test]
fn a_copy_needs_no_repository_and_leaves_the_state_folder_behind() {
    let place = Place::new();
    place.write("work/a.txt", "one\ntwo\nthree\n");
    place.write(
        "work/in.jsonl",
        format!("{}\n", {
            let mut line = task("a", "copy", json!([edit("TWO"), bash("ls -A; echo n > n.txt"), done()]));
            line["workspace"] = json!(".");
            line
        }),
    );
    let batch = ["batch", "work/in.jsonl", "-o", "work/out.jsonl", "--policy", "trusted"];
    place.herder(&batch).expect(0);
    let line = place.results("work/out.jsonl").remove(0);
    assert_eq!((&line["outcome"], &line["files_changed"]), (&json!("done"), &json!(2)), "{line}");
    let patch = place.herder(&["diff", "a", "--state", "work/out.jsonl.state"]).expect(0).out;
    assert!(patch.contains("+TWO") && patch.contains("+++ b/n.txt"), "{patch}");
    assert_eq!(place.read("work/a.txt"), "one\ntwo\nthree\n");
    place.herder(&["apply", "a", "--state", "work/out.jsonl.state"]).expect(0);
    assert_eq!(place.read("work/a.txt"), "one\nTWO\nthree\n");
}

#[test]
fn the_daemon_has_the_patch_and_a_file_of_git_is_kept_from_the_file_tools() {
    let place = repository();
    let daemon = Daemon::start(&place);
    let run = submit(&place, "a", &json!([edit("TWO"), done()]), &["--isolate", "worktree"]);
    until("the run is over", || shown(&place, &run)["files_changed"] == 1);
    assert_eq!(shown(&place, &run)["isolate"], "worktree");
    let patch = place.herder(&["diff", &run]).expect(0).out;
    assert!(patch.contains("-two\n+TWO\n"), "{patch}");
    place.herder(&["apply", "a"]).expect(0);
    assert_eq!(place.read("work/a.txt"), "one\nTWO\nthree\n");
    let shared = submit(&place, "b", &json!([done()]), &[]);
    until("the other is over", || !shown(&place, &shared)["outcome"].is_null());
    let refused = place.herder(&["diff", "b"]).expect(2);
    assert!(refused.err.contains("no workspace of its own"), "{}", refused.err);
    drop(daemon);

    let write = call("write", json!({"path": ".git", "content": "gitdir: /elsewhere"}));
    place.tasks("in.jsonl", &[task("w", "worktree", json!([write, done()]))]);
    place.herder(&["batch", "in.jsonl", "-o", OUT]).expect(0);
    let events = place.events(STATE);
    let results: Vec<&Value> = events.iter().filter(|event| event["kind"] == "result").collect();
    assert_eq!((results.len(), &results[0]["data"]["ok"]), (1, &json!(false)), "{results:?}");
    assert_eq!(result(&place, "w")["files_changed"], 0);
    assert_eq!(git(&place, "work", &["branch", "--list", "herder/w*"]), "");
}
