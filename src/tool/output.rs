//! Cuts long text down to what a model is shown, and says exactly what is missing.
//!
//! Two ways: [`head`] keeps the beginning of a text at hand; [`HeadTail`] keeps both ends of a stream and holds
//! no more than the limit while it runs. What comes out is valid UTF-8, cut at line ends where there are any and
//! never inside a character. Knows neither processes nor files; the words round the cut are the caller's.

use std::{collections::VecDeque, fmt};

/// How much of a text is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub lines: usize,
    pub bytes: usize,
    /// Longest a line may be, in characters; the rest of it is replaced by how many there were.
    pub line_chars: usize,
}

impl Limits {
    /// What a model can read at once without losing sight of the rest.
    pub const DEFAULT: Self = Self { lines: 2_000, bytes: 50 << 10, line_chars: 2_000 };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// What was left out between, or after, the parts that are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Omitted {
    pub lines: u64,
    pub bytes: u64,
}

impl fmt::Display for Omitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lines, bytes } = self;
        match lines {
            0 => write!(f, "{bytes} bytes left out"),
            1 => write!(f, "1 line ({bytes} bytes) left out"),
            _ => write!(f, "{lines} lines ({bytes} bytes) left out"),
        }
    }
}

/// The beginning of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    pub text: String,
    /// Number of lines in `text`, so that a reader knows where to go on.
    pub lines: usize,
    pub omitted: Option<Omitted>,
    /// Lines of `text` that lost their end to [`Limits::line_chars`].
    pub shortened: u64,
}

/// Keeps the first lines that fit.
pub fn head(text: &str, limits: &Limits) -> Shown {
    let raw = text.as_bytes();
    let front = fit(raw.split_inclusive(is_newline), limits.lines, limits.bytes, limits.line_chars);
    let rest = &raw[front.bytes..];
    let omitted = (!rest.is_empty()).then(|| Omitted {
        lines: rest.split_inclusive(is_newline).count() as u64,
        bytes: rest.len() as u64,
    });
    Shown { lines: front.lines.len(), text: front.lines.concat(), omitted, shortened: front.shortened }
}

/// Takes a stream of any length and keeps its two ends: half of the limit at the front, the rest at the back.
#[derive(Debug)]
pub struct HeadTail {
    limits: Limits,
    front: Vec<u8>,
    back: VecDeque<u8>,
    bytes: u64,
    newlines: u64,
}

/// The two ends of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ends {
    pub front: String,
    /// Empty when nothing is left out.
    pub back: String,
    pub omitted: Option<Omitted>,
    /// Lines shown that lost their end to [`Limits::line_chars`].
    pub shortened: u64,
}

impl HeadTail {
    pub fn new(limits: Limits) -> Self {
        Self { limits, front: Vec::new(), back: VecDeque::new(), bytes: 0, newlines: 0 }
    }

    pub fn push(&mut self, chunk: &[u8]) {
        self.bytes += chunk.len() as u64;
        self.newlines += count_newlines(chunk);
        let room = self.limits.bytes / 2 - self.front.len();
        let (front, rest) = chunk.split_at(room.min(chunk.len()));
        self.front.extend_from_slice(front);

        let capacity = self.limits.bytes - self.limits.bytes / 2;
        let rest = &rest[rest.len().saturating_sub(capacity)..];
        let excess = (self.back.len() + rest.len()).saturating_sub(capacity);
        self.back.drain(..excess);
        self.back.extend(rest);
    }

    /// Bytes taken so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Lines taken so far, an unfinished last one included.
    pub fn lines(&self) -> u64 {
        self.newlines + u64::from(self.is_unfinished())
    }

    /// What is held: while no more than [`Limits::bytes`] came, that is all there was.
    pub fn held(&self) -> Vec<u8> {
        let (first, second) = self.back.as_slices();
        [&self.front, first, second].concat()
    }

    /// Guesses from the first bytes whether this is text. Text in an old encoding, or with a stray NUL, is text.
    pub fn is_binary(&self) -> bool {
        const SAMPLE: usize = 8 * 1024;
        const FEW: usize = 32;
        let sample = &self.front[..self.front.len().min(SAMPLE)];
        let odd: usize =
            sample.utf8_chunks().map(|chunk| count_odd(chunk.valid()) + chunk.invalid().len()).sum();
        odd >= FEW && odd * 10 >= sample.len() * 3
    }

