//! Reads a batch's input: one task a line, every default filled in, every name looked up.
//!
//! All mistakes are found before anything runs. A mistake is told as `FILE:LINE: field: what, and what would be right`.
//! Lines are read one at a time, so a large input costs no more than its tasks do. Knows nothing of journals and runs.

use std::{
    collections::BTreeMap,
    fmt,
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use sha2::{Digest, Sha256};

use crate::{
    config::Defaults,
    domain::{
        batch::{LineError, TaskLine, canonical},
        task::TaskSpec,
    },
    tool::toolbox::Toolbox,
};

mod complete;
mod select;
#[cfg(test)]
mod tests;

use complete::{Completer, Fault, Incomplete};
pub use complete::{SCRIPTED, SingleError, folder, read_script, single};
pub use select::{Selection, repeated};

/// Mistakes that are told; the rest is counted.
const SHOWN: usize = 20;

/// Bytes that a line may have: one that never ends is a mistake like any other, and costs no more memory than this.
const MAX_LINE: u64 = 128 << 20;

/// One task of the input.
#[derive(Clone, Debug, PartialEq)]
pub struct InputTask {
    /// The line it stands in; the first is 1.
    pub line: usize,
    pub id: Arc<str>,
    /// SHA-256 of the line's canonical JSON, in hex.
    pub hash: String,
    /// What is asked of its first attempt.
    pub spec: TaskSpec,
}

/// Where an input is read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Stdin,
    File(PathBuf),
    /// It was sent here by somebody whose folders mean nothing here: every path in it is absolute.
    Submission,
}

impl Source {
    /// A file, or stdin if it is called `-`.
    pub fn named(name: &Path) -> Self {
        if name == Path::new("-") { Self::Stdin } else { Self::File(name.to_path_buf()) }
    }

    /// What paths in the input are relative to, if anything.
    fn folder(&self) -> Option<&Path> {
        match self {
            Self::Stdin => Some(Path::new(".")),
            Self::File(path) => {
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
                Some(folder.unwrap_or(Path::new(".")))
            }
            Self::Submission => None,
        }
    }

    fn place(&self, line: usize) -> String {
        match self {
            Self::Stdin | Self::File(_) => format!("{self}:{line}"),
            Self::Submission => format!("line {line}"),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdin => f.write_str("stdin"),
            Self::File(path) => path.display().fmt(f),
            Self::Submission => f.write_str("the input"),
        }
    }
}

/// Says whether a name stands for something; if not, what is wrong and what would be right.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Result<(), String>;

/// What lines are completed with and checked by.
#[derive(Clone, Copy)]
pub struct Rules<'a> {
    pub defaults: &'a Defaults,
    pub model: Lookup<'a>,
    pub tool: Lookup<'a>,
}

/// Whether a tool has this name; if not, which there are.
///
/// # Errors
/// There is none.
pub fn known_tool(toolbox: &Toolbox, name: &str) -> Result<(), String> {
    let names = || toolbox.names().map(|name| &**name).collect::<Vec<_>>().join(", ");
    toolbox.get(name).map(drop).ok_or_else(|| format!("there is no tool {name:?}; want some of {}", names()))
}

/// Why an input is refused.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    #[error("{source_name}: cannot be read")]
    Read {
        source_name: String,
        #[source]
        source: io::Error,
    },
    /// The input has mistakes, one on a line of this text.
    #[error("{}{}", told.join("\n"), match more { 0 => String::new(), more => format!("\nand {more} more") })]
    Mistakes { told: Vec<String>, more: usize },
}

/// Reads all tasks of an input.
///
/// # Errors
/// The first twenty mistakes, and how many more there are.
pub fn read(source: &Source, rules: Rules<'_>) -> Result<Vec<InputTask>, InputError> {
    match source {
        Source::Stdin | Source::Submission => read_from(io::stdin().lock(), source, rules),
        Source::File(path) => match File::open(path) {
            Ok(file) => read_from(BufReader::new(file), source, rules),
            Err(error) => Err(InputError::Read { source_name: source.to_string(), source: error }),
        },
    }
}

