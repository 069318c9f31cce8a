//! Workspaces of runs' own under commands that mean harm, closings that fail, and runs that go on from others.

use std::{fs, os::unix::fs::PermissionsExt as _, process::Stdio};

use herder::tool::process::confine::{Files, support};
use serde_json::{Value, json};

use crate::{
    daemon::{Daemon, shown, submit},
    isolate::{
        BATCH, OUT, STATE, bash, diff, done, edit, git, repository, result, state_of, task, worktrees,
    },
    support::{Place, Started, call, until},
};

#[test]
fn a_commands_reach_ends_before_the_repository_that_its_worktree_is_of() {
    if support().files != Files::All {
        return;
    }
    let place = repository();
    let destroys = "common=$(git rev-parse --path-format=absolute --git-common-dir); \
        rm -rf \"$common\"/objects/* \"$common\"/refs/* \"$common\"/logs/*; \
        echo x > \"$common/worktrees/$HERDER_RUN_ID/config.worktree\"; git log --oneline | wc -l";
    place.tasks("in.jsonl", &[task("a", "worktree", json!([edit("TWO"), bash(destroys), done()]))]);
    let before = state_of(&place);
    place.herder(&BATCH).expect(0);
    assert_eq!(state_of(&place), before);
    git(&place, "work", &["fsck", "--strict"]);
    assert_eq!(git(&place, "work", &["log", "--format=%s", "main"]), "first");
    assert_eq!(result(&place, "a")["files_changed"], 1);
}

#[test]
fn git_in_a_kept_worktree_runs_nothing_that_a_command_left_for_it() {
    let place = repository();
    place.write("herder.toml", "[isolate]\nkeep = \"always\"\n[confine]\nfiles = \"off\"\n");
    let trap = |folder: &str| {
        format!("git config -f {folder} core.fsmonitor 'touch {}; false'", place.path("sprung").display())
    };
    let replaced = format!(
        "common=$(git rev-parse --path-format=absolute --git-common-dir); rm .git; git init -q; {}",
        trap(".git/config")
    );
    let config = trap("\"$(git rev-parse --git-dir)/config.worktree\"");
    let elsewhere = format!(
        "admin=$(git rev-parse --git-dir); cp -r \"$(git rev-parse --git-common-dir)\" evil; {}; \
        echo \"$PWD/evil\" > \"$admin/commondir\"; echo /nowhere > \"$admin/gitdir\"; {config}",
        trap("evil/config")
    );
    git(&place, "work", &["config", "extensions.worktreeConfig", "true"]);
    place.tasks(
        "in.jsonl",
        &[
            task("replaced", "worktree", json!([edit("TWO"), bash(&replaced), done()])),
            task("elsewhere", "worktree", json!([edit("TWO"), bash(&elsewhere), done()])),
        ],
    );
    place.herder(&[&BATCH[..], &["--config", "herder.toml"]].concat()).expect(0);
    for id in ["replaced", "elsewhere"] {
        let run = place.herder(&["show", id, "--json", "--state", STATE]).expect(0).json().remove(0);
        let kept = run["kept"].as_str().unwrap();
        git(&place, kept, &["status"]);
        assert!(!place.path("sprung").exists(), "{id}");
        assert_eq!(git(&place, kept, &["log", "-1", "--format=%s"]), format!("do {id}"));
    }
    assert_eq!(worktrees(&place), 3);
}

#[test]
fn nothing_is_left_of_a_worktree_whose_traces_a_command_has_wiped() {
    let place = repository();
    place.write("herder.toml", "[confine]\nfiles = \"off\"\n");
    let astray = bash("echo /nowhere/.git > \"$(git rev-parse --git-dir)/gitdir\"");
    let gone = bash("rm -r \"$(git rev-parse --git-dir)\"");
    place.tasks(
        "in.jsonl",
        &[
            task("astray", "worktree", json!([edit("TWO"), astray, done()])),
            task("gone", "worktree", json!([edit("TWO"), gone, done()])),
        ],
    );
    place.herder(&[&BATCH[..], &["--config", "herder.toml"]].concat()).expect(0);
    assert_eq!((worktrees(&place), place.path("work/.git/worktrees").exists()), (1, false));
    for id in ["astray", "gone"] {
        assert_eq!(result(&place, id)["files_changed"], 1);
    }
}

/// A `PATH` with a git that does this at a diff while there is a file `broken`.
pub(crate) fn git_that_cannot_diff(place: &Place, instead: &str) -> String {
    fs::create_dir(place.path("bin")).unwrap();
    let found = std::env::var("PATH").unwrap();
    let broken = place.path("broken").display().to_string();
    let script = format!(
        "#!/bin/sh\ncase \" $* \" in *\" diff \"*) while [ -e {broken} ]; do {instead}; done;; esac\nPATH={found} exec git \"$@\"\n"
    );
    place.write("bin/git", script);
    fs::set_permissions(place.path("bin/git"), fs::Permissions::from_mode(0o755)).unwrap();
    place.write("broken", "");
    format!("{}:{found}", place.path("bin").display())
}

