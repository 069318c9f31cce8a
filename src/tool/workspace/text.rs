//! How file content and names become text for a model.

use std::borrow::Cow;

/// The first `max` characters of `text`, and whether that left something out.
pub(super) fn first_chars(text: &str, max: usize) -> (&str, bool) {
    match text.char_indices().nth(max) {
        Some((at, _)) => (&text[..at], true),
        None => (text, false),
    }
}

/// A file name on one line: control characters escaped, bytes that are no UTF-8 replaced.
pub(super) fn name(bytes: &[u8]) -> Cow<'_, str> {
    let name = String::from_utf8_lossy(bytes);
    if name.chars().any(char::is_control) { name.escape_debug().to_string().into() } else { name }
}
