//! How answers end, well or not, and what kind of failure each of the others is.

use std::time::Duration;

use futures_util::StreamExt as _;
use herder::{
    domain::{
        outcome::{FaultClass, Stop},
        usage::Usage,
    },
    model::{Delta, ModelProvider as _, Secret, responses::Settings},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    ask::{
        answer, ask, ask_events, ask_raw, call, completed, event, hear, item, message, provider, request,
        rules, server, stream,
    },
    support::{
        hear::hear_all,
        server::{Answer, Rules, Server, Step},
    },
};

fn ended(kind: &str, response: Value) -> Value {
    json!({"type": format!("response.{kind}"), "response": response})
}

fn text(words: &str) -> Value {
    event("output_text.delta", 0, json!({"content_index": 0, "delta": words}))
}

#[tokio::test]
async fn an_answer_that_is_cut_says_why() {
    let cut = |reason: &str| json!({"status": "incomplete", "incomplete_details": {"reason": reason}});
    let table = [
        ("incomplete", cut("max_output_tokens"), Stop::Length),
        ("incomplete", cut("content_filter"), Stop::Refusal),
        ("incomplete", json!({}), Stop::Length),
        ("completed", json!({"status": "incomplete"}), Stop::Length),
        ("completed", Value::Null, Stop::EndTurn),
        ("completed", json!({"status": null, "incomplete_details": null, "error": null}), Stop::EndTurn),
    ];
    for (kind, response, stop) in table {
        let said = ask_events(&[text("x"), ended(kind, response.clone())]).await;
        assert_eq!((said.stop, said.text.as_str()), (Some(stop), "x"), "{kind} {response}");
    }
    let half = call(0, "c_a", "write", "{\"con");
    let nameless = json!({"type": "function_call", "id": "i_1"});
    let events =
        [item("added", 0, &half), item("added", 1, &nameless), ended("incomplete", cut("max_output_tokens"))];
    let said = ask_events(&events).await;
    let kept = [("c_a".to_owned(), "write".to_owned(), "{\"con".to_owned())];
    assert_eq!((said.stop, said.calls.as_slice()), (Some(Stop::Length), kept.as_slice()));
}

#[tokio::test]
async fn a_refusal_is_one_whether_in_pieces_or_whole() {
    let mut refused = message(0, "");
    refused["content"] = json!([{"type": "refusal", "refusal": "I can't."}]);
    let pieces =
        [event("refusal.delta", 0, json!({"content_index": 0, "delta": "I can't."})), completed(&[])];
    for said in [ask(answer(&[refused])).await, ask_events(&pieces).await] {
        assert_eq!((said.stop, said.text.as_str()), (Some(Stop::Refusal), "I can't."));
    }
}

#[tokio::test]
async fn an_answer_without_the_event_that_ends_it_is_a_failure_and_gives_no_call() {
    let begun = [
        item("added", 0, &call(0, "c_a", "write", "")),
        event("function_call_arguments.delta", 0, json!({"delta": "{\"content\":\"first ha"})),
    ];
    let whole = [item("done", 0, &call(0, "c_a", "write", "{}"))];
    for events in [begun.as_slice(), whole.as_slice()] {
        let torn = stream(events);
        let dropped = Answer::Raw(vec![Step::Bytes(torn.clone().into_bytes()), Step::Drop]);
        let done = format!("{torn}data: [DONE]\n\n");
        for said in [ask_raw(&torn).await, ask(dropped).await, ask_raw(&done).await] {
            assert_eq!(
                (said.class(), said.calls, said.stop),
                (Some(FaultClass::Transient), Vec::new(), None)
            );
        }
    }
    let nameless = json!({"type": "function_call", "id": "i_0", "call_id": "c", "arguments": "{}"});
    assert_eq!(ask_events(&[completed(&[nameless])]).await.class(), Some(FaultClass::Transient));
}

