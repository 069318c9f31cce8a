//! The commands that need no run: configuration, completions, help; and how mistakes end them.

#![expect(clippy::expect_used, reason = "a test that cannot set up its folder has failed")]

use std::path::Path;

use assert_cmd::{Command, cargo::cargo_bin};

struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// Runs herder in a folder, which is the home of its configuration too.
fn herder(folder: &Path, variables: &[(&str, &str)], arguments: &[&str]) -> Ended {
    let output = Command::new(cargo_bin!("herder"))
        .env_clear()
        .env("XDG_CONFIG_HOME", folder)
        .envs(variables.iter().copied())
        .current_dir(folder)
        .args(arguments)
        .output()
        .expect("runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ended { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

#[test]
fn config_shows_each_value_with_its_source() {
    let folder = folder();
    std::fs::create_dir(folder.path().join("herder")).expect("made");
    std::fs::write(folder.path().join("herder/config.toml"), "[supervisor]\ngrace_s = 1\n").expect("written");
    std::fs::write(folder.path().join("team.toml"), "[supervisor]\ndrain_s = 2\n").expect("written");
    let variables = [("HERDER_SUPERVISOR__MAX_LIVE_RUNS", "3")];
    let arguments = ["--config", "team.toml", "config", "--policy", "trusted"];
    let shown = herder(folder.path(), &variables, &arguments);
    assert_eq!((shown.code, shown.stderr.as_str()), (Some(0), ""));
    let user = folder.path().join("herder/config.toml");
    for line in [
        "max_live_runs = 3  # HERDER_SUPERVISOR__MAX_LIVE_RUNS".to_owned(),
        "drain_s = 2  # team.toml:2".to_owned(),
        format!("grace_s = 1  # {}:2", user.display()),
        "policy = \"trusted\"  # --policy".to_owned(),
        "restart = \"on-failure\"  # built in".to_owned(),
    ] {
        assert!(shown.stdout.lines().any(|shown| shown == line), "{line:?} is not in\n{}", shown.stdout);
    }
}

#[test]
fn config_as_json_is_one_value() {
    let folder = folder();
    let shown = herder(folder.path(), &[], &["config", "--json"]);
    let value: serde_json::Value = serde_json::from_str(&shown.stdout).expect("JSON");
    assert_eq!(value["config"]["supervisor"]["max_live_runs"], 100);
    assert_eq!(value["sources"]["supervisor.max_live_runs"], "built in");
}

#[test]
fn a_mistake_in_the_configuration_ends_any_command_with_one_sentence() {
    let folder = folder();
    std::fs::write(folder.path().join("bad.toml"), "[supervisor]\nmax_live_runs = 0\n").expect("written");
    let refused = herder(folder.path(), &[], &["config", "--config", "bad.toml"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(2), ""));
    assert_eq!(
        refused.stderr,
        "herder: bad.toml:2: supervisor.max_live_runs: invalid value: integer '0', expected a whole number, 1 or more, \
         or \"auto\", or \"MIN-START-MAX\" as \"2-20-200\"\n"
    );
    let missing = herder(folder.path(), &[], &["ls", "--config", "none.toml"]);
    assert_eq!(missing.code, Some(2));
    assert_eq!(missing.stderr, "herder: none.toml: cannot be read: No such file or directory (os error 2)\n");
    let log = herder(folder.path(), &[("HERDER_LOG", "herder=loud")], &["config"]);
    assert_eq!(log.code, Some(2));
}

#[test]
fn a_wrong_flag_ends_with_two_and_help_with_nought() {
    let folder = folder();
    assert_eq!(herder(folder.path(), &[], &["batch", "--fast"]).code, Some(2));
    assert_eq!(herder(folder.path(), &[], &[]).code, Some(2));
    let help = herder(folder.path(), &[], &["batch", "--help"]);
    assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""));
    assert!(help.stdout.contains("EXIT CODES"));
}

#[test]
fn completions_are_there_for_the_usual_shells() {
    let folder = folder();
    for shell in ["bash", "zsh", "fish"] {
        let script = herder(folder.path(), &[], &["completions", shell]);
        assert_eq!(script.code, Some(0));
        assert!(script.stdout.contains("restart-stale"), "{shell}");
    }
}

#[test]
fn a_reader_that_has_gone_away_is_no_fault() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let ended = std::process::Command::new(cargo_bin!("herder"))
        .args(["completions", "bash"])
        .stdout(writer)
        .stderr(std::process::Stdio::piped())
        .spawn()
        .and_then(std::process::Child::wait_with_output)
        .expect("ends");
    assert_eq!((ended.status.code(), String::from_utf8_lossy(&ended.stderr).as_ref()), (Some(0), ""));
}
