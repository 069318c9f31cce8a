//! Input, policies and configuration that are not right: told in a sentence each, and nothing is run or changed.

use std::io::{BufWriter, Write};

use serde_json::json;

use crate::support::{Ended, Place, field, says, sorted};

/// Runs a batch over `in.jsonl` that is to be refused: one sentence on stderr, and nothing else anywhere.
#[track_caller]
fn refused(place: &Place, more: &[&str], told: &[&str]) {
    let before = place.names();
    let ended = place.herder(&[&["batch", "in.jsonl", "-o", "out.jsonl"], more].concat()).expect(2);
    assert_eq!(ended.err.lines().collect::<Vec<_>>(), told);
    assert_eq!((ended.out.as_str(), place.names()), ("", before));
}

#[test]
fn every_mistake_of_an_input_is_told_with_its_line_and_field() {
    let place = Place::new();
    let good = says("good", "x");
    place.write("bad.json", "[\n  {\"text\": 1}\n]\n");
    let lines = [
        good.to_string(),
        r#"{"id": "b", "task":"#.to_owned(),
        r#"{"id": "c", "task": "x", "wrkspace": "y", "script": []}"#.to_owned(),
        r#"{"id": "good", "task": "x", "script": []}"#.to_owned(),
        r#"{"id": "", "task": "x", "script": []}"#.to_owned(),
        r#"{"id": 7, "task": "x", "script": []}"#.to_owned(),
        r#"{"id": "g", "task": " ", "script": []}"#.to_owned(),
        r#"{"id": "h", "task": "x", "workspace": "nowhere", "script": []}"#.to_owned(),
        r#"{"id": "i", "task": "x", "script": "nowhere.json"}"#.to_owned(),
        r#"{"id": "j", "task": "x", "script": "bad.json"}"#.to_owned(),
        r#"{"id": "k", "task": "x", "script": [{"txt": "x"}]}"#.to_owned(),
        r#"{"id": "l", "task": "x", "tools": ["reed"], "script": []}"#.to_owned(),
        r#"{"id": "m", "task": "x", "model": "clever"}"#.to_owned(),
        r#"{"id": "n", "task": "x"}"#.to_owned(),
        r#"{"id": "o", "task": "x", "limits": {"max_turns": 0.5}, "script": []}"#.to_owned(),
        r#"{"id": "p", "task": "x", "skills": ["y"], "script": []}"#.to_owned(),
        r#"{"id": "q", "task": "x", "script": {"text": "x"}}"#.to_owned(),
        r#"{"id": "r", "task": "x", "script": [{"fault": "boom"}]}"#.to_owned(),
    ];
    place.write("in.jsonl", lines.join("\n"));
    refused(
        &place,
        &[],
        &[
            "herder: in.jsonl:2: not JSON at column 19: EOF while parsing a value; want one JSON object, as {\"id\": \
             \"a\", \"task\": \"...\"}",
            "herder: in.jsonl:3: wrkspace: is no key of a task; did you mean \"workspace\"?",
            "herder: in.jsonl:4: id: \"good\" is the id of line 1 too; give each task an id of its own",
            "herder: in.jsonl:5: id: is empty; want text that names the task, or no id at all",
            "herder: in.jsonl:6: id: is a number; want text, as \"7\"",
            "herder: in.jsonl:7: task: is empty; say what to do",
            "herder: in.jsonl:8: workspace: ./nowhere does not exist; create the folder, or name another",
            "herder: in.jsonl:9: script: ./nowhere.json cannot be read: No such file or directory (os error 2)",
            "herder: in.jsonl:10: script: ./bad.json:2:12: invalid type: integer '1', expected a string; want a JSON \
             list of replies",
            "herder: in.jsonl:11: script[0].txt: unknown field 'txt', expected one of 'content', 'text', 'reasoning', 'calls', \
             'toolCalls', 'stop', 'usage', 'delay_ms', 'chunks', 'fault'",
            "herder: in.jsonl:12: tools: there is no tool \"reed\"; want some of bash, edit, grep, list, read, write",
            "herder: in.jsonl:13: model: no model is called \"clever\"; want scripted:NAME, anthropic:NAME, \
             deepseek:NAME, groq:NAME, mistral:NAME, openai:NAME, openrouter:NAME, responses:NAME, or a [models.NAME] table of the configuration (there are none)",
            "herder: in.jsonl:14: model: is missing; name one here, by --model or in [defaults]",
            "herder: in.jsonl:15: limits.max_turns: invalid type: floating point '0.5', expected a whole number, 0 or more",
            "herder: in.jsonl:16: skills: is not supported by this version yet; leave it out",
            "herder: in.jsonl:17: script: is neither a list of replies nor the path of a file with one",
            "herder: in.jsonl:18: script[0].fault: a fault is \"stall\", \"drop\" or {\"status\": 503}",
        ],
    );
}

