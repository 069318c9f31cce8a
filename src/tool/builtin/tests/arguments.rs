//! What a model is told of the tools, and which arguments they take.

use serde_json::json;

use super::*;

/// Why a call is refused before it is queued, if it is.
fn refusal(bench: &Bench, name: &str, arguments: &Value) -> Option<String> {
    let offered: Vec<_> = bench.toolbox.names().cloned().collect();
    match bench.toolbox.check(&offered, name, arguments) {
        Ok(tool) => tool.access(&bench.workspace, arguments).err(),
        Err((failure, why)) => {
            assert_eq!(failure, Failure::InvalidArguments);
            Some(why)
        }
    }
}

#[test]
fn every_documented_form_of_arguments_is_taken() {
    let bench = Bench::new();
    bench.file("a.txt", "a");
    let path = "a.txt";
    for (name, arguments) in [
        ("read", json!({"path": path})),
        ("read", json!({"path": path, "offset": 1, "limit": 20})),
        ("list", json!({})),
        ("list", json!({"path": "."})),
        ("grep", json!({"pattern": "a"})),
        (
            "grep",
            json!({"pattern": "a", "path": path, "glob": "*.txt", "literal": true, "ignore_case": true, "context": 2}),
        ),
        ("edit", json!({"path": path, "edits": [{"old_text": "a", "new_text": "b"}]})),
        ("edit", json!({"path": path, "edits": [{"oldText": "a", "newText": "b"}]})),
        ("edit", json!({"path": path, "old_text": "a", "new_text": "b"})),
        ("edit", json!({"path": path, "oldText": "a", "newText": ""})),
        ("write", json!({"path": path, "content": ""})),
        ("bash", json!({"command": "true"})),
        ("bash", json!({"command": "true", "timeout_s": 5})),
    ] {
        assert_eq!(refusal(&bench, name, &arguments), None, "{name} {arguments}");
    }
}

#[test]
fn other_arguments_are_refused_with_what_is_wrong() {
    let bench = Bench::new();
    let both =
        json!({"path": "a", "edits": [{"old_text": "a", "new_text": "b"}], "old_text": "a", "new_text": "b"});
    for (name, arguments, why) in [
        ("read", json!({}), "invalid arguments for read:\n- arguments: \"path\" is a required property"),
        (
            "read",
            json!({"path": "a", "lines": 3}),
            "invalid arguments for read:\n- arguments: Additional properties are not allowed ('lines' was unexpected)",
        ),
        (
            "read",
            json!({"path": "a", "offset": 0}),
            "invalid arguments for read:\n- /offset: 0 is less than the minimum of 1",
        ),
        ("list", json!({"path": 3}), "invalid arguments for list:\n- /path: 3 is not of type \"string\""),
        (
            "grep",
            json!({"pattern": "a", "context": 21}),
            "invalid arguments for grep:\n- /context: 21 is greater than the maximum of 20",
        ),
        ("edit", json!({"path": "a"}), "invalid arguments for edit: edits is missing"),
        (
            "edit",
            json!({"path": "a", "edits": []}),
            "invalid arguments for edit:\n- /edits: [] has less than 1 item",
        ),
        ("edit", json!({"path": "a", "old_text": "a"}), "invalid arguments for edit: new_text is missing"),
        ("edit", json!({"path": "a", "newText": "a"}), "invalid arguments for edit: old_text is missing"),
        (
            "edit",
            json!({"path": "a", "edits": [{"old_text": "a"}]}),
            "invalid arguments for edit: missing field `new_text`",
        ),
        (
            "edit",
            json!({"path": "a", "old_text": "a", "oldText": "b", "new_text": "c"}),
            "invalid arguments for edit: duplicate field `old_text`",
        ),
        ("edit", both, "invalid arguments for edit: give either edits, or old_text and new_text, not both"),
        (
            "edit",
            json!({"path": "a", "old_text": "a", "new_text": "b", "replace_all": true}),
            "invalid arguments for edit:\n- arguments: Additional properties are not allowed ('replace_all' was unexpected)",
        ),
        (
            "write",
            json!({"path": "a"}),
            "invalid arguments for write:\n- arguments: \"content\" is a required property",
        ),
    ] {
        assert_eq!(refusal(&bench, name, &arguments).as_deref(), Some(why), "{name} {arguments}");
    }
}

#[test]
fn no_schema_has_alternatives_at_its_top() {
    for tool in builtin(options()) {
        let ToolSpec { name, schema, .. } = tool.spec();
        for refused_by_providers in ["oneOf", "anyOf", "allOf", "not", "enum"] {
            assert_eq!(schema.get(refused_by_providers), None, "{name}");
        }
        assert_eq!(schema.get("additionalProperties"), Some(&json!(false)), "{name}");
    }
}

#[test]
fn what_a_model_is_told_stays_what_it_was() {
    let mut told = String::new();
    for tool in builtin(options()) {
        let ToolSpec { name, description, schema } = tool.spec();
        let schema = serde_json::to_string_pretty(schema).unwrap();
        told.push_str(&format!("{name}: {description}\n{schema}\n\n"));
    }
    insta::assert_snapshot!(told);
}
