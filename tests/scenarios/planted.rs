//! What runs do to the files of the batch that they are of: links that they plant lead herder nowhere, and what the same
//! command reads again is not theirs to change.

use std::{fs, path::Path};

use serde_json::json;
use tempfile::TempDir;

use crate::support::{Place, call, task};

const BATCH: [&str; 6] = ["batch", "in.jsonl", "-o", "out.jsonl", "--policy", "trusted"];

/// A place whose task works around the results and runs these commands, one after the other.
fn place(commands: &[String]) -> Place {
    let place = Place::new();
    let calls = commands.iter().map(|command| call("bash", json!({"command": command})));
    let script: Vec<_> = calls.chain([json!({"text": "ready"})]).collect();
    let mut line = task("a", script.into());
    line["workspace"] = place.path("").to_str().unwrap().into();
    place.tasks("in.jsonl", &[line]);
    place
}

fn precious(outside: &TempDir) -> String {
    fs::write(outside.path().join("precious"), "kept\n").unwrap();
    outside.path().join("precious").to_str().unwrap().to_owned()
}

fn kept(file: impl AsRef<Path>) -> bool {
    fs::read_to_string(file).unwrap() == "kept\n"
}

#[test]
fn a_link_where_the_results_are_made_is_replaced() {
    let outside = TempDir::new().unwrap();
    let file = precious(&outside);
    let place = place(&[format!("ln -s {file} out.jsonl.new")]);
    place.herder(&BATCH).expect(0);
    assert!(place.path("out.jsonl.new").is_symlink());
    place.herder(&BATCH).expect(0);
    assert!(kept(&file) && !place.path("out.jsonl.new").is_symlink());
    assert_eq!(place.results("out.jsonl").len(), 1);
}

#[test]
fn results_that_a_run_led_elsewhere_are_not_written() {
    let outside = TempDir::new().unwrap();
    let file = precious(&outside);
    let place = place(&[format!("ln -sf {file} out.jsonl")]);
    place.herder(&BATCH).expect(0);
    let told = place.herder(&BATCH).expect(4).err;
    assert!(told.contains("out.jsonl: leads to ") && told.contains("name that file itself"), "{told}");
    assert!(kept(&file));
}

#[test]
fn an_output_that_is_too_long_is_not_saved_through_a_link() {
    let outside = TempDir::new().unwrap();
    let place = place(&[
        format!("rm -rf out.jsonl.state/spill; ln -s {} out.jsonl.state/spill", outside.path().display()),
        "seq 200000".to_owned(),
    ]);
    place.herder(&BATCH).expect(0);
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    let told = place.herder(&BATCH).expect(2).err;
    assert!(told.contains(r#"its "spill" is a link"#), "{told}");
}

#[test]
fn a_link_that_a_person_made_is_followed_every_time() {
    let place = place(&["true".to_owned()]);
    fs::create_dir(place.path("kept")).unwrap();
    place.write("kept/results", "");
    std::os::unix::fs::symlink("kept/results", place.path("out.jsonl")).unwrap();
    for _ in 0..2 {
        place.herder(&BATCH).expect(0);
        assert!(place.path("out.jsonl").is_symlink());
        assert_eq!(place.results("kept/results").len(), 1);
    }
}

#[test]
fn tools_on_files_do_not_change_what_the_same_command_reads_again() {
    let place = Place::new();
    place.write("rules.toml", "name = \"all\"\n\n[[rule]]\ndecision = \"allow\"\n");
    place.write("herder.toml", "");
    let names = ["rules.toml", "herder.toml", "in.jsonl", "other.txt"];
    let calls: Vec<_> = names
        .iter()
        .map(|name| json!({"name": "write", "arguments": {"path": name, "content": "changed"}}))
        .collect();
    let mut line = task("a", json!([{"calls": calls}, {"text": "ready"}]));
    line["workspace"] = place.path("").to_str().unwrap().into();
    place.tasks("in.jsonl", &[line]);
    place
        .herder(&[
            "--config",
            "herder.toml",
            "batch",
            "in.jsonl",
            "-o",
            "out.jsonl",
            "--policy",
            "rules.toml",
        ])
        .expect(0);
    assert_eq!(names.map(|name| place.read(name) == "changed"), [false, false, false, true]);
}
