//! What a line may be, and what is said of one that is wrong.

use super::*;

fn mistakes(text: &str) -> Vec<String> {
    TaskLine::parse(text, 7).expect_err("refused").iter().map(ToString::to_string).collect()
}

#[test]
fn a_line_is_read_with_every_key_and_by_either_spelling() {
    let text = r#"{"custom_id": "a", "prompt": "Do it.", "model": "m", "system": "s", "workspace": "w",
        "tools": ["read"], "limits": {"max_turns": 3}, "facts": {"k": "v"}, "priority": -1, "labels": {"l": "1"},
        "meta": {"b": 1,  "a": 2}, "params": {"seed": 1}, "script": [{"text": "hi"}]}"#;
    let line = TaskLine::parse(text, 1).expect("read");
    assert_eq!((&*line.id, &*line.task), ("a", "Do it."));
    assert_eq!(line.limits.max_turns, Some(3));
    assert_eq!(line.meta.map(|meta| meta.0.get().to_owned()).as_deref(), Some(r#"{"b": 1,  "a": 2}"#));
    assert_eq!(line.params.and_then(|params| params.seed), Some(1));
    assert!(matches!(line.script, Some(ScriptSource::Inline(script)) if script.0.len() == 1));
    let short =
        TaskLine::parse(r#"{"id": "b", "task": "x", "script": "s.json", "model": null}"#, 1).expect("read");
    assert_eq!((short.script, short.model), (Some(ScriptSource::File("s.json".to_owned())), None));
}

#[test]
fn a_line_without_an_id_is_named_by_its_place() {
    let line = TaskLine::parse(r#"{"task": "x"}"#, 7).expect("read");
    assert_eq!(&*line.id, "line-7");
}

#[test]
fn an_id_is_text_and_not_empty() {
    assert_eq!(mistakes(r#"{"id": 7, "task": "x"}"#), [r#"id: is a number; want text, as "7""#]);
    let empty = "id: is empty; want text that names the task, or no id at all";
    assert_eq!(mistakes(r#"{"id": "", "task": "x"}"#), [empty]);
    assert_eq!(mistakes(r#"{"id": " ", "task": "x"}"#), [empty]);
    assert!(mistakes("{\"id\": \"a\\n\", \"task\": \"x\"}")[0].contains("control character"));
}

#[test]
fn every_mistake_of_a_line_is_told_at_once() {
    assert_eq!(
        mistakes(
            r#"{"id": "a", "custom_id": "a", "task": " ", "modle": "m", "colour": 1, "skills": [], "limits": {"turns": 1}}"#
        ),
        [
            "modle: is no key of a task; did you mean \"model\"?",
            "colour: is no key of a task; want one of id, custom_id, task, prompt, model, system, workspace, isolate, \
             tools, limits, facts, priority, labels, meta, params, response_format, on_truncated, stop_on_tool_error, script",
            "skills: is not supported by this version yet; leave it out",
            "custom_id: stands beside \"id\", which means the same; keep one of the two",
            "task: is empty; say what to do",
            "limits.turns: unknown field 'turns', expected one of 'max_turns', 'max_tool_calls', 'max_input_tokens', \
             'max_output_tokens', 'max_total_tokens', 'max_cost_usd', 'max_calls_per_turn', 'max_repeats', 'wall_time_s', 'active_time_s'",
        ]
    );
}

#[test]
fn a_mistake_within_a_value_is_told_with_its_place() {
    let number = "expected a whole number, 0 or more";
    assert_eq!(
        mistakes(
            r#"{"task": "x", "limits": {"max_turns": -1, "max_tool_calls": 2, "wall_time_s": 0.5}, "facts": {"a": 1},
                "params": {"seed": "s"}, "script": [{"text": "x"}, {"usage": {"input": -1}}, 7]}"#
        ),
        [
            format!("limits.max_turns: invalid value: integer '-1', {number}"),
            format!("limits.wall_time_s: invalid type: floating point '0.5', {number}"),
            "facts.a: invalid type: integer '1', expected a string".to_owned(),
            "params.seed: invalid type: string \"s\", expected a whole number".to_owned(),
            format!("script[1].usage: invalid value: integer '-1', {number}"),
            "script[2]: invalid type: integer '7', expected an object".to_owned(),
        ]
    );
    assert_eq!(
        mistakes(r#"{"task": "x", "limits": {"max_cost_usd": "a"}, "params": {"temperature": "b"}}"#),
        [
            "limits.max_cost_usd: invalid type: string \"a\", expected a number of US dollars",
            "params.temperature: invalid type: string \"b\", expected a number",
        ]
    );
    assert_eq!(mistakes(r#"{"task": {"a": 1}}"#), ["task: invalid type: map, expected a string"]);
}

#[test]
fn a_key_that_is_there_twice_is_refused() {
    assert_eq!(mistakes(r#"{"task": "x", "task": "y"}"#), ["task: is there twice; keep one of the two"]);
}

#[test]
fn text_that_is_no_object_is_refused_with_its_column() {
    let want = "want one JSON object, as {\"id\": \"a\", \"task\": \"...\"}";
    assert_eq!(
        mistakes(r#"{"id":"b","prompt":"#),
        [format!("not JSON at column 19: EOF while parsing a value; {want}")]
    );
    assert_eq!(mistakes("[1]"), [format!("invalid type: sequence, expected an object; {want}")]);
    assert!(mistakes(r#"{"task": "x"} {}"#)[0].starts_with("not JSON at column 15: trailing characters"));
}
