//! What a strict server is sent, over whole conversations and many at once.

use std::{collections::BTreeMap, sync::Arc};

use herder::{
    domain::{
        call::{Arguments, ToolCall, ToolResult, ToolSpec},
        id::CallId,
        message::{Message, Reply},
        outcome::Stop,
    },
    model::{
        ModelProvider as _, Request,
        openai::{OpenAi, Profile, SendReasoning, Settings},
    },
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

use crate::{
    ask::{Said, hear, provider, request},
    support::{
        chat::{self, Brain, Plan},
        hear::hear_all,
        server::{Answer, Rules, Server},
    },
};

fn tools(names: &[&str]) -> Arc<[ToolSpec]> {
    let tool = |name: &&str| ToolSpec {
        name: (*name).into(),
        description: "Does it.".into(),
        schema: Arc::new(json!({"type": "object"})),
    };
    names.iter().map(tool).collect()
}

fn reply(said: &Said) -> Reply {
    let call = |(id, name, arguments): &(String, String, String)| ToolCall {
        id: CallId::new(id.as_str()),
        provider_id: None,
        name: name.as_str().into(),
        arguments: Arguments::parse(arguments).unwrap(),
    };
    Reply {
        text: said.text.as_str().into(),
        reasoning: Some(said.reasoning.as_str().into()).filter(|_| !said.reasoning.is_empty()),
        calls: said.calls.iter().map(call).collect(),
        ..Reply::new(said.stop.unwrap())
    }
}

/// Goes on until the model asks for nothing more; every call's output is blank.
async fn converse(provider: &OpenAi, mut request: Request) -> Result<(Request, String), String> {
    loop {
        let said = hear(provider.stream(request.clone(), CancellationToken::new())).await;
        if let Some(error) = said.error {
            return Err(error.message);
        }
        let reply = reply(&said);
        let results = reply.calls.iter().map(|call| ToolResult {
            call: call.id.clone(),
            ok: true,
            output: "\n".into(),
            failure: None,
            terminate: false,
            timing: None,
        });
        let results: Vec<_> = results.map(|result| Message::Tool(Arc::new(result))).collect();
        if reply.stop == Stop::EndTurn {
            return Ok((request, said.text));
        }
        request.messages.push(Message::Assistant(Arc::new(reply)));
        request.messages.extend(results);
    }
}

#[tokio::test]
async fn two_hundred_conversations_at_once_keep_to_the_protocol() {
    let names: Vec<String> = (0..200).map(|number| format!("t{number}")).collect();
    let read = |path: &str| ("read".to_owned(), json!({"path": path, "text": "é\"\\\n"}));
    let brain = names.iter().fold(Brain::default(), |brain, name| {
        let turns = vec![vec![read("a"), read("b")], vec![read(name)]];
        brain.plan(name, Plan { turns, text: format!("done with {name}") })
    });
    let server = Server::start(move |request| brain.answer(request)).await;
    let provider = provider(&server, Settings::default());
    let conversations = names.iter().map(|name| {
        let mut request = request(&format!("work {}", Brain::marker(name)));
        request.messages.insert(0, Message::System("Be brief.".into()));
        request.tools = tools(&["read", "write"]);
        let provider = &provider;
        async move { (converse(provider, request).await.unwrap().1, name) }
    });
    for (text, name) in futures_util::future::join_all(conversations).await {
        assert_eq!(text, format!("done with {name}"));
    }
    assert_eq!((server.requests().len(), server.refusals()), (600, Vec::new()));
}

#[tokio::test]
async fn arguments_that_came_as_an_object_go_back_as_a_string() {
    let server = Server::start(|request| {
        if request["messages"].as_array().unwrap().len() > 1 {
            return chat::text("done");
        }
        let call =
            json!({"id": "c_a", "index": 0, "function": {"name": "bash", "arguments": {"command": "ok"}}});
        Answer::Stream(vec![chat::chunk(&json!({"tool_calls": [call]}), Some("tool_calls"))])
    })
    .await;
    let (request, text) = converse(&provider(&server, Settings::default()), request("go")).await.unwrap();
    assert_eq!((text.as_str(), request.messages.len()), ("done", 3));
    let sent = &server.requests()[1]["messages"];
    assert_eq!(sent[1]["tool_calls"][0]["function"]["arguments"], r#"{"command":"ok"}"#);
    assert_eq!(sent[2], json!({"role": "tool", "tool_call_id": "c_a", "content": "(no output)"}));
}

#[tokio::test]
async fn output_that_was_no_text_goes_out_as_text() {
    let server = Server::start(|_| chat::text("x")).await;
    let output = String::from_utf8_lossy(b"ok \xff\xfe caf\xe9 \0 \x1b[0m end").into_owned();
    let mut request = request("go");
    let said = Said {
        calls: vec![("c_a".to_owned(), "bash".to_owned(), "{}".to_owned())],
        stop: Some(Stop::ToolCalls),
        ..Said::default()
    };
    let result = ToolResult {
        call: CallId::new("c_a"),
        ok: false,
        output: output.as_str().into(),
        failure: None,
        terminate: false,
        timing: None,
    };
    request.messages.push(Message::Assistant(Arc::new(reply(&said))));
    request.messages.push(Message::Tool(Arc::new(result)));
    hear(provider(&server, Settings::default()).stream(request, CancellationToken::new())).await;
    assert_eq!(server.requests()[0]["messages"][2]["content"], output);
    assert!(str::from_utf8(&server.bodies()[0]).is_ok_and(|body| !body.contains('\0')));
}

#[tokio::test]
async fn reasoning_goes_back_with_its_calls_where_the_profile_says_so_and_nowhere_else() {
    let table = [
        (SendReasoning::Never, None),
        (SendReasoning::AsReasoning, Some("reasoning")),
        (SendReasoning::AsReasoningContent, Some("reasoning_content")),
    ];
    for (reasoning, field) in table {
        let rules = Rules { reasoning: field.is_some(), ..Rules::default() };
        let server = Server::strict(rules, |request| {
            if request["messages"].as_array().unwrap().len() > 1 {
                return chat::text("done");
            }
            let call = json!({"id": "c_a", "index": 0, "function": {"name": "list", "arguments": "{}"}});
            Answer::Stream(vec![
                chat::chunk(&json!({"reasoning_content": "need list"}), None),
                chat::chunk(&json!({"tool_calls": [call]}), Some("tool_calls")),
            ])
        })
        .await;
        let profile = Profile { reasoning, ..Profile::default() };
        let provider = provider(&server, Settings { profile, ..Settings::default() });
        converse(&provider, request("go")).await.unwrap();
        let assistant = server.requests()[1]["messages"][1].clone();
        let sent =
            ["reasoning", "reasoning_content"].map(|name| assistant[name].as_str() == Some("need list"));
        assert_eq!(sent, ["reasoning", "reasoning_content"].map(|name| Some(name) == field), "{assistant}");
    }
}

#[tokio::test]
async fn reasoning_that_a_server_does_not_get_or_does_not_take_is_refused_in_its_words() {
    let called = |reasoning: &'static str| {
        let call = json!({"id": "c_a", "index": 0, "function": {"name": "list", "arguments": "{}"}});
        Answer::Stream(vec![
            chat::chunk(&json!({reasoning: "need list"}), None),
            chat::chunk(&json!({"tool_calls": [call]}), Some("tool_calls")),
        ])
    };
    let table =
        [("reasoning_content", SendReasoning::AsReasoningContent), ("reasoning", SendReasoning::AsReasoning)];
    for (field, profile) in table {
        let wants = move |request: &Value| match request["messages"].as_array().unwrap().get(1) {
            None => called(field),
            Some(assistant) if assistant[field] == "need list" => chat::text("done"),
            Some(_) => Answer::Status {
                status: 400,
                headers: Vec::new(),
                body: format!(r#"{{"error":{{"message":"The {field} must be passed back"}}}}"#),
            },
        };
        for reasoning in [SendReasoning::Never, SendReasoning::AsReasoning, SendReasoning::AsReasoningContent]
        {
            let server = Server::strict(Rules { reasoning: true, ..Rules::default() }, wants).await;
            let profile_of = Profile { reasoning, ..Profile::default() };
            let provider = provider(&server, Settings { profile: profile_of, ..Settings::default() });
            let told = converse(&provider, request("go")).await.map(|(_, text)| text);
            if reasoning == profile {
                assert_eq!(told, Ok("done".to_owned()));
            } else {
                assert_eq!(told, Err(format!("HTTP 400: The {field} must be passed back")));
            }
        }
        // A server that knows no such field: never means never.
        let strict = Server::start(move |request| {
            if request["messages"].as_array().unwrap().len() > 1 { chat::text("done") } else { called(field) }
        })
        .await;
        let told = converse(&provider(&strict, Settings::default()), request("go")).await;
        assert_eq!(told.map(|(_, text)| text), Ok("done".to_owned()));
        let settings =
            Settings { profile: Profile { reasoning: profile, ..Profile::default() }, ..Settings::default() };
        let told = converse(&provider(&strict, settings), request("go")).await.map(|(_, text)| text);
        assert_eq!(
            told,
            Err(format!("HTTP 400: messages[1]: unknown field {field} (invalid_request_error)"))
        );
    }
}

#[tokio::test]
async fn a_request_begins_with_all_of_the_one_before_byte_for_byte() {
    let turns = (0..4).map(|turn| vec![("read".to_owned(), json!({"path": format!("é{turn}")}))]).collect();
    let brain = Brain::default().plan("a", Plan { turns, text: "done".to_owned() });
    let server = Server::start(move |request| brain.answer(request)).await;
    let mut asked = request(&Brain::marker("a"));
    asked.messages.insert(0, Message::System("Be brief.".into()));
    asked.tools = tools(&["read"]);
    converse(&provider(&server, Settings::default()), asked).await.unwrap();
    let bodies: Vec<_> = server.bodies().into_iter().map(|body| String::from_utf8(body).unwrap()).collect();
    assert_eq!(bodies.len(), 5);
    for pair in bodies.windows(2) {
        let (messages, rest) = pair[0].split_once(r#"],"tools":"#).unwrap();
        assert!(pair[1].starts_with(messages), "{} does not begin with {messages}", pair[1]);
        assert!(pair[1].ends_with(rest), "{} does not end with {rest}", pair[1]);
    }
}

#[tokio::test]
async fn the_digest_is_that_of_the_bytes_that_arrive() {
    let server = Server::start(|_| chat::text("x")).await;
    let stream = provider(&server, Settings::default()).stream(request("é"), CancellationToken::new());
    let (head, _) = hear_all(stream).await;
    let digest = Sha256::digest(&server.bodies()[0]);
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(head.sent, [hex]);
}

#[tokio::test]
async fn the_form_of_the_answer_is_asked_for() {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let server = Server::start(|_| chat::text("{}")).await;
    let table = [
        json!({"type": "json_object"}),
        json!({"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}),
        json!({"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": true}}),
    ];
    let provider = provider(&server, Settings::default());
    for (at, format) in table.iter().enumerate() {
        let mut request = request("go");
        request.response_format = Some(serde_json::from_value(format.clone()).unwrap());
        assert_eq!(hear(provider.stream(request, CancellationToken::new())).await.text, "{}");
        assert_eq!(server.requests()[at]["response_format"], *format);
    }
}

#[tokio::test]
async fn settings_add_to_a_request_replace_what_is_in_it_and_take_it_away() {
    let server =
        Server::strict(Rules { key: Some("k".to_owned()), ..Rules::default() }, |_| chat::text("x")).await;
    let extra_body = json!({"seed": 7, "temperature": 0.5, "stream_options": null});
    let Value::Object(extra_body) = extra_body else { panic!("not an object") };
    let headers = BTreeMap::from([("Authorization".to_owned(), "Bearer k".to_owned())]);
    let provider = provider(&server, Settings { extra_body, headers, ..Settings::default() });
    let mut request = request("go");
    request.params.temperature = Some(1.0);
    request.params.max_tokens = Some(99);
    assert_eq!(hear(provider.stream(request, CancellationToken::new())).await.text, "x");
    let message = json!({"role": "user", "content": "go"});
    let expected = json!({
        "model": "fake-1", "messages": [message], "max_tokens": 99, "stream": true, "seed": 7, "temperature": 0.5,
    });
    assert_eq!(*server.requests()[0], expected);
}

#[tokio::test]
async fn the_strict_server_refuses_what_a_strict_server_refuses() {
    let user = || json!({"role": "user", "content": "go"});
    let call = |id: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": "x", "arguments": arguments}});
    let asks = |calls: &[Value]| json!({"role": "assistant", "content": null, "tool_calls": calls});
    let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "ok"});
    let table = [
        ("unanswered", vec![user(), asks(&[call("a", "{}")])]),
        ("unanswered before the next", vec![user(), asks(&[call("a", "{}")]), user()]),
        ("orphan", vec![user(), result("a")]),
        ("answered twice", vec![user(), asks(&[call("a", "{}")]), result("a"), result("a")]),
        ("id twice", vec![user(), asks(&[call("a", "{}"), call("a", "{}")]), result("a"), result("a")]),
        (
            "id again",
            vec![user(), asks(&[call("a", "{}")]), result("a"), asks(&[call("a", "{}")]), result("a")],
        ),
        ("arguments cut", vec![user(), asks(&[call("a", "{\"x")]), result("a")]),
        ("arguments no object", vec![user(), asks(&[call("a", "[]")]), result("a")]),
        ("late system", vec![user(), json!({"role": "system", "content": "x"})]),
        ("blank", vec![json!({"role": "user", "content": " \n"})]),
        ("null without calls", vec![user(), json!({"role": "assistant", "content": null})]),
        ("unknown field", vec![user(), json!({"role": "assistant", "content": "x", "reasoning": "y"})]),
        ("nothing", vec![]),
    ];
    for (what, messages) in table {
        let request = json!({"model": "m", "messages": messages});
        assert!(chat::check(&request, &Rules::default()).is_err(), "{what}");
    }
    let good = json!({"model": "m", "messages": [user(), asks(&[call("a", "{}"), call("b", "{}")]), result("b"), result("a")]});
    assert_eq!(chat::check(&good, &Rules::default()), Ok(()));
}
