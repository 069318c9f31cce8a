//! Reads a window of a text file.
//!
//! Streams: memory is bounded by the window, however large the file or a line of it is. Whatever is left out is
//! said, with how to read it. Line ends are shown as LF and a byte order mark is not shown; the `edit` tool
//! matches either.

use std::{
    fmt::Write,
    io::{self, BufRead, BufReader, Read, Seek},
};

use super::{PathError, Resolved, text::first_chars};
use crate::tool::output::Limits;

/// How far beyond the window lines are counted.
const COUNT_BYTES: u64 = 64 << 20;
/// How much of a file tells text from binary.
const HEAD_BYTES: u64 = 8 << 10;
/// The longest character.
const CHAR_BYTES: usize = 4;
const BOM: &str = "\u{feff}";

/// Which lines to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// The first line, from 1; the start of the file if left out.
    pub offset: Option<u64>,
    /// How many lines at most; never more than the limits let.
    pub limit: Option<u64>,
}

/// Why there is nothing to read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error(transparent)]
    Path(#[from] PathError),
    #[error("{path} is a binary file of {size} bytes, or text in an encoding other than UTF-8")]
    Binary { path: String, size: u64 },
    #[error("offset {offset} is beyond the end of {path}, which has {lines} lines")]
    BeyondEnd { path: String, offset: u64, lines: u64 },
    #[error("cannot read {path}")]
    Unreadable { path: String, source: io::Error },
}

/// Reads lines of the file at `target` as text for a model, within `limits` but for the notices.
///
/// # Errors
/// Refuses what is not a regular text file, and an offset beyond its end.
pub fn read(target: &Resolved, window: Window, limits: Limits) -> Result<String, ReadError> {
    let opened = target.open_file()?;
    let path = || target.shown().to_owned();
    let unreadable = |source| ReadError::Unreadable { path: path(), source };
    let binary = || ReadError::Binary { path: path(), size: opened.size() };

    let mut head = Vec::new();
    (&opened.file).take(HEAD_BYTES).read_to_end(&mut head).map_err(unreadable)?;
    if head.is_empty() {
        return Ok("The file is empty.".to_owned());
    }
    if head.contains(&0) || head.starts_with(&[0xff, 0xfe]) || head.starts_with(&[0xfe, 0xff]) {
        return Err(binary());
    }
    (&opened.file).rewind().map_err(unreadable)?;

    let offset = window.offset.unwrap_or(1).max(1);
    let most = (limits.lines as u64).max(1);
    let limit = window.limit.unwrap_or(most).clamp(1, most);
    // One line always fits.
    let line_chars = limits.line_chars.min(limits.bytes / CHAR_BYTES);
    // No more than the file has: most files are small, and a buffer is cleared before it is used.
    let capacity = usize::try_from(opened.size().clamp(1 << 10, 64 << 10)).unwrap_or(64 << 10);
    let input = BufReader::with_capacity(capacity, &opened.file);
    let mut lines = Lines { input, line_bytes: line_chars * CHAR_BYTES };
    let before = lines.pass(offset - 1, u64::MAX).map_err(unreadable)?;
    let mut shown = Shown { offset, bytes: limits.bytes, line_chars, ..Shown::default() };
    let mut did_not_fit = 0;
    while shown.lines < limit {
        let Some(line) = lines.next().map_err(unreadable)? else { break };
        if line.kept.contains(&0) {
            return Err(binary());
        }
        if !shown.push(&line) {
            did_not_fit = 1;
            break;
        }
    }
    if shown.lines == 0 {
        return Err(ReadError::BeyondEnd { path: path(), offset, lines: before.lines });
    }
    let after = lines.pass(u64::MAX, COUNT_BYTES).map_err(unreadable)?;
    Ok(shown.finish(did_not_fit + after.lines, after.at_end))
}

/// The lines of a file, in bounded memory.
struct Lines<R> {
    input: R,
    /// How much of a line is kept.
    line_bytes: usize,
}

/// How far a pass over lines came.
struct Passed {
    lines: u64,
    at_end: bool,
}

/// One line without its end.
struct Line {
    kept: Vec<u8>,
    /// Characters that were not kept.
    more_chars: u64,
    ends_in_crlf: bool,
}

