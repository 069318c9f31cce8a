//! Edits text by exact replacement.
//!
//! Every old text must occur exactly once in the original, edits may not overlap, and all apply or none. What is
//! not replaced stays byte for byte: a byte order mark, mixed line ends, bytes that are no UTF-8. Line ends don't
//! count when matching, and new text takes those of the place it goes to. Pure: knows nothing of files.

use std::ops::Range;

mod diff;
mod hint;
mod view;

pub use diff::{Diff, diff, whole};

use view::View;

const BOM: &str = "\u{feff}";
/// Bounds the work of one call: each edit is a pass over the text.
const MAX_EDITS: usize = 100;
/// Matches beyond these are not counted.
const MAX_COUNTED: usize = 1_000;
/// How many matches are listed by line.
const LISTED: usize = 5;

/// Replaces one piece of text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// Must occur exactly once.
    pub old_text: String,
    /// Taken literally.
    pub new_text: String,
}

/// What the edits make of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edited {
    pub bytes: Vec<u8>,
    /// From 1, of the original and of the edited text alike.
    pub first_changed_line: usize,
    pub diff: Diff,
}

/// Why nothing was edited; edits are counted from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    #[error("there are no edits")]
    NoEdits,
    #[error("there are {count} edits; a call takes {MAX_EDITS} at most")]
    TooManyEdits { count: usize },
    #[error("edit {edit}: old_text is empty")]
    EmptyOldText { edit: usize },
    #[error("edit {edit}: old_text and new_text are the same, so nothing would change (line ends are kept)")]
    NoChange { edit: usize },
    #[error("edit {edit}: old_text was not found{hint}")]
    NotFound { edit: usize, hint: String },
    #[error("edit {edit}: old_text occurs {count}, on {lines}; add context that makes it unique")]
    Ambiguous { edit: usize, count: Count, lines: Lines },
    #[error("edits {first} and {second} overlap on line {line}; join them into one")]
    Overlap { first: usize, second: usize, line: usize },
    #[error("edit {edit}: the file is not UTF-8, so only ASCII text can be put into it")]
    NotUtf8 { edit: usize },
}

/// How often a text occurs, counted up to a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count(usize);

impl std::fmt::Display for Count {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            MAX_COUNTED.. => write!(f, "{MAX_COUNTED} times or more"),
            count => write!(f, "{count} times"),
        }
    }
}

/// Lines on which a text occurs: the first few, and how many more there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lines {
    first: Vec<usize>,
    more: usize,
}

impl Lines {
    fn of(view: &View<'_>, places: &[Range<usize>]) -> Self {
        let (mut line, mut from) = (1, 0);
        let mut lines: Vec<usize> = places
            .iter()
            .map(|place| {
                line += view.lines_between(from, place.start);
                from = place.start;
                line
            })
            .collect();
        lines.dedup();
        let more = lines.len().saturating_sub(LISTED);
        lines.truncate(LISTED);
        Self { first: lines, more }
    }
}

impl std::fmt::Display for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.first.len() == 1 { "line " } else { "lines " })?;
        for (i, line) in self.first.iter().enumerate() {
            let before = match i {
                0 => "",
                _ if self.more == 0 && i + 1 == self.first.len() => " and ",
                _ => ", ",
            };
            write!(f, "{before}{line}")?;
        }
        if self.more > 0 {
            write!(f, " and {} more", self.more)?;
        }
        Ok(())
    }
}

/// Checks what can be checked without the text.
///
/// # Errors
/// Names the first edit that can't apply to any text.
pub fn validate(edits: &[Edit]) -> Result<(), EditError> {
    if edits.is_empty() {
        return Err(EditError::NoEdits);
    }
    if edits.len() > MAX_EDITS {
        return Err(EditError::TooManyEdits { count: edits.len() });
    }
    for (edit, Edit { old_text, new_text }) in (1..).zip(edits) {
        if old_text.is_empty() {
            return Err(EditError::EmptyOldText { edit });
        }
        if view::with_lf(old_text) == view::with_lf(new_text) {
            return Err(EditError::NoChange { edit });
        }
    }
    Ok(())
}

/// Applies all edits to the same original, or none.
///
/// # Errors
/// Names the edit that doesn't apply, and why, in words that help to correct it.
pub fn apply(original: &[u8], edits: &[Edit]) -> Result<Edited, EditError> {
    validate(edits)?;
    let view = View::new(original);
    let is_utf8 = std::str::from_utf8(original).is_ok();
    let mut found = Vec::with_capacity(edits.len());
    for (number, edit) in (1..).zip(edits) {
        if !is_utf8 && !edit.new_text.is_ascii() {
            return Err(EditError::NotUtf8 { edit: number });
        }
        found.push(Found { place: find_only(&view, number, edit)?, number, edit });
    }
    found.sort_by_key(|found| found.place.start);
    for pair in found.windows(2) {
        if let [a, b] = pair
            && b.place.start < a.place.end
        {
            let (first, second) = (a.number.min(b.number), a.number.max(b.number));
            return Err(EditError::Overlap { first, second, line: view.line_of(b.place.start) });
        }
    }
    let edited = rewrite(&view, &found);
    // A byte order mark added to the one that is kept is no change either.
    if edited.bytes == original { Err(EditError::NoChange { edit: 1 }) } else { Ok(edited) }
}

/// An edit and the one place in the original that it replaces.
struct Found<'a> {
    place: Range<usize>,
    number: usize,
    edit: &'a Edit,
}

fn find_only(view: &View<'_>, number: usize, edit: &Edit) -> Result<Range<usize>, EditError> {
    let places = view.find(&edit.old_text, MAX_COUNTED);
    match places.as_slice() {
        [] => Err(EditError::NotFound { edit: number, hint: hint::hint(view.text(), &edit.old_text) }),
        [only] => Ok(only.clone()),
        many => {
            Err(EditError::Ambiguous { edit: number, count: Count(many.len()), lines: Lines::of(view, many) })
        }
    }
}

fn rewrite(view: &View<'_>, found: &[Found<'_>]) -> Edited {
    let original = view.original();
    let mut bytes = Vec::with_capacity(original.len());
    let mut from = 0;
    let mut touched_lines = 0;
    for Found { place, edit, .. } in found {
        bytes.extend_from_slice(&original[from..place.start]);
        view.push_replacement(&mut bytes, place, &edit.new_text);
        touched_lines += edit.old_text.lines().count() + edit.new_text.lines().count() + 2;
        from = place.end;
    }
    bytes.extend_from_slice(&original[from..]);
    Edited {
        first_changed_line: found.first().map_or(1, |found| view.line_of(found.place.start)),
        diff: diff(original, &bytes, touched_lines),
        bytes,
    }
}

/// New content for a whole file: a byte order mark that was there stays, exactly once.
pub fn keep_bom(original: &[u8], content: &str) -> Vec<u8> {
    if original.starts_with(BOM.as_bytes()) {
        [BOM.as_bytes(), content.strip_prefix(BOM).unwrap_or(content).as_bytes()].concat()
    } else {
        content.as_bytes().to_vec()
    }
}

#[cfg(test)]
mod tests;