/// Reads all tasks from where `source` was opened.
///
/// # Errors
/// As [`read`].
pub fn read_from(
    input: impl BufRead,
    source: &Source,
    rules: Rules<'_>,
) -> Result<Vec<InputTask>, InputError> {
    let mut tasks = Vec::new();
    read_each(input, source, rules, |task, _| tasks.push(task))?;
    Ok(tasks)
}

/// Where a line lies in its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub at: u64,
    pub bytes: usize,
}

/// Hands over each task as it is read. They are of use only if all are without mistakes.
///
/// # Errors
/// As [`read`].
pub fn read_each(
    input: impl BufRead,
    source: &Source,
    rules: Rules<'_>,
    mut take: impl FnMut(InputTask, Span),
) -> Result<(), InputError> {
    let mut completer = Completer::new(rules, source.folder());
    each_line(input, source, |reader, line, span| {
        let ParsedLine { number, hash, task } = line;
        let id = task.id.clone();
        match completer.complete(task) {
            Ok(spec) => take(InputTask { line: number, id, hash, spec }, span),
            Err(Incomplete { faults, .. }) => reader.refuse_all(number, &faults),
        }
    })
}

/// A line as it stands; what it names is not looked up, and what it leaves out is not filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct ParsedLine {
    /// The first is 1.
    pub number: usize,
    /// As of an [`InputTask`].
    pub hash: String,
    pub task: TaskLine,
}

/// Hands over each line of an input that was checked before.
///
/// # Errors
/// As [`read`], but for what lines name.
pub fn parse_each(
    input: impl BufRead,
    source: &Source,
    mut take: impl FnMut(ParsedLine, Span),
) -> Result<(), InputError> {
    each_line(input, source, |_, line, span| take(line, span))
}

fn each_line(
    mut input: impl BufRead,
    source: &Source,
    mut take: impl FnMut(&mut Reader<'_>, ParsedLine, Span),
) -> Result<(), InputError> {
    let mut reader = Reader::new(source);
    let mut bytes = Vec::new();
    let mut at = 0;
    let failed = |error| InputError::Read { source_name: source.to_string(), source: error };
    for number in 1.. {
        bytes.clear();
        let length = (&mut input).take(MAX_LINE + 1).read_until(b'\n', &mut bytes).map_err(failed)?;
        if length == 0 {
            break;
        }
        if bytes.len() as u64 > MAX_LINE {
            let what = format!("is longer than {} MiB; shorten it, or split the task", MAX_LINE >> 20);
            reader.refuse(number, &LineError { field: String::new(), what });
            if bytes.last() != Some(&b'\n') {
                input.skip_until(b'\n').map_err(failed)?;
            }
            continue;
        }
        if let Some(line) = reader.line(number, &bytes) {
            take(&mut reader, line, Span { at, bytes: length });
        }
        at += length as u64;
    }
    reader.finish()
}

/// Reads one task that was sent by itself, with the keys of a line and every path absolute. Without an id it has none.
///
/// # Errors
/// Every mistake in it.
pub fn one(text: &[u8], rules: Rules<'_>) -> Result<TaskSpec, InputError> {
    let mistakes = |told: Vec<String>| InputError::Mistakes { told, more: 0 };
    let text = std::str::from_utf8(text)
        .map_err(|error| mistakes(vec![format!("not UTF-8 at byte {}", error.valid_up_to() + 1)]))?;
    let text = crate::domain::text::repair_surrogates(text.trim());
    let told = |all: &[LineError]| mistakes(all.iter().map(ToString::to_string).collect());
    let line = TaskLine::parse(&text, UNNUMBERED).map_err(|all| told(&all))?;
    let is_named = line.id != TaskLine::id_of(UNNUMBERED);
    let spec = Completer::new(rules, None).complete(line).map_err(|Incomplete { faults, .. }| {
        let mistake = |fault: Fault| match fault {
            Fault::Line(mistake) | Fault::Default(mistake) => mistake,
        };
        told(&faults.into_iter().map(mistake).collect::<Vec<_>>())
    })?;
    Ok(TaskSpec { task_id: spec.task_id.filter(|_| is_named), ..spec })
}

/// What stands for the number of a line where there is but one.
const UNNUMBERED: usize = 0;

/// A line that was read again.
#[derive(Clone, Debug, PartialEq)]
pub enum Reread {
    Whole(InputTask),
    /// What it names is not to be had any more, as these words say; the rest of it is as it was.
    Incomplete(InputTask, String),
}

/// Reads the task of one line again.
///
/// # Errors
/// It is no line of a task any more.
pub fn read_line(
    number: usize,
    bytes: &[u8],
    source: &Source,
    rules: Rules<'_>,
) -> Result<Reread, InputError> {
    let mut reader = Reader::new(source);
    let line = reader.line(number, bytes);
    reader.finish()?;
    let gone = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let Some(ParsedLine { number, hash, task }) = line else {
        return Err(InputError::Read { source_name: source.to_string(), source: gone() });
    };
    let id = task.id.clone();
    let whole = |spec| InputTask { line: number, id, hash, spec };
    Ok(match Completer::new(rules, source.folder()).complete(task) {
        Ok(spec) => Reread::Whole(whole(spec)),
        Err(Incomplete { spec, faults }) => {
            let told =
                faults.iter().map(|(Fault::Line(mistake) | Fault::Default(mistake))| mistake.to_string());
            let told = told.collect::<Vec<_>>().join("; ");
            Reread::Incomplete(whole(*spec), told)
        }
    })
}

struct Reader<'a> {
    source: &'a Source,
    lines_of_ids: BTreeMap<Arc<str>, usize>,
    told: Vec<String>,
    more: usize,
}

