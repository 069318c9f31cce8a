//! What each message, tool and parameter is sent as.

use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::domain::{
    call::{Arguments, ToolResult},
    message::RequestRecord,
    outcome::Stop,
    task::Params,
};

fn encoded(request: &Request, profile: Profile) -> Value {
    serde_json::from_slice(&body(request, profile, &Map::new()).unwrap()).unwrap()
}

fn assistant(text: &str, calls: Vec<ToolCall>) -> Message {
    let reasoning = Some("hm".into());
    Message::Assistant(Arc::new(Reply { text: text.into(), reasoning, calls, ..Reply::new(Stop::EndTurn) }))
}

fn request(messages: Vec<Message>) -> Request {
    Request::new("m".into(), messages)
}

#[test]
fn every_kind_of_message_has_its_form() {
    let call = ToolCall {
        id: CallId::new("c_a"),
        provider_id: Some("dup".into()),
        name: "read".into(),
        arguments: Arguments::parse(r#"{ "path":"é\n" }"#).unwrap(),
    };
    let result = ToolResult {
        call: CallId::new("c_a"),
        ok: false,
        output: "no such file".into(),
        failure: None,
        terminate: false,
        timing: None,
    };
    let request = request(vec![
        Message::System("rules".into()),
        Message::User("go".into()),
        assistant("", vec![call]),
        Message::Tool(Arc::new(result)),
        assistant("done", Vec::new()),
    ]);
    let function = json!({"name": "read", "arguments": "{ \"path\":\"é\\n\" }"});
    let mut expected = json!({
        "model": "m",
        "messages": [
            {"role": "system", "content": "rules"},
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": null, "tool_calls": [{"id": "c_a", "type": "function", "function": function}]},
            {"role": "tool", "tool_call_id": "c_a", "content": "no such file"},
            {"role": "assistant", "content": "done"},
        ],
        "stream": true,
        "stream_options": {"include_usage": true},
    });
    assert_eq!(encoded(&request, Profile::default()), expected);

    expected["messages"][2]["reasoning"] = "hm".into();
    let profile = Profile { reasoning: SendReasoning::AsReasoning, ..Profile::default() };
    assert_eq!(encoded(&request, profile), expected);
}

#[test]
fn tools_and_parameters_are_sent_where_there_are_any() {
    let tool = ToolSpec {
        name: "read".into(),
        description: "Reads.".into(),
        schema: Arc::new(json!({"type": "object", "properties": {}})),
    };
    let params = Params {
        temperature: Some(0.5),
        top_p: Some(0.9),
        max_tokens: Some(100),
        seed: Some(-1),
        reasoning_effort: Some("low".to_owned()),
        tool_choice: Some(json!("auto")),
    };
    let without = Request { params, ..request(Vec::new()) };
    let with = Request { tools: Arc::new([tool]), ..without.clone() };
    let profile = Profile { token_limit: TokenLimit::MaxCompletionTokens, ..Profile::default() };
    let parameters = json!({"type": "object", "properties": {}});
    let expected = json!({
        "model": "m",
        "messages": [],
        "tools": [{
            "type": "function",
            "function": {"name": "read", "description": "Reads.", "parameters": parameters},
        }],
        "tool_choice": "auto",
        "max_completion_tokens": 100,
        "temperature": 0.5,
        "top_p": 0.9,
        "seed": -1,
        "reasoning_effort": "low",
        "stream": true,
        "stream_options": {"include_usage": true},
    });
    assert_eq!(encoded(&with, profile), expected);
    let without = encoded(&without, Profile::default());
    assert_eq!((&without["tools"], &without["tool_choice"]), (&Value::Null, &Value::Null));
    assert_eq!(without["max_tokens"], 100);
}

#[test]
fn a_forced_tool_is_named_as_the_protocol_has_it() {
    let forced = json!({"type": "function", "function": {"name": "read"}});
    for said in
        [forced.clone(), json!({"type": "function", "name": "read"}), json!({"type": "tool", "name": "read"})]
    {
        assert_eq!(serde_json::to_value(ToolChoice(&said)).unwrap(), forced);
    }
    let other = json!({"type": "allowed_tools", "tools": []});
    assert_eq!(serde_json::to_value(ToolChoice(&other)).unwrap(), other);
}

/// How the id of a call that `m` made is sent to a model.
fn sent_to(model: &str, id: &str, provider_id: Option<&str>, call_ids: CallIds) -> String {
    let id = CallId::new(id.to_owned());
    let provider_id = provider_id.map(Into::into);
    let call = ToolCall { id: id.clone(), provider_id, name: "read".into(), arguments: Arguments::empty() };
    let record = RequestRecord { model: "m".into(), ..RequestRecord::default() };
    let reply = Reply { calls: vec![call], request: Some(Arc::new(record)), ..Reply::new(Stop::ToolCalls) };
    let result =
        ToolResult { call: id, ok: true, output: "x".into(), failure: None, terminate: false, timing: None };
    let messages = vec![Message::Assistant(Arc::new(reply)), Message::Tool(Arc::new(result))];
    let request = Request { model: model.into(), ..request(messages) };
    let body = encoded(&request, Profile { call_ids, ..Profile::default() });
    let sent = body["messages"][0]["tool_calls"][0]["id"].as_str().unwrap();
    assert_eq!(body["messages"][1]["tool_call_id"], sent);
    sent.to_owned()
}

#[test]
fn an_id_that_is_long_or_odd_goes_back_to_its_own_model_alone() {
    for id in ["call__thought__".to_owned() + &"x".repeat(100), "functions.read:0".to_owned()] {
        assert_eq!(sent_to("m", &id, None, CallIds::Usual), id);
        assert!(fits(&sent_to("n", &id, None, CallIds::Usual)), "{id}");
    }
    assert_eq!(sent_to("n", "call_1", None, CallIds::Usual), "call_1");
}

#[test]
fn an_id_that_is_too_long_since_it_was_renamed_is_none_of_the_servers_own() {
    let (given, renamed) = ("x".repeat(40), "x".repeat(40) + "_2");
    assert!(fits(&sent_to("m", &renamed, Some(&given), CallIds::Usual)));
    assert_eq!(
        sent_to("m", "functions.read:0_2", Some("functions.read:0"), CallIds::Usual),
        "functions.read:0_2"
    );
}

#[test]
fn a_server_of_short_ids_is_sent_no_others() {
    assert_eq!(sent_to("m", "aB3456789", None, CallIds::Short), "aB3456789");
    for (model, id) in [("m", "aB3456789_2"), ("n", "call_1")] {
        let sent = sent_to(model, id, None, CallIds::Short);
        assert!(sent.len() == 9 && sent.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{sent}");
    }
}
