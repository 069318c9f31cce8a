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
    longest_run(text, &old).unwrap_or_else(|| nearest_line(text, first).unwrap_or_default())
}

/// The place where the most lines equal those of `old`, and the line there that differs.
fn longest_run(text: &[u8], old: &[&str]) -> Option<String> {
    let mut budget = RUN_BUDGET;
    let mut best: Option<(usize, usize, &[u8])> = None;
    let mut from = 0;
    for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
        if line == old[0].as_bytes() {
            let mut length = 0;
            let differs = text[from..].split(|byte| *byte == b'\n').zip(old).find(|(line, old)| {
                length += 1;
                budget = budget.saturating_sub(line.len() + 1);
                *line != old.as_bytes()
            });
            if let Some((line, _)) = differs
                && best.is_none_or(|(_, longest, _)| length > longest)
            {
                best = Some((number, length, line));
            }
            if budget == 0 {
                break;
            }
        }
        from += line.len() + 1;
    }
    let (number, length, line) = best?;
    let at = number + length - 1;
    Some(format!(
        "; it matches from line {number} on, but line {at} is {}, not {}",
        shown(line),
        shown(old[length - 1].as_bytes())
    ))
}

fn nearest_line(text: &[u8], wanted: &str) -> Option<String> {
    let wanted = wanted.trim().as_bytes();
    let mut best: Option<(usize, usize, &[u8])> = None;
    for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
        let trimmed = line.trim_ascii();
        if trimmed == wanted && !wanted.is_empty() {
            return Some(format!("; line {number} differs only in white space: {}", shown(line)));
        }
        let shared = shared_ends(trimmed, wanted);
        // At least half of the longer one.
        if shared * 2 >= trimmed.len().max(wanted.len()) && best.is_none_or(|(most, ..)| shared > most) {
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
