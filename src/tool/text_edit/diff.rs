//! A compact unified diff, bounded in work and in size.

use std::{fmt::Write, ops::Range};

use similar::{Algorithm, DiffOp, DiffTag};

/// Lines around a change.
const CONTEXT: usize = 3;
/// Line comparisons that a diff may cost, roughly.
const MAX_WORK: usize = 20_000_000;
/// Of each side, how much is compared.
const MAX_COMPARED_BYTES: usize = 4 << 20;
const MAX_SHOWN_LINES: usize = 200;
const MAX_SHOWN_CHARS: usize = 300;

/// What changed between two texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diff {
    /// Hunks as `diff -u` has them; a note in brackets where they are left out or cut.
    pub text: String,
    /// Lines that are new, if they were counted.
    pub added: usize,
    /// Lines that are gone, if they were counted.
    pub removed: usize,
}

/// Compares two texts of which at most about `touched` lines differ.
pub fn diff(old: &[u8], new: &[u8], touched: usize) -> Diff {
    let (start, old_end, new_end) = differing_lines(old, new);
    let (old_part, new_part) = (&old[start..old_end], &new[start..new_end]);
    if old_part.len().max(new_part.len()) > MAX_COMPARED_BYTES {
        return too_large();
    }
    let (old_lines, new_lines) = (lines(old_part), lines(new_part));
    let size = old_lines.len() + new_lines.len();
    if size.saturating_mul(touched.min(size)) > MAX_WORK {
        return too_large();
    }
    let ops = similar::capture_diff_slices(Algorithm::Myers, &old_lines, &new_lines);
    let first_line = memchr::memchr_iter(b'\n', &old[..start]).count();
    let mut out = Hunks::within(MAX_SHOWN_LINES, MAX_SHOWN_CHARS);
    for group in similar::group_diff_ops(ops, CONTEXT) {
        out.push(&group, &old_lines, &new_lines, first_line);
    }
    out.finish()
}

/// Compares two texts and leaves nothing out, for whoever is to approve of it. What would cost too much to compare is shown as
/// all of the old lines and all of the new.
pub fn whole(old: &[u8], new: &[u8]) -> String {
    let (start, old_end, new_end) = differing_lines(old, new);
    let (old_lines, new_lines) = (lines(&old[start..old_end]), lines(&new[start..new_end]));
    let (old_len, new_len) = (old_lines.len(), new_lines.len());
    let first_line = memchr::memchr_iter(b'\n', &old[..start]).count();
    let mut out = Hunks::within(usize::MAX, usize::MAX);
    let size = old_len + new_len;
    if size.saturating_mul(size) > MAX_WORK {
        let all = DiffOp::Replace { old_index: 0, old_len, new_index: 0, new_len };
        out.push(&[all], &old_lines, &new_lines, first_line);
    } else {
        let ops = similar::capture_diff_slices(Algorithm::Myers, &old_lines, &new_lines);
        for group in similar::group_diff_ops(ops, CONTEXT) {
            out.push(&group, &old_lines, &new_lines, first_line);
        }
    }
    out.finish().text
}

fn too_large() -> Diff {
    Diff { text: "[The change is too large to show as a diff.]\n".to_owned(), ..Diff::default() }
}

/// Leaves off equal lines at both ends, but for the context: where the rest starts, and where it ends in each.
fn differing_lines(old: &[u8], new: &[u8]) -> (usize, usize, usize) {
    let equal_start = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let mut start = line_start(old, equal_start);
    for _ in 0..CONTEXT {
        start = line_start(old, start.saturating_sub(1));
    }
    let equal_end = old[equal_start..]
        .iter()
        .rev()
        .zip(new[equal_start..].iter().rev())
        .take_while(|(a, b)| a == b)
        .count();
    let (old_end, new_end) = (old.len() - equal_end, new.len() - equal_end);
    // The first line feed after the change ends its line; the context follows.
    let after = &old[old_end..];
    let tail = memchr::memchr_iter(b'\n', after).nth(CONTEXT).map_or(after.len(), |at| at + 1);
    (start, old_end + tail, new_end + tail)
}

fn line_start(text: &[u8], at: usize) -> usize {
    memchr::memrchr(b'\n', &text[..at]).map_or(0, |line_feed| line_feed + 1)
}

fn lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}

struct Hunks {
    most_lines: usize,
    most_chars: usize,
    diff: Diff,
    shown: usize,
    left_out: usize,
}

impl Hunks {
    fn within(most_lines: usize, most_chars: usize) -> Self {
        Self { most_lines, most_chars, diff: Diff::default(), shown: 0, left_out: 0 }
    }

    fn push(&mut self, group: &[DiffOp], old: &[&[u8]], new: &[&[u8]], first_line: usize) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { return };
        let header = |range: Range<usize>| {
            // As diff -u has it: the line before, if there are none.
            let from = first_line + range.start + usize::from(!range.is_empty());
            format!("{from},{}", range.len())
        };
        let olds = header(first.old_range().start..last.old_range().end);
        let news = header(first.new_range().start..last.new_range().end);
        if self.shown < self.most_lines {
            let _ = writeln!(self.diff.text, "@@ -{olds} +{news} @@");
        }
        for op in group {
            match op.tag() {
                DiffTag::Equal => old[op.old_range()].iter().for_each(|line| self.line(' ', line)),
                DiffTag::Delete | DiffTag::Insert | DiffTag::Replace => {
                    self.diff.removed += op.old_range().len();
                    self.diff.added += op.new_range().len();
                    old[op.old_range()].iter().for_each(|line| self.line('-', line));
                    new[op.new_range()].iter().for_each(|line| self.line('+', line));
                }
            }
        }
    }

    fn line(&mut self, sign: char, line: &[u8]) {
        if self.shown == self.most_lines {
            self.left_out += 1;
            return;
        }
        self.shown += 1;
        let text = String::from_utf8_lossy(line);
        let text = text.strip_suffix('\n').unwrap_or(&text);
        let text = text.strip_suffix('\r').unwrap_or(text);
        let (text, cut) = match text.char_indices().nth(self.most_chars) {
            Some((at, _)) => (&text[..at], "..."),
            None => (text, ""),
        };
        let _ = writeln!(self.diff.text, "{sign}{text}{cut}");
        if !line.ends_with(b"\n") {
            let _ = writeln!(self.diff.text, "\\ No newline at end of file");
        }
    }

    fn finish(mut self) -> Diff {
        if self.left_out > 0 {
            let _ = writeln!(self.diff.text, "[{} more lines of the diff are not shown.]", self.left_out);
        }
        self.diff
    }
}