impl<R: BufRead> Lines<R> {
    /// Passes over `lines` lines, or fewer once `bytes` bytes were seen.
    fn pass(&mut self, lines: u64, mut bytes: u64) -> io::Result<Passed> {
        let mut passed = Passed { lines: 0, at_end: false };
        let mut within_line = false;
        while passed.lines < lines && bytes > 0 {
            let buffer = self.input.fill_buf()?;
            if buffer.is_empty() {
                passed.at_end = true;
                break;
            }
            let used = match memchr::memchr(b'\n', buffer) {
                Some(end) => {
                    passed.lines += 1;
                    within_line = false;
                    end + 1
                }
                None => {
                    within_line = true;
                    buffer.len()
                }
            };
            bytes = bytes.saturating_sub(used as u64);
            self.input.consume(used);
        }
        passed.lines += u64::from(within_line);
        Ok(passed)
    }

    fn next(&mut self) -> io::Result<Option<Line>> {
        let mut line = Line { kept: Vec::new(), more_chars: 0, ends_in_crlf: false };
        let mut last = None;
        loop {
            let buffer = self.input.fill_buf()?;
            if buffer.is_empty() {
                return Ok(last.map(|_| line));
            }
            let end = memchr::memchr(b'\n', buffer);
            let part = &buffer[..end.unwrap_or(buffer.len())];
            let kept = part.len().min(self.line_bytes - line.kept.len());
            line.kept.extend_from_slice(&part[..kept]);
            line.more_chars += count_chars(&part[kept..]);
            last = part.last().copied().or(last);
            let used = end.map_or(buffer.len(), |end| end + 1);
            self.input.consume(used);
            if end.is_some() {
                line.ends_in_crlf = last == Some(b'\r');
                if line.ends_in_crlf && line.more_chars == 0 {
                    line.kept.pop();
                } else if line.ends_in_crlf {
                    line.more_chars -= 1;
                }
                return Ok(Some(line));
            }
        }
    }
}

fn count_chars(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| (**byte & 0xc0) != 0x80).count() as u64
}

/// What is shown so far, and what has to be said about it.
#[derive(Default)]
struct Shown {
    bytes: usize,
    line_chars: usize,
    text: String,
    offset: u64,
    lines: u64,
    crlf_lines: u64,
    cut_lines: Vec<(u64, u64)>,
    replaced_bytes: bool,
}

impl Shown {
    /// Adds a line, if it still fits.
    fn push(&mut self, line: &Line) -> bool {
        let number = self.offset + self.lines;
        let decoded = String::from_utf8_lossy(&line.kept);
        let whole = if number == 1 { decoded.trim_start_matches(BOM) } else { &decoded };
        let (text, cut) = first_chars(whole, self.line_chars);
        if self.lines > 0 && self.text.len() + text.len() + 1 > self.bytes {
            return false;
        }
        self.text.push_str(text);
        self.text.push('\n');
        self.lines += 1;
        self.crlf_lines += u64::from(line.ends_in_crlf);
        self.replaced_bytes |= text.contains('\u{fffd}') && std::str::from_utf8(&line.kept).is_err();
        if cut || line.more_chars > 0 {
            self.cut_lines.push((number, count_chars(&whole.as_bytes()[text.len()..]) + line.more_chars));
        }
        true
    }

    /// The text with its notices; `after` lines follow, or more if not all were counted.
    fn finish(mut self, after: u64, all_counted: bool) -> String {
        let last = self.offset + self.lines - 1;
        let out = &mut self.text;
        if !self.cut_lines.is_empty() {
            let _ = write!(out, "[Cut after {} characters:", self.line_chars);
            for (line, more) in self.cut_lines.iter().take(5) {
                let _ = write!(out, " line {line} ({more} more),");
            }
            if self.cut_lines.len() > 5 {
                let _ = write!(out, " and {} more lines,", self.cut_lines.len() - 5);
            }
            let _ = writeln!(out, " see the rest with grep or bash.]");
        }
        if self.replaced_bytes {
            let _ = writeln!(out, "[Not all of it is valid UTF-8; other bytes are shown as \u{fffd}.]");
        }
        if self.crlf_lines > 0 {
            let some = if self.crlf_lines == self.lines { "The" } else { "Some" };
            let _ = writeln!(out, "[{some} line ends are CRLF; edit keeps them.]");
        }
        if after > 0 {
            let over = if all_counted { "" } else { "more than " };
            let _ = writeln!(
                out,
                "[Lines {}-{last} of {over}{}. Read on with offset {}.]",
                self.offset,
                last + after,
                last + 1
            );
        } else if self.offset > 1 {
            let _ = writeln!(out, "[Lines {}-{last} of {last}.]", self.offset);
        }
        self.text
    }
}