#[test]
fn a_closing_that_fails_is_told_in_the_result_and_made_good_at_the_next_start() {
    let place = repository();
    let path = git_that_cannot_diff(&place, "echo fatal: no luck; exit 9");
    place.tasks("in.jsonl", &[task("a", "worktree", json!([edit("TWO"), done()]))]);
    let batch = || place.command(&BATCH).env("PATH", &path).output().unwrap();
    batch();
    let line = result(&place, "a");
    let error = line["error"].as_str().unwrap();
    assert!(error.contains("could not be put into a patch") && error.contains("no luck"), "{line}");
    assert_eq!((&line["outcome"], &line["files_changed"]), (&json!("done"), &Value::Null), "{line}");
    fs::remove_file(place.path("broken")).unwrap();
    batch();
    let line = result(&place, "a");
    assert_eq!((&line["error"], &line["files_changed"]), (&Value::Null, &json!(1)), "{line}");
    assert!(diff(&place, "a").contains("+TWO"));
    assert_eq!(worktrees(&place), 1);
}

#[test]
fn a_run_has_its_slot_while_the_workspace_of_another_is_put_away() {
    let place = repository();
    let path = git_that_cannot_diff(&place, "sleep 0.1");
    let tasks = ["a", "b"].map(|id| task(id, "worktree", json!([edit(id), done()])));
    place.tasks("in.jsonl", &tasks);
    let mut command = place.command(&[&BATCH[..], &["-j", "1"]].concat());
    let command = command.env("PATH", &path).stdout(Stdio::null()).stderr(Stdio::null());
    let batch = Started::from(command.spawn().unwrap());
    until("both runs have ended", || {
        let seen = place.herder(&["events", "--all", "--json", "--state", STATE]);
        seen.out.matches("\"kind\":\"run_end\"").count() == 2
    });
    assert!(place.results(OUT).is_empty(), "neither is over");
    fs::remove_file(place.path("broken")).unwrap();
    until("both are over", || place.results(OUT).len() == 2);
    drop(batch);
    assert_eq!(
        (&result(&place, "a")["files_changed"], &result(&place, "b")["files_changed"]),
        (&json!(1), &json!(1))
    );
}

#[test]
fn a_run_that_goes_on_from_another_finds_what_that_changed_or_is_refused() {
    let place = repository();
    let _daemon = Daemon::start(&place);
    let more = json!([call("edit", json!({"path": "a.txt", "old_text": "TWO", "new_text": "2"})), done()]);
    place.write("more.script", more.to_string());
    let over = |run: &str| {
        until("the run is over", || !shown(&place, run)["outcome"].is_null());
        shown(&place, run)
    };
    let go_on = |run: &str| {
        let args = ["continue", run, "Go on.", "--script", "more.script"];
        let run = place.herder(&args).expect(0).out.trim().to_owned();
        let ended = over(&run);
        (run, ended)
    };
    for isolate in ["worktree", "copy"] {
        let first = submit(&place, isolate, &json!([edit("TWO"), done()]), &["--isolate", isolate]);
        over(&first);
        until("its patch is made", || shown(&place, &first)["files_changed"] == 1);
        let (run, next) = go_on(&first);
        assert_eq!(next["outcome"], "done", "{next}");
        until("its patch is made", || shown(&place, &run)["files_changed"] == 1);
        let patch = place.herder(&["diff", &run]).expect(0).out;
        assert!(patch.contains("-two\n+2\n"), "{patch}");

        fs::remove_file(shown(&place, &first)["patch_path"].as_str().unwrap()).unwrap();
        let (_, refused) = go_on(&first);
        assert_eq!(refused["outcome"], "failed", "{refused}");
        let error = refused["error"].as_str().unwrap();
        assert!(error.contains(&first) && error.contains("has left no workspace"), "{error}");
    }
}

#[test]
fn a_file_that_git_takes_in_no_patch_keeps_the_workspace_and_is_told() {
    let place = repository();
    let writes = bash("echo precious > 'git~1'");
    place.tasks("in.jsonl", &[task("a", "worktree", json!([edit("TWO"), writes, done()]))]);
    place.herder(&BATCH).expect(0);
    let line = result(&place, "a");
    assert_eq!((&line["outcome"], &line["files_changed"]), (&json!("done"), &json!(1)), "{line}");
    let error = line["error"].as_str().unwrap();
    assert!(error.contains("git could not take in") && error.contains("git~1"), "{error}");
    let kept = error.rsplit(' ').next().unwrap();
    assert_eq!(fs::read_to_string(format!("{kept}/git~1")).unwrap(), "precious\n");
}

#[test]
fn a_git_that_is_killed_while_it_takes_the_files_in_loses_none() {
    let place = repository();
    fs::create_dir(place.path("bin")).unwrap();
    let found = std::env::var("PATH").unwrap();
    let script = format!(
        "#!/bin/sh\ncase \" $* \" in *\" add --all \"*) kill -9 $$;; esac\nPATH={found} exec git \"$@\"\n"
    );
    place.write("bin/git", script);
    fs::set_permissions(place.path("bin/git"), fs::Permissions::from_mode(0o755)).unwrap();
    place.tasks("in.jsonl", &[task("a", "worktree", json!([edit("TWO"), done()]))]);
    let mut command = place.command(&BATCH);
    command.env("PATH", format!("{}:{found}", place.path("bin").display()));
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    let error = result(&place, "a")["error"].as_str().unwrap().to_owned();
    assert!(error.contains("it was killed"), "{error}");
    place.herder(&BATCH).expect(0);
    assert!(diff(&place, "a").contains("+TWO"));
}
