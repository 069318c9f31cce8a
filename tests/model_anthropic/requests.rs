//! What a strict server is sent, over whole conversations.

use std::{collections::BTreeMap, sync::Arc};

use herder::{
    domain::{
        call::ToolSpec,
        json::RawJson,
        message::{Message, Reply},
        outcome::{FaultClass, Stop},
    },
    model::{
        ModelProvider as _, Request, Secret,
        anthropic::{Anthropic, Settings},
        http,
    },
};
use serde_json::{Value, json, value::to_raw_value};
use tokio_util::sync::CancellationToken;

use crate::{
    ask::{ask_of, provider, reply, request, result, serve},
    support::{
        hear::hear,
        messages::{answer, check, redacted, thinks, uses, words},
        server::{Answer, Protocol, Rules, Server},
    },
};

fn tools() -> Arc<[ToolSpec]> {
    let tool = |name: &str| ToolSpec {
        name: name.into(),
        description: "Does it.".into(),
        schema: Arc::new(json!({"type": "object"})),
    };
    Arc::new([tool("read"), tool("write")])
}

/// Goes on until the model asks for nothing more; every call's output is blank.
async fn converse(provider: &Anthropic, mut request: Request) -> Result<(Request, String), String> {
    loop {
        let said = hear(provider.stream(request.clone(), CancellationToken::new())).await;
        if let Some(error) = said.error {
            return Err(error.message);
        }
        let reply = reply(&said);
        let results: Vec<_> = reply.calls.iter().map(|call| result(&call.id, true, "\n")).collect();
        if reply.stop == Stop::EndTurn {
            return Ok((request, said.text));
        }
        request.messages.push(Message::Assistant(Arc::new(reply)));
        request.messages.extend(results);
    }
}

/// Answers a turn of calls, another one, and words.
fn in_turn(request: &Value) -> Answer {
    let messages = request["messages"].as_array().unwrap();
    let turn = messages.len() / 2;
    let task = messages[0]["content"][0]["text"].as_str().unwrap().to_owned();
    let read =
        |id: &str| uses(&format!("toolu_{turn}{id}"), "read", &json!({"path": task, "text": "é\"\\\n"}));
    match turn {
        0 => answer(&[thinks("what is there?"), words("Let me look.\n"), read("a"), read("b")], "tool_use"),
        1 => answer(&[redacted(), uses("toolu_c", "list", &json!({}))], "tool_use"),
        _ => answer(&[words(&format!("done: {task}"))], "end_turn"),
    }
}

#[tokio::test]
async fn two_hundred_conversations_at_once_keep_to_the_protocol() {
    let server = serve(in_turn).await;
    let provider = provider(&server, Settings::default());
    let conversations = (0..200).map(|number| {
        let mut request = request(&format!("task {number}"));
        request.messages.insert(0, Message::System("Be brief.".into()));
        request.tools = tools();
        request.params.reasoning_effort = Some("low".to_owned());
        let provider = &provider;
        async move { (converse(provider, request).await.unwrap().1, number) }
    });
    for (text, number) in futures_util::future::join_all(conversations).await {
        assert_eq!(text, format!("done: task {number}"));
    }
    assert_eq!((server.requests().len(), server.refusals()), (600, Vec::new()));
    assert!(server.requests().iter().all(|request| request["thinking"]["type"] == "enabled"));
}

#[tokio::test]
async fn a_call_goes_back_as_it_came_with_the_thought_that_it_came_of() {
    let server = serve(in_turn).await;
    let (_, text) = converse(&provider(&server, Settings::default()), request("go")).await.unwrap();
    assert_eq!(text, "done: go");
    let sent = &server.requests()[2]["messages"];
    let input = json!({"path": "go", "text": "é\"\\\n"});
    let asked = [
        thinks("what is there?"),
        words("Let me look."),
        uses("toolu_0a", "read", &input),
        uses("toolu_0b", "read", &input),
    ];
    assert_eq!(sent[1]["content"], json!(asked));
    let blank = json!({"type": "tool_result", "tool_use_id": "toolu_0a", "content": "(no output)"});
    assert_eq!(sent[2]["content"][0], blank);
    assert_eq!(sent[3]["content"], json!([redacted(), uses("toolu_c", "list", &json!({}))]));
}

#[tokio::test]
async fn thoughts_go_back_where_they_stood_among_words_and_calls() {
    let read = |id: &str| uses(id, "read", &json!({}));
    let blocks = [
        thinks("first"),
        words("那 it is.\n"),
        thinks("second"),
        redacted(),
        words("Now"),
        read("a"),
        thinks("third"),
        words("and"),
        read("b"),
        thinks("last"),
    ];
    let whole = json!({"type": "message", "role": "assistant", "content": blocks, "stop_reason": "tool_use"});
    for first in [answer(&blocks, "tool_use"), Answer::Json(whole)] {
        let server = serve(move |request| match request["messages"].as_array().unwrap().len() {
            1 => first.clone(),
            _ => answer(&[words("done")], "end_turn"),
        })
        .await;
        converse(&provider(&server, Settings::default()), request("go")).await.unwrap();
        // A turn can't end with a thought.
        assert_eq!(server.requests()[1]["messages"][1]["content"], json!(blocks[..9]));
    }
}

