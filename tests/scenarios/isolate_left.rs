//! Workspaces of runs' own that something of git's, of a repository's or of herder's own is in the way of.

use std::{
    fs,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::Stdio,
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    isolate::{BATCH, STATE, bash, diff, done, edit, git, names_below, repository, result, task, worktrees},
    isolate_hard::git_that_cannot_diff,
    support::{Place, Started, until},
};

const CONFIGURED: [&str; 2] = ["--config", "herder.toml"];

/// The files that are locks, below a folder.
fn locks(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().unwrap().is_dir() {
            found.extend(locks(&entry.path()));
        } else if entry.path().extension().is_some_and(|ending| ending == "lock") {
            found.push(entry.path());
        }
    }
    found
}

fn one(place: &Place) -> Vec<Value> {
    let tasks = vec![task("a", "worktree", json!([edit("TWO"), {"text": "ready", "delay_ms": 600_000}]))];
    place.tasks("in.jsonl", &tasks);
    tasks
}

/// The run's id, once it has changed its file.
fn edited(place: &Place) -> String {
    let seen = || place.herder(&["events", "--all", "--json", "--state", STATE]);
    until("the edit", || seen().out.contains("\"kind\":\"result\""));
    seen().json()[0]["run"].as_str().unwrap().to_owned()
}

#[test]
fn locks_that_a_dead_herder_left_of_what_is_a_runs_own_are_not_in_its_way() {
    let place = repository();
    one(&place);
    let batch = place.start(&BATCH);
    let run = edited(&place);
    batch.kill();
    place.write(&format!("{STATE}/work/{run}.index.lock"), "");
    place.write(&format!("work/.git/worktrees/{run}/index.lock"), "");
    place.write(&format!("work/.git/refs/heads/herder/a-{run}.lock"), "");
    place.write("work/.git/config.lock", "somebody else's");
    place.herder(&["cancel", "a", "--state", STATE]);
    place.tasks("in.jsonl", &[task("a", "worktree", json!([edit("TWO"), done()]))]);
    place.herder(&[&BATCH[..], &["--restart-stale"]].concat()).expect(0);
    assert!(diff(&place, "a").contains("+TWO"));
    assert_eq!(locks(&place.path("work/.git")), [place.path("work/.git/config.lock")]);
    assert!(locks(&place.path(STATE)).is_empty());
}

#[test]
fn a_lock_of_somebody_elses_is_named_and_waited_for() {
    let place = repository();
    place.write("herder.toml", "[isolate]\nbranch = \"herder/{task_id}\"\n");
    place.tasks("in.jsonl", &[task("a", "worktree", json!([edit("TWO"), done()]))]);
    let lock = place.path("work/.git/refs/heads/herder/a.lock");
    fs::create_dir_all(lock.parent().unwrap()).unwrap();
    fs::write(&lock, "").unwrap();
    let batch = place.start(&[&BATCH[..], &CONFIGURED].concat());
    let named = format!("git's lock {} is in the way", lock.canonicalize().unwrap().display());
    until("it is told", || place.read("err.txt").contains(&named));
    fs::remove_file(&lock).unwrap();
    assert_eq!(batch.wait(), Some(0));
    assert!(diff(&place, "a").contains("+TWO"));
}

#[test]
fn a_patch_is_of_record_though_its_branch_cannot_be_removed_yet() {
    let place = repository();
    place.tasks("in.jsonl", &[task("a", "worktree", json!([bash("ls"), done()]))]);
    place.write("work/.git/packed-refs.lock", "");
    let ended = place.herder(&BATCH).expect(0);
    assert!(ended.err.contains("packed-refs.lock"), "{}", ended.err);
    let line = result(&place, "a");
    assert_eq!((&line["error"], &line["files_changed"]), (&Value::Null, &json!(0)), "{line}");
    fs::remove_file(place.path("work/.git/packed-refs.lock")).unwrap();
    place.herder(&BATCH).expect(0);
    assert_eq!(git(&place, "work", &["branch", "--list", "herder/*"]), "");
}

