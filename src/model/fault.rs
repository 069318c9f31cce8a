//! Says what kind of failure a server's answer is, whatever shape the answer has.
//!
//! The status is read first, then the body's codes, then its words. Text is quoted with a bound. Knows nothing of
//! what is done about a failure.

use std::{error::Error, time::Duration};

use jiff::{Timestamp, fmt::rfc2822};
use reqwest::header::HeaderMap;
use serde_json::Value;

use super::ModelError;
use crate::domain::{outcome::FaultClass, text};

/// Characters of a server's text that a message quotes.
const QUOTED: usize = 500;

/// Codes that stand for a conversation that is too long.
const OVERFLOW_CODES: &[&str] =
    &["context_length_exceeded", "exceed_context_size_error", "request_too_large"];

/// Words in which servers without a code say the same.
const OVERFLOW_WORDS: &[&str] = &[
    "context length",
    "context size",
    "context window",
    "context limit",
    "maximum context",
    "prompt is too long",
    "input is too long",
    "too many input tokens",
];

/// Codes of an account that is used up: waiting does not help.
const QUOTA_CODES: &[&str] = &[
    "insufficient_quota",
    "billing_hard_limit_reached",
    "billing_not_active",
    "billing_error",
    "insufficient_balance",
    "insufficient_credits",
];

/// Words for the same; not "quota", which some servers say of the minute's.
const QUOTA_WORDS: &[&str] = &[
    "credit balance is too low",
    "insufficient balance",
    "insufficient credit",
    "reached your specified api usage limits",
];

/// An answer with a status that is no success.
pub(crate) fn from_status(status: u16, body: &str, retry_after: Option<Duration>) -> ModelError {
    let told = Told::parse(body);
    let class = told.class_of(status);
    let detail = told.detail();
    let message =
        if detail.is_empty() { format!("HTTP {status}") } else { format!("HTTP {status}: {detail}") };
    ModelError { class, message, retry_after, refused: true }
}

/// An error that came inside an answer that had begun well.
pub(crate) fn from_error(error: &Value) -> ModelError {
    let told = Told::read(error);
    let class = told.status.map_or_else(|| told.class_by_name(), |status| told.class_of(status));
    ModelError::new(class, format!("error in the answer: {}", told.detail()))
}

/// A request that found no server, or an answer whose connection failed.
pub(crate) fn from_transport(error: reqwest::Error) -> ModelError {
    let error = error.without_url();
    // No connection, no request.
    let refused = error.is_connect() || error.is_builder();
    let class = if error.is_timeout() {
        FaultClass::Timeout
    } else if error.is_builder() {
        FaultClass::Invalid
    } else {
        FaultClass::Transient
    };
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        message = format!("{message}: {error}");
        cause = error.source();
    }
    ModelError { refused, ..ModelError::new(class, quote(&message)) }
}

/// How long the server wants to be left alone. What is past, zero or garbage says nothing.
pub(crate) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let seconds =
        |text: &str| text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let until = |text: &str| {
        let date = rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
        Duration::try_from(date.duration_since(now)).ok()
    };
    let exact = text("retry-after-ms").and_then(seconds).map(|thousandfold| thousandfold / 1000);
    exact
        .or_else(|| text("retry-after").and_then(|text| seconds(text).or_else(|| until(text))))
        .filter(|wait| !wait.is_zero())
}

/// The first characters of `text`, on one line.
pub(crate) fn quote(text: &str) -> String {
    let mut quoted = String::new();
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()) {
        if !quoted.is_empty() {
            quoted.push(' ');
        }
        quoted.push_str(word);
        if let Some((cut, _)) = quoted.char_indices().nth(QUOTED) {
            quoted.truncate(cut);
            quoted.push('…');
            break;
        }
    }
    quoted
}

/// What a body says, in whichever of the known shapes.
#[derive(Debug, Default)]
struct Told {
    /// A status inside the body.
    status: Option<u16>,
    code: String,
    kind: String,
    message: String,
}

