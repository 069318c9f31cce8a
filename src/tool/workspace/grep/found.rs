//! Collects what a search finds, as text within bounds.

use std::{fmt::Write, io};

use grep_matcher::Matcher;
use grep_regex::RegexMatcher;
use grep_searcher::{Searcher, Sink, SinkContext, SinkFinish, SinkMatch};

use super::super::text::first_chars;
use crate::tool::output::Limits;

/// Matches that are shown, if the limits let as many.
pub const MAX_MATCHES: usize = 500;
/// Less than a result may have, so that one minified file doesn't fill it.
const MAX_LINE_CHARS: usize = 500;
/// How much is shown before a match far into a long line.
const LEAD_BYTES: usize = 100;
const NAMED: usize = 5;

pub(super) struct Found {
    limits: Limits,
    text: String,
    lines: usize,
    matches: usize,
    binary: usize,
    pub(super) sensitive: usize,
    unreadable: Vec<String>,
    unreadable_count: usize,
    /// What went away before it was opened.
    pub(super) moved: usize,
    full: bool,
}

impl Found {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits: Limits { line_chars: limits.line_chars.min(MAX_LINE_CHARS), ..limits },
            text: String::new(),
            lines: 0,
            matches: 0,
            binary: 0,
            sensitive: 0,
            unreadable: Vec::new(),
            unreadable_count: 0,
            moved: 0,
            full: false,
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    pub(super) fn unreadable(&mut self, path: String) {
        self.unreadable_count += 1;
        if self.unreadable.len() < NAMED && !path.is_empty() {
            self.unreadable.push(path);
        }
    }

    pub(super) fn sink<'a>(&'a mut self, path: &'a str, matcher: &'a RegexMatcher) -> FileSink<'a> {
        FileSink { found: self, path, matcher }
    }

    /// Adds a line, unless the result is full.
    fn push(&mut self, line: &str) -> bool {
        if self.lines >= self.limits.lines || self.text.len() + line.len() + 1 > self.limits.bytes {
            self.full = true;
            return false;
        }
        self.text.push_str(line);
        self.text.push('\n');
        self.lines += 1;
        true
    }

    pub(super) fn finish(self) -> super::Matches {
        let mut text = self.text;
        if self.matches == 0 && !self.full {
            text.push_str("No matches.\n");
        }
        if self.full {
            let _ = writeln!(
                text,
                "[The first {} matches; there are more. Narrow the pattern, the path or the glob.]",
                self.matches
            );
        }
        if self.unreadable_count > 0 {
            let _ = write!(
                text,
                "[{} could not be searched: {}",
                paths(self.unreadable_count),
                self.unreadable.join(", ")
            );
            let more = self.unreadable_count - self.unreadable.len();
            let _ = if more > 0 { writeln!(text, " and {more} more.]") } else { writeln!(text, ".]") };
        }
        if self.moved > 0 {
            let _ = writeln!(text, "[{} moved or replaced during the search.]", paths(self.moved));
        }
        if self.binary > 0 {
            let _ = writeln!(text, "[{} skipped as binary.]", paths(self.binary));
        }
        if self.sensitive > 0 {
            let _ = writeln!(text, "[{} not searched, as likely to hold secrets.]", paths(self.sensitive));
        }
        super::Matches { text, count: self.matches, unreadable: self.unreadable_count + self.moved }
    }
}

fn paths(count: usize) -> String {
    if count == 1 { "1 path".to_owned() } else { format!("{count} paths") }
}

/// Takes the lines of one file.
pub(super) struct FileSink<'a> {
    found: &'a mut Found,
    path: &'a str,
    matcher: &'a RegexMatcher,
}

impl Sink for FileSink<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, line: &SinkMatch<'_>) -> Result<bool, io::Error> {
        if self.found.matches == MAX_MATCHES {
            self.found.full = true;
            return Ok(false);
        }
        let number = line.line_number().unwrap_or(0);
        let at = self.matcher.find(line.bytes()).ok().flatten().map_or(0, |found| found.start());
        let shown =
            format!("{}:{number}:{}", self.path, shown(line.bytes(), at, self.found.limits.line_chars));
        let fits = self.found.push(&shown);
        self.found.matches += usize::from(fits);
        Ok(fits)
    }

    fn context(&mut self, _: &Searcher, line: &SinkContext<'_>) -> Result<bool, io::Error> {
        let number = line.line_number().unwrap_or(0);
        Ok(self.found.push(&format!(
            "{}-{number}-{}",
            self.path,
            shown(line.bytes(), 0, self.found.limits.line_chars)
        )))
    }

    fn context_break(&mut self, _: &Searcher) -> Result<bool, io::Error> {
        Ok(self.found.push("--"))
    }

    fn finish(&mut self, _: &Searcher, end: &SinkFinish) -> Result<(), io::Error> {
        self.found.binary += usize::from(end.binary_byte_offset().is_some());
        Ok(())
    }
}

/// A line as text without its end; one of more than `most` characters is cut to those round `at`.
fn shown(line: &[u8], at: usize, most: usize) -> String {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut from = if line.len() > most { at.saturating_sub(LEAD_BYTES) } else { 0 };
    while line.get(from).is_some_and(|byte| (byte & 0xc0) == 0x80) {
        from += 1;
    }
    let rest = String::from_utf8_lossy(&line[from.min(line.len())..]);
    let (text, cut) = first_chars(&rest, most);
    format!("{}{text}{}", if from > 0 { "[...] " } else { "" }, if cut { " [...]" } else { "" })
}