#[test]
fn a_mistake_leaves_an_earlier_batch_as_it_is() {
    let place = Place::new();
    place.tasks("in.jsonl", &[says("a", "x")]);
    place.herder(&["batch", "in.jsonl", "-o", "out.jsonl"]).expect(0);
    let (out, events) = (place.read("out.jsonl"), place.events("out.jsonl.state").len());
    place.write("in.jsonl", format!("{}\n{{\"id\": \"b\"}}\n", says("a", "x")));
    refused(&place, &[], &["herder: in.jsonl:2: task: is missing; say what to do"]);
    assert_eq!((place.read("out.jsonl"), place.events("out.jsonl.state").len()), (out, events));
}

#[test]
fn blank_lines_count_as_lines_and_a_last_line_needs_no_end() {
    let place = Place::new();
    let says = |id: &str| says(id, "x").to_string();
    place.write("in.jsonl", format!("{}\n\n   \n{{\"id\": \"b\", \"task\":\n{}", says("a"), says("a")));
    refused(
        &place,
        &[],
        &[
            "herder: in.jsonl:4: not JSON at column 19: EOF while parsing a value; want one JSON object, as {\"id\": \
             \"a\", \"task\": \"...\"}",
            "herder: in.jsonl:5: id: \"a\" is the id of line 1 too; give each task an id of its own",
        ],
    );
}

#[test]
fn many_mistakes_are_counted_after_the_first_twenty() {
    let place = Place::new();
    place.write("in.jsonl", "{}\n".repeat(50));
    let ended = place.herder(&["batch", "in.jsonl", "-o", "out.jsonl"]).expect(2);
    let lines: Vec<&str> = ended.err.lines().collect();
    assert_eq!((lines.len(), lines[20]), (21, "herder: and 30 more"));
}

#[test]
fn an_input_that_holds_nothing_or_is_none_is_told() {
    let place = Place::new();
    place.write("in.jsonl", "\n  \n");
    refused(&place, &[], &["herder: in.jsonl: has no tasks; want one JSON object a line"]);
    place.write("in.jsonl", b"{\"id\": \"a\", \"task\": \"\xff\"}\n");
    refused(&place, &[], &["herder: in.jsonl:1: not UTF-8 at byte 22 of the line; save the input as UTF-8"]);
    let ended = place.herder(&["batch", "nowhere.jsonl", "-o", "out.jsonl"]).expect(2);
    assert_eq!(ended.err, "herder: nowhere.jsonl: cannot be read: No such file or directory (os error 2)\n");
    assert_eq!(place.names(), ["in.jsonl", "work"]);
}

