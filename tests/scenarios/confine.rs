//! What commands are kept from, as flags and the configuration say. Where the kernel cannot, there is nothing to see here.

use herder::tool::process::confine::{Files, support};
use serde_json::json;

use crate::support::Place;

const RUN: [&str; 10] =
    ["run", "x", "--script", "script.json", "--state", "runs", "--workspace", "work", "--policy", "trusted"];

fn place(command: &str) -> Place {
    let place = Place::new();
    let script = json!([{"calls": [{"name": "bash", "arguments": {"command": command}}]}, {"text": "Done."}]);
    place.write("script.json", script.to_string());
    place
}

#[test]
fn a_command_writes_outside_its_workspace_only_where_it_is_let() {
    if support().files != Files::All {
        return;
    }
    let place = place("echo x > ../made");
    let made = |more: &[&str]| {
        place.herder(&[&RUN[..], more].concat()).expect(0);
        std::fs::remove_file(place.path("made")).is_ok()
    };
    assert!(!made(&[]) && !made(&["--confine", "require"]));
    assert!(made(&["--confine", "off"]));
    place.write("c.toml", format!("[confine]\nwrite_roots = [{:?}]\n", place.path("").display()));
    assert!(made(&["--config", "c.toml"]));
}

#[test]
fn a_folder_to_write_to_that_is_not_there_is_told_with_its_key() {
    let place = place("true");
    let (there, missing) = (place.path("work"), place.path("missing"));
    place.write(
        "c.toml",
        format!("[confine]\nwrite_roots = [\"{}\", \"{}\"]\n", there.display(), missing.display()),
    );
    let told = place.herder(&[&RUN[..], &["--config", "c.toml"]].concat()).expect(0).err;
    let line = format!(
        "herder: confine.write_roots: {}: it does not exist, so commands cannot write there until it is made",
        missing.display()
    );
    assert_eq!(told.lines().filter(|told| *told == line).count(), 1, "{told}");
    assert!(!told.contains(&there.display().to_string()), "{told}");
    let quiet = place.herder(&[&RUN[..], &["--config", "c.toml", "--confine", "off"]].concat()).expect(0).err;
    assert!(!quiet.contains("write_roots"), "{quiet}");
}

#[test]
fn a_command_has_the_network_unless_it_is_not_to() {
    if !support().network {
        return;
    }
    let place = place("python3 -c 'import socket; socket.socket(socket.AF_INET)' && echo x > had");
    let had = |more: &[&str]| {
        place.herder(&[&RUN[..], more].concat()).expect(0);
        std::fs::remove_file(place.path("work/had")).is_ok()
    };
    assert!(had(&[]) && !had(&["--network", "deny"]));
}

#[test]
fn a_command_can_kill_neither_its_guard_nor_herder() {
    if support().files != Files::All {
        return;
    }
    let script = "herder=$(sed -n 's/^PPid:\\t//p' /proc/$PPID/status); kill -KILL $PPID || kill -KILL $herder || echo x > alive";
    let place = place(script);
    assert_eq!(place.herder(&RUN).expect(0).out, "Done.\n");
    assert!(place.path("work/alive").exists());
}

#[test]
fn a_folder_to_write_to_that_is_no_whole_path_is_refused() {
    let place = place("true");
    place.write("c.toml", "[confine]\nwrite_roots = [\"cache\"]\n");
    let refused = place.herder(&[&RUN[..], &["--config", "c.toml"]].concat()).expect(2);
    assert_eq!(
        refused.err,
        "herder: c.toml:2: confine.write_roots: cache: want a path that begins with / or ~/\n"
    );
}