impl Told {
    fn parse(body: &str) -> Self {
        match text::from_json::<Value>(body) {
            Ok(value @ (Value::Object(_) | Value::String(_))) => {
                let told = Self::read(&value);
                if told.message.is_empty() { Self { message: body.to_owned(), ..told } } else { told }
            }
            Ok(_) | Err(_) => Self { message: body.to_owned(), ..Self::default() },
        }
    }

    /// Reads `{"error": {..}}`, `{"error": ".."}`, `{"message": ..}`, `{"detail": ..}`, or what is inside of them.
    fn read(value: &Value) -> Self {
        let inner = value.get("error").filter(|inner| !inner.is_null()).unwrap_or(value);
        if let Value::String(message) = inner {
            return Self { message: message.clone(), ..Self::default() };
        }
        let text = |key| inner.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let status = |key| {
            let value: &Value = inner.get(key)?;
            let number = value.as_u64().or_else(|| value.as_str()?.parse().ok())?;
            u16::try_from(number).ok().filter(|status| (400..600).contains(status))
        };
        let mut message = text("message");
        if message.is_empty() {
            message = inner.get("detail").unwrap_or(inner).to_string();
        }
        Self {
            status: status("code").or_else(|| status("status")),
            code: text("code"),
            kind: text("type"),
            message,
        }
    }

    fn detail(&self) -> String {
        let message = quote(&self.message);
        let code = if self.code.is_empty() { &self.kind } else { &self.code };
        match self.status {
            Some(status) => format!("{message} ({status})"),
            None if code.is_empty() || message.contains(code) => message,
            None => format!("{message} ({})", quote(code)),
        }
    }

    fn class_of(&self, status: u16) -> FaultClass {
        match status {
            400 | 404 | 413 | 422 if self.overflows() || status == 413 => FaultClass::ContextOverflow,
            _ if self.has_code(OVERFLOW_CODES) => FaultClass::ContextOverflow,
            402 => FaultClass::Quota,
            _ if self.is_used_up() => FaultClass::Quota,
            401 | 403 => FaultClass::Auth,
            408 => FaultClass::Timeout,
            429 => FaultClass::RateLimit,
            503 | 529 => FaultClass::Overloaded,
            409 | 425 | 500.. => FaultClass::Transient,
            _ => FaultClass::Invalid,
        }
    }

    /// The class where no status says it. An error without a known name may pass.
    fn class_by_name(&self) -> FaultClass {
        let names = [self.code.as_str(), self.kind.as_str()].map(str::to_ascii_lowercase);
        let named = |words: &[&str]| words.iter().any(|word| names.iter().any(|name| name.contains(word)));
        if self.overflows() {
            FaultClass::ContextOverflow
        } else if self.is_used_up() {
            FaultClass::Quota
        } else if named(&["rate_limit", "too_many_requests"]) {
            FaultClass::RateLimit
        } else if named(&["overloaded", "unavailable"]) {
            FaultClass::Overloaded
        } else if named(&["timeout"]) {
            FaultClass::Timeout
        } else if named(&["authentication", "permission", "api_key", "unauthorized", "forbidden"]) {
            FaultClass::Auth
        } else if named(&["invalid", "not_found", "bad_request", "badrequest", "unsupported"]) {
            FaultClass::Invalid
        } else {
            FaultClass::Transient
        }
    }

    fn overflows(&self) -> bool {
        self.has_code(OVERFLOW_CODES) || self.has_words(OVERFLOW_WORDS)
    }

    fn is_used_up(&self) -> bool {
        self.has_code(QUOTA_CODES) || self.has_words(QUOTA_WORDS)
    }

    fn has_code(&self, codes: &[&str]) -> bool {
        codes.iter().any(|code| self.code == *code || self.kind == *code)
    }

    fn has_words(&self, words: &[&str]) -> bool {
        let message = self.message.to_lowercase();
        words.iter().any(|word| message.contains(word))
    }
}

#[cfg(test)]
mod tests {
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
    }
}
