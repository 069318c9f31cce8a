//! Background children, escapes, time-outs, cancellation and sudden deaths.

use std::{
    collections::BTreeSet,
    fs,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use herder::tool::process::{CommandGroup, CommandSpec, End, end_remains};
use tokio_util::sync::CancellationToken;

use crate::harness::{PATIENCE, Scene, until};

#[tokio::test]
async fn a_background_child_that_holds_the_output_does_not_delay_the_end() {
    let scene = Scene::new();
    let start = Instant::now();
    let done = scene.run(scene.bash("sleep 600 & echo started")).await;
    assert_eq!((done.end, done.output.text.as_str(), done.left_behind), (End::Exited(0), "started\n", 1));
    assert!(start.elapsed() < PATIENCE);
    scene.assert_nothing_runs();
}

#[tokio::test]
async fn a_ticker_under_nohup_is_ended() {
    let scene = Scene::new();
    let done = scene.run(scene.bash("nohup sh -c 'while :; do echo tick; sleep 0.1; done' & echo up")).await;
    assert_eq!(done.end, End::Exited(0));
    assert!(done.output.text.lines().any(|line| line == "up"), "{}", done.output.text);
    assert!(done.left_behind >= 1);
    scene.assert_nothing_runs();
}

#[tokio::test]
async fn a_background_child_without_the_output_is_ended_too() {
    let scene = Scene::new();
    let done = scene.run(scene.bash("(sleep 600 </dev/null >/dev/null 2>&1) & echo x")).await;
    assert_eq!((done.end, done.output.text.as_str()), (End::Exited(0), "x\n"));
    assert!(done.left_behind >= 1);
    scene.assert_nothing_runs();
}

#[tokio::test]
async fn a_child_in_a_session_of_its_own_is_ended() {
    let scene = Scene::new();
    let done = scene.run(scene.bash("setsid sh -c 'sleep 240' & echo launched")).await;
    assert_eq!((done.end, done.output.text.as_str()), (End::Exited(0), "launched\n"));
    scene.assert_nothing_runs();
}

#[tokio::test]
async fn a_double_fork_from_a_shell_that_ignores_being_told_is_killed_after_the_grace() {
    let scene = Scene::new();
    let script = "sh -c 'trap : TERM INT; (setsid sh -c \"trap : TERM; echo > ready; while :; do sleep 240; done\" &); while :; do sleep 1; done'";
    let spec = scene.bash(script);
    let grace = spec.grace;
    let done = scene.run_until_ready(spec).await;
    assert_eq!(done.end, End::Cancelled);
    assert!(done.duration >= grace, "{:?}", done.duration);
    scene.assert_nothing_runs();
}

#[tokio::test]
async fn a_stopped_process_hears_that_it_should_end() {
    let scene = Scene::new();
    let script = r#"bash -c 'trap "echo heard; exit" TERM; kill -STOP $$' &
        until grep -q stopped /proc/$!/status; do sleep 0.01; done"#;
    let done = scene.run(scene.bash(script)).await;
    assert_eq!((done.end, done.output.text.as_str()), (End::Exited(0), "heard\n"));
    assert_eq!(done.left_behind, 1);
    scene.assert_nothing_runs();
}

#[tokio::test]
async fn a_process_that_keeps_changing_its_number_is_caught() {
    let scene = Scene::new();
    fs::write(scene.path().join("runner"), "setsid sh runner & echo > up\n").unwrap();
    let spec = scene.bash("trap '' TERM; sh runner; sleep 60");
    let done = scene.run(CommandSpec { timeout: Some(Duration::from_millis(500)), ..spec }).await;
    assert_eq!((done.end, done.survivors), (End::TimedOut, vec![]));
    scene.assert_nothing_runs();
}

#[tokio::test]
async fn an_end_that_is_ordered_ends_grandchildren_and_keeps_the_output_so_far() {
    let scene = Scene::new();
    let script = "(while sleep 0.05; do echo still here; done) | tee ready | cat";
    let done = scene.run_until_ready(scene.bash(script)).await;
    assert_eq!(done.end, End::Cancelled);
    assert!(done.output.text.starts_with("still here\n"), "{:?}", done.output.text);
    scene.assert_nothing_runs();
}

#[tokio::test]
async fn a_command_may_clean_up_within_the_grace() {
    let scene = Scene::new();
    let script = "trap 'echo bye; exit 3' TERM; echo begun; echo > ready; sleep 600 & wait";
    let done = scene.run_until_ready(CommandSpec { grace: PATIENCE, ..scene.bash(script) }).await;
    assert_eq!((done.end, done.output.text.as_str()), (End::Cancelled, "begun\nbye\n"));
    assert!(done.duration < PATIENCE);
    scene.assert_nothing_runs();
}

#[tokio::test]
async fn when_a_cancelled_command_is_reported_it_has_stopped_writing() {
    let scene = Scene::new();
    let cancel = CancellationToken::new();
    let script = "echo $$ > worker.pid; while :; do date >> ticks.log; sleep 0.02; done";
    let running = scene.runner.start(scene.bash(script)).await.unwrap();
    let pid = running.group().pid;
    let (done, ()) = tokio::join!(running.wait(&cancel), async {
        scene.until_file("ticks.log").await;
        cancel.cancel();
    });
    assert_eq!(done.end, End::Cancelled);
    assert_eq!(scene.until_file("worker.pid").await.trim(), pid.to_string());
    assert!(!done.group.is_alive());
    scene.assert_nothing_runs();
}

#[tokio::test]
async fn a_running_command_is_recognised_by_its_group_and_by_no_other() {
    let scene = Scene::new();
    let running = scene.runner.start(scene.bash("sleep 60")).await.unwrap();
    let group = running.group().clone();
    assert!(group.is_alive());
    assert!(!CommandGroup { start_time: group.start_time + 1, ..group.clone() }.is_alive());
    assert!(!CommandGroup { boot_id: "another".to_owned(), ..group.clone() }.is_alive());
    drop(running);
    scene.until_nothing_runs().await;
    assert!(!group.is_alive());
}

#[tokio::test]
async fn dropping_the_future_kills_the_command() {
    let scene = Scene::new();
    let cancel = CancellationToken::new();
    let spec = scene.bash("trap '' TERM HUP; setsid sleep 60 & echo up > up; while :; do sleep 1; done");
    tokio::select! {
        done = scene.runner.run(spec, &cancel) => panic!("ended by itself: {done:?}"),
        _ = scene.until_file("up") => {}
    }
    scene.until_nothing_runs().await;
    until("the guard is collected", || children().is_empty()).await;
}

#[tokio::test]
async fn killing_the_guard_kills_the_command() {
    let scene = Scene::new();
    let cancel = CancellationToken::new();
    let spec = scene.bash("trap '' TERM; sleep 60 & echo words; echo $PPID > guard; wait");
    let meanwhile = async { kill_now(scene.until_file("guard").await.trim()) };
    let done = scene.run_while(spec, &cancel, meanwhile).await;
    assert_eq!((done.end, done.output.text.as_str()), (End::GuardLost, "words\n"));
    scene.assert_nothing_runs();
}

#[tokio::test]
async fn killing_herder_kills_the_command() {
    let scene = Scene::new();
    let mut parent = another_herder(&scene);
    scene.until_file("up").await;
    assert!(!scene.processes().is_empty());
    parent.kill().unwrap();
    parent.wait().unwrap();
    scene.until_nothing_runs().await;
}

#[tokio::test]
async fn what_another_herder_runs_is_left_alone_for_as_long_as_that_one_lives() {
    let scene = Scene::new();
    let mut other = another_herder(&scene);
    scene.until_file("up").await;
    let guard: u32 = scene.until_file("guard").await.trim().parse().unwrap();
    let stat = fs::read_to_string(format!("/proc/{guard}/stat")).unwrap();
    let start_time = stat.rsplit_once(") ").unwrap().1.split(' ').nth(19).unwrap().parse().unwrap();
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim_end().to_owned();
    let leader = CommandGroup { pid: guard, start_time, boot_id };
    let mark = format!("HERDER_TEST_MARK={}", scene.mark());
    let pids = || -> BTreeSet<String> {
        let words = scene.processes().into_iter().map(|line| line.split(' ').next().unwrap().to_owned());
        words.collect()
    };
    let before = pids();
    assert_eq!(end_remains(std::slice::from_ref(&leader), &mark), [0; 0]);
    // They may be on their way to what they will run, and to more of them. What is becoming another program has no mark for a moment.
    until("all of them are there still", || before.is_subset(&pids())).await;
    // Stopped, the guard does not see its herder go.
    signal("-STOP", &guard.to_string());
    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!(end_remains(&[leader], &mark), [0; 0]);
    scene.assert_nothing_runs();
}

fn another_herder(scene: &Scene) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "leftovers::a_parent_that_waits"])
        .env("HERDER_TEST_PARENT", scene.mark())
        .env("HERDER_TEST_FOLDER", scene.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[tokio::test]
#[ignore = "run by another test, which kills it"]
async fn a_parent_that_waits() {
    let scene = Scene::marked(std::env::var("HERDER_TEST_PARENT").unwrap());
    let folder = std::env::var_os("HERDER_TEST_FOLDER").unwrap();
    let script = "trap '' TERM HUP INT; setsid sh -c 'trap \"\" TERM; sleep 240' & (sleep 240 &); \
                  echo $PPID > guard; echo up > up; wait";
    scene.run(CommandSpec { cwd: folder.into(), ..scene.bash(script) }).await;
}

#[tokio::test]
async fn many_commands_leave_no_zombies_and_no_descriptors() {
    let scene = Scene::new();
    scene.run(scene.bash("true")).await;
    let descriptors = open_descriptors();
    for turn in 0..300 {
        let script = if turn % 10 == 0 { "sleep 0.01 & exit" } else { "true" };
        assert_eq!(scene.run(scene.bash(script)).await.end, End::Exited(0));
    }
    until("children are gone", || children().is_empty()).await;
    until("descriptors are closed", || open_descriptors() <= descriptors).await;
}

fn open_descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Of this process; zombies included.
fn children() -> Vec<String> {
    let own = format!("\nPPid:\t{}\n", std::process::id());
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter_map(|entry| fs::read_to_string(entry.path().join("status")).ok())
        .filter(|status| status.contains(&own))
        .collect()
}

fn kill_now(pid: &str) {
    signal("-KILL", pid);
}

fn signal(signal: &str, pid: &str) {
    assert!(Command::new("kill").args([signal, pid]).status().unwrap().success());
}
