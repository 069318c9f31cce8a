//! The check of a model.

use serde_json::{Value, json};

use crate::{
    place::{Ended, Place},
    support::{
        chat, messages,
        server::{Answer, Protocol, Rules, Server, Step},
        unheard,
    },
};

/// A model at the server, by the name `m`.
fn place(server: &Server, more: &str) -> Place {
    at(&server.base_url(), more)
}

fn at(base_url: &str, more: &str) -> Place {
    let key = "api_key_env = \"MINE\"";
    Place::new(&format!(
        "[models.m]\nprovider = \"openai\"\nmodel = \"fake-1\"\nbase_url = \"{base_url}\"\n{key}\n{more}\n"
    ))
}

async fn check(place: &Place) -> Ended {
    place.herder(&[("MINE", "sk-right")], &["models", "check", "m", "--json"]).await
}

/// What is said of one aspect: its state and the sentence.
#[track_caller]
fn found<'a>(findings: &'a [Value], what: &str) -> (&'a str, &'a str) {
    let finding = findings.iter().find(|finding| finding["what"] == what);
    let finding = finding.unwrap_or_else(|| panic!("nothing of {what} in {findings:?}"));
    (finding["state"].as_str().unwrap(), finding["says"].as_str().unwrap())
}

#[track_caller]
fn assert_found(findings: &[Value], what: &str, state: &str, says: &str) {
    let (seen, said) = found(findings, what);
    assert!(seen == state && said.contains(says), "{what}: {seen}: {said}");
}

fn has_tools(request: &Value) -> bool {
    request.get("tools").is_some()
}

fn has_result(request: &Value) -> bool {
    request["messages"].as_array().unwrap().iter().any(|message| message["role"] == "tool")
}

fn lucky_call() -> Answer {
    chat::calls(&[("c1".to_owned(), "lucky_number".to_owned(), json!({"name": "herder"}))])
}

/// All that a good model says.
fn good(request: &Value) -> Answer {
    match (has_tools(request), has_result(request)) {
        (false, _) => chat::text("one two three four"),
        (true, false) => lucky_call(),
        (true, true) => chat::text("It is 4711"),
    }
}

/// The events of a good answer.
fn events(answer: Answer) -> Vec<Value> {
    let Answer::Stream(events) = answer else { panic!("not a stream: {answer:?}") };
    events
}

fn states(findings: &[Value]) -> Vec<(&str, &str)> {
    findings
        .iter()
        .map(|finding| (finding["what"].as_str().unwrap(), finding["state"].as_str().unwrap()))
        .collect()
}

#[tokio::test]
async fn a_good_server_passes_with_three_small_requests() {
    let rules = Rules { key: Some("sk-right".to_owned()), ..Rules::default() };
    let server = Server::strict(rules, good).await;
    let place = place(&server, "input_usd_per_mtok = 1\noutput_usd_per_mtok = 2");
    let checked = check(&place).await.expect(0);
    let findings = checked.json();
    assert_eq!(
        states(&findings),
        [
            ("server", "ok"),
            ("key", "ok"),
            ("text", "ok"),
            ("streaming", "ok"),
            ("tools", "ok"),
            ("follow-up", "ok"),
            ("stop", "ok"),
            ("usage", "ok"),
            ("rate-limits", "missing"),
            ("cost", "ok"),
        ]
    );
    assert_found(&findings, "streaming", "ok", "4 pieces, the first after ");
    assert_found(&findings, "follow-up", "ok", "accepted, and used");
    assert_found(&findings, "usage", "ok", "30 tokens in, 15 out");
    assert_found(&findings, "cost", "ok", "$0.000060 for this check");
    assert_eq!((server.requests().len(), server.refusals().len()), (3, 0));
    assert!(server.requests().iter().all(|request| request["max_tokens"] == 1024));

    let shown = place.herder(&[("MINE", "sk-right")], &["models", "check", "m"]).await.expect(0);
    assert!(
        shown.out.contains("\nok       tools        a call with valid arguments came\n"),
        "{}",
        shown.out
    );
    assert_eq!((shown.out.lines().count(), shown.err.as_str()), (10, ""));
}

