//! What becomes of output: order, bounds, bytes that are no text.

use std::fs;

use herder::tool::{
    output::Omitted,
    process::{CaptureLimits, CommandSpec, End},
};

use tokio_util::sync::CancellationToken;

use crate::harness::{Scene, until};

#[tokio::test]
async fn both_streams_keep_their_order() {
    let scene = Scene::new();
    let done = scene.run(scene.bash("for i in 1 2 3 4 5; do echo out $i; echo err $i >&2; done")).await;
    let expected: String = (1..=5).map(|number| format!("out {number}\nerr {number}\n")).collect();
    assert_eq!(done.output.text, expected);
}

#[tokio::test]
async fn a_long_output_shows_both_ends_and_lies_whole_in_a_file() {
    let scene = Scene::new();
    let path = scene.path().join("spill/seq");
    let output = CaptureLimits { spill: Some(path.clone()), ..CaptureLimits::default() };
    let done = scene.run(CommandSpec { output, ..scene.bash("seq 1 20000") }).await;
    let notice = format!("[18000 lines (99001 bytes) left out; the whole output is in {}]", path.display());
    let lines: Vec<&str> = done.output.text.lines().collect();
    assert_eq!(lines[999..=1001], ["1000", &notice, "19001"]);
    assert_eq!(done.output.omitted, Some(Omitted { lines: 18_000, bytes: 99_001 }));
    assert_eq!(fs::read_to_string(path).unwrap().lines().count(), 20_000);
}

#[tokio::test]
async fn a_huge_output_takes_no_memory_and_is_drained() {
    let scene = Scene::new();
    let before = peak_memory_kib();
    let done = scene.run(scene.bash("yes filler-line | head -c 100000000")).await;
    assert_eq!((done.end, done.output.bytes), (End::Exited(0), 100_000_000));
    assert!(peak_memory_kib() - before < 16 * 1024);
}

#[tokio::test]
async fn an_endless_output_ends_when_its_command_is_to() {
    let scene = Scene::new();
    let (spill, cancel) = (scene.path().join("spill"), CancellationToken::new());
    let output = CaptureLimits { spill: Some(spill.clone()), ..CaptureLimits::default() };
    let spec = CommandSpec { output, ..scene.bash("yes filler-line") };
    let meanwhile = async {
        until("more has come than is shown", || spill.exists()).await;
        cancel.cancel();
    };
    let done = scene.run_while(spec, &cancel, meanwhile).await;
    assert_eq!(done.end, End::Cancelled);
    assert!(done.output.text.starts_with("filler-line\n"));
}

#[tokio::test]
async fn a_spill_file_stops_at_its_cap_and_the_command_does_not() {
    let scene = Scene::new();
    let spill = scene.path().join("zeros");
    let output =
        CaptureLimits { spill: Some(spill.clone()), spill_bytes: 1_000_000, ..CaptureLimits::default() };
    let done = scene.run(CommandSpec { output, ..scene.bash("head -c 20000000 /dev/zero") }).await;
    assert_eq!((done.end, done.output.bytes, done.output.is_binary), (End::Exited(0), 20_000_000, true));
    assert_eq!(fs::metadata(spill).unwrap().len(), 1_000_000);
}

#[tokio::test]
async fn bytes_that_are_no_text_are_replaced_and_the_exit_code_kept() {
    let scene = Scene::new();
    let done = scene.run(scene.bash(r"printf 'ok \377\376 caf\351 \000 end\n'; exit 4")).await;
    assert_eq!(done.end, End::Exited(4));
    assert_eq!(done.output.text, "ok \u{fffd}\u{fffd} caf\u{fffd} \u{fffd} end\n");
}

#[tokio::test]
async fn binary_output_is_named_with_its_size() {
    let scene = Scene::new();
    let done = scene.run(scene.bash("head -c 5000 /bin/ls")).await;
    assert_eq!(done.output.text, "[binary output, 5000 bytes, not shown]");
    assert_eq!(done.output.omitted.map(|Omitted { bytes, .. }| bytes), Some(5000));
}

#[tokio::test]
async fn the_last_words_of_a_process_substitution_are_kept() {
    let scene = Scene::new();
    let done = scene.run(scene.bash("echo hello > >(cat; echo bye)")).await;
    assert_eq!((done.end, done.output.text.as_str()), (End::Exited(0), "hello\nbye\n"));
    scene.assert_nothing_runs();
}

#[tokio::test]
async fn closing_its_output_does_not_end_a_command() {
    let scene = Scene::new();
    let done = scene.run(scene.bash("echo first; exec >&- 2>&-; sleep 0.2; exit 5")).await;
    assert_eq!((done.end, done.output.text.as_str()), (End::Exited(5), "first\n"));
}

fn peak_memory_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse().unwrap()
}