#[tokio::test]
async fn an_error_inside_a_stream_has_its_class_and_what_came_before_it_is_told() {
    let failed = |code: &str| {
        ended("failed", json!({"status": "failed", "error": {"code": code, "message": "went away"}}))
    };
    let table = [
        (failed("server_error"), FaultClass::Transient),
        (failed("rate_limit_exceeded"), FaultClass::RateLimit),
        (failed("context_length_exceeded"), FaultClass::ContextOverflow),
        (failed("insufficient_quota"), FaultClass::Quota),
        (failed("invalid_prompt"), FaultClass::Invalid),
        (
            json!({"type": "error", "code": "server_error", "message": "went away", "param": null}),
            FaultClass::Transient,
        ),
        (json!({"type": "error", "error": {"code": 503, "message": "went away"}}), FaultClass::Overloaded),
        (
            json!({"type": "", "error": {"type": "invalid_request_error", "code": 400, "message": "went away"}}),
            FaultClass::Invalid,
        ),
    ];
    for (error, class) in table {
        let said = ask_events(&[text("par"), error.clone()]).await;
        assert_eq!((said.text.as_str(), said.class(), said.stop), ("par", Some(class), None), "{error}");
        assert!(said.message().contains("went away"), "{}", said.message());
    }
    for status in ["failed", "cancelled", "in_progress"] {
        let said = ask(Answer::Json(json!({"status": status, "output": []}))).await;
        assert_eq!(said.class(), Some(FaultClass::Transient), "{status}");
    }
    let spent = json!({"status": "failed", "error": {"code": "server_error"}, "usage": {"input_tokens": 7, "output_tokens": 2}});
    let said = ask_events(&[ended("failed", spent)]).await;
    assert_eq!(said.usage, [Usage { input: 7, output: 2, ..Usage::default() }]);
}

#[tokio::test]
async fn what_is_no_answer_is_a_failure() {
    for body in [
        "data: {\"type\":\"resp\n\n",
        "data: 7\n\n",
        "",
        "plain words\n\n",
        "event: error\ndata: out of memory\n\n",
    ] {
        assert_eq!(ask_raw(body).await.class(), Some(FaultClass::Transient), "{body}");
    }
    let other = ask(Answer::Json(json!({"error": {"message": "no", "code": 401}}))).await;
    assert_eq!(other.class(), Some(FaultClass::Auth));
    assert_eq!(ask(Answer::Json(json!({"detail": "x"}))).await.class(), Some(FaultClass::Transient));
    assert_eq!(ask(Answer::Drop).await.class(), Some(FaultClass::Transient));
}

#[tokio::test]
async fn a_refused_request_carries_its_class_its_wait_and_the_limits_of_the_account() {
    let headers = vec![
        ("retry-after", "2".to_owned()),
        ("x-ratelimit-limit-requests", "60".to_owned()),
        ("x-ratelimit-remaining-requests", "0".to_owned()),
    ];
    let body = r#"{"error":{"message":"slow","code":"rate_limit_exceeded"}}"#.to_owned();
    let server =
        server(move |_| Answer::Status { status: 429, headers: headers.clone(), body: body.clone() }).await;
    let stream = provider(&server, Settings::default()).stream(request("go"), CancellationToken::new());
    let (head, said) = hear_all(stream).await;
    let window = head.rates[0].requests.unwrap();
    assert_eq!((window.limit, window.remaining, head.sent.len()), (Some(60), Some(0), 1));
    let error = said.error.unwrap();
    assert_eq!((error.class, error.retry_after), (FaultClass::RateLimit, Some(Duration::from_secs(2))));
    assert!(error.refused);
}

#[tokio::test]
async fn a_wrong_key_is_refused_and_a_request_ends_when_it_is_told_to() {
    let rules = Rules { key: Some("right".to_owned()), ..rules() };
    let server = Server::strict(rules, |_| {
        Answer::Raw(vec![Step::Bytes(stream(&[text("par")]).into_bytes()), Step::Hang])
    })
    .await;
    let with = |key: &str| provider(&server, Settings { api_key: Secret::new(key), ..Settings::default() });
    let wrong = hear(with("wrong").stream(request("go"), CancellationToken::new())).await;
    assert_eq!(wrong.class(), Some(FaultClass::Auth));

    let cancel = CancellationToken::new();
    let mut stream = with("right").stream(request("go"), cancel.clone());
    assert!(matches!(stream.next().await, Some(Ok(Delta::Sent(_)))));
    assert_eq!(stream.next().await, Some(Ok(Delta::Text("par".to_owned()))));
    cancel.cancel();
    assert_eq!(hear(stream).await.class(), Some(FaultClass::Cancelled));
    server.closed().await;
}
