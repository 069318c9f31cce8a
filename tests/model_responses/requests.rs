//! What a strict server is sent.

use std::sync::Arc;

use herder::{
    domain::{
        call::{Arguments, ToolCall, ToolResult, ToolSpec},
        id::CallId,
        json::RawJson,
        message::{Kept, Message, Reply},
        outcome::Stop,
        task::Params,
    },
    model::{ModelProvider as _, Request, responses::Settings},
};
use serde_json::{Map, Value, json, value::to_raw_value};
use tokio_util::sync::CancellationToken;

use crate::{
    ask::{Said, answer, call, hear, message, provider, reasoning, request, server},
    support::{
        responses,
        server::{Answer, Server},
    },
};

fn tools() -> Arc<[ToolSpec]> {
    let tool = |name: &str| ToolSpec {
        name: name.into(),
        description: "Does it.".into(),
        schema: Arc::new(json!({"type": "object"})),
    };
    [tool("read"), tool("list")].into()
}

/// A reply as a run keeps it.
fn reply(said: &Said, model: &str) -> Reply {
    let call = |(id, name, arguments): &(String, String, String)| ToolCall {
        id: CallId::new(id.as_str()),
        provider_id: None,
        name: name.as_str().into(),
        arguments: Arguments::parse(arguments).unwrap(),
    };
    let blocks = said.kept.clone();
    Reply {
        text: said.text.as_str().into(),
        kept: Some(Kept { model: model.into(), blocks }).filter(|kept| !kept.blocks.is_empty()),
        calls: said.calls.iter().map(call).collect(),
        ..Reply::new(said.stop.unwrap())
    }
}

fn result(call: &CallId) -> Message {
    Message::Tool(Arc::new(ToolResult {
        call: call.clone(),
        ok: true,
        output: "\n".into(),
        failure: None,
        terminate: false,
        timing: None,
    }))
}

/// Asks, answers every call with nothing, and asks again, until there is no call; gives what was sent and said last.
async fn converse(server: &Server, mut request: Request, model: &str) -> (Vec<Arc<Value>>, String) {
    let provider = provider(server, Settings::default());
    loop {
        let said = hear(provider.stream(request.clone(), CancellationToken::new())).await;
        assert_eq!((said.error.as_ref(), server.refusals()), (None, Vec::new()));
        let reply = reply(&said, model);
        if reply.stop != Stop::ToolCalls {
            return (server.requests(), said.text);
        }
        let results: Vec<_> = reply.calls.iter().map(|call| result(&call.id)).collect();
        request.messages.push(Message::Assistant(Arc::new(reply)));
        request.messages.extend(results);
    }
}

/// A server that gives this answer first, and says that it is done from then on.
async fn twice(first: Answer) -> Server {
    server(move |request| {
        let asked = request["input"].as_array().unwrap().iter().any(|item| item["type"] == "function_call");
        if asked { answer(&[message(0, "done")]) } else { first.clone() }
    })
    .await
}

#[tokio::test]
async fn every_field_has_its_place() {
    let server = server(|_| answer(&[message(0, "x")])).await;
    let mut request = Request::new(
        "fake-1".into(),
        vec![Message::System("rules".into()), Message::System("more".into()), Message::User("go".into())],
    );
    request.tools = tools();
    request.params = Params {
        temperature: Some(0.5),
        top_p: Some(0.9),
        max_tokens: Some(100),
        seed: Some(7),
        reasoning_effort: Some("low".to_owned()),
        tool_choice: Some(json!("auto")),
    };
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let format =
        json!({"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": true}});
    request.response_format = Some(serde_json::from_value(format).unwrap());
    let provider = provider(&server, Settings::default());
    hear(provider.stream(request.clone(), CancellationToken::new())).await;
    let tool = |name: &str| json!({"type": "function", "name": name, "description": "Does it.", "parameters": {"type": "object"}, "strict": false});
    let mut expected = json!({
        "model": "fake-1",
        "instructions": "rules\n\nmore",
        "input": [{"type": "message", "role": "user", "content": "go"}],
        "tools": [tool("read"), tool("list")],
        "tool_choice": "auto",
        "max_output_tokens": 100,
        "temperature": 0.5,
        "top_p": 0.9,
        "reasoning": {"effort": "low"},
        "text": {"format": {"type": "json_schema", "name": "n", "schema": schema, "strict": true}},
        "store": false,
        "include": ["reasoning.encrypted_content"],
        "stream": true,
    });
    assert_eq!(*server.requests()[0], expected);

    request.response_format = Some(serde_json::from_value(json!({"type": "json_object"})).unwrap());
    hear(provider.stream(request, CancellationToken::new())).await;
    expected["text"] = json!({"format": {"type": "json_object"}});
    assert_eq!(*server.requests()[1], expected);
}

