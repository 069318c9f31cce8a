//! `herder run` on a terminal asks whoever sits there, and hears what they say.

use std::process::Stdio;

use rexpect::session::{PtySession, spawn_command};
use serde_json::{Value, json};

use crate::support::{Place, call};

const QUESTION: &str = "[q]uit? ";

fn place(replies: &[Value]) -> Place {
    let place = Place::new();
    let script: Vec<Value> = replies.iter().cloned().chain([json!({"text": "All done."})]).collect();
    place.write("script.json", json!(script).to_string());
    place
}

fn terminal(place: &Place, more: &[&str]) -> PtySession {
    let run = ["run", "x", "--script", "script.json", "--state", "runs", "-w", "work", "--policy", "careful"];
    let mut command = place.command(&[&run, more].concat());
    command.stdin(Stdio::inherit());
    spawn_command(command, Some(60_000)).unwrap()
}

fn write(path: &str, content: &str) -> Value {
    call("write", json!({"path": path, "content": content}))
}

fn resolutions(place: &Place) -> Vec<Value> {
    let listed = place.herder(&["approvals", "--all", "--json", "--state", "runs"]).expect(0);
    listed.json().into_iter().map(|approval| approval["resolution"].clone()).collect()
}

#[test]
fn a_person_sees_the_change_and_says_yes_no_or_always() {
    let long = "line\n".repeat(60);
    let place =
        place(&[write("a.txt", "first\n"), write("b.txt", &long), write("c.txt", "x"), write("c.txt", "y")]);
    let mut terminal = terminal(&place, &[]);
    terminal.exp_string("+first").unwrap();
    terminal.exp_string(QUESTION).unwrap();
    terminal.send_line("perhaps").unwrap();
    terminal.exp_string(QUESTION).unwrap();
    terminal.send_line("y").unwrap();
    terminal.exp_string("lines more").unwrap();
    terminal.exp_string(QUESTION).unwrap();
    terminal.send_line("s").unwrap();
    terminal.exp_string(QUESTION).unwrap();
    terminal.send_line("n").unwrap();
    terminal.exp_string("may be empty)? ").unwrap();
    terminal.send_line("too long").unwrap();
    terminal.exp_string("+x").unwrap();
    terminal.exp_string(QUESTION).unwrap();
    terminal.send_line("a").unwrap();
    terminal.exp_string("All done.").unwrap();
    terminal.exp_eof().unwrap();
    assert_eq!((place.read("work/a.txt"), place.read("work/c.txt")), ("first\n".to_owned(), "y".to_owned()));
    assert!(!place.path("work/b.txt").exists());
    let resolutions = resolutions(&place);
    let how: Vec<_> = resolutions.iter().map(|one| one["how"].as_str().unwrap()).collect();
    assert_eq!(how, ["approved", "rejected", "approved"]);
    assert_eq!(
        (&resolutions[1]["reason"], &resolutions[2]["for_run"]),
        (&json!("too long"), &json!("c.txt"))
    );
    assert!(resolutions.iter().all(|one| one["command_id"].is_string()));
}

#[test]
fn always_is_for_the_same_file_also_where_a_run_has_a_workspace_of_its_own() {
    let place = place(&[write("c.txt", "x"), write("c.txt", "y")]);
    let mut terminal = terminal(&place, &["--isolate", "copy"]);
    terminal.exp_string("+x").unwrap();
    terminal.exp_string(QUESTION).unwrap();
    terminal.send_line("a").unwrap();
    terminal.exp_string("All done.").unwrap();
    terminal.exp_eof().unwrap();
    let resolutions = resolutions(&place);
    assert_eq!((resolutions.len(), &resolutions[0]["for_run"]), (1, &json!("c.txt")));
}

#[test]
fn whoever_quits_or_interrupts_leaves_the_call_undone_and_asked_about() {
    for quit in ["q\n", "\u{3}", "\u{4}"] {
        let place = place(&[write("a.txt", "first\n")]);
        let mut terminal = terminal(&place, &[]);
        terminal.exp_string(QUESTION).unwrap();
        terminal.send(quit).unwrap();
        terminal.flush().unwrap();
        terminal
            .exp_string("the run has not ended; `herder approvals --state runs` says what it waits for")
            .unwrap();
        terminal.exp_eof().unwrap();
        assert!(!place.path("work/a.txt").exists());
        assert_eq!(resolutions(&place), [Value::Null]);
    }
}
