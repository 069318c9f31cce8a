//! Every dialect of limits in headers, and the nonsense that is about.

use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use super::{
    super::{RateLimits, Window},
    millis, secs,
};

fn read(headers: &[(&str, &str)]) -> Option<RateLimits> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.insert(name.parse::<HeaderName>().unwrap(), HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    RateLimits::from_headers(&map, "2026-01-01T00:00:00Z".parse().unwrap())
}

fn window(limit: u64, remaining: u64, reset: Duration) -> Option<Window> {
    Some(Window { limit: Some(limit), remaining: Some(remaining), reset: Some(reset) })
}

fn reset(text: &str) -> Option<Duration> {
    read(&[("x-ratelimit-reset-requests", text)])?.requests?.reset
}

#[test]
fn the_openai_dialect_tells_requests_and_tokens() {
    let said = read(&[
        ("x-ratelimit-limit-requests", "60"),
        ("x-ratelimit-remaining-requests", "59"),
        ("x-ratelimit-reset-requests", "1s"),
        ("x-ratelimit-limit-tokens", "150000"),
        ("x-ratelimit-remaining-tokens", "149984"),
        ("x-ratelimit-reset-tokens", "6m0s"),
    ]);
    let wanted =
        RateLimits { requests: window(60, 59, secs(1)), tokens: window(150_000, 149_984, secs(360)) };
    assert_eq!(said, Some(wanted));
}

#[test]
fn the_anthropic_dialect_tells_the_tokens_of_which_less_is_left() {
    let said = read(&[
        ("anthropic-ratelimit-requests-limit", "50"),
        ("anthropic-ratelimit-requests-remaining", "49"),
        ("anthropic-ratelimit-requests-reset", "2026-01-01T00:00:02Z"),
        ("anthropic-ratelimit-tokens-remaining", "9000"),
        ("anthropic-ratelimit-input-tokens-limit", "40000"),
        ("anthropic-ratelimit-input-tokens-remaining", "39000"),
        ("anthropic-ratelimit-output-tokens-limit", "8000"),
        ("anthropic-ratelimit-output-tokens-remaining", "1000"),
        ("anthropic-ratelimit-output-tokens-reset", "2026-01-01T01:00:30+01:00"),
    ]);
    let wanted = RateLimits { requests: window(50, 49, secs(2)), tokens: window(8_000, 1_000, secs(30)) };
    assert_eq!(said, Some(wanted));
}

#[test]
fn the_generic_dialect_tells_requests() {
    let said = read(&[("ratelimit-limit", "10"), ("ratelimit-remaining", "0"), ("ratelimit-reset", "7")]);
    assert_eq!(said, Some(RateLimits { requests: window(10, 0, secs(7)), tokens: None }));
}

#[test]
fn a_reset_is_read_in_all_its_forms() {
    let forms = [
        ("1s", secs(1)),
        ("6m0s", secs(360)),
        ("120ms", millis(120)),
        ("1h2m3.5s", millis(3_723_500)),
        ("12", secs(12)),
        ("0.5", millis(500)),
        ("0s", Duration::ZERO),
        ("250us", Duration::from_micros(250)),
        (" 2s ", secs(2)),
    ];
    for (text, wanted) in forms {
        assert_eq!(reset(text), Some(wanted), "{text:?}");
    }
}

#[test]
fn nonsense_says_nothing() {
    let nonsense = [
        "",
        "soon",
        "-3",
        "-3s",
        "1x",
        "s",
        "1s2",
        "..s",
        "NaN",
        "inf",
        "1e300",
        "1767225600",
        "99h",
        "\u{e9}",
    ];
    for text in nonsense {
        assert_eq!(reset(text), None, "{text:?}");
    }
    assert_eq!(read(&[("x-ratelimit-remaining-requests", "-1"), ("x-ratelimit-limit-tokens", "many")]), None);
    assert_eq!(read(&[("anthropic-ratelimit-tokens-reset", "tomorrow")]), None);
    assert_eq!(read(&[]), None);
}

#[test]
fn a_reset_in_the_past_is_now() {
    let said = read(&[("anthropic-ratelimit-requests-reset", "2025-12-31T23:59:00Z")]);
    assert_eq!(said.unwrap().requests.unwrap().reset, Some(Duration::ZERO));
}