#[tokio::test]
async fn a_key_that_is_refused_is_told_and_shown_nowhere() {
    let rules = Rules { key: Some("sk-other".to_owned()), ..Rules::default() };
    let server = Server::strict(rules, good).await;
    let checked = check(&place(&server, "")).await.expect(1);
    assert_eq!(states(&checked.json()), [("server", "ok"), ("key", "failed")]);
    assert_found(&checked.json(), "key", "failed", "the server refuses the key: HTTP 401: wrong key");
    assert!(!checked.out.contains("sk-right"));
}

#[tokio::test]
async fn a_web_page_is_no_answer_and_hints_at_the_address() {
    let server = Server::start(|_| Answer::Status {
        status: 200,
        headers: vec![("content-type", "text/html".to_owned())],
        body: "<html>Welcome!</html>".to_owned(),
    })
    .await;
    let findings = check(&place(&server, "")).await.expect(1).json();
    assert_eq!(states(&findings), [("server", "ok"), ("text", "failed")]);
    assert_found(&findings, "text", "failed", "that is no answer of the API; ");
    let ends_in_v1 = server.base_url().ends_with("/v1");
    assert_eq!(findings[1].to_string().contains("usually ends in /v1"), !ends_in_v1);
}

#[tokio::test]
async fn a_port_where_nobody_listens_is_told_as_such() {
    let (_bound, address) = unheard();
    let findings = check(&at(&format!("http://{address}/v1"), "")).await.expect(1).json();
    assert_eq!(states(&findings), [("server", "failed")]);
    assert_found(&findings, "server", "failed", "see that the server runs and that base_url is right");
}

#[tokio::test]
async fn answers_in_one_piece_without_usage_are_told_and_good_enough() {
    let whole = |request: &Value| {
        let message = match (has_tools(request), has_result(request)) {
            (true, false) => {
                json!({"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function",
                "function": {"name": "lucky_number", "arguments": "{\"name\": \"herder\"}"}}]})
            }
            (_, answered) => {
                json!({"role": "assistant", "content": if answered { "4711" } else { "one two three" }})
            }
        };
        let reason = if message["content"].is_null() { "tool_calls" } else { "stop" };
        Answer::Json(json!({"choices": [{"index": 0, "message": message, "finish_reason": reason}]}))
    };
    let server = Server::start(whole).await;
    let findings = check(&place(&server, "")).await.expect(0).json();
    assert_found(&findings, "streaming", "missing", "came in one piece");
    assert_found(&findings, "usage", "missing", "herder estimates them");
    assert_found(&findings, "tools", "ok", "valid arguments");
    assert_found(&findings, "cost", "missing", "prices are not known");
}

