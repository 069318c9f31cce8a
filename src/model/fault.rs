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

/// Words for a single request that is larger than what may be asked for in a minute: it never gets through.
const TOO_LARGE_WORDS: &[&str] = &["request too large"];

/// Words of a server that will not look at what it was sent.
const MODERATION_WORDS: &[&str] = &[
    "moderation",
    "flagged",
    "safety",
    "content policy",
    "content_policy",
    "content filter",
    "content_filter",
    "content management",
];

/// Codes, or parts of them, that say that the key itself is no good, and not only for what was asked.
const KEY_CODES: &[&str] = &["authentication", "unauthorized", "api_key", "apikey"];

/// What a key is called.
const KEY_NAMES: &[&str] = &["api key", "api-key", "api_key", "apikey", "access token", "credentials"];

/// What is said of a key that is no good.
const KEY_FAULTS: &[&str] =
    &["invalid", "incorrect", "not valid", "expired", "disabled", "revoked", "deactivated", "missing"];

/// The longest wait that is believed. It bounds what is added to a clock, too.
const LONGEST_WAIT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// An answer with a status that is no success.
pub(crate) fn from_status(status: u16, body: &str, retry_after: Option<Duration>) -> ModelError {
    let told = Told::parse(body);
    let class = told.class_of(status);
    let detail = told.detail();
    let message =
        if detail.is_empty() { format!("HTTP {status}") } else { format!("HTTP {status}: {detail}") };
    let retry_after = retry_after.map(|wait| wait.min(LONGEST_WAIT));
    // A server that failed, or whose gateway lost patience, may have been at work.
    let refused = status < 500 || matches!(status, 503 | 529);
    ModelError { class, message, retry_after, refused, key_refused: told.refuses_key(class, Some(status)) }
}

/// An error that came inside an answer that had begun well.
pub(crate) fn from_error(error: &Value) -> ModelError {
    let told = Told::read(error);
    let class = told.status.map_or_else(|| told.class_by_name(), |status| told.class_of(status));
    let key_refused = told.refuses_key(class, told.status);
    ModelError { key_refused, ..ModelError::new(class, format!("error in the answer: {}", told.detail())) }
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
            429 if self.is_too_large() => FaultClass::ContextOverflow,
            403 if self.is_moderated() && !self.names_key() => FaultClass::Invalid,
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
        if self.overflows() || self.is_too_large() {
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

    /// Whether the request alone is more than its limit: "Limit 30000, Requested 45000".
    fn is_too_large(&self) -> bool {
        let message = self.message.to_lowercase();
        let number = |word| {
            let (_, rest) = message.split_once(word)?;
            let rest = rest.trim_start_matches([':', ' ']);
            let digits = rest.split(|c: char| !c.is_ascii_digit() && c != '_').next()?;
            digits.replace('_', "").parse::<u64>().ok()
        };
        let exceeds = match (number("limit "), number("requested ")) {
            (Some(limit), Some(requested)) => requested > limit,
            (Some(_) | None, _) => false,
        };
        exceeds || self.has_words(TOO_LARGE_WORDS)
    }

    fn is_moderated(&self) -> bool {
        let said = [&self.code, &self.kind, &self.message].map(|text| text.to_lowercase());
        MODERATION_WORDS.iter().any(|word| said.iter().any(|text| text.contains(word)))
    }

    /// Whether the key itself is refused. A model, or a region, that it is not good for says nothing of what else it is
    /// good for.
    fn refuses_key(&self, class: FaultClass, status: Option<u16>) -> bool {
        class == FaultClass::Auth && (status == Some(401) || self.names_key())
    }

    fn names_key(&self) -> bool {
        let codes = [&self.code, &self.kind].map(|code| code.to_lowercase());
        KEY_CODES.iter().any(|part| codes.iter().any(|code| code.contains(part)))
            || (self.has_words(KEY_NAMES) && self.has_words(KEY_FAULTS) && !self.has_words(&["model"]))
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
mod tests;
