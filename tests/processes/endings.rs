//! How commands end, how they fail to start, and what they are given.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    time::{Duration, Instant},
};

use herder::tool::process::{CommandSpec, End, ProcessLimits, ProcessRunner, SpawnError};

use tokio_util::sync::CancellationToken;

use crate::harness::{PATIENCE, Scene};

#[tokio::test]
async fn an_exit_code_is_a_result() {
    let scene = Scene::new();
    let done = scene.run(scene.bash("echo out; echo err >&2; exit 7")).await;
    assert_eq!((done.end, done.output.text.as_str()), (End::Exited(7), "out\nerr\n"));
    assert_eq!((done.left_behind, done.survivors), (0, vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_run_side_by_side() {
    let scene = Scene::new();
    // Each waits for the other's sign.
    let meet = |own: &str, other: &str| {
        scene.bash(&format!("touch {own}; until [ -e {other} ]; do sleep 0.01; done"))
    };
    let [one, two] = [meet("one", "two"), meet("two", "one")].map(|spec| {
        let runner = scene.runner.clone();
        tokio::spawn(async move { runner.run(spec, &CancellationToken::new()).await.map(|done| done.end) })
    });
    let ends =
        tokio::time::timeout(PATIENCE, async { (one.await.unwrap(), two.await.unwrap()) }).await.unwrap();
    assert!(matches!(ends, (Ok(End::Exited(0)), Ok(End::Exited(0)))), "{ends:?}");
}

#[tokio::test]
async fn a_signal_is_named() {
    let scene = Scene::new();
    assert_eq!(scene.run(scene.bash("kill -SEGV $$")).await.end, End::Signalled(11));
}

#[tokio::test]
async fn what_killed_its_guard_and_left_its_session_is_ended_all_the_same() {
    let scene = Scene::new();
    let mut spec = scene.bash(
        "setsid sh -c 'touch out; exec sleep 600' & until [ -e out ] && [ -e go ]; do sleep 0.01; done; kill -9 $PPID; sleep 600",
    );
    spec.env.push(("HERDER_RUN_ID".into(), scene.mark().into()));
    let go = async { fs::write(scene.path().join("go"), "").unwrap() };
    assert_eq!(scene.run_while(spec, &CancellationToken::new(), go).await.end, End::GuardLost);
    scene.assert_nothing_runs();
}

#[tokio::test]
async fn there_is_no_terminal_to_ask_on_even_if_herder_has_one() {
    let scene = Scene::new();
    let mut parent = std::process::Command::new(std::env::current_exe().unwrap());
    parent
        .args(["--ignored", "--exact", "endings::a_parent_with_a_terminal"])
        .env("HERDER_TEST_FOLDER", scene.path());
    let _terminal = rexpect::session::spawn_command(parent, None).unwrap();
    assert_eq!(scene.until_file("answers").await, "parent: can ask\nrc=1\nnot a tty\n");
}

#[tokio::test]
#[ignore = "run by another test, under a terminal"]
async fn a_parent_with_a_terminal() {
    let scene = Scene::new();
    let parent = fs::File::open("/dev/tty").map_or("cannot ask", |_| "can ask");
    let done = scene
        .run(scene.bash("(echo ask > /dev/tty && head -1 < /dev/tty) 2>/dev/null; echo rc=$?; tty"))
        .await;
    let folder = std::path::PathBuf::from(std::env::var_os("HERDER_TEST_FOLDER").unwrap());
    fs::write(folder.join("unnamed"), format!("parent: {parent}\n{}", done.output.text)).unwrap();
    fs::rename(folder.join("unnamed"), folder.join("answers")).unwrap();
}

#[tokio::test]
async fn a_command_leads_a_group_in_a_session_of_the_guards() {
    let scene = Scene::new();
    let done = scene.run(scene.bash("ps -o pid=,pgid=,sid=,ppid= -p $$")).await;
    let ids: Vec<u32> = done.output.text.split_whitespace().map(|id| id.parse().unwrap()).collect();
    let [pid, group, session, parent] = ids[..] else { panic!("{ids:?}") };
    assert_eq!((pid, group, session), (done.group.pid, pid, parent));
}

#[tokio::test]
async fn given_input_is_read_to_its_end() {
    let scene = Scene::new();
    let input: Vec<u8> = b"{\"a\":1}\n".repeat(100_000);
    let done = scene.run(CommandSpec { stdin: Some(input.clone()), ..scene.bash("wc -c") }).await;
    assert_eq!(done.output.text.trim(), input.len().to_string());
}

#[tokio::test]
async fn input_that_nobody_reads_holds_nothing_up() {
    let scene = Scene::new();
    let spec = CommandSpec { stdin: Some(vec![b'x'; 1_000_000]), ..scene.bash("echo done") };
    assert_eq!(scene.run(spec).await.output.text, "done\n");
}

#[tokio::test]
async fn without_input_stdin_is_at_its_end() {
    let scene = Scene::new();
    assert_eq!(scene.run(scene.bash("cat; readlink /proc/self/fd/0")).await.output.text, "/dev/null\n");
}

#[tokio::test]
async fn a_command_gets_no_descriptor_of_the_guards() {
    let scene = Scene::new();
    // Whoever started this test may have passed some on, which any child gets.
    let plain = std::process::Command::new("ls").arg("/proc/self/fd").output().unwrap().stdout;
    let done = scene.run(scene.bash("exec ls /proc/self/fd")).await;
    assert_eq!(done.output.text, String::from_utf8(plain).unwrap());
}

#[tokio::test]
async fn a_missing_program_a_missing_folder_and_a_file_that_is_no_program_are_told_apart() {
    let scene = Scene::new();
    let missing = scene.try_run(CommandSpec::new("no-such-program", scene.path())).await;
    assert!(matches!(missing, Err(SpawnError::Missing { .. })), "{missing:?}");
    let folder = scene.try_run(CommandSpec { cwd: "/no/such/folder".into(), ..scene.bash("true") }).await;
    assert!(matches!(folder, Err(SpawnError::Folder { .. })), "{folder:?}");
    let program = scene.path().join("text");
    fs::write(&program, "words").unwrap();
    let text = scene.try_run(CommandSpec::new(&program, scene.path())).await;
    assert!(matches!(text, Err(SpawnError::NotRunnable { .. })), "{text:?}");
}

#[tokio::test]
async fn a_command_longer_than_the_kernel_takes_is_refused() {
    let scene = Scene::new();
    let long = scene.try_run(scene.bash(&format!(": {}", "x".repeat(200_000)))).await;
    assert!(matches!(long, Err(SpawnError::TooLong)), "{long:?}");
}

#[tokio::test]
async fn a_guard_that_is_no_guard_is_an_error() {
    let scene = Scene::new();
    let runner = ProcessRunner::with_executable("/bin/true");
    let failed = runner.start(scene.bash("true")).await.map(drop);
    assert!(matches!(failed, Err(SpawnError::Guard(_))), "{failed:?}");
}

#[tokio::test]
async fn a_command_that_is_cancelled_while_its_guard_starts_does_not_wait_for_it_and_keeps_its_output() {
    let scene = Scene::new();
    let silent = scene.path().join("silent");
    // As of a guard whose command is ahead of its report.
    let script =
        format!("#!/bin/sh\necho begun\necho up > {}/up\nexec cat > /dev/null\n", scene.path().display());
    fs::write(&silent, script).unwrap();
    fs::set_permissions(&silent, fs::Permissions::from_mode(0o755)).unwrap();
    let (runner, cancel) = (ProcessRunner::with_executable(&silent), CancellationToken::new());
    let (ended, ()) =
        tokio::join!(tokio::time::timeout(PATIENCE, runner.run(scene.bash("true"), &cancel)), async {
            scene.until_file("up").await;
            cancel.cancel();
        });
    let Ok(Err(SpawnError::Cancelled(output))) = ended else { panic!("{ended:?}") };
    assert_eq!(output.text, "begun\n");
    scene.assert_nothing_runs();
}

#[tokio::test]
async fn the_time_that_a_command_may_take_begins_when_it_does() {
    const LIMIT: Duration = Duration::from_secs(1);
    let scene = Scene::new();
    let slow = scene.path().join("slow");
    let script = format!(
        "#!/bin/sh\necho > {0}/up\nuntil [ -e {0}/go ]; do sleep 0.01; done\nexec {1} \"$@\"\n",
        scene.path().display(),
        env!("CARGO_BIN_EXE_herder")
    );
    fs::write(&slow, script).unwrap();
    fs::set_permissions(&slow, fs::Permissions::from_mode(0o755)).unwrap();
    let (runner, never) = (ProcessRunner::with_executable(&slow), CancellationToken::new());
    let spec = CommandSpec { timeout: Some(LIMIT), ..scene.bash("sleep 600") };
    let (done, begun) = tokio::join!(tokio::time::timeout(PATIENCE, runner.run(spec, &never)), async {
        scene.until_file("up").await;
        // It is over before the command begins.
        tokio::time::sleep(LIMIT).await;
        let begun = Instant::now();
        fs::write(scene.path().join("go"), "").unwrap();
        begun
    });
    assert!(begun.elapsed() >= LIMIT, "{:?}", begun.elapsed());
    let done = done.expect("hangs").unwrap();
    assert_eq!(done.end, End::TimedOut);
    assert!(done.duration >= LIMIT, "{:?}", done.duration);
    scene.assert_nothing_runs();
}

#[tokio::test]
async fn a_machine_without_room_is_an_error_worth_another_try() {
    let scene = Scene::new();
    // A guard that may open few files stands for a machine that is full.
    let starved = scene.path().join("starved");
    let script =
        format!("#!/bin/sh\nulimit -n 6; exec {} \"$@\" 3>&- 4>&- 5>&-\n", env!("CARGO_BIN_EXE_herder"));
    fs::write(&starved, script).unwrap();
    fs::set_permissions(&starved, fs::Permissions::from_mode(0o755)).unwrap();
    let failed = ProcessRunner::with_executable(&starved).start(scene.bash("true")).await.map(drop);
    assert!(matches!(failed, Err(SpawnError::Busy(_))), "{failed:?}");
}

#[tokio::test]
async fn limits_bind_the_command() {
    let scene = Scene::new();
    let limits = ProcessLimits {
        memory_bytes: Some(64 * 1024 * 1024),
        cpu: Some(Duration::from_secs(1)),
        file_bytes: Some(4096),
        processes: None,
        open_files: Some(64),
    };
    let limited = |script: &str| CommandSpec { limits: limits.clone(), ..scene.bash(script) };
    let shown = scene.run(limited("ulimit -c; ulimit -d; ulimit -t; ulimit -n")).await.output.text;
    assert_eq!(shown, "0\n65536\n1\n64\n");
    assert_eq!(scene.run(limited("while :; do :; done")).await.end, End::Signalled(24));
    let file = scene.run(limited("exec head -c 100000 /dev/zero > big")).await;
    assert_eq!((file.end, fs::metadata(scene.path().join("big")).unwrap().len()), (End::Signalled(25), 4096));
    let memory = scene.run(limited("x=$(head -c 200000000 /dev/zero | tr '\\0' x); echo ${#x}")).await;
    assert_ne!(memory.end, End::Exited(0));
}

#[tokio::test]
async fn the_environment_is_what_was_given() {
    let scene = Scene::new();
    let env = vec![("ONLY".into(), "this".into())];
    let spec = CommandSpec { env, ..CommandSpec::new("/usr/bin/env", scene.path()) };
    assert_eq!(scene.run(spec).await.output.text, "ONLY=this\n");
}