#[test]
fn a_policy_that_is_none_is_told_with_its_line() {
    let place = Place::new();
    place.tasks("in.jsonl", &[says("a", "x")]);
    let rule = "name = \"p\"\n\n[[rule]]\ntools = [\"read\"]\ndecision = \"allow\"\n\n[[rule]]\n";
    place.write("tool.toml", format!("{rule}tools = [\"reed\"]\ndecision = \"deny\"\n"));
    place.write("key.toml", format!("{rule}tool = [\"read\"]\ndecision = \"deny\"\n"));
    place.write("word.toml", format!("{rule}decision = \"perhaps\"\n"));
    for (policy, told) in [
        (
            "tool.toml",
            "tool.toml:7: tools: rule 2 names the tool \"reed\", which does not exist; the tools are: bash, edit, \
             grep, list, read, write",
        ),
        (
            "key.toml",
            "key.toml:8: unknown field 'tool', expected one of 'tools', 'effect', 'path', 'command', 'redirections', \
             'args', 'decision', 'reason'",
        ),
        (
            "word.toml",
            "word.toml:8: decision: unknown variant 'perhaps', expected one of 'allow', 'ask', 'deny'",
        ),
        (
            "lenient",
            "there is no policy \"lenient\": the built-in ones are read-only, edit-workspace, careful, trusted, \
             anything else is a file",
        ),
        ("no.toml", "policy file \"no.toml\" cannot be read: No such file or directory (os error 2)"),
    ] {
        let told = format!("herder: {told}");
        refused(&place, &["--policy", policy], &[&told]);
        refused(&place, &["--policy", policy, "--dry-run"], &[&told]);
    }
}

#[test]
fn a_tool_of_the_configuration_that_is_none_is_told_with_its_line() {
    let place = Place::new();
    place.tasks("in.jsonl", &[says("a", "x")]);
    let tool = |name: &str, rest: &str| format!("[command_tools.{name}]\ndescription = \"d\"\n{rest}\n");
    let command = "command = [\"x\"]\nschema = ";
    for (text, told) in [
        (
            tool("t", &format!("{command}{{ type = \"string\" }}")),
            "c.toml:4: command_tools.t: schema: must describe an object, with \"type\": \"object\"",
        ),
        (
            tool("t", &format!("{command}{{ type = \"object\", required = 5 }}")),
            "c.toml:4: command_tools.t: schema: not a JSON Schema: 5 is not of type \"array\"",
        ),
        (
            tool("read", &format!("{command}{{ type = \"object\" }}")),
            "c.toml:4: command_tools.read: the name \"read\" is taken by another tool",
        ),
        (
            tool("t", "comand = [\"x\"]\nschema = { type = \"object\" }"),
            "c.toml:3: command_tools.t.comand: unknown field 'comand', expected one of 'description', 'command', \
             'schema', 'effect', 'read_only', 'network', 'timeout_s'",
        ),
    ] {
        place.write("c.toml", text);
        refused(&place, &["--config", "c.toml"], &[&format!("herder: {told}")]);
    }
}

#[test]
fn a_flag_that_names_nothing_is_told() {
    let place = Place::new();
    place.tasks("in.jsonl", &[json!({"id": "a", "task": "x", "workspace": "work"})]);
    let unknown = "herder: model: no model is called \"clever\"; want scripted:NAME, anthropic:NAME, \
                   deepseek:NAME, groq:NAME, mistral:NAME, openai:NAME, openrouter:NAME, responses:NAME, or a [models.NAME] table of the configuration (there are none) (a default, of --model or [defaults])";
    refused(&place, &["--model", "clever"], &[unknown]);
    let keyless = "herder: model \"openai:gpt-5\": there is no key for https://api.openai.com/v1; set OPENAI_API_KEY, \
                   or OPENAI_BASE_URL if another server is meant";
    refused(&place, &["--model", "openai:gpt-5"], &[keyless]);

    place.tasks("in.jsonl", &[says("a", "x")]);
    let only = "herder: --only: no task has the id \"z\"; want an id of the input";
    refused(&place, &["--only", "z"], &[only]);
    for wrong in [["--halt", "later"], ["-j", "0"], ["--timeout", "soon"], ["--metrics", "here"]] {
        let ended = place.herder(&[&["batch", "in.jsonl", "-o", "out.jsonl"], &wrong[..]].concat()).expect(2);
        assert!(ended.err.contains(&format!("invalid value '{}'", wrong[1])), "{}", ended.err);
    }
    assert_eq!(place.names(), ["in.jsonl", "work"]);
}

