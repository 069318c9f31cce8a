//! Text fitted to columns of a terminal, where a character may be two wide or none.

use std::time::Duration;

use ratatui::{style::Style, text::Span};

use crate::{cli::progress::clock, domain::time::Timestamp};

/// Columns that a text takes.
pub(super) fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// Text without anything that a terminal would obey; lines stay.
pub(super) fn clean(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' => '\n',
            c if c.is_control() => ' ',
            c => c,
        })
        .collect()
}

/// Text on one line of at most so many columns; what is left out is told by `…`.
pub(super) fn cut(text: &str, columns: usize) -> String {
    // More characters than columns are not looked at, however long the text is.
    let one_line: String = text
        .chars()
        .take(columns.saturating_mul(4).saturating_add(4))
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if width(&one_line) <= columns {
        return one_line;
    }
    let mut cut = String::new();
    let mut taken = 0;
    for grapheme in Span::raw(&*one_line).styled_graphemes(Style::new()) {
        let next = width(grapheme.symbol);
        if taken + next + 1 > columns {
            break;
        }
        taken += next;
        cut.push_str(grapheme.symbol);
    }
    if columns > 0 {
        cut.push('…');
    }
    cut
}

/// Text in rows of at most so many columns, broken between words where it can be.
pub(super) fn wrap(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(2);
    text.lines().flat_map(|line| wrap_line(&clean(line), columns)).collect()
}

fn wrap_line(line: &str, columns: usize) -> Vec<String> {
    if line.len() <= columns {
        return vec![line.to_owned()];
    }
    let mut rows = Vec::new();
    let (mut row, mut taken) = (String::new(), 0);
    for grapheme in Span::raw(line).styled_graphemes(Style::new()) {
        let next = width(grapheme.symbol);
        if taken + next > columns {
            // A word that began late in the row goes to the next one.
            let rest = match row.rfind(' ') {
                Some(space) if grapheme.symbol != " " && space > row.len() / 2 => {
                    let rest = row.split_off(space + 1);
                    row.truncate(space);
                    rest
                }
                _ => String::new(),
            };
            rows.push(std::mem::replace(&mut row, rest));
            taken = width(&row);
            if row.is_empty() && grapheme.symbol == " " {
                continue;
            }
        }
        taken += next;
        row.push_str(grapheme.symbol);
    }
    rows.push(row);
    rows
}

/// Time since a point that the daemon named, as `1m05s` or `3d02h`; nothing if it is no time.
pub(super) fn since(at: &str, now: Timestamp) -> String {
    let Ok(at) = at.parse::<jiff::Timestamp>() else { return String::new() };
    age(now.since(Timestamp::from_micros(at.as_microsecond())))
}

pub(super) fn age(time: Duration) -> String {
    let hours = time.as_secs() / 3_600;
    if hours < 48 { clock(time) } else { format!("{}d{:02}h", hours / 24, hours % 24) }
}

/// Money with as many digits as its size asks for.
pub(super) fn money(usd: f64) -> String {
    if usd < 10.0 { format!("${usd:.3}") } else { format!("${usd:.2}") }
}

/// A whole number with commas.
pub(super) fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_by_columns_and_not_by_characters() {
        for (text, columns, expected) in [
            ("abc", 3, "abc"),
            ("abcd", 3, "ab…"),
            ("日本語", 6, "日本語"),
            ("日本語", 5, "日本…"),
            ("日本語", 4, "日…"),
            ("a\tb\nc\x1b[2J", 20, "a b c [2J"),
            ("👩‍👩‍👧 family", 4, "👩‍👩‍👧 …"),
            ("abc", 0, ""),
        ] {
            let cut = cut(text, columns);
            assert_eq!(cut, expected);
            assert!(width(&cut) <= columns);
        }
    }

    #[test]
    fn rows_break_between_words_where_they_can() {
        assert_eq!(wrap("one two three four", 10), ["one two", "three four"]);
        assert_eq!(wrap("abcdefghijkl", 5), ["abcde", "fghij", "kl"]);
        assert_eq!(wrap("日本語日本語", 5), ["日本", "語日", "本語"]);
        assert_eq!(wrap("a\n\nb", 5), ["a", "", "b"]);
        assert!(wrap("wörd 那😀 ".repeat(40).trim(), 13).iter().all(|row| width(row) <= 13));
    }

    #[test]
    fn numbers_read_easily() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(age(Duration::from_secs(65)), "1m05s");
        assert_eq!(age(Duration::from_secs(50 * 3_600)), "2d02h");
        assert_eq!([0.0123, 12.5].map(money), ["$0.012", "$12.50"]);
        assert_eq!(since("2026-01-01T00:00:00Z", Timestamp::from_micros(1_767_225_660_000_000)), "1m00s");
    }
}
