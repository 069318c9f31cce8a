//! Answers that are none, and what kind of failure each is.

use herder::{
    domain::{outcome::FaultClass, usage::Usage},
    model::{Secret, anthropic::Settings},
};
use serde_json::{Value, json};

use crate::{
    ask::{ask, ask_of, ask_raw, serve},
    support::{
        messages::{events, framed, words},
        server::{Answer, Step},
    },
};

fn error(kind: &str, message: &str) -> Value {
    json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"})
}

#[tokio::test]
async fn an_error_after_a_good_beginning_is_an_error_of_its_class() {
    let begun = framed(&events(&[words("par")], "end_turn")[..4]);
    let table = [
        ("overloaded_error", "Overloaded", FaultClass::Overloaded),
        ("rate_limit_error", "slow down", FaultClass::RateLimit),
        ("api_error", "Internal server error", FaultClass::Transient),
        ("timeout_error", "too slow", FaultClass::Timeout),
        ("authentication_error", "invalid x-api-key", FaultClass::Auth),
        ("permission_error", "no", FaultClass::Auth),
        ("billing_error", "no", FaultClass::Quota),
        ("invalid_request_error", "no", FaultClass::Invalid),
        (
            "invalid_request_error",
            "prompt is too long: 210000 tokens > 200000 maximum",
            FaultClass::ContextOverflow,
        ),
        ("request_too_large", "no", FaultClass::ContextOverflow),
    ];
    for (kind, message, class) in table {
        let error = error(kind, message);
        for event in [format!("event: error\ndata: {error}\n\n"), format!("data: {error}\n\n")] {
            let said = ask_raw(&format!("{begun}{event}")).await;
            assert_eq!((said.text.as_str(), said.class(), said.stop), ("par", Some(class), None), "{kind}");
            assert!(said.message().contains(message), "{}", said.message());
            assert_eq!(said.usage, [Usage { input: 10, output: 1, ..Usage::default() }]);
        }
    }
}

#[tokio::test]
async fn an_error_right_at_the_start_leaves_no_answer() {
    let body = concat!(
        "event: message_start\n",
        r#"data: {"type":"message_start","message":{"id":"m1","role":"assistant","content":[],"usage":{"input_tokens":5,"output_tokens":0}}}"#,
        "\n\nevent: error\n",
        r#"data: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
        "\n\n",
    );
    let said = ask_raw(body).await;
    assert_eq!((said.class(), said.stop, said.text.as_str()), (Some(FaultClass::Overloaded), None, ""));
    assert!(said.message().contains("Overloaded"), "{}", said.message());
}

#[tokio::test]
async fn a_refusal_carries_its_class() {
    let table = [
        (400, "invalid_request_error", FaultClass::Invalid),
        (401, "authentication_error", FaultClass::Auth),
        (403, "permission_error", FaultClass::Auth),
        (404, "not_found_error", FaultClass::Invalid),
        (413, "request_too_large", FaultClass::ContextOverflow),
        (429, "rate_limit_error", FaultClass::RateLimit),
        (500, "api_error", FaultClass::Transient),
        (529, "overloaded_error", FaultClass::Overloaded),
    ];
    for (status, kind, class) in table {
        let said =
            ask(Answer::Status { status, headers: Vec::new(), body: error(kind, "no").to_string() }).await;
        assert_eq!(said.class(), Some(class), "{status}");
        assert_eq!(said.message(), format!("HTTP {status}: no ({kind})"));
        // A server that failed may have been at work.
        assert_eq!(said.error.unwrap().refused, status < 500 || [503, 529].contains(&status));
    }
}

#[tokio::test]
async fn what_is_no_message_is_a_passing_fault() {
    for body in ["data: {\"type\":\"mess\n\n", "data: 7\n\n", "", "plain words\n\n"] {
        assert_eq!(ask_raw(body).await.class(), Some(FaultClass::Transient), "{body}");
    }
    for whole in [json!({"id": "msg_1"}), json!({"content": []})] {
        assert_eq!(ask(Answer::Json(whole)).await.class(), Some(FaultClass::Transient));
    }
    assert_eq!(
        ask(Answer::Json(error("overloaded_error", "no"))).await.class(),
        Some(FaultClass::Overloaded)
    );
    let bare = ask_raw("event: error\ndata: out of memory\n\n").await;
    assert_eq!(bare.message(), "error in the answer: out of memory");
}

#[tokio::test]
async fn a_connection_that_fails_is_a_passing_fault() {
    let begun = framed(&events(&[words("par")], "end_turn")[..4]);
    let midway = ask(Answer::Raw(vec![Step::Bytes(begun.into_bytes()), Step::Drop])).await;
    assert_eq!((midway.class(), midway.text.as_str()), (Some(FaultClass::Transient), "par"));
    assert_eq!(ask(Answer::Drop).await.class(), Some(FaultClass::Transient));
}

#[tokio::test]
async fn a_key_that_the_server_repeats_is_not_shown() {
    let body = "bad key: sk-ant-123".to_owned();
    let echo = serve(move |_| Answer::Status { status: 401, headers: Vec::new(), body: body.clone() }).await;
    let said = ask_of(&echo, Settings { api_key: Secret::new("sk-ant-123"), ..Settings::default() }).await;
    assert_eq!(said.message(), "HTTP 401: bad key: [key]");
}
