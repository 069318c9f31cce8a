//! Says where a text that was not found may have been meant.
//!
//! Looks for the longest run of equal lines, else for the line most like the first one. The work is bounded: two
//! passes over the text, and a budget for runs.

/// Bytes that looking for runs may compare.
const RUN_BUDGET: usize = 32 << 20;
/// Of the text, how much is looked at.
const MAX_BYTES: usize = 8 << 20;
const MAX_SHOWN_CHARS: usize = 160;

/// A phrase to follow "was not found", or nothing.
pub(super) fn hint(text: &[u8], old: &str) -> String {
    let text = &text[..text.len().min(MAX_BYTES)];
    let old = super::view::with_lf(old);
    let old = old.strip_suffix('\n').unwrap_or(&old);
    let old: Vec<&str> = old.split('\n').skip_while(|line| line.trim().is_empty()).collect();
    let Some(first) = old.first() else { return String::new() };
    longest_run(text, &old).unwrap_or_else(|| nearest_line(text, first.as_bytes()).unwrap_or_default())
}

/// Lines of the text that equal those of `old` from its first on.
struct Run<'a> {
    /// The line, from 1, that it starts on.
    line: usize,
    length: usize,
    /// The line that ends it; none at the end of the text.
    differs: Option<&'a [u8]>,
}

fn longest_run(text: &[u8], old: &[&str]) -> Option<String> {
    let mut budget = RUN_BUDGET;
    let mut best: Option<Run<'_>> = None;
    let mut rest = text;
    for (line, content) in (1..).zip(lines(text)) {
        if old.first().is_some_and(|first| content == first.as_bytes()) {
            let mut here = lines(rest);
            let equal = old.iter().map_while(|old| {
                let line = here.next().filter(|line| *line == old.as_bytes());
                budget = budget.saturating_sub(line.map_or(1, |line| line.len() + 1));
                line
            });
            let length = equal.count();
            if length < old.len() && best.as_ref().is_none_or(|best| length > best.length) {
                best = Some(Run { line, length, differs: lines(rest).nth(length) });
            }
            if budget == 0 {
                break;
            }
        }
        rest = rest.get(content.len() + 1..).unwrap_or_default();
    }
    let Run { line, length, differs } = best?;
    let wanted = shown(old.get(length)?.as_bytes());
    Some(match differs {
        Some(found) => {
            let at = line + length;
            format!("; it matches from line {line} on, but line {at} is {}, not {wanted}", shown(found))
        }
        None => format!("; it matches from line {line} on, but the file ends before {wanted}"),
    })
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.strip_suffix(b"\n").unwrap_or(text).split(|byte| *byte == b'\n')
}

fn nearest_line(text: &[u8], wanted: &[u8]) -> Option<String> {
    let trimmed_wanted = wanted.trim_ascii();
    let mut best: Option<(usize, usize, &[u8])> = None;
    for (number, line) in (1..).zip(lines(text)) {
        let trimmed = line.trim_ascii();
        if trimmed == trimmed_wanted && line != wanted {
            return Some(format!("; line {number} differs only in white space: {}", shown(line)));
        }
        let shared = shared_ends(trimmed, trimmed_wanted);
        // At least half of the longer one.
        if shared * 2 >= trimmed.len().max(trimmed_wanted.len())
            && best.is_none_or(|(most, ..)| shared > most)
        {
            best = Some((shared, number, line));
        }
    }
    best.filter(|(shared, ..)| *shared > 0)
        .map(|(_, number, line)| format!("; the nearest is line {number}: {}", shown(line)))
}

/// Bytes that two lines have in common at their start and at their end.
fn shared_ends(a: &[u8], b: &[u8]) -> usize {
    let start = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let end = a[start..].iter().rev().zip(b[start..].iter().rev()).take_while(|(a, b)| a == b).count();
    start + end
}

/// A line in quotes that make white space visible, cut when long.
fn shown(line: &[u8]) -> String {
    let line = String::from_utf8_lossy(line);
    match line.char_indices().nth(MAX_SHOWN_CHARS) {
        Some((at, _)) => format!("{:?}...", &line[..at]),
        None => format!("{line:?}"),
    }
}
