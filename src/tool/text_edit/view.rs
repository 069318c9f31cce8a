//! A text as an edit sees it: without its byte order mark and with LF for every line end.
//!
//! Finds text in that view and says where it lies in the original bytes.

use std::{borrow::Cow, ops::Range};

use memchr::memmem::Finder;

use super::BOM;

/// The original, and the text to match against.
pub(super) struct View<'a> {
    original: &'a [u8],
    /// Where the text starts in the original: behind the byte order mark.
    start: usize,
    text: Cow<'a, [u8]>,
    /// Places in `text` of the line feeds that have a carriage return before them in the original.
    returns: Vec<usize>,
}

impl<'a> View<'a> {
    pub(super) fn new(original: &'a [u8]) -> Self {
        let start = if original.starts_with(BOM.as_bytes()) { BOM.len() } else { 0 };
        let body = &original[start..];
        let crlf = Finder::new("\r\n");
        if crlf.find(body).is_none() {
            return Self { original, start, text: Cow::Borrowed(body), returns: Vec::new() };
        }
        let mut text = Vec::with_capacity(body.len());
        let mut returns = Vec::new();
        let mut from = 0;
        for at in crlf.find_iter(body) {
            text.extend_from_slice(&body[from..at]);
            returns.push(text.len());
            from = at + 1;
        }
        text.extend_from_slice(&body[from..]);
        Self { original, start, text: Cow::Owned(text), returns }
    }

    pub(super) fn original(&self) -> &'a [u8] {
        self.original
    }

    pub(super) fn text(&self) -> &[u8] {
        &self.text
    }

    /// Where `old` occurs in the original, overlapping occurrences too, up to `most` of them.
    pub(super) fn find(&self, old: &str, most: usize) -> Vec<Range<usize>> {
        let old = with_lf(old);
        let mut places = Vec::new();
        // An old text copied with the byte order mark means the start of the text.
        if self.start > 0
            && let Some(rest) = old.strip_prefix(BOM)
            && !rest.is_empty()
            && self.text.starts_with(rest.as_bytes())
        {
            places.push(self.in_original(0..rest.len()));
        }
        let finder = Finder::new(old.as_bytes());
        let mut from = 0;
        while places.len() < most
            && let Some(at) = finder.find(&self.text[from..])
        {
            let place = from + at;
            places.push(self.in_original(place..place + old.len()));
            from = place + 1;
        }
        places
    }

    fn in_original(&self, place: Range<usize>) -> Range<usize> {
        let before = |at| self.start + at + self.returns.partition_point(|line_feed| *line_feed < at);
        before(place.start)..before(place.end)
    }

    /// The line, from 1, that a place in the original is on.
    pub(super) fn line_of(&self, at: usize) -> usize {
        1 + self.lines_between(0, at)
    }

    /// How many line ends lie between two places in the original.
    pub(super) fn lines_between(&self, from: usize, to: usize) -> usize {
        memchr::memchr_iter(b'\n', &self.original[from..to]).count()
    }

    /// Appends `new` with the line ends of the `place` that it replaces.
    ///
    /// Line end for line end as far as the place has any, then like its last; a place without any takes that of
    /// the line it is on, or of the line before.
    pub(super) fn push_replacement(&self, out: &mut Vec<u8>, place: &Range<usize>, new: &str) {
        let new = with_lf(new);
        // The mark in front is kept, so one in the new text would be a second.
        let new = if place.start == self.start && self.start > 0 {
            new.strip_prefix(BOM).unwrap_or(&new)
        } else {
            &new
        };
        let mut ends = memchr::memchr_iter(b'\n', &self.original[place.clone()])
            .map(|at| self.is_crlf(place.start + at));
        let mut crlf = self.crlf_at(place);
        let mut rest = new;
        while let Some((line, after)) = rest.split_once('\n') {
            crlf = ends.next().unwrap_or(crlf);
            out.extend_from_slice(line.as_bytes());
            out.extend_from_slice(if crlf { b"\r\n" } else { b"\n" });
            rest = after;
        }
        out.extend_from_slice(rest.as_bytes());
    }

    /// Whether lines end in CRLF where `place` has no line end of its own.
    fn crlf_at(&self, place: &Range<usize>) -> bool {
        let after = memchr::memchr(b'\n', &self.original[place.end..]).map(|at| place.end + at);
        after
            .or_else(|| memchr::memrchr(b'\n', &self.original[..place.start]))
            .is_some_and(|line_feed| self.is_crlf(line_feed))
    }

    fn is_crlf(&self, line_feed: usize) -> bool {
        self.original[..line_feed].ends_with(b"\r")
    }
}

/// The text with LF for CRLF.
pub(super) fn with_lf(text: &str) -> Cow<'_, str> {
    if text.contains("\r\n") { Cow::Owned(text.replace("\r\n", "\n")) } else { Cow::Borrowed(text) }
}
