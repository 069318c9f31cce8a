//! Answers that are none, and what kind of failure each is.

use std::time::Duration;

use futures_util::StreamExt as _;
use herder::{
    domain::outcome::FaultClass,
    model::{
        Delta, ModelProvider as _, RateLimits, Secret,
        governor::Window,
        http,
        openai::{OpenAi, Settings},
    },
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    ask::{ask, ask_raw, hear, provider, request},
    support::{
        chat::{self, chunk},
        hear::hear_all,
        server::{Answer, Rules, Server, Step},
        unheard,
    },
};

fn status(status: u16, headers: &[(&'static str, &str)], body: &str) -> Answer {
    let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    Answer::Status { status, headers, body: body.to_owned() }
}

#[tokio::test]
async fn a_refusal_carries_its_class_its_words_and_its_wait() {
    let quota = r#"{"error":{"type":"insufficient_quota","code":"insufficient_quota","message":"You exceeded your quota"}}"#;
    let said = ask(status(429, &[("retry-after", "60")], quota)).await;
    assert_eq!(said.class(), Some(FaultClass::Quota));

    let said = ask(status(429, &[("retry-after-ms", "3000"), ("retry-after", "60")], "slow")).await;
    let error = said.error.unwrap();
    let told = (error.class, error.message.as_str(), error.retry_after);
    assert_eq!(told, (FaultClass::RateLimit, "HTTP 429: slow", Some(Duration::from_secs(3))));

    let said = ask(status(502, &[("content-type", "text/html")], "<html>bad gateway</html>")).await;
    assert_eq!(
        (said.class(), said.message()),
        (Some(FaultClass::Transient), "HTTP 502: <html>bad gateway</html>")
    );
}

#[tokio::test]
async fn a_status_is_read_before_its_body_whatever_the_body_is() {
    let full = r#"{"error":{"message":"Prompt has 9120 tokens, but the configured context size is 8192 tokens","code":"context_length_exceeded","n_prompt_tokens":9120,"n_ctx":8192}}"#;
    let words = r#"{"error":{"type":"invalid_request_error","message":"Prompt has 9120 tokens, but the configured context size is 8192 tokens"}}"#;
    let plain = "request (9120 tokens) exceeds the available context size (8192 tokens)";
    let table = [
        (400, full, FaultClass::ContextOverflow, "9120"),
        (400, words, FaultClass::ContextOverflow, "9120"),
        (400, plain, FaultClass::ContextOverflow, plain),
        (413, "", FaultClass::ContextOverflow, "HTTP 413"),
        (503, r#"{"error":"overloaded"}"#, FaultClass::Overloaded, "HTTP 503: overloaded"),
        (422, r#"{"detail":"x"}"#, FaultClass::Invalid, r#"HTTP 422: "x""#),
        (502, "<html>bad gateway</html>", FaultClass::Transient, "bad gateway"),
        (502, r#"{"unknown":{"shape":1}}"#, FaultClass::Transient, "shape"),
    ];
    for (code, body, class, part) in table {
        let said = ask(status(code, &[("content-type", "text/plain")], body)).await;
        assert_eq!(said.class(), Some(class), "{code} {body}");
        assert!(said.message().contains(part), "{} lacks {part}", said.message());
        // A server that failed may have been at work.
        assert_eq!(said.error.unwrap().refused, code < 500 || [503, 529].contains(&code));
    }
}

#[tokio::test]
async fn the_wait_that_is_asked_for_is_told_and_nonsense_is_none() {
    let seconds = |seconds| Some(Duration::from_secs_f64(seconds));
    let past = "Wed, 21 Oct 2015 07:28:00 GMT";
    let table =
        [("2", seconds(2.0)), ("1.5", seconds(1.5)), ("soon", None), ("-5", None), ("0", None), (past, None)];
    for (header, wait) in table {
        let said = ask(status(429, &[("retry-after", header)], "slow")).await;
        assert_eq!(
            (said.class(), said.error.unwrap().retry_after),
            (Some(FaultClass::RateLimit), wait),
            "{header}"
        );
    }
    let soon = jiff::Timestamp::now() + Duration::from_secs(600);
    let date = jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&soon).unwrap();
    let wait = ask(status(429, &[("retry-after", &date)], "slow")).await.error.unwrap().retry_after.unwrap();
    assert!((Duration::from_secs(500)..=Duration::from_secs(600)).contains(&wait), "{wait:?}");
}

#[tokio::test]
async fn what_the_head_says_of_limits_is_told_before_an_error_and_before_an_answer() {
    let limits = [
        ("x-ratelimit-limit-requests", "60"),
        ("x-ratelimit-remaining-requests", "0"),
        ("x-ratelimit-reset-requests", "1s"),
        ("x-ratelimit-limit-tokens", "150000"),
        ("x-ratelimit-remaining-tokens", "149984"),
        ("x-ratelimit-reset-tokens", "6m0s"),
    ];
    let window = |limit, remaining, reset| {
        Some(Window {
            limit: Some(limit),
            remaining: Some(remaining),
            reset: Some(Duration::from_secs(reset)),
        })
    };
    let expected = RateLimits { requests: window(60, 0, 1), tokens: window(150_000, 149_984, 360) };
    let json = [limits.as_slice(), &[("content-type", "application/json")]].concat();
    let whole = json!({"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}]}).to_string();
    let ask = async |answer: Answer| {
        let server = Server::start(move |_| answer.clone()).await;
        let stream = provider(&server, Settings::default()).stream(request("go"), CancellationToken::new());
        hear_all(stream).await
    };
    let (refused, why) = ask(status(429, &limits, "slow")).await;
    assert_eq!((refused.rates, why.class()), (vec![expected], Some(FaultClass::RateLimit)));
    let (answered, said) = ask(status(200, &json, &whole)).await;
    assert_eq!((answered.rates, said.text.as_str()), (vec![expected], "x"));
    assert_eq!(ask(chat::text("x")).await.0.rates, []);
}

#[tokio::test]
async fn success_with_a_page_names_the_content_type() {
    let said =
        ask(status(200, &[("content-type", "text/html; charset=utf-8")], "<html>sign in</html>")).await;
    assert_eq!(said.class(), Some(FaultClass::Transient));
    assert!(said.message().contains("text/html"), "{}", said.message());
}

#[tokio::test]
async fn an_error_inside_a_stream_is_an_error_and_what_came_before_it_is_kept() {
    let inside =
        json!({"id": "cmpl-1", "choices": [], "error": {"code": 502, "message": "worker went away"}});
    let in_choice = json!({"choices": [{"delta": {}, "finish_reason": "error", "error": {"code": "server_error", "message": "worker went away"}}]});
    let bare = json!({"object": "error", "code": 503, "message": "worker went away"});
    let named = json!({"choices": [], "error": {"code": "server_error", "message": "worker went away"}});
    for (event, class) in [
        (named, FaultClass::Transient),
        (inside, FaultClass::Transient),
        (in_choice, FaultClass::Transient),
        (bare, FaultClass::Overloaded),
    ] {
        let said = ask(Answer::Stream(vec![chunk(&json!({"content": "par"}), None), event])).await;
        assert_eq!((said.text.as_str(), said.class(), said.stop), ("par", Some(class), None));
        assert!(said.message().contains("worker went away"), "{}", said.message());
    }
    let unexplained = ask(Answer::Stream(vec![chunk(&json!({}), Some("error"))])).await;
    assert_eq!(unexplained.class(), Some(FaultClass::Transient));
}

#[tokio::test]
async fn an_error_event_instead_of_an_answer_counts_like_its_status() {
    let error = r#"{"error":{"message":"invalid request","type":"invalid_request_error","code":400}}"#;
    let said = ask_raw(&format!("event: error\ndata: {error}\n\n")).await;
    assert_eq!(said.class(), Some(FaultClass::Invalid));
    assert!(said.message().contains("invalid request"), "{}", said.message());
    let bare = ask_raw("event: error\ndata: out of memory\n\n").await;
    assert_eq!(
        (bare.class(), bare.message()),
        (Some(FaultClass::Transient), "error in the answer: out of memory")
    );
    let whole = ask(Answer::Json(json!({"error": {"message": "no", "code": 401}}))).await;
    assert_eq!(whole.class(), Some(FaultClass::Auth));
}

#[tokio::test]
async fn what_is_no_json_and_what_is_endless_is_a_passing_fault() {
    for body in ["data: {\"choices\":[{\"del\n\n", "data: 7\n\n", "", "plain words\n\n"] {
        assert_eq!(ask_raw(body).await.class(), Some(FaultClass::Transient), "{body}");
    }
    let endless = vec![Step::Bytes(vec![b'x'; 1 << 20]); 20];
    let said = ask(Answer::Raw(endless)).await;
    assert!(said.message().contains("longer than"), "{}", said.message());
}

#[tokio::test]
async fn a_connection_that_fails_is_a_passing_fault() {
    let early = ask(Answer::Drop).await;
    let begun = chunk(&json!({"content": "par"}), None);
    let midway =
        ask(Answer::Raw(vec![Step::Bytes(format!("data: {begun}\n\n").into_bytes()), Step::Drop])).await;
    assert_eq!((early.class(), midway.class()), (Some(FaultClass::Transient), Some(FaultClass::Transient)));
    assert_eq!(midway.text, "par");

    let (_bound, address) = unheard();
    let settings = Settings { base_url: format!("http://{address}/v1"), ..Settings::default() };
    let provider = OpenAi::new(http::client().unwrap(), settings).unwrap();
    let refused = hear(provider.stream(request("go"), CancellationToken::new())).await;
    assert_eq!(refused.class(), Some(FaultClass::Transient));
    assert!(refused.message().to_lowercase().contains("refused"), "{}", refused.message());
}

#[tokio::test]
async fn a_wrong_key_is_said_and_never_shown() {
    let rules = Rules { key: Some("right".to_owned()), ..Rules::default() };
    let server = Server::strict(rules, |_| chat::text("hello")).await;
    let with = |key: &str| Settings { api_key: Secret::new(key), ..Settings::default() };
    let ask = async |key: &str| {
        hear(provider(&server, with(key)).stream(request("go"), CancellationToken::new())).await
    };
    assert_eq!(ask("right").await.text, "hello");
    assert_eq!(ask("wrong").await.class(), Some(FaultClass::Auth));
    assert_eq!(ask("").await.class(), Some(FaultClass::Auth));

    let echo = Server::start(|_| status(401, &[], "bad key: sk-123")).await;
    let said = hear(provider(&echo, with("sk-123")).stream(request("go"), CancellationToken::new())).await;
    assert_eq!(said.message(), "HTTP 401: bad key: [key]");
}

#[tokio::test]
async fn an_error_of_any_length_is_quoted_in_short() {
    let server = Server::start(|_| status(503, &[("x-pad", "x")], &"x".repeat(1 << 20))).await;
    let mut stream = provider(&server, Settings::default()).stream(request("go"), CancellationToken::new());
    assert!(matches!(stream.next().await, Some(Ok(Delta::Sent(_)))));
    let error = stream.next().await.unwrap().unwrap_err();
    assert_eq!(error.class, FaultClass::Overloaded);
    assert!(
        error.message.len() < 1000 && error.message.starts_with("HTTP 503: xxx"),
        "{}",
        error.message.len()
    );
    drop(stream);
    server.closed().await;
}