impl<'a> Reader<'a> {
    const fn new(source: &'a Source) -> Self {
        Self { source, lines_of_ids: BTreeMap::new(), told: Vec::new(), more: 0 }
    }

    fn finish(self) -> Result<(), InputError> {
        if self.told.is_empty() {
            Ok(())
        } else {
            Err(InputError::Mistakes { told: self.told, more: self.more })
        }
    }

    fn refuse(&mut self, line: usize, mistake: &LineError) {
        if self.told.len() < SHOWN {
            self.told.push(format!("{}: {mistake}", self.source.place(line)));
        } else {
            self.more += 1;
        }
    }

    /// A default is at fault in every line that relies on it, and told once.
    fn refuse_default(&mut self, mistake: &LineError) {
        let text = format!("{mistake} (a default, of --{} or [defaults])", mistake.field);
        if !self.told.contains(&text) {
            self.told.push(text);
        }
    }

    fn refuse_all(&mut self, number: usize, faults: &[Fault]) {
        for fault in faults {
            match fault {
                Fault::Line(mistake) => self.refuse(number, mistake),
                Fault::Default(mistake) => self.refuse_default(mistake),
            }
        }
    }

    fn line(&mut self, number: usize, bytes: &[u8]) -> Option<ParsedLine> {
        let bytes = if number == 1 { bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes) } else { bytes };
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text.trim(),
            Err(error) => {
                let at = error.valid_up_to() + 1;
                let what = format!("not UTF-8 at byte {at} of the line; save the input as UTF-8");
                self.refuse(number, &LineError { field: String::new(), what });
                return None;
            }
        };
        if text.is_empty() {
            return None;
        }
        let text = crate::domain::text::repair_surrogates(text);
        let task = match TaskLine::parse(&text, number) {
            Ok(task) => task,
            Err(mistakes) => {
                mistakes.iter().for_each(|mistake| self.refuse(number, mistake));
                return None;
            }
        };
        if let Some(first) = self.lines_of_ids.get(&task.id) {
            let what =
                format!("{:?} is the id of line {first} too; give each task an id of its own", task.id);
            self.refuse(number, &LineError { field: "id".to_owned(), what });
        } else {
            self.lines_of_ids.insert(task.id.clone(), number);
        }
        Some(ParsedLine { number, hash: hash(&text), task })
    }
}

/// The hash of a line's content. JSON too deep to be spelt anew goes by its own spelling.
fn hash(text: &str) -> String {
    let digest = match serde_json::from_str(text) {
        Ok(value) => Sha256::digest(canonical(&value)),
        Err(_) => Sha256::digest(text),
    };
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