#[tokio::test]
async fn blocks_of_other_protocols_are_not_sent_though_their_model_has_the_same_name() {
    let server = serve(in_turn).await;
    let provider = provider(&server, Settings::default());
    let mut request = request("go");
    let mut reply = reply(&hear(provider.stream(request.clone(), CancellationToken::new())).await);
    let foreign = json!({"type": "reasoning", "id": "rs_1", "encrypted_content": "x"});
    reply.kept.as_mut().unwrap().blocks = vec![RawJson(to_raw_value(&foreign).unwrap().into())];
    let results: Vec<_> = reply.calls.iter().map(|call| result(&call.id, true, "no")).collect();
    request.messages.push(Message::Assistant(Arc::new(reply)));
    request.messages.extend(results);
    assert_eq!(hear(provider.stream(request, CancellationToken::new())).await.error, None);
    assert_eq!(server.requests()[1]["messages"][1]["content"][0], words("Let me look."));
}

#[tokio::test]
async fn a_thought_of_another_model_is_not_sent_and_thinking_waits() {
    let server = serve(in_turn).await;
    let provider = provider(&server, Settings::default());
    let mut request = request("go");
    request.params.reasoning_effort = Some("low".to_owned());
    let said = hear(provider.stream(request.clone(), CancellationToken::new())).await;
    let mut reply = reply(&said);
    reply.kept.as_mut().unwrap().model = "fake-0".into();
    let results: Vec<_> = reply.calls.iter().map(|call| result(&call.id, false, "no")).collect();
    request.messages.push(Message::Assistant(Arc::new(reply)));
    request.messages.extend(results);
    let said = hear(provider.stream(request, CancellationToken::new())).await;
    assert_eq!((said.stop, said.error), (Some(Stop::ToolCalls), None));
    assert_eq!(server.requests()[1].get("thinking"), None);
}

#[tokio::test]
async fn nothing_blank_reaches_the_server() {
    let server = serve(|_| answer(&[words("x")], "end_turn")).await;
    let says =
        |text: &str| Message::Assistant(Arc::new(Reply { text: text.into(), ..Reply::new(Stop::EndTurn) }));
    let user = |text: &str| Message::User(text.into());
    let table = [
        vec![user("go"), says("\n\n"), user("next")],
        vec![Message::System("  ".into()), user("go")],
        vec![user("\n")],
        vec![user("go"), says(" "), says("word \n")],
    ];
    for messages in table {
        let request = Request { messages, ..request("") };
        let provider = provider(&server, Settings::default());
        assert_eq!(hear(provider.stream(request, CancellationToken::new())).await.text, "x");
    }
    assert_eq!(server.refusals(), Vec::<String>::new());
}

#[tokio::test]
async fn an_address_with_and_without_the_version_is_the_same_place() {
    let server = serve(|_| answer(&[words("x")], "end_turn")).await;
    let versioned = server.base_url();
    let bare = versioned.strip_suffix("/v1").unwrap();
    for base_url in [bare, &format!("{bare}/"), &versioned, &format!("{versioned}/")] {
        let settings = Settings { base_url: base_url.to_owned(), ..Settings::default() };
        let provider = Anthropic::new(http::client().unwrap(), settings).unwrap();
        let said = hear(provider.stream(request("go"), CancellationToken::new())).await;
        assert_eq!(said.text, "x", "{base_url}: {}", said.message());
    }
}

#[tokio::test]
async fn settings_carry_the_key_and_replace_headers_and_fields() {
    let rules = Rules { protocol: Protocol::Messages, key: Some("k".to_owned()), ..Rules::default() };
    let server = Server::strict(rules, |_| answer(&[words("x")], "end_turn")).await;
    let with = |api_key: &str, headers: &[(&str, &str)]| Settings {
        api_key: Secret::new(api_key),
        headers: headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect::<BTreeMap<_, _>>(),
        ..Settings::default()
    };
    assert_eq!(ask_of(&server, with("k", &[])).await.text, "x");
    assert_eq!(ask_of(&server, with("", &[("X-Api-Key", "k")])).await.text, "x");
    assert_eq!(ask_of(&server, with("wrong", &[])).await.class(), Some(FaultClass::Auth));
    let other = ask_of(&server, with("k", &[("anthropic-version", "2030-01-01")])).await;
    assert!(other.message().contains("anthropic-version"), "{}", other.message());

    let Value::Object(extra_body) = json!({"temperature": 0.5, "max_tokens": 7, "stream": null}) else {
        panic!()
    };
    assert_eq!(ask_of(&server, Settings { extra_body, ..with("k", &[]) }).await.text, "x");
    let content = json!([{"type": "text", "text": "go", "cache_control": {"type": "ephemeral"}}]);
    let expected = json!({
        "model": "fake-1", "max_tokens": 7, "temperature": 0.5, "messages": [{"role": "user", "content": content}],
    });
    assert_eq!(**server.requests().last().unwrap(), expected);
}

