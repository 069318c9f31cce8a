//! What servers answer, and the kind of failure that it is.

use reqwest::header::HeaderValue;
use serde_json::json;

use super::*;

#[test]
fn a_status_and_its_body_give_the_class() {
    let table = [
        (400, r#"{"error":{"message":"bad"}}"#, FaultClass::Invalid),
        (404, r#"{"error":{"message":"no such model","code":"model_not_found"}}"#, FaultClass::Invalid),
        (422, r#"{"detail":"x"}"#, FaultClass::Invalid),
        (
            400,
            r#"{"error":{"message":"9120 tokens","code":"context_length_exceeded"}}"#,
            FaultClass::ContextOverflow,
        ),
        (
            400,
            r#"{"error":{"type":"invalid_request_error","message":"the configured context size is 8192 tokens"}}"#,
            FaultClass::ContextOverflow,
        ),
        (
            400,
            "request (9120 tokens) exceeds the available context size (8192 tokens)",
            FaultClass::ContextOverflow,
        ),
        (
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"input length and `max_tokens` exceed context limit: 199000 + 8192 > 200000"}}"#,
            FaultClass::ContextOverflow,
        ),
        (
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"You have reached your specified API usage limits."}}"#,
            FaultClass::Quota,
        ),
        (413, "", FaultClass::ContextOverflow),
        (401, "", FaultClass::Auth),
        (403, "<html>", FaultClass::Auth),
        (
            403,
            r#"{"error":{"code":403,"message":"Your input was flagged for \"violence\"","metadata":{"reasons":["violence"]}}}"#,
            FaultClass::Invalid,
        ),
        (403, r#"{"error":{"code":"content_filter","message":"no"}}"#, FaultClass::Invalid),
        (
            429,
            r#"{"error":{"message":"Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 45000.","code":"rate_limit_exceeded"}}"#,
            FaultClass::ContextOverflow,
        ),
        (
            413,
            r#"{"error":{"message":"Request too large for model `m` on tokens per minute (TPM): Limit 6000, Requested 7000","code":"rate_limit_exceeded"}}"#,
            FaultClass::ContextOverflow,
        ),
        (429, "on tokens per min: Limit 30000, Used 0, Requested 30001", FaultClass::ContextOverflow),
        (429, "on tokens per min: Limit 30000, Used 29000, Requested 4500", FaultClass::RateLimit),
        (402, "", FaultClass::Quota),
        (
            429,
            r#"{"error":{"type":"insufficient_quota","message":"You exceeded your current quota"}}"#,
            FaultClass::Quota,
        ),
        (429, r#"{"error":{"message":"quota for this minute, see billing"}}"#, FaultClass::RateLimit),
        (429, "slow down", FaultClass::RateLimit),
        (408, "", FaultClass::Timeout),
        (409, "", FaultClass::Transient),
        (500, "[1]", FaultClass::Transient),
        (502, "<html>bad gateway</html>", FaultClass::Transient),
        (504, "", FaultClass::Transient),
        (503, r#"{"error":"overloaded"}"#, FaultClass::Overloaded),
        (529, "", FaultClass::Overloaded),
        (302, "", FaultClass::Invalid),
    ];
    for (status, body, class) in table {
        assert_eq!(from_status(status, body, None).class, class, "{status} {body}");
    }
}

#[test]
fn only_words_against_the_key_itself_are_held_against_the_account() {
    let table = [
        (401, "", true),
        (401, r#"{"error":{"message":"Incorrect API key provided","code":"invalid_api_key"}}"#, true),
        (403, r#"{"error":{"message":"The API key has expired"}}"#, true),
        (403, r#"{"error":{"type":"authentication_error","message":"no"}}"#, true),
        (403, "", false),
        (403, "<html>", false),
        (403, r#"{"error":{"type":"permission_error","message":"Your API key may not use model x"}}"#, false),
        (403, r#"{"error":{"message":"The model x is disabled for this API key"}}"#, false),
        (403, r#"{"error":{"message":"flagged by moderation"}}"#, false),
        (402, "invalid api key", false),
    ];
    for (status, body, refused) in table {
        assert_eq!(from_status(status, body, None).key_refused, refused, "{status} {body}");
    }
    assert!(from_error(&json!({"type": "authentication_error", "message": "x"})).key_refused);
    assert!(from_error(&json!({"code": 401, "message": "x"})).key_refused);
    assert!(!from_error(&json!({"type": "permission_error", "message": "x"})).key_refused);
}

#[test]
fn a_failure_behind_which_there_may_have_been_work_is_not_free() {
    for (status, free) in
        [(400, true), (429, true), (500, false), (502, false), (503, true), (504, false), (529, true)]
    {
        assert_eq!(from_status(status, "", None).refused, free, "{status}");
    }
}

#[test]
fn what_the_server_said_is_quoted_with_its_status() {
    let message = |status, body: &str| from_status(status, body, None).message;
    assert_eq!(message(502, "<html>\n bad\u{0}gateway</html>"), "HTTP 502: <html> bad gateway</html>");
    assert_eq!(
        message(429, r#"{"error":{"message":"slow","code":"rate_limit"}}"#),
        "HTTP 429: slow (rate_limit)"
    );
    assert_eq!(message(503, r#"{"error":"overloaded"}"#), "HTTP 503: overloaded");
    assert_eq!(message(422, r#"{"detail":[{"loc":1}]}"#), r#"HTTP 422: [{"loc":1}]"#);
    assert_eq!(message(500, ""), "HTTP 500");
    let long = message(500, &"é".repeat(9_000));
    assert_eq!(long.chars().filter(|c| *c == 'é').count(), QUOTED);
    assert!(long.ends_with('…'));
}

#[test]
fn an_error_inside_an_answer_is_classified_by_its_code() {
    let table = [
        (json!({"error": {"code": 502, "message": "worker went away"}}), FaultClass::Transient),
        (json!({"code": "429", "message": "x"}), FaultClass::RateLimit),
        (json!({"code": "server_error", "message": "x"}), FaultClass::Transient),
        (
            json!({"message": "invalid request", "type": "invalid_request_error", "code": 400}),
            FaultClass::Invalid,
        ),
        (json!({"message": "no", "type": "invalid_request_error"}), FaultClass::Invalid),
        (json!({"type": "overloaded_error", "message": "Overloaded"}), FaultClass::Overloaded),
        (json!({"type": "rate_limit_error", "message": "x"}), FaultClass::RateLimit),
        (json!({"type": "api_error", "message": "Internal server error"}), FaultClass::Transient),
        (json!({"type": "timeout_error", "message": "x"}), FaultClass::Timeout),
        (json!({"type": "permission_error", "message": "x"}), FaultClass::Auth),
        (json!({"type": "not_found_error", "message": "model: x"}), FaultClass::Invalid),
        (json!({"type": "billing_error", "message": "x"}), FaultClass::Quota),
        (json!({"type": "request_too_large", "message": "x"}), FaultClass::ContextOverflow),
        (
            json!({"type": "invalid_request_error", "message": "prompt is too long: 210000 tokens > 200000 maximum"}),
            FaultClass::ContextOverflow,
        ),
        (json!({"type": "authentication_error", "message": "x"}), FaultClass::Auth),
        (json!({"code": "context_length_exceeded"}), FaultClass::ContextOverflow),
        (json!("worker went away"), FaultClass::Transient),
        (json!(null), FaultClass::Transient),
    ];
    for (error, class) in table {
        assert_eq!(from_error(&error).class, class, "{error}");
    }
    assert_eq!(
        from_error(&json!({"code": 502, "message": "worker went away"})).message,
        "error in the answer: worker went away (502)"
    );
}

#[test]
fn the_wait_that_a_server_asks_for_is_read_in_every_form() {
    let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
    let wait = |fields: &[(&'static str, &str)]| {
        let headers: HeaderMap = fields
            .iter()
            .map(|(name, value)| {
                (reqwest::header::HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
            })
            .collect();
        retry_after(&headers, now)
    };
    let s = Duration::from_secs;
    assert_eq!(wait(&[("retry-after", "2")]), Some(s(2)));
    assert_eq!(wait(&[("retry-after", "1.5")]), Some(Duration::from_millis(1500)));
    assert_eq!(wait(&[("retry-after", "Fri, 02 Jan 2026 03:04:08 GMT")]), Some(s(3)));
    assert_eq!(wait(&[("retry-after-ms", "3000"), ("retry-after", "60")]), Some(s(3)));
    assert_eq!(wait(&[("retry-after-ms", "soon"), ("retry-after", "60")]), Some(s(60)));
    for nothing in ["soon", "-5", "0", "NaN", "inf", "1e300", "", "Fri, 02 Jan 2026 03:04:00 GMT"] {
        assert_eq!(wait(&[("retry-after", nothing)]), None, "{nothing}");
    }
    assert_eq!(wait(&[]), None);
    for longest in ["1e19", "604801", "Fri, 02 Jan 2099 03:04:05 GMT"] {
        let told = from_status(429, "", wait(&[("retry-after", longest)]));
        assert_eq!(told.retry_after, Some(LONGEST_WAIT), "{longest}");
    }
}
