//! The tool `bash`.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    time::{Duration, Instant},
};

use herder::{
    domain::call::Failure,
    tool::{
        Output,
        output::Limits,
        process::{ProcessLimits, ProcessRunner},
    },
};
use serde_json::json;

use crate::harness::{RUN, Scene};

#[tokio::test]
async fn output_of_both_kinds_comes_in_order_and_a_good_end_needs_no_word() {
    let scene = Scene::new();
    let output = scene.bash(json!({"command": "echo one; echo two >&2; echo three"})).await;
    assert_eq!(output, Output::ok("one\ntwo\nthree\n"));
    assert_eq!(scene.bash(json!({"command": "true"})).await, Output::ok("[no output]"));
}

#[tokio::test]
async fn an_exit_code_is_a_result_with_all_of_the_output() {
    let scene = Scene::new();
    assert_eq!(
        scene.bash(json!({"command": "echo out; exit 3"})).await,
        Output::failed(Failure::Failed, "out\n[exit code 3]")
    );
}

#[tokio::test]
async fn bytes_that_are_no_text_are_shown_as_such_and_binary_output_is_not_shown() {
    let scene = Scene::new();
    let odd = scene.bash(json!({"command": "printf 'ok \\377\\376 caf\\351 \\000 end\\n'; exit 4"})).await;
    let text = "ok \u{fffd}\u{fffd} caf\u{fffd} \u{fffd} end\n[exit code 4]";
    assert_eq!(odd, Output::failed(Failure::Failed, text));

    let binary = scene.bash(json!({"command": "head -c 5000 /bin/ls"})).await;
    let spill = scene.path("spill").join(RUN.to_string()).join("call_1.txt");
    let text =
        format!("[binary output, 5000 bytes, not shown; the whole output is in {}]\n", spill.display());
    assert_eq!(binary, Output::ok(text));
    assert_eq!(fs::read(&spill).unwrap(), fs::read("/bin/ls").unwrap()[..5000]);
}

#[tokio::test]
async fn it_runs_in_the_workspace_with_what_a_call_knows_and_no_secrets() {
    let mut scene = Scene::new();
    scene.task_id = Some("task-1".into());
    let script = "pwd; echo $HERDER_RUN_ID $HERDER_TASK_ID; env | grep -c '^CARGO' ; tty";
    let output = scene.bash(json!({"command": script})).await;
    let text = format!("{}\n{RUN} task-1\n0\nnot a tty\n[exit code 1]", scene.workspace.key());
    assert_eq!(output, Output::failed(Failure::Failed, text));
    // Cargo has set this one for the test.
    scene.launcher.env_pass = vec!["CARGO_PKG_NAME".to_owned()];
    assert_eq!(scene.bash(json!({"command": "echo $CARGO_PKG_NAME"})).await, Output::ok("herder\n"));
}

#[tokio::test]
async fn the_temporary_folder_is_private_and_lasts_as_long_as_the_run() {
    let scene = Scene::new();
    let first = scene.bash(json!({"command": "stat -c %a $TMPDIR; echo kept > $TMPDIR/file"})).await;
    assert_eq!(first, Output::ok("700\n"));
    assert_eq!(scene.bash(json!({"command": "cat $TMPDIR/file"})).await, Output::ok("kept\n"));
    scene.scratch.remove(RUN).unwrap();
    assert!(!scene.path("tmp").exists());
}

#[tokio::test]
async fn nothing_runs_on_in_the_background() {
    let scene = Scene::new();
    for command in [
        "sleep 600 & echo started",
        "setsid sleep 600 & echo started",
        "(sleep 600 </dev/null >/dev/null 2>&1) & echo started",
    ] {
        let begun = Instant::now();
        let output = scene.bash(json!({"command": command})).await;
        assert_eq!(output.failure, None, "{}", output.text);
        assert!(output.text.starts_with("started\n["), "{command}: {}", output.text);
        assert!(output.text.ends_with(" ended]\n"), "{command}: {}", output.text);
        assert!(begun.elapsed() < Duration::from_secs(60), "{command}");
    }
}

#[tokio::test]
async fn a_command_whose_time_is_up_is_ended_and_its_output_kept() {
    let mut scene = Scene::new();
    // As of a command that is quick: what it writes is there whenever its time begins.
    let guard = scene.path("guard");
    fs::write(&guard, format!("#!/bin/sh\necho begun\nexec {} \"$@\"\n", env!("CARGO_BIN_EXE_herder")))
        .unwrap();
    fs::set_permissions(&guard, fs::Permissions::from_mode(0o755)).unwrap();
    scene.launcher.runner = ProcessRunner::with_executable(guard);
    let arguments = json!({"command": "sleep 600", "timeout_s": 1});
    let expected = Output::failed(Failure::TimedOut, "begun\n[timed out after 1 s]");
    assert_eq!(scene.bash(arguments).await, expected);
}