#[tokio::test]
async fn settings_add_to_a_request_replace_what_is_in_it_and_take_it_away() {
    let server = server(|_| answer(&[message(0, "x")])).await;
    let extra_body =
        json!({"top_p": 0.5, "reasoning": {"effort": "high", "summary": "auto"}, "include": null});
    let Value::Object(extra_body) = extra_body else { panic!("not an object") };
    let mut request = request("go");
    request.params.reasoning_effort = Some("low".to_owned());
    let provider = provider(&server, Settings { extra_body, ..Settings::default() });
    hear(provider.stream(request, CancellationToken::new())).await;
    let expected = json!({
        "model": "fake-1",
        "input": [{"type": "message", "role": "user", "content": "go"}],
        "top_p": 0.5,
        "reasoning": {"effort": "high", "summary": "auto"},
        "store": false,
        "stream": true,
    });
    assert_eq!(*server.requests()[0], expected);
}

#[tokio::test]
async fn calls_go_back_with_their_results_and_the_reasoning_right_before_what_it_led_to() {
    let (first, second) = (reasoning(1, "One.", "s1"), reasoning(3, "Two.", "s2"));
    let items = [
        message(0, "Let me look."),
        first.clone(),
        call(2, "c_a", "read", r#"{ "path": "é" }"#),
        second.clone(),
        call(4, "c_b", "list", "{}"),
    ];
    let user = json!({"type": "message", "role": "user", "content": "go"});
    let said = json!({"type": "message", "role": "assistant", "content": "Let me look."});
    let a =
        json!({"type": "function_call", "call_id": "c_a", "name": "read", "arguments": r#"{ "path": "é" }"#});
    let b = json!({"type": "function_call", "call_id": "c_b", "name": "list", "arguments": "{}"});
    let output = |id: &str| json!({"type": "function_call_output", "call_id": id, "output": "(no output)"});

    let (sent, text) = converse(&twice(answer(&items)).await, request("go"), "fake-1").await;
    assert_eq!(text, "done");
    let expected = json!([user, said, first, a, second, b, output("c_a"), output("c_b")]);
    assert_eq!(sent[1]["input"], expected);

    // To another model its thoughts mean nothing.
    let (sent, _) = converse(&twice(answer(&items)).await, request("go"), "other").await;
    assert_eq!(sent[1]["input"], json!([user, said, a, b, output("c_a"), output("c_b")]));

    let usual = [first.clone(), message(2, "Let me look."), call(3, "c_a", "read", r#"{ "path": "é" }"#)];
    let (sent, _) = converse(&twice(answer(&usual)).await, request("go"), "fake-1").await;
    assert_eq!(sent[1]["input"], json!([user, first, said, a, output("c_a")]));
}

#[tokio::test]
async fn a_request_begins_with_all_of_the_one_before_byte_for_byte() {
    let server = server(|request| {
        let turn = request["input"].as_array().unwrap().len() as u64;
        if turn > 9 {
            return answer(&[message(0, "done")]);
        }
        answer(&[reasoning(0, "Hm.", "s3cret"), call(1, &format!("c_{turn}"), "read", r#"{"path":"é"}"#)])
    })
    .await;
    let mut asked = request("go");
    asked.tools = tools();
    converse(&server, asked, "fake-1").await;
    let bodies: Vec<_> = server.bodies().into_iter().map(|body| String::from_utf8(body).unwrap()).collect();
    assert_eq!(bodies.len(), 4);
    for pair in bodies.windows(2) {
        let (input, rest) = pair[0].split_once(r#"],"tools":"#).unwrap();
        assert!(pair[1].starts_with(input) && pair[1].ends_with(rest), "{} goes on as {}", pair[0], pair[1]);
    }
}

#[tokio::test]
async fn the_strict_server_refuses_what_a_strict_server_refuses() {
    let user = || json!({"type": "message", "role": "user", "content": "go"});
    let asks = |id: &str, arguments: &str| json!({"type": "function_call", "call_id": id, "name": "x", "arguments": arguments});
    let gives = |id: &str| json!({"type": "function_call_output", "call_id": id, "output": "ok"});
    let thinks = || json!({"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "s"});
    let table = [
        ("unanswered", vec![user(), asks("a", "{}")]),
        ("unanswered before the next", vec![user(), asks("a", "{}"), user(), gives("a")]),
        ("answered before it is asked", vec![user(), gives("a"), asks("a", "{}")]),
        ("answered twice", vec![user(), asks("a", "{}"), gives("a"), gives("a")]),
        ("id again", vec![user(), asks("a", "{}"), gives("a"), asks("a", "{}"), gives("a")]),
        ("arguments cut", vec![user(), asks("a", "{\"x"), gives("a")]),
        ("arguments no object", vec![user(), asks("a", "[]"), gives("a")]),
        ("reasoning alone", vec![user(), thinks(), user()]),
        ("reasoning last", vec![user(), thinks()]),
        ("blank", vec![json!({"type": "message", "role": "user", "content": " \n"})]),
        ("unknown field", vec![json!({"type": "message", "role": "user", "content": "x", "id": "y"})]),
        ("nothing", vec![]),
    ];
    let asked = |input: &[Value]| json!({"model": "m", "input": input, "stream": true, "store": false});
    for (what, input) in table {
        assert!(responses::check(&asked(&input)).is_err(), "{what}");
    }
    let good = [user(), thinks(), asks("a", "{}"), asks("b", "{}"), gives("b"), gives("a")];
    assert_eq!(responses::check(&asked(&good)), Ok(()));
}

#[tokio::test]
async fn blocks_of_other_protocols_are_not_sent_though_their_model_has_the_same_name() {
    let thought = json!({"type": "thinking", "thinking": "hm", "signature": "s"});
    let asked = ToolCall {
        id: CallId::new("x".repeat(65)),
        provider_id: None,
        name: "read".into(),
        arguments: Arguments::empty(),
    };
    let id = asked.id.clone();
    let blocks = vec![RawJson(to_raw_value(&thought).unwrap().into())];
    let kept = Some(Kept { model: "fake-1".into(), blocks });
    let reply = Reply { kept, calls: vec![asked], ..Reply::new(Stop::ToolCalls) };
    let mut request = request("go");
    request.messages.extend([Message::Assistant(Arc::new(reply)), result(&id)]);
    let server = server(|_| answer(&[message(0, "done")])).await;
    let said = hear(provider(&server, Settings::default()).stream(request, CancellationToken::new())).await;
    assert_eq!((said.error, server.refusals()), (None, Vec::new()));
    let input = &server.requests()[0]["input"];
    assert_eq!(
        (&input[1]["type"], input[1]["call_id"].as_str().map(str::len)),
        (&json!("function_call"), Some(35))
    );
}

#[tokio::test]
async fn a_server_that_hands_out_no_reasoning_is_told_of_with_what_to_do() {
    let refusal = json!({"error": {
        "message": "Encrypted content is not supported with this model.", "type": "invalid_request_error", "param": "include",
    }});
    let server = server(move |request| match request["include"].as_array() {
        Some(include) if include.is_empty() => answer(&[message(0, "hi")]),
        _ => Answer::Status { status: 400, headers: Vec::new(), body: refusal.to_string() },
    })
    .await;
    let ask = |settings| hear(provider(&server, settings).stream(request("go"), CancellationToken::new()));
    let error = ask(Settings::default()).await.error.unwrap();
    assert!(error.message.contains("set extra_body = { include = [] }"), "{error}");
    let extra_body = Map::from_iter([("include".to_owned(), json!([]))]);
    assert_eq!(ask(Settings { extra_body, ..Settings::default() }).await.text, "hi");
}

#[tokio::test]
async fn a_forced_tool_is_named_as_the_protocol_has_it() {
    let server = server(|_| answer(&[message(0, "hi")])).await;
    for said in [
        json!({"type": "function", "function": {"name": "read"}}),
        json!({"type": "function", "name": "read"}),
        json!({"type": "tool", "name": "read"}),
    ] {
        let params = Params { tool_choice: Some(said), ..Params::default() };
        let request = Request { tools: tools(), params, ..request("go") };
        let said =
            hear(provider(&server, Settings::default()).stream(request, CancellationToken::new())).await;
        assert_eq!(said.error, None);
    }
    for sent in server.requests() {
        assert_eq!(sent["tool_choice"], json!({"type": "function", "name": "read"}));
    }
}
