//! Reads what an answer's headers say of the server's limits, in the dialects that are about.
//!
//! What is not understood says nothing; it is never an error.

use std::time::Duration;

use jiff::Timestamp;
use reqwest::header::HeaderMap;

/// A reset that is further away than this is no duration, whatever it is.
const FURTHEST: Duration = Duration::from_secs(24 * 60 * 60);

/// What a server says of its limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLimits {
    pub requests: Option<Window>,
    /// Where a server counts input and output apart, the one of which less is left.
    pub tokens: Option<Window>,
}

/// One limit, as far as it is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    pub limit: Option<u64>,
    pub remaining: Option<u64>,
    /// From now.
    pub reset: Option<Duration>,
}

impl RateLimits {
    /// What `headers` say, if anything.
    pub fn from_headers(headers: &HeaderMap, now: Timestamp) -> Option<Self> {
        let openai = |what: &str| {
            let name = |part: &str| format!("x-ratelimit-{part}-{what}");
            window(headers, name, duration)
        };
        let anthropic = |what: &str| {
            let name = |part: &str| format!("anthropic-ratelimit-{what}-{part}");
            window(headers, name, |text: &str| until(text, now))
        };
        let generic = || window(headers, |part| format!("ratelimit-{part}"), duration);
        let tokens = || {
            let counted = ["tokens", "input-tokens", "output-tokens"].into_iter().filter_map(anthropic);
            counted.min_by_key(|window| window.remaining.unwrap_or(u64::MAX))
        };
        let said = Self {
            requests: openai("requests").or_else(|| anthropic("requests")).or_else(generic),
            tokens: openai("tokens").or_else(tokens),
        };
        (said != Self::default()).then_some(said)
    }
}

fn window(
    headers: &HeaderMap,
    name: impl Fn(&str) -> String,
    reset: impl Fn(&str) -> Option<Duration>,
) -> Option<Window> {
    let text = |part| headers.get(name(part)).and_then(|value| value.to_str().ok()).map(str::trim);
    let count = |part| text(part).and_then(|text| text.parse().ok());
    let said = Window {
        limit: count("limit"),
        remaining: count("remaining"),
        reset: text("reset").and_then(reset).filter(|reset| *reset <= FURTHEST),
    };
    (said != Window::default()).then_some(said)
}

/// A point in time as the time to it; what is past is now.
fn until(text: &str, now: Timestamp) -> Option<Duration> {
    let at: Timestamp = text.parse().ok()?;
    Some(Duration::try_from(at.duration_since(now)).unwrap_or_default())
}

/// `1h2m3.5s`, `120ms`, or a number of seconds.
fn duration(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.parse() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let mut rest = text;
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| c != '.' && !c.is_ascii_digit())?;
        let (number, tail) = rest.split_at(digits);
        let unit = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit);
        seconds += number.parse::<f64>().ok()? * scale(unit)?;
        rest = tail;
    }
    (!text.is_empty()).then(|| Duration::try_from_secs_f64(seconds).ok()).flatten()
}

fn scale(unit: &str) -> Option<f64> {
    Some(match unit {
        "d" => 86_400.0,
        "h" => 3_600.0,
        "m" => 60.0,
        "s" => 1.0,
        "ms" => 1e-3,
        "us" => 1e-6,
        "ns" => 1e-9,
        _ => return None,
    })
}
