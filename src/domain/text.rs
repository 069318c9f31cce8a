//! Text that came from outside, made fit to keep.
//!
//! Repairs what JSON can write and UTF-8 cannot hold: half of a surrogate pair. Takes out of an address what is nobody
//! else's business. Knows nothing of what the text means.

use std::borrow::Cow;

use serde::de::DeserializeOwned;

/// Reads JSON; text that fails is tried once more with its lone surrogates replaced.
///
/// # Errors
/// What is wrong with the JSON apart from surrogates.
pub fn from_json<T: DeserializeOwned>(json: &str) -> Result<T, serde_json::Error> {
    serde_json::from_str(json).or_else(|error| match repair_surrogates(json) {
        Cow::Borrowed(_) => Err(error),
        Cow::Owned(repaired) => serde_json::from_str(&repaired),
    })
}

/// Replaces each `\uD800`-`\uDFFF` escape that has lost its other half by `\ufffd`. Pairs, and backslashes that are
/// themselves escaped, stay as they are; JSON that needs no repair is handed back as it came.
pub fn repair_surrogates(json: &str) -> Cow<'_, str> {
    const REPLACEMENT: &str = "\\ufffd";
    let mut repaired = String::new();
    let mut kept = 0;
    let mut at = 0;
    while let Some(found) = json[at..].find('\\') {
        let start = at + found;
        at = match unit(json, start) {
            Some(0xD800..=0xDBFF) if matches!(unit(json, start + 6), Some(0xDC00..=0xDFFF)) => start + 12,
            Some(0xD800..=0xDFFF) => {
                repaired.push_str(&json[kept..start]);
                repaired.push_str(REPLACEMENT);
                kept = start + 6;
                kept
            }
            Some(_) => start + 6,
            // The escaped character may be longer than a byte in text that is not JSON.
            None => start + 1 + json[start + 1..].chars().next().map_or(0, char::len_utf8),
        };
    }
    if kept == 0 {
        return Cow::Borrowed(json);
    }
    repaired.push_str(&json[kept..]);
    Cow::Owned(repaired)
}

/// An address without what may be secret in it: who asks, and the query.
pub fn bare_url(url: &str) -> Cow<'_, str> {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = url.find("://").map_or(("", url), |at| url.split_at(at + 3));
    let authority = &rest[..rest.find('/').unwrap_or(rest.len())];
    match authority.rfind('@') {
        Some(at) => Cow::Owned(format!("{scheme}{}", &rest[at + 1..])),
        None => Cow::Borrowed(url),
    }
}

/// The UTF-16 unit that the `\uXXXX` escape at `at` stands for, if there is one.
fn unit(json: &str, at: usize) -> Option<u16> {
    let digits = json.get(at..at + 6)?.strip_prefix("\\u")?;
    digits
        .bytes()
        .all(|byte| byte.is_ascii_hexdigit())
        .then(|| u16::from_str_radix(digits, 16).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_who_asks_and_without_its_query() {
        for (url, shown) in [
            ("https://h/v1", "https://h/v1"),
            ("https://me:pw@h:8/v1?key=k#x", "https://h:8/v1"),
            ("https://a@b@h", "https://h"),
            ("me:pw@h/@v1", "h/@v1"),
            ("https://h/@team?key=a@b", "https://h/@team"),
            ("", ""),
        ] {
            assert_eq!(bare_url(url), shown, "{url}");
        }
    }

    #[test]
    fn only_lone_halves_are_replaced() {
        let table = [
            (r#""plain""#, r#""plain""#),
            (r#""\ud83d\ude00""#, r#""\ud83d\ude00""#),
            (r#""bye \ud83e""#, r#""bye \ufffd""#),
            (r#""\ude00 first""#, r#""\ufffd first""#),
            (r#""\ud83d\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#),
            (r#""\uD83D\n""#, r#""\ufffd\n""#),
            (r#""\\ud83e""#, r#""\\ud83e""#),
            (r#""\\\ud83e""#, r#""\\\ufffd""#),
            (r#""\ud83e\\ude00""#, r#""\ufffd\\ude00""#),
            (r"\ud8", r"\ud8"),
            ("\\é\\", "\\é\\"),
            ("", ""),
        ];
        for (json, expected) in table {
            assert_eq!(repair_surrogates(json), expected, "{json}");
        }
    }

    #[test]
    fn text_without_lone_halves_is_not_copied() {
        assert!(matches!(repair_surrogates(r#"{"a":"\ud83d\ude00 \\ \u00e9"}"#), Cow::Borrowed(_)));
    }

    #[test]
    fn json_with_a_lone_half_is_read_with_the_replacement_character() {
        assert_eq!(from_json::<String>(r#""a\ud83e""#).unwrap(), "a\u{FFFD}");
        assert_eq!(from_json::<String>(r#""\ud83d\ude00""#).unwrap(), "\u{1F600}");
        assert!(from_json::<String>(r#""a\ud83e"#).is_err());
    }
}