#[tokio::test]
async fn a_model_without_tools_can_be_asked_all_the_same() {
    let server =
        Server::start(|request| chat::text(if has_tools(request) { "I cannot." } else { "one two" })).await;
    let findings = check(&place(&server, "")).await.expect(0).json();
    assert_found(&findings, "tools", "missing", "it did not call the tool");
    assert_found(&findings, "stop", "ok", "end_turn after words");
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn calls_that_fit_no_tool_and_requests_with_tools_that_are_refused_are_told() {
    let wrong = |request: &Value| match has_tools(request) {
        false => chat::text("one two"),
        true => chat::calls(&[("c1".to_owned(), "lucky_number".to_owned(), json!({"who": "herder"}))]),
    };
    let server = Server::start(wrong).await;
    let findings = check(&place(&server, "")).await.expect(1).json();
    assert_found(&findings, "tools", "failed", "do not fit the tool's schema");

    let none = |request: &Value| match has_tools(request) {
        false => chat::text("one two"),
        true => {
            Answer::Status { status: 400, headers: Vec::new(), body: "tools are not supported".to_owned() }
        }
    };
    let server = Server::start(none).await;
    let findings = check(&place(&server, "")).await.expect(1).json();
    assert_found(&findings, "tools", "failed", "tools are not supported");
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_told_with_what_came() {
    let server = Server::start(|_| {
        let piece = chat::chunk(&json!({"content": "one two"}), None);
        Answer::Raw(vec![Step::Bytes(format!("data: {piece}\n\n").into_bytes()), Step::Drop])
    })
    .await;
    let findings = check(&place(&server, "")).await.expect(1).json();
    assert_found(&findings, "text", "failed", "the answer broke off: ");
}

#[tokio::test]
async fn limits_that_headers_tell_are_shown() {
    let server = Server::start(|request| {
        let body: String = events(good(request)).iter().map(|event| format!("data: {event}\n\n")).collect();
        let headers = [
            ("content-type", "text/event-stream"),
            ("x-ratelimit-limit-requests", "500"),
            ("x-ratelimit-remaining-requests", "499"),
        ];
        let headers = headers.map(|(name, value)| (name, value.to_owned())).to_vec();
        Answer::Status { status: 200, headers, body: body + "data: [DONE]\n\n" }
    })
    .await;
    let findings = check(&place(&server, "")).await.expect(0).json();
    assert_found(&findings, "rate-limits", "ok", "499 of 500 requests are left");
}

#[tokio::test]
async fn a_server_that_speaks_messages_is_checked_as_well() {
    let rules = Rules { protocol: Protocol::Messages, ..Rules::default() };
    let server = Server::strict(rules, |request| {
        if has_tools(request) && request["messages"].as_array().unwrap().len() == 1 {
            let call = messages::uses("toolu_1", "lucky_number", &json!({"name": "herder"}));
            return messages::answer(&[call], "tool_use");
        }
        messages::answer(&[messages::words("4711 it is")], "end_turn")
    })
    .await;
    let place =
        Place::new(&format!("[models.m]\nprovider = \"anthropic\"\nbase_url = \"{}\"\n", server.base_url()));
    let findings = place.herder(&[], &["models", "check", "m", "--json"]).await.expect(0).json();
    assert_found(&findings, "key", "ok", "no key is wanted");
    assert_found(&findings, "follow-up", "ok", "accepted, and used");
    assert_found(&findings, "stop", "ok", "tool_calls after a call");
    assert_found(&findings, "usage", "ok", " tokens in, ");
    assert_eq!((server.requests().len(), server.refusals()), (3, Vec::<String>::new()));
}

#[tokio::test]
async fn a_server_that_wants_its_thoughts_back_is_told_with_the_key_to_set() {
    // Thinks before its call, and takes the call's result only with the thought.
    let answer = |request: &Value| {
        let messages = request["messages"].as_array().unwrap();
        let thought = messages.iter().any(|message| message.get("reasoning_content").is_some());
        if has_result(request) && !thought {
            let body = json!({"error": {"message": "missing reasoning_content"}}).to_string();
            return Answer::Status { status: 400, headers: Vec::new(), body };
        }
        let mut events = events(good(request));
        if has_tools(request) && !has_result(request) {
            events.insert(0, chat::chunk(&json!({"reasoning_content": "A number it is."}), None));
        }
        Answer::Stream(events)
    };
    let rules = Rules { reasoning: true, ..Rules::default() };
    let server = Server::strict(rules.clone(), answer).await;
    let findings = check(&place(&server, "")).await.expect(1).json();
    assert_found(&findings, "follow-up", "failed", "set reasoning = \"reasoning_content\"");

    let server = Server::strict(rules, answer).await;
    let findings = check(&place(&server, "reasoning = \"reasoning_content\"")).await.expect(0).json();
    assert_found(&findings, "follow-up", "ok", "accepted, and used");
    assert_found(&findings, "reasoning", "ok", "is given its thoughts back");
}

#[tokio::test]
async fn the_other_name_of_the_token_limit_is_told() {
    let server = Server::start(|request| match request.get("max_completion_tokens") {
        Some(_) => good(request),
        None => {
            let message = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.";
            let body = json!({"error": {"message": message}}).to_string();
            Answer::Status { status: 400, headers: Vec::new(), body }
        }
    })
    .await;
    let findings = check(&place(&server, "")).await.expect(1).json();
    assert_found(&findings, "text", "failed", "set token_limit = \"max_completion_tokens\"");
    check(&place(&server, "token_limit = \"max_completion_tokens\"")).await.expect(0);
}

#[tokio::test]
async fn a_server_that_says_nothing_is_given_up_in_time_and_a_signal_ends_the_check_at_once() {
    let server = Server::start(|_| Answer::Hang).await;
    let args = ["models", "check", "m", "--json", "--timeout", "1s"];
    let findings = place(&server, "").herder(&[("MINE", "k")], &args).await.expect(1).json();
    assert_found(&findings, "server", "failed", "no whole answer within 1 s");

    // What was given up may reach its server late, so the other check has one of its own.
    let server = Server::start(|_| Answer::Hang).await;
    let place = place(&server, "");
    let child =
        place.command(&[("MINE", "k")], &["models", "check", "m", "--timeout", "1h"]).spawn().unwrap();
    server.asked(1).await;
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().await.unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(130), 0));
    server.closed().await;
}