    pub fn finish(mut self) -> Ends {
        let Limits { lines, bytes, line_chars } = self.limits;
        let unfinished = self.is_unfinished();
        let (front, back) = if self.bytes == (self.front.len() + self.back.len()) as u64 {
            let all = self.held();
            let whole = fit(all.split_inclusive(is_newline), lines, bytes, line_chars);
            if whole.bytes == all.len() {
                let (front, back) = (whole.lines.concat(), String::new());
                return Ends { front, back, omitted: None, shortened: whole.shortened };
            }
            let front = fit(all.split_inclusive(is_newline), lines / 2, bytes / 2, line_chars);
            let rest = all[front.bytes..].split_inclusive(is_newline).rev();
            let back = fit(rest, lines - lines / 2, bytes - bytes / 2, line_chars);
            (front, back)
        } else {
            let front = whole_lines_at_front(&self.front, line_chars).split_inclusive(is_newline);
            let back = whole_lines_at_back(self.back.make_contiguous(), line_chars);
            let back = back.split_inclusive(is_newline).rev();
            (
                fit(front, lines / 2, bytes / 2, line_chars),
                fit(back, lines - lines / 2, bytes - bytes / 2, line_chars),
            )
        };
        let lost_last = u64::from(unfinished && back.bytes == 0);
        let omitted = Omitted {
            lines: self.newlines - front.newlines - back.newlines + lost_last,
            bytes: self.bytes - (front.bytes + back.bytes) as u64,
        };
        Ends {
            front: front.lines.concat(),
            back: back.lines.into_iter().rev().collect(),
            omitted: Some(omitted),
            shortened: front.shortened + back.shortened,
        }
    }

    fn is_unfinished(&self) -> bool {
        self.back.back().or(self.front.last()).is_some_and(|last| *last != b'\n')
    }
}

impl Ends {
    /// Puts the ends together with a line of the caller's between them.
    pub fn join(&self, notice: &str) -> String {
        let gap = if self.front.is_empty() || self.front.ends_with('\n') { "" } else { "\n" };
        format!("{}{gap}{notice}\n{}", self.front, self.back)
    }
}

/// Lines taken from one side, in the order they were offered.
struct Fitted {
    lines: Vec<String>,
    /// Size of what was taken, as it was before decoding and shortening.
    bytes: usize,
    newlines: u64,
    shortened: u64,
}

/// Takes lines until one no longer fits. The budget counts the text that comes out, which is longer than the bytes
/// that went in when some of them had to be replaced.
fn fit<'a>(lines: impl Iterator<Item = &'a [u8]>, count: usize, budget: usize, line_chars: usize) -> Fitted {
    let mut fitted = Fitted { lines: Vec::new(), bytes: 0, newlines: 0, shortened: 0 };
    let mut used = 0;
    for raw in lines.take(count) {
        let (line, shortened) = decode_line(raw, line_chars);
        used += line.len();
        if used > budget {
            break;
        }
        fitted.lines.push(line);
        fitted.bytes += raw.len();
        fitted.newlines += u64::from(raw.ends_with(b"\n"));
        fitted.shortened += u64::from(shortened);
    }
    fitted
}

/// Decodes one line; what is not UTF-8, and NUL, becomes U+FFFD. Says whether the line was shortened.
fn decode_line(raw: &[u8], line_chars: usize) -> (String, bool) {
    let text = String::from_utf8_lossy(raw).replace('\0', "\u{fffd}");
    let (content, end) = match text.strip_suffix('\n') {
        Some(content) => (content, "\n"),
        None => (text.as_str(), ""),
    };
    match content.char_indices().nth(line_chars) {
        None => (text, false),
        Some((cut, _)) => {
            let more = content[cut..].chars().count();
            (format!("{} [+{more} characters]{end}", &content[..cut]), true)
        }
    }
}

/// The finished lines of a front that was cut somewhere; of a single endless line, its first characters.
fn whole_lines_at_front(raw: &[u8], line_chars: usize) -> &[u8] {
    match raw.iter().rposition(is_newline) {
        Some(last) => &raw[..=last],
        None => {
            let lengths = char_lengths(raw);
            // The last one may be half a character.
            let whole = lengths.len().saturating_sub(1).min(line_chars);
            &raw[..lengths[..whole].iter().sum()]
        }
    }
}

/// The lines of a back that begin in it; of a single endless line, its last characters.
fn whole_lines_at_back(raw: &[u8], line_chars: usize) -> &[u8] {
    let body = raw.strip_suffix(b"\n").unwrap_or(raw);
    match body.iter().position(is_newline) {
        Some(first) => &raw[first + 1..],
        None => {
            let torn = raw.iter().take(3).take_while(|byte| **byte & 0b1100_0000 == 0b1000_0000).count();
            let lengths = char_lengths(&body[torn.min(body.len())..]);
            let skipped: usize = lengths[..lengths.len().saturating_sub(line_chars)].iter().sum();
            &raw[torn.min(body.len()) + skipped..]
        }
    }
}

/// How many bytes each character takes up, where a sequence that is no character counts as one.
fn char_lengths(raw: &[u8]) -> Vec<usize> {
    raw.utf8_chunks()
        .flat_map(|chunk| {
            let invalid = Some(chunk.invalid().len()).filter(|len| *len > 0);
            chunk.valid().chars().map(char::len_utf8).chain(invalid)
        })
        .collect()
}

fn count_newlines(raw: &[u8]) -> u64 {
    raw.iter().filter(|byte| is_newline(byte)).count() as u64
}

/// Counts control characters that no text or terminal output has.
fn count_odd(text: &str) -> usize {
    let is_usual = |byte: u8| matches!(byte, b'\t' | b'\n' | b'\r' | 0x08 | 0x0c | 0x1b);
    text.bytes().filter(|byte| byte.is_ascii_control() && !is_usual(*byte)).count()
}

fn is_newline(byte: &u8) -> bool {
    *byte == b'\n'
}

#[cfg(test)]
mod tests;
