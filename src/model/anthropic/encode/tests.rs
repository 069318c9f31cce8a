//! Requests, field by field.

use std::sync::Arc;

use serde_json::{json, value::to_raw_value};

use super::*;
use crate::domain::{
    call::{Arguments, ToolCall, ToolResult},
    id::CallId,
    json::RawJson,
    message::{Kept, Reply},
    outcome::Stop,
    task::{AnswerSchema, Params, ResponseFormat},
};

fn encoded(request: &Request, prompt_cache: bool) -> Value {
    serde_json::from_slice(&body(request, prompt_cache, &Map::new()).unwrap()).unwrap()
}

fn messages(messages: Vec<Message>) -> Value {
    encoded(&Request::new("m".into(), messages), false)["messages"].take()
}

fn call(id: &str, name: &str, arguments: &str) -> ToolCall {
    ToolCall {
        id: CallId::new(id),
        provider_id: None,
        name: name.into(),
        arguments: Arguments::parse(arguments).unwrap(),
    }
}

fn says(text: &str, calls: Vec<ToolCall>) -> Reply {
    Reply { text: text.into(), reasoning: Some("hm".into()), calls, ..Reply::new(Stop::EndTurn) }
}

fn assistant(text: &str, calls: Vec<ToolCall>) -> Message {
    Message::Assistant(Arc::new(says(text, calls)))
}

fn thinks(model: &str, text: &str, calls: Vec<ToolCall>) -> Message {
    let blocks = [
        json!({"type": "thinking", "thinking": "hm", "signature": "s"}),
        json!({"type": "redacted_thinking", "data": "x"}),
    ];
    let blocks = blocks.iter().map(|block| RawJson(to_raw_value(block).unwrap().into())).collect();
    let kept = Some(Kept { model: model.into(), blocks });
    Message::Assistant(Arc::new(Reply { kept, ..says(text, calls) }))
}

fn result(id: &str, ok: bool, output: &str) -> Message {
    Message::Tool(Arc::new(ToolResult {
        call: CallId::new(id),
        ok,
        output: output.into(),
        failure: None,
        terminate: false,
        timing: None,
    }))
}

fn user(text: &str) -> Message {
    Message::User(text.into())
}

fn tools() -> Arc<[ToolSpec]> {
    let tool = |name: &str| ToolSpec {
        name: name.into(),
        description: "Does it.".into(),
        schema: Arc::new(json!({"type": "object"})),
    };
    Arc::new([tool("read"), tool("write")])
}

