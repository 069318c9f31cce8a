//! The bounds of what a file tool shows, and how file content becomes text for a model.

use std::borrow::Cow;

use crate::tool::output::Limits;

/// Lines in a result.
pub(super) const MAX_LINES: usize = Limits::DEFAULT.lines;
/// Bytes in a result.
pub(super) const MAX_BYTES: usize = Limits::DEFAULT.bytes;
/// Characters of a line.
pub(super) const MAX_LINE_CHARS: usize = Limits::DEFAULT.line_chars;

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