#[test]
fn a_git_that_is_at_work_when_herder_dies_comes_to_its_end_and_the_next_start_waits_for_it() {
    let place = repository();
    // Git that holds a lock until it may go on, and for a second more.
    fs::create_dir(place.path("bin")).unwrap();
    let found = std::env::var("PATH").unwrap();
    let held = place.path("work/.git/held.lock").display().to_string();
    let go = place.path("go").display().to_string();
    let script = format!(
        "#!/bin/sh\nexport PATH={found}\ncase \" $* \" in *\" worktree \"*) touch {held}; until [ -e {go} ]; do sleep 0.02; done; \
         sleep 1; git \"$@\" || exit; rm {held}; exit;; esac\nexec git \"$@\"\n"
    );
    place.write("bin/git", script);
    fs::set_permissions(place.path("bin/git"), fs::Permissions::from_mode(0o755)).unwrap();
    place.tasks("in.jsonl", &[task("a", "worktree", json!([edit("TWO"), done()]))]);
    let mut command = place.command(&BATCH);
    command.env("PATH", format!("{}:{found}", place.path("bin").display()));
    let batch = Started::from(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    until("git is at work", || !locks(&place.path("work/.git")).is_empty());
    batch.kill();
    assert!(!locks(&place.path("work/.git")).is_empty(), "it still is");
    place.write("go", "");
    place.herder(&BATCH).expect(0);
    assert!(locks(&place.path("work/.git")).is_empty());
    assert!(diff(&place, "a").contains("+TWO"));
    assert_eq!(worktrees(&place), 1);
}

#[test]
fn a_workspace_with_a_repository_that_the_run_made_is_kept_and_the_result_says_so() {
    for isolate in ["worktree", "copy"] {
        let place = repository();
        place.write("work/.gitignore", "*.log\nignored/\n");
        git(&place, "work", &["commit", "-qam", "ignores"]);
        // One that the user has, and the run only looks at.
        fs::create_dir(place.path("work/users")).unwrap();
        place.write("work/users/u.txt", "u");
        git(&place, "work/users", &["init", "-q"]);
        git(&place, "work/users", &["add", "-A"]);
        git(&place, "work/users", &["commit", "-q", "-m", "theirs"]);
        let commit = "git -c user.name=a -c user.email=a@b commit -q -m inner";
        let makes = format!(
            "for name in new ignored/dep; do git init -q $name && cd $name && echo work > kept.txt && git add -A && {commit}; cd -; done"
        );
        place.tasks(
            "in.jsonl",
            &[
                task("makes", isolate, json!([edit("TWO"), bash(&makes), done()])),
                task("looks", isolate, json!([edit("2"), bash("git -C users status; ls"), done()])),
            ],
        );
        place.herder(&BATCH).expect(0);
        let line = result(&place, "makes");
        assert_eq!((&line["outcome"], &line["files_changed"]), (&json!("done"), &json!(1)), "{line}");
        let error = line["error"].as_str().unwrap();
        assert!(error.contains("(new)") && error.contains("kept at "), "{error}");
        let run = place.herder(&["show", "makes", "--json", "--state", STATE]).expect(0).json().remove(0);
        let kept = PathBuf::from(run["kept"].as_str().unwrap());
        assert_eq!(fs::read_to_string(kept.join("new/kept.txt")).unwrap(), "work\n");
        assert!(diff(&place, "makes").contains("+TWO") && !diff(&place, "makes").contains("Subproject"));
        let line = result(&place, "looks");
        assert_eq!((&line["error"], &line["files_changed"]), (&Value::Null, &json!(1)), "{isolate}: {line}");
    }
}

#[test]
fn a_repository_that_the_run_changed_in_its_copy_is_not_lost_either() {
    let place = repository();
    git(&place, ".", &["init", "-q", "work/inner"]);
    place.write("work/inner/i.txt", "i\n");
    place.tasks("in.jsonl", &[task("a", "copy", json!([bash("echo more >> inner/i.txt"), done()]))]);
    place.herder(&BATCH).expect(0);
    let error = result(&place, "a")["error"].as_str().unwrap().to_owned();
    let kept = error.rsplit(' ').next().unwrap();
    assert_eq!(fs::read_to_string(format!("{kept}/inner/i.txt")).unwrap(), "i\nmore\n");
}

#[test]
fn a_copy_has_none_of_herders_own_files() {
    let place = Place::new();
    place.write("work/a.txt", "one\ntwo\nthree\n");
    let mut line = task("a", "copy", json!([bash("find . | sort"), edit("TWO"), done()]));
    line["workspace"] = json!(".");
    let lines = format!("{line}\n");
    let batch =
        ["batch", "work/in.jsonl", "-o", "work/out.jsonl", "--policy", "trusted", "--state", "work/kept"];
    place.write("work/in.jsonl", format!("{lines}{}", lines.replace("\"a\"", "\"b\"")));
    // The second begins when the first has its line in the results.
    place.herder(&[&batch[..], &["-j", "1"]].concat()).expect(0);
    let results = place.results("work/out.jsonl");
    assert_eq!(results.len(), 2);
    for line in &results {
        assert_eq!(line["files_changed"], 1, "{line}");
        let events = ["events", line["run"].as_str().unwrap(), "--json", "--state", "work/kept"];
        let events = place.herder(&events).expect(0).json();
        let said =
            events.iter().find(|event| event["kind"] == "result").unwrap()["data"]["output"].to_string();
        assert!(said.contains("a.txt") && !said.contains("out.jsonl") && !said.contains("kept"), "{said}");
    }
}

/// Commands that leave what has git run something: `TRAP` stands for a shell line that leaves a trace.
fn hostile(place: &Place, git_dir: &str) -> String {
    let trap = format!("touch {}; cat", place.path("sprung").display());
    let hook = format!("#!/bin/sh\\n{trap}\\n");
    let set: String = [
        "core.fsmonitor",
        "filter.x.clean",
        "filter.x.smudge",
        "filter.x.process",
        "diff.x.textconv",
        "diff.x.command",
        "diff.external",
        "merge.x.driver",
        "core.pager",
        "core.sshCommand",
        "gpg.program",
        "core.editor",
        "alias.apply",
        "alias.add",
    ]
    .iter()
    .map(|key| format!("git config -f {git_dir}/config {key} '{trap}'; "))
    .collect();
    let hooks =
        ["post-checkout", "pre-commit", "post-index-change", "reference-transaction"].map(|hook_name| {
            format!("printf '{hook}' > {git_dir}/hooks/{hook_name}; chmod +x {git_dir}/hooks/{hook_name}; ")
        });
    format!(
        "mkdir -p {git_dir}/hooks; {set}{} git config -f {git_dir}/config commit.gpgSign true; \
         git config -f {git_dir}/config core.hooksPath $PWD/{git_dir}/hooks; ",
        hooks.concat()
    )
}

#[test]
fn git_of_herders_runs_nothing_that_a_copys_own_configuration_names() {
    let place = repository();
    place.write("herder.toml", "[isolate]\nkeep = \"always\"\n[confine]\nfiles = \"off\"\n");
    git(&place, ".", &["init", "-q", "work/inner"]);
    place.write("work/inner/i.txt", "i\n");
    git(&place, "work/inner", &["add", "-A"]);
    git(&place, "work/inner", &["commit", "-q", "-m", "inner"]);
    let attributes = "echo '* filter=x diff=x merge=x' > .gitattributes; ";
    let harm = format!(
        "{}{attributes} cd inner; {}{attributes} touch i.txt; echo x >> i.txt; cd ..; git init -q new; cd new; {}{attributes} echo n > n",
        hostile(&place, ".git"),
        hostile(&place, ".git"),
        hostile(&place, ".git"),
    );
    let tasks = [
        task("harms", "copy", json!([edit("TWO"), bash(&harm), done()])),
        task("also", "copy", json!([bash("echo new > n.txt"), done()])),
    ];
    place.tasks("in.jsonl", &tasks);
    place.herder(&[&BATCH[..], &CONFIGURED].concat()).expect(0);
    let unsprung = |when: &str| assert!(!place.path("sprung").exists(), "{when}");
    unsprung("closing");
    assert!(diff(&place, "harms").contains("+TWO"));
    place.herder(&["diff", "harms", "--stat", "--state", STATE]).expect(0);
    unsprung("diff");
    let run = place.herder(&["show", "harms", "--json", "--state", STATE]).expect(0).json().remove(0);
    let kept = run["kept"].as_str().unwrap();
    for how in [&["--check"][..], &[]] {
        place.herder(&[&["apply", "also", "--to", kept, "--state", STATE][..], how].concat()).expect(0);
        unsprung("apply");
    }
    assert_eq!(fs::read_to_string(format!("{kept}/n.txt")).unwrap(), "new\n");
    place.herder(&["apply", "harms", "--state", STATE]).expect(0);
    unsprung("apply to the user's");
    place.herder(&["continue", "harms", "Go on.", "--script", "more.script", "--state", STATE]);
    unsprung("continue");
}

#[test]
fn herder_stops_though_a_workspace_cannot_be_put_away_and_does_that_at_the_next_start() {
    let place = repository();
    place.write("herder.toml", "[supervisor]\ngrace_s = 0\ndrain_s = 0\n");
    let path = git_that_cannot_diff(&place, "sleep 0.1");
    place.tasks("in.jsonl", &[task("a", "worktree", json!([edit("TWO"), done()]))]);
    let mut command = place.command(&[&BATCH[..], &CONFIGURED].concat());
    command.env("PATH", &path).stdout(Stdio::null()).stderr(Stdio::null());
    let batch = Started::from(command.process_group(0).spawn().unwrap());
    until("the end is of record", || {
        place.herder(&["events", "--all", "--json", "--state", STATE]).out.contains("\"kind\":\"run_end\"")
    });
    batch.signal(Signal::TERM);
    batch.wait();
    let line = result(&place, "a");
    assert_eq!((&line["outcome"], &line["files_changed"]), (&json!("done"), &Value::Null), "{line}");
    assert!(line["error"].as_str().unwrap().contains("made at the next start"), "{line}");
    fs::remove_file(place.path("broken")).unwrap();
    place.herder(&BATCH).expect(0);
    assert_eq!(result(&place, "a")["files_changed"], 1);
    assert_eq!(worktrees(&place), 1);
}

#[test]
fn what_is_half_made_at_a_kill_is_made_anew() {
    let place = repository();
    place.write("herder.toml", "[isolate]\nsetup = \"touch half; sleep 600\"\n");
    place.tasks("in.jsonl", &[task("a", "worktree", json!([edit("TWO"), bash("ls"), done()]))]);
    let batch = place.start(&[&BATCH[..], &CONFIGURED].concat());
    let work = place.path(&format!("{STATE}/work"));
    until("the setup command runs", || {
        names_below(&work).iter().any(|name| work.join(name).join("half").exists())
    });
    batch.kill();
    place.herder(&BATCH).expect(0);
    let patch = diff(&place, "a");
    assert!(patch.contains("+TWO") && !patch.contains("half"), "{patch}");
    assert_eq!(worktrees(&place), 1);
}
