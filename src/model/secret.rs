//! A key that shows itself only to whoever asks for it by name, and what is kept out of a server's words.

use std::{collections::BTreeMap, fmt, sync::Arc};

use reqwest::Url;

/// What stands for what is not shown.
const HIDDEN: &str = "[key]";

/// The end of text that was cut.
const CUT: char = '…';

/// Bytes that a value other than the key has at least, if it is to be hidden: shorter ones are words.
const SHORTEST: usize = 6;

/// Bytes of a beginning that give nothing away.
const BEGINNING: usize = 4;

/// Names of a query's fields, or parts of them, whose values are secret.
const SECRET_FIELDS: &[&str] = &["key", "token", "secret", "sig", "pass", "auth"];

/// A provider's key. Empty: none.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Wraps a key.
    pub fn new(raw: impl Into<Arc<str>>) -> Self {
        Self(raw.into())
    }

    /// The key itself: for the request, never for a message or a log.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Everything of a provider's settings that a server may repeat and nobody is to read.
#[derive(Clone, Default)]
pub(crate) struct Secrets(Arc<[String]>);

impl Secrets {
    /// The key, the values of the headers, and of the address who asks and with which keys.
    pub(crate) fn new(key: &Secret, headers: &BTreeMap<String, String>, base_url: &str) -> Self {
        let words = headers.values().flat_map(|value| value.split_whitespace()).map(str::to_owned);
        let others = words.chain(of_address(base_url)).filter(|value| value.len() >= SHORTEST);
        let key = Some(key.reveal().to_owned()).filter(|key| !key.is_empty());
        let mut all: Vec<String> = key.into_iter().chain(others).collect();
        // The longer ones first, since one may hold another.
        all.sort_unstable_by_key(|secret| std::cmp::Reverse(secret.len()));
        Self(all.into())
    }

    /// Takes them out of text that a server sent back, and the half of one that was left where the text was cut.
    pub(crate) fn redact(&self, mut text: String) -> String {
        for secret in self.0.iter().filter(|secret| !secret.is_empty()) {
            if text.contains(secret) {
                text = text.replace(secret, HIDDEN);
            }
        }
        let mut shown = String::with_capacity(text.len());
        for piece in text.split_inclusive(CUT) {
            match piece.strip_suffix(CUT).and_then(|piece| self.without_half(piece)) {
                Some(rest) => shown.extend([rest, HIDDEN, "…"]),
                None => shown.push_str(piece),
            }
        }
        shown
    }

    /// The text before the beginning of a secret that it ends with, if it does.
    fn without_half<'t>(&self, text: &'t str) -> Option<&'t str> {
        let halves = self.0.iter().flat_map(|secret| {
            let ends = secret.char_indices().map(|(end, _)| end).filter(|end| *end >= BEGINNING);
            ends.filter_map(|end| text.strip_suffix(&secret[..end]))
        });
        halves.min_by_key(|rest| rest.len())
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets(..)")
    }
}

/// What is secret in an address.
fn of_address(base_url: &str) -> Vec<String> {
    let Ok(url) = Url::parse(base_url) else { return Vec::new() };
    let secret = |name: &str| SECRET_FIELDS.iter().any(|part| name.to_ascii_lowercase().contains(part));
    let fields = url.query_pairs().filter(|(name, _)| secret(name)).map(|(_, value)| value.into_owned());
    let mut found: Vec<String> = fields.collect();
    for asker in [Some(url.username()), url.password()].into_iter().flatten() {
        // As the server gets it. A query is decoded in the same way, but for these.
        let mut plain = url.clone();
        plain.set_query(Some(&asker.replace('+', "%2B").replace('&', "%26").replace('=', "%3D")));
        found.extend(plain.query_pairs().map(|(asker, _)| asker.into_owned()));
        found.push(asker.to_owned());
    }
    found
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_empty() { "Secret(none)" } else { "Secret(..)" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_does_not_show_in_debug_output() {
        assert_eq!(format!("{:?}", Secret::new("sk-1234")), "Secret(..)");
    }

    fn secrets() -> Secrets {
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let headers =
            BTreeMap::from([header("authorization", "Bearer header-key"), header("x-mode", "fast")]);
        let base_url = "https://someone:pass%40word@h/v1?api-key=query-key&api-version=2024-10-21";
        Secrets::new(&Secret::new("sk-1234"), &headers, base_url)
    }

    #[test]
    fn nothing_secret_of_the_settings_is_left_in_what_a_server_says() {
        let said = "wrong sk-1234! header-key someone pass@word pass%40word query-key fast 2024-10-21";
        assert_eq!(
            secrets().redact(said.to_owned()),
            "wrong [key]! [key] [key] [key] [key] [key] fast 2024-10-21"
        );
        assert_eq!(Secrets::default().redact("as it is…".to_owned()), "as it is…");
    }

    #[test]
    fn no_half_of_a_key_is_left_where_words_were_cut() {
        for (said, shown) in [
            ("wrong sk-123… (invalid)", "wrong [key]… (invalid)"),
            ("wrong header-k…", "wrong [key]…"),
            ("wrong sk…", "wrong sk…"),
            ("header- is not cut", "header- is not cut"),
        ] {
            assert_eq!(secrets().redact(said.to_owned()), shown);
        }
    }
}