#[tokio::test]
async fn what_cannot_be_checked_ends_with_two_and_one_sentence() {
    let place = Place::new("[models.m]\nprovider = \"openai\"\nbase_url = \"http://h\"\n");
    for (model, told) in [
        ("clever", "no model is called \"clever\""),
        ("openai:gpt-5", "there is no key for https://api.openai.com/v1"),
        ("scripted:x", "there is no server to check"),
    ] {
        let refused = place.herder(&[], &["models", "check", model]).await.expect(2);
        assert!(refused.err.contains(told) && refused.err.lines().count() == 1, "{}", refused.err);
    }
}

/// What is found of a server that gives this answer to everything, without a key.
async fn found_of(
    status: u16,
    headers: &[(&'static str, &str)],
    body: &str,
    more: &str,
) -> (Vec<Value>, i32) {
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    let body = body.to_owned();
    let answer = move |_: &Value| Answer::Status { status, headers: headers.clone(), body: body.clone() };
    let server = Server::start(answer).await;
    let url = server.base_url();
    let place = Place::new(&format!(
        "[models.m]\nprovider = \"openai\"\nmodel = \"fake-1\"\nbase_url = \"{url}\"\n{more}\n"
    ));
    let ended = place.herder(&[], &["models", "check", "m", "--json"]).await;
    (ended.json(), ended.code.unwrap_or(-1))
}

const STREAM: &[(&str, &str)] = &[("content-type", "text/event-stream")];

#[tokio::test]
async fn whatever_came_from_a_server_it_is_not_said_that_nothing_answers() {
    let (findings, code) = found_of(200, STREAM, "data: {not json}\n\n", "").await;
    assert_eq!((states(&findings), code), (vec![("server", "ok"), ("text", "failed")], 1));
    let (findings, _) = found_of(500, &[], &"x".repeat(5000), "").await;
    let (_, said) = found(&findings, "text");
    assert!(said.contains("HTTP 500: xxx") && said.len() < 250, "{said}");
}

#[tokio::test]
async fn an_answer_without_a_word_fails_to_the_end() {
    for body in
        ["data: [DONE]\n\n".to_owned(), format!("data: {}\n\n", chat::chunk(&json!({}), Some("stop")))]
    {
        let (findings, code) = found_of(200, STREAM, &body, "free = true").await;
        assert!(findings.iter().all(|one| one["what"] != "stop" || one["state"] == "failed"), "{findings:?}");
        assert_eq!((found(&findings, "text").0, code), ("failed", 1));
    }
}

#[tokio::test]
async fn a_filter_a_redirect_and_a_country_are_told_as_what_they_are() {
    let filtered = format!(
        "data: {}\n\ndata: [DONE]\n\n",
        chat::chunk(&json!({"content": "one"}), Some("content_filter"))
    );
    let (findings, _) = found_of(200, STREAM, &filtered, "free = true").await;
    assert_found(&findings, "text", "failed", "a filter before it, declined");
    assert_found(&findings, "cost", "ok", "the model is free");
    let (findings, _) = found_of(302, &[("location", "https://h.invalid/login?secret=1")], "", "").await;
    assert_found(&findings, "text", "failed", "redirects to https://h.invalid/login, which is not followed");
    let (findings, _) = found_of(403, &[], "Country not supported", "").await;
    assert_found(
        &findings,
        "key",
        "failed",
        "the server refuses the request: HTTP 403: Country not supported",
    );
    let (findings, _) = found_of(403, &[], "Invalid API key", "").await;
    assert_found(&findings, "key", "failed", "the server wants a key");
}

#[tokio::test]
async fn flags_stand_before_the_check_as_well_as_after() {
    let server = Server::start(good).await;
    let place = place(&server, "");
    let args = ["models", "--policy", "trusted", "--json", "check", "m"];
    let findings = place.herder(&[("MINE", "k")], &args).await.expect(0).json();
    assert_found(&findings, "server", "ok", " answers");
    place.herder(&[], &["models", "local", "check", "m"]).await.expect(2);
}