#[tokio::test]
async fn a_call_may_not_take_longer_than_its_run_allows() {
    let mut scene = Scene::new();
    scene.timeout = Duration::from_millis(500);
    let output = scene.bash(json!({"command": "sleep 600", "timeout_s": 50})).await;
    assert_eq!(output, Output::failed(Failure::TimedOut, "[timed out after 0.5 s]"));
}

#[tokio::test]
async fn a_cancelled_command_is_ended_and_its_output_kept() {
    let scene = Scene::new();
    let (output, pid) =
        tokio::join!(scene.bash(json!({"command": "echo begun; echo $$ > worker.pid; sleep 600"})), async {
            let pid = scene.until_file("worker.pid").await;
            scene.cancel.cancel();
            pid
        });
    assert_eq!(output, Output::failed(Failure::Cancelled, "begun\n[cancelled]"));
    assert!(!fs::exists(format!("/proc/{}", pid.trim())).unwrap());
}

#[tokio::test]
async fn what_a_command_had_written_is_kept_though_it_is_cancelled_while_it_starts() {
    let mut scene = Scene::new();
    // As of a guard whose command is ahead of its report.
    let guard = scene.path("guard");
    let up = scene.path("ws/up");
    let script = format!("#!/bin/sh\necho begun\necho up > {}\nexec cat > /dev/null\n", up.display());
    fs::write(&guard, script).unwrap();
    fs::set_permissions(&guard, fs::Permissions::from_mode(0o755)).unwrap();
    scene.launcher.runner = ProcessRunner::with_executable(guard);
    let (output, ()) = tokio::join!(scene.bash(json!({"command": "true"})), async {
        scene.until_file("up").await;
        scene.cancel.cancel();
    });
    assert_eq!(output, Output::failed(Failure::Cancelled, "begun\n[cancelled]"));
}

#[tokio::test]
async fn a_call_that_is_cancelled_before_it_begins_runs_nothing() {
    let scene = Scene::new();
    scene.cancel.cancel();
    let output = scene.bash(json!({"command": "touch made"})).await;
    assert_eq!(output.failure, Some(Failure::Cancelled));
    assert!(!scene.path("ws/made").exists());
}

#[tokio::test]
async fn long_output_loses_its_middle_which_is_in_a_file_that_only_its_owner_reads() {
    let mut scene = Scene::new();
    scene.launcher.output = Limits { lines: 4, ..Limits::default() };
    scene.call = "../odd id";
    let output = scene.bash(json!({"command": "seq 10"})).await;
    let (before, after) = output.text.split_once("; the whole output is in ").unwrap();
    let (file, after) = after.split_once("]\n").unwrap();
    assert_eq!((before, after), ("1\n2\n[6 lines (12 bytes) left out", "9\n10\n"));
    assert_eq!(fs::read_to_string(file).unwrap(), "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n");
    assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::canonicalize(file).unwrap().parent(), Some(&*scene.path("spill").join(RUN.to_string())));
}

#[tokio::test]
async fn a_limit_that_may_have_been_reached_is_named() {
    let mut scene = Scene::new();
    scene.launcher.limits = ProcessLimits {
        file_bytes: Some(1024),
        cpu: Some(Duration::from_secs(1)),
        ..ProcessLimits::default()
    };
    let output = scene.bash(json!({"command": "head -c 5000 /dev/zero > big"})).await;
    assert_eq!(output.failure, Some(Failure::Failed));
    assert!(output.text.contains("; the limit of a file is 1024 bytes]"), "{}", output.text);
    let output = scene.bash(json!({"command": "while :; do :; done"})).await;
    assert_eq!(output.failure, Some(Failure::Failed));
    assert!(output.text.contains("; the limit of processor time is 1 s]"), "{}", output.text);
}

#[tokio::test]
async fn without_bash_another_shell_takes_its_place() {
    let mut scene = Scene::new();
    let folder = scene.path("bin");
    fs::create_dir(&folder).unwrap();
    std::os::unix::fs::symlink("/bin/sh", folder.join("sh")).unwrap();
    // A guard that looks for programs in that folder alone.
    let guard = scene.path("guard");
    let script =
        format!("#!/bin/sh\nPATH={} exec {} \"$@\"\n", folder.display(), env!("CARGO_BIN_EXE_herder"));
    fs::write(&guard, script).unwrap();
    fs::set_permissions(&guard, fs::Permissions::from_mode(0o755)).unwrap();
    scene.launcher.runner = ProcessRunner::with_executable(guard);
    assert_eq!(scene.bash(json!({"command": "echo hi"})).await, Output::ok("hi\n"));
}
