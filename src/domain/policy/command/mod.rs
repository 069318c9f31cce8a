//! Splits a command line into the commands that bash would run for it, so that each can be judged.
//!
//! Reads a strict part of bash's grammar, in one pass and to a bounded length and depth: what it is not sure to read as
//! bash does is an error, never a guess. What stands in substitutions, here-documents, function bodies and behind
//! programs that run others (`env`, `xargs`, `sh -c` ...) is split too; where what runs is known only when it runs, the
//! part says so. Expands nothing, looks nowhere but at the text, and knows nothing of rules.

use std::{collections::BTreeSet, fmt};

mod arithmetic;
mod builtins;
mod compound;
mod expansion;
mod git;
mod here;
mod names;
mod options;
mod programs;
mod reader;
mod simple;
#[cfg(test)]
mod tests;
mod through;
mod word;
mod wrapper;

use reader::Reader;
pub(super) use through::{base_name, standard_name};

/// Bytes that a command line may have.
pub const MAX_LENGTH: usize = 64 * 1024;
/// Characters of a command that are shown.
const SHOWN: usize = 100;
/// Levels that commands may stand within each other.
const MAX_DEPTH: usize = 40;
/// Commands that a line may have.
const MAX_PARTS: usize = 1_000;

/// A command that a line runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// As it was written, or as what runs it hands it on.
    pub text: String,
    /// What it stands in, as `$(...)`; empty on the line itself.
    pub within: String,
    /// The command and its arguments. There are none for an assignment or a redirection that stands alone.
    pub words: Vec<Word>,
    /// How much of what runs the words say.
    pub sight: Sight,
    /// Variables that are set for it and that may change what it does.
    pub sets: Vec<String>,
    /// What its redirections write to or reach.
    pub reaches: Vec<String>,
}

/// How much of what runs a part's words say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sight {
    /// All of it.
    Clear,
    /// It only runs what another part is.
    Through,
    /// The command they name, which runs more than they say.
    Opaque(String),
    /// Nothing, and why.
    Hidden(String),
    /// The line could not be read at all, and why.
    Unread(String),
}

/// A word of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// As it was written.
    pub text: String,
    /// What it is once quotes are removed; nothing, if that is known only when it runs, or may be several words.
    pub value: Option<String>,
}

impl Word {
    fn literal(value: &str) -> Self {
        Self { text: value.to_owned(), value: Some(value.to_owned()) }
    }

    fn unknown(text: &str) -> Self {
        Self { text: text.to_owned(), value: None }
    }

    fn is(&self, value: &str) -> bool {
        self.value.as_deref() == Some(value)
    }
}

impl Part {
    fn new(text: impl Into<String>, within: &str, sight: Sight) -> Self {
        Self {
            text: text.into(),
            within: within.to_owned(),
            words: Vec::new(),
            sight,
            sets: Vec::new(),
            reaches: Vec::new(),
        }
    }

    /// Whether it only runs what another part is.
    pub fn is_through(&self) -> bool {
        self.sight == Sight::Through
    }

    /// The command in quotes, cut where it is long.
    pub fn shown(&self) -> String {
        match self.text.char_indices().nth(SHOWN) {
            Some((end, _)) => format!("{:?}...", self.text.get(..end).unwrap_or_default()),
            None => format!("{:?}", self.text),
        }
    }

    /// What a reader should know of it beside its words.
    pub fn remark(&self) -> Option<String> {
        let mut remarks = Vec::new();
        if !self.within.is_empty() {
            remarks.push(format!("in {}", self.within));
        }
        if !self.sets.is_empty() {
            remarks.push(format!("sets {}", self.sets.join(", ")));
        }
        remarks.extend(self.reaches.iter().cloned());
        match &self.sight {
            Sight::Clear | Sight::Through => {}
            Sight::Opaque(why) => remarks.push(why.clone()),
            Sight::Hidden(why) => remarks.push(format!("cannot be decided: {why}")),
            Sight::Unread(why) => remarks.push(format!("cannot be parsed: {why}")),
        }
        (!remarks.is_empty()).then(|| remarks.join("; "))
    }
}

/// Splits a line. What cannot be read is one part that says so; there is always at least one.
pub fn split(line: &str) -> Vec<Part> {
    split_for(line, false)
}

/// Whether `sh`, which may be less than bash, runs the same commands for a line.
pub fn is_plain(line: &str) -> bool {
    split_for(line, true) == split(line)
}

fn split_for(line: &str, is_sh: bool) -> Vec<Part> {
    let mut out = Out::default();
    loop {
        let before = (out.unsets, out.has_lists);
        let mut reader = Reader::new(line, "", &mut out);
        reader.is_sh = is_sh;
        if let Err(Unread(why)) = reader.script() {
            return vec![Part::new(line, "", Sight::Unread(why))];
        }
        // What the line does anywhere may bear on what stands before it: loops and functions come back to that.
        if before == (out.unsets, out.has_lists) {
            break;
        }
        out = Out { unsets: out.unsets, has_lists: out.has_lists, ..Out::default() };
    }
    if out.parts.is_empty() { vec![Part::new(line, "", Sight::Clear)] } else { out.parts }
}

/// Why a line cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Unread(String);

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

type Read<T> = Result<T, Unread>;

fn unread<T>(why: impl Into<String>) -> Read<T> {
    Err(Unread(why.into()))
}

/// What has been found, in the order in which it stands.
#[derive(Debug, Default)]
struct Out {
    parts: Vec<Part>,
    /// Names that are surely functions by now: a call of one runs a body that was split where it stands.
    functions: BTreeSet<String>,
    /// Whether functions may be taken away, so that no name is surely one.
    unsets: bool,
    /// Whether variables become lists: a text that is assigned to one is evaluated.
    has_lists: bool,
    depth: usize,
}

impl Out {
    fn part(&mut self, part: Part) -> Read<()> {
        if self.parts.len() >= MAX_PARTS {
            return unread(format!("more than {MAX_PARTS} commands"));
        }
        self.parts.push(part);
        Ok(())
    }

    fn hidden(&mut self, text: &str, within: &str, why: impl Into<String>) -> Read<()> {
        self.part(Part::new(text, within, Sight::Hidden(why.into())))
    }

    /// Goes a level deeper. A reading that fails is over, so only one that succeeds comes back up.
    fn enter(&mut self) -> Read<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return unread(format!("more than {MAX_DEPTH} levels within each other"));
        }
        Ok(())
    }

    fn leave(&mut self) {
        self.depth -= 1;
    }
}