#[tokio::test]
async fn a_model_that_thinks_as_it_sees_fit_gets_the_effort_and_no_budget() {
    let server = serve(in_turn).await;
    let Value::Object(extra_body) = json!({"thinking": {"type": "adaptive"}}) else { panic!() };
    let provider = provider(&server, Settings { extra_body, ..Settings::default() });
    let mut request = request("go");
    request.params.reasoning_effort = Some("xhigh".to_owned());
    request.params.temperature = Some(0.5);
    assert_eq!(converse(&provider, request).await.unwrap().1, "done: go");
    for sent in server.requests() {
        assert_eq!((&sent["output_config"], sent.get("temperature")), (&json!({"effort": "xhigh"}), None));
    }
}

#[tokio::test]
async fn parameters_that_mean_nothing_to_the_server_are_refused_before_it_is_asked() {
    let server = serve(|_| answer(&[words("x")], "end_turn")).await;
    let mut request = request("go");
    request.params.reasoning_effort = Some("extreme".to_owned());
    let provider = provider(&server, Settings::default());
    let said = hear(provider.stream(request, CancellationToken::new())).await;
    assert_eq!((said.class(), server.requests().len()), (Some(FaultClass::Invalid), 0));
}

#[test]
fn the_strict_server_refuses_what_a_strict_server_refuses() {
    let turn = |role: &str, blocks: &[Value]| json!({"role": role, "content": blocks});
    let user = || turn("user", &[words("go")]);
    let asks = |blocks: &[Value]| turn("assistant", blocks);
    let call = |id: &str| uses(id, "x", &json!({}));
    let result = |id: &str| json!({"type": "tool_result", "tool_use_id": id, "content": "ok"});
    let answered = |ids: &[&str]| turn("user", &ids.iter().map(|id| result(id)).collect::<Vec<_>>());
    let forged = json!({"type": "thinking", "thinking": "a", "signature": "signed:b"});
    let table = [
        ("nothing", vec![]),
        ("assistant first", vec![asks(&[words("x")])]),
        ("two of a role", vec![user(), user()]),
        ("unanswered", vec![user(), asks(&[call("a")])]),
        ("unanswered before the next", vec![user(), asks(&[call("a")]), user()]),
        ("answered in part", vec![user(), asks(&[call("a"), call("b")]), answered(&["a"])]),
        ("orphan", vec![user(), asks(&[words("x")]), answered(&["a"])]),
        ("answered twice", vec![user(), asks(&[call("a")]), answered(&["a", "a"])]),
        ("words before results", vec![user(), asks(&[call("a")]), turn("user", &[words("x"), result("a")])]),
        ("id twice", vec![user(), asks(&[call("a"), call("a")]), answered(&["a", "a"])]),
        (
            "id again",
            vec![user(), asks(&[call("a")]), answered(&["a"]), asks(&[call("a")]), answered(&["a"])],
        ),
        ("id of dots", vec![user(), asks(&[call("a.b")]), answered(&["a.b"])]),
        ("input no object", vec![user(), asks(&[uses("a", "x", &json!("{}"))]), answered(&["a"])]),
        ("blank", vec![turn("user", &[words(" \n")])]),
        ("empty", vec![turn("user", &[])]),
        ("white space at the end", vec![user(), asks(&[words("x\n")])]),
        ("a forged thought", vec![user(), asks(&[forged, words("x")]), user()]),
        ("a thought after its call", vec![user(), asks(&[call("a"), thinks("x")]), answered(&["a"])]),
        ("a system message", vec![turn("system", &[words("x")])]),
        ("unknown field", vec![json!({"role": "user", "content": [words("x")], "name": "n"})]),
    ];
    let request = |messages: &[Value]| json!({"model": "m", "max_tokens": 5000, "messages": messages});
    for (what, messages) in table {
        assert!(check(&request(&messages)).is_err(), "{what}");
    }
    let good = [user(), asks(&[thinks("x"), call("a"), call("b")]), answered(&["b", "a"])];
    assert_eq!(check(&request(&good)), Ok(()));

    let thinking = |messages: &[Value]| {
        let mut request = request(messages);
        request["thinking"] = json!({"type": "enabled", "budget_tokens": 1024});
        request
    };
    assert_eq!(check(&thinking(&good)), Ok(()));
    assert!(check(&thinking(&[user(), asks(&[call("a")]), answered(&["a"])])).is_err());
    for (field, value) in [("temperature", json!(1)), ("max_tokens", json!(1024)), ("unknown", json!(1))] {
        let mut request = thinking(&good);
        request[field] = value;
        assert!(check(&request).is_err(), "{field}");
    }
}