#[test]
fn an_output_that_cannot_be_is_told_before_anything_runs() {
    let place = Place::new();
    place.tasks("in.jsonl", &[says("a", "x")]);
    for (out, told) in [
        ("work", "herder: work: is a folder; name a file for the results\n"),
        (
            "nowhere/out.jsonl",
            "herder: nowhere/out.jsonl: its folder does not exist; create it, or name a file in another\n",
        ),
    ] {
        let ended = place.herder(&["batch", "in.jsonl", "-o", out, "--state", "state"]).expect(2);
        assert_eq!(ended.err, told);
    }
    assert_eq!(place.names(), ["in.jsonl", "work"]);
}

#[test]
fn what_is_no_file_of_results_is_not_replaced() {
    let place = Place::new();
    place.tasks("in.jsonl", &[says("a", "x")]);
    let pipe = place.path("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let ended = place.herder(&["batch", "in.jsonl", "-o", "pipe"]).expect(2);
    assert_eq!(ended.err, "herder: pipe: is no regular file; name one, or - for stdout\n");
    let input = place.read("in.jsonl");
    let ended = place.herder(&["batch", "in.jsonl", "-o", "./in.jsonl"]).expect(2);
    assert_eq!(ended.err, "herder: in.jsonl: is the input; name another file for the results\n");
    assert_eq!(
        (place.read("in.jsonl"), place.names()),
        (input, ["in.jsonl", "pipe", "work"].map(str::to_owned).to_vec())
    );
}

#[test]
fn a_link_to_the_results_stays_a_link() {
    let place = Place::new();
    place.tasks("in.jsonl", &[says("a", "x")]);
    place.write("work/real.jsonl", "");
    std::os::unix::fs::symlink("work/real.jsonl", place.path("out.jsonl")).unwrap();
    for _ in 0..2 {
        place.herder(&["batch", "in.jsonl", "-o", "out.jsonl"]).expect(0);
        assert!(place.path("out.jsonl").is_symlink());
        assert_eq!(place.results("work/real.jsonl").len(), 1);
    }
}

fn ids(ended: Ended) -> Vec<String> {
    let lines = ended.expect(0).json();
    sorted(field(&lines, "id")).into_iter().map(str::to_owned).collect()
}

#[test]
fn a_byte_order_mark_line_ends_of_windows_and_blank_lines_are_fine() {
    let place = Place::new();
    let (a, b) = (says("a", "1"), json!({"prompt": "2", "custom_id": "b", "script": [{"text": "x"}]}));
    place.write("in.jsonl", format!("\u{feff}{a}\r\n\r\n   \r\n{b}"));
    assert_eq!(ids(place.herder(&["batch", "in.jsonl"])), ["a", "b"]);
    place.write("in.jsonl", format!("\n{}\n", json!({"task": "2", "script": [{"text": "x"}]})));
    assert_eq!(ids(place.herder(&["batch", "in.jsonl"])), ["line-2"]);
}

#[test]
fn tasks_can_come_from_stdin() {
    let place = Place::new();
    place.tasks("in.jsonl", &[says("a", "x")]);
    let mut command = place.command(&["batch", "-"]);
    command.stdin(std::fs::File::open(place.path("in.jsonl")).unwrap());
    assert_eq!(ids(Ended::of(&command.output().unwrap())), ["a"]);
}

#[test]
fn a_line_of_a_hundred_megabytes_is_read() {
    let place = Place::new();
    let mut file = BufWriter::new(std::fs::File::create(place.path("in.jsonl")).unwrap());
    write!(file, r#"{{"id": "big", "script": [{{"text": "x"}}], "workspace": "work", "task": ""#).unwrap();
    let part = "word ".repeat(200_000);
    for _ in 0..100 {
        file.write_all(part.as_bytes()).unwrap();
    }
    writeln!(file, "\"}}").unwrap();
    writeln!(file, "{}", says("small", "x")).unwrap();
    file.into_inner().unwrap();
    assert_eq!(ids(place.herder(&["batch", "in.jsonl"])), ["big", "small"]);
}