#[test]
fn every_kind_of_message_has_its_place_and_its_form() {
    let request = Request::new(
        "m".into(),
        vec![
            Message::System("rules".into()),
            Message::System("facts".into()),
            user("go"),
            user("now"),
            assistant(
                "Let me look. \n",
                vec![call("c_a", "read", r#"{ "path":"é\n" }"#), call("c.b", "a b", "{}")],
            ),
            result("c.b", false, " \n"),
            result("c_a", true, "text"),
            user("faster"),
            assistant("done\n", Vec::new()),
        ],
    );
    let bytes = body(&request, false, &Map::new()).unwrap();
    assert!(String::from_utf8(bytes.clone()).unwrap().contains(r#""input":{ "path":"é\n" }"#));
    let mut sent: Value = serde_json::from_slice(&bytes).unwrap();
    let given = sent["messages"][1]["content"][2]["id"].take();
    let answered = sent["messages"][2]["content"][0]["tool_use_id"].take();
    assert_eq!(given, answered);
    assert!(given.as_str().unwrap().starts_with("id_"), "{given}");
    let text = |text: &str| json!({"type": "text", "text": text});
    assert_eq!(
        sent,
        json!({
            "model": "m",
            "max_tokens": 8192,
            "system": [text("rules"), text("facts")],
            "messages": [
                {"role": "user", "content": [text("go"), text("now")]},
                {"role": "assistant", "content": [
                    text("Let me look."),
                    {"type": "tool_use", "id": "c_a", "name": "read", "input": {"path": "é\n"}},
                    {"type": "tool_use", "id": null, "name": "a_b", "input": {}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": null, "content": "(no output)", "is_error": true},
                    {"type": "tool_result", "tool_use_id": "c_a", "content": "text"},
                    text("faster"),
                ]},
                {"role": "assistant", "content": [text("done")]},
            ],
            "stream": true,
        })
    );
}

#[test]
fn nothing_blank_is_sent_and_the_user_speaks_first() {
    let go_on = json!({"role": "user", "content": [{"type": "text", "text": "(go on)"}]});
    let says = |role: &str, texts: &[&str]| {
        let blocks: Vec<_> = texts.iter().map(|text| json!({"type": "text", "text": text})).collect();
        json!({"role": role, "content": blocks})
    };
    let table = [
        (vec![], json!([go_on])),
        (vec![user(" ")], json!([go_on])),
        (vec![assistant("hi", Vec::new())], json!([go_on, says("assistant", &["hi"])])),
        (vec![user("a"), assistant("\n\n", Vec::new()), user("b")], json!([says("user", &["a", "b"])])),
        (
            vec![user("a"), thinks("m", " ", Vec::new()), user("\n"), user("b")],
            json!([says("user", &["a", "b"])]),
        ),
        (
            vec![user("a"), assistant("b", Vec::new()), assistant("c", Vec::new())],
            json!([says("user", &["a"]), says("assistant", &["b", "c"])]),
        ),
    ];
    for (said, sent) in table {
        assert_eq!(messages(said), sent);
    }
    let request = Request::new("m".into(), vec![Message::System("  ".into()), user("go")]);
    assert_eq!(encoded(&request, true).get("system"), None);
}

#[test]
fn kept_blocks_come_first_for_the_model_that_made_them_and_for_no_other() {
    let calls = || vec![call("c_a", "read", "{}")];
    let sent = |model| {
        messages(vec![user("go"), thinks(model, "text", calls()), result("c_a", true, "x")])[1].take()
    };
    let kinds = |message: &Value| {
        let blocks = message["content"].as_array().unwrap().iter();
        blocks.map(|block| block["type"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(kinds(&sent("m")), ["thinking", "redacted_thinking", "text", "tool_use"]);
    assert_eq!(kinds(&sent("other")), ["text", "tool_use"]);
    assert_eq!(sent("m")["content"][0], json!({"type": "thinking", "thinking": "hm", "signature": "s"}));
}

#[test]
fn thinking_begins_with_the_users_words_or_not_before_the_next() {
    let calls = || vec![call("c_a", "read", "{}")];
    let ended = || vec![user("go"), assistant("a", Vec::new()), user("on")];
    let thought = |model| vec![user("go"), thinks(model, "", calls()), result("c_a", true, "x")];
    let later = || [assistant("", vec![call("c_b", "read", "{}")]), result("c_b", true, "x")];
    let table = [
        ("at first", vec![user("go")], true),
        ("after an answer without a thought", ended(), true),
        ("in the middle of calls that came of a thought", thought("m"), true),
        ("after more calls that came of it", [thought("m"), later().to_vec()].concat(), true),
        ("in the middle of another model's calls", thought("other"), false),
        ("though the user speaks beside the results", [thought("other"), vec![user("on")]].concat(), false),
        ("after an answer of its own", vec![user("go"), thinks("m", "a", Vec::new())], false),
    ];
    for (what, messages, expected) in table {
        let params = Params { reasoning_effort: Some("low".to_owned()), ..Params::default() };
        let sent = encoded(&Request { params, ..Request::new("m".into(), messages) }, false);
        let thinking = json!({"type": "enabled", "budget_tokens": 2048});
        assert_eq!(sent.get("thinking"), Some(&thinking).filter(|_| expected), "{what}");
    }
}

#[test]
fn tools_and_parameters_are_sent_where_there_are_any() {
    let params = Params {
        temperature: Some(0.5),
        top_p: Some(0.9),
        max_tokens: Some(100),
        seed: Some(-1),
        reasoning_effort: None,
        tool_choice: Some(json!("required")),
    };
    let without = Request { params, ..Request::new("m".into(), vec![user("go")]) };
    let with = Request { tools: tools(), ..without.clone() };
    let tool =
        |name: &str| json!({"name": name, "description": "Does it.", "input_schema": {"type": "object"}});
    let mut expected = json!({
        "model": "m",
        "max_tokens": 100,
        "temperature": 0.5,
        "top_p": 0.9,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "go"}]}],
        "stream": true,
    });
    assert_eq!(encoded(&without, false), expected);
    expected["tools"] = json!([tool("read"), tool("write")]);
    expected["tool_choice"] = json!({"type": "any"});
    assert_eq!(encoded(&with, false), expected);
}

#[test]
fn the_form_of_an_answer_is_asked_for_in_the_rules() {
    let schema = Arc::new(json!({"type": "object", "required": ["a"]}));
    let json_schema = AnswerSchema { name: "answer".to_owned(), schema, strict: None };
    for (format, word) in [
        (ResponseFormat::JsonObject, "JSON object"),
        (ResponseFormat::JsonSchema { json_schema }, r#""required":["a"]"#),
    ] {
        let mut request = Request::new("m".into(), vec![Message::System("rules".into()), user("go")]);
        request.response_format = Some(format);
        let system = encoded(&request, false)["system"].take();
        let asked = system[1]["text"].as_str().unwrap();
        assert!(asked.contains("JSON only") && asked.contains(word), "{asked}");
    }
}

#[test]
fn what_the_next_request_repeats_is_marked_three_times_at_most() {
    /// Where the marks are.
    fn marks(value: &Value, path: &str, found: &mut Vec<String>) {
        let mut children: Vec<(String, &Value)> = Vec::new();
        if let Value::Object(map) = value {
            children.extend(map.iter().map(|(key, value)| (key.clone(), value)));
        } else if let Value::Array(list) = value {
            children.extend(list.iter().enumerate().map(|(at, value)| (at.to_string(), value)));
        }
        for (key, child) in children {
            if key == "cache_control" {
                assert_eq!(*child, json!({"type": "ephemeral"}));
                found.push(path.to_owned());
            }
            marks(child, &format!("{path}/{key}"), found);
        }
    }
    let conversation = vec![
        user("go"),
        assistant("", vec![call("c_a", "read", "{}"), call("c_b", "read", "{}")]),
        result("c_a", true, "x"),
        result("c_b", true, "x"),
        assistant("a", Vec::new()),
        user("on"),
    ];
    let marked = |rules: &[Message], prompt_cache| {
        let messages = [rules, &conversation].concat();
        let sent = encoded(&Request { tools: tools(), ..Request::new("m".into(), messages) }, prompt_cache);
        let mut found = Vec::new();
        marks(&sent, "", &mut found);
        found
    };
    let rules = [Message::System("rules".into()), Message::System("facts".into())];
    let turns = ["/messages/2/content/1", "/messages/4/content/0"];
    assert_eq!(marked(&rules, true), [&turns[..], &["/system/1"]].concat());
    assert_eq!(marked(&[], true), [&turns[..], &["/tools/1"]].concat());
    assert_eq!(marked(&rules, false), [""; 0]);
}

#[test]
fn settings_replace_fields_and_take_them_away() {
    let extra = json!({"max_tokens": 7, "system": null, "stream": null, "top_k": 3});
    let request = Request::new("m".into(), vec![Message::System("rules".into()), user("go")]);
    let sent = body(&request, false, extra.as_object().unwrap()).unwrap();
    let sent: Value = serde_json::from_slice(&sent).unwrap();
    let text = json!({"type": "text", "text": "go"});
    let expected =
        json!({"model": "m", "messages": [{"role": "user", "content": [text]}], "max_tokens": 7, "top_k": 3});
    assert_eq!(sent, expected);
}

#[test]
fn parameters_that_mean_nothing_here_are_refused() {
    let request = |params| Request { tools: tools(), params, ..Request::new("m".into(), vec![user("go")]) };
    let refused = |params| body(&request(params), true, &Map::new()).unwrap_err().to_string();
    let effort = Params { reasoning_effort: Some("extreme".to_owned()), ..Params::default() };
    assert!(refused(effort).contains("\"extreme\""));
    let choice = Params { tool_choice: Some(json!("always")), ..Params::default() };
    assert!(refused(choice).contains("\"always\""));
}
