//! Reads a batch's input: one task a line, every default filled in, every name looked up.
//!
//! All mistakes are found before anything runs. A mistake is told as `FILE:LINE: field: what, and what would be right`.
//! Lines are read one at a time, so a large input costs no more than its tasks do. Knows nothing of journals and runs.

use std::{
    collections::BTreeMap,
    fmt,
    fs::File,
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
    sync::Arc,
};

use sha2::{Digest, Sha256};

use crate::{
    config::Defaults,
    domain::{
        batch::{LineError, ScriptSource, TaskLine, canonical, repair_surrogates},
        script::Script,
        task::{Params, TaskSpec},
    },
};

mod select;
#[cfg(test)]
mod tests;

pub use select::{Selection, repeated};

/// What a task with a script asks if its line names no model.
pub const SCRIPTED: &str = "scripted:inline";
/// Mistakes that are told; the rest is counted.
const SHOWN: usize = 20;

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
}

impl Source {
    /// A file, or stdin if it is called `-`.
    pub fn named(name: &Path) -> Self {
        if name == Path::new("-") { Self::Stdin } else { Self::File(name.to_path_buf()) }
    }

    /// What paths in the input are relative to.
    fn folder(&self) -> &Path {
        match self {
            Self::Stdin => Path::new("."),
            Self::File(path) => {
                path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
            }
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdin => f.write_str("stdin"),
            Self::File(path) => path.display().fmt(f),
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
        Source::Stdin => read_from(io::stdin().lock(), source, rules),
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
    mut input: impl BufRead,
    source: &Source,
    rules: Rules<'_>,
) -> Result<Vec<InputTask>, InputError> {
    let mut reader = Reader::new(source, rules);
    let mut bytes = Vec::new();
    for number in 1.. {
        bytes.clear();
        let length = input
            .read_until(b'\n', &mut bytes)
            .map_err(|error| InputError::Read { source_name: source.to_string(), source: error })?;
        if length == 0 {
            break;
        }
        reader.line(number, &bytes);
    }
    reader.finish()
}

struct Reader<'a> {
    source: &'a Source,
    rules: Rules<'a>,
    tasks: Vec<InputTask>,
    lines_of_ids: BTreeMap<Arc<str>, usize>,
    folders: BTreeMap<PathBuf, Result<Arc<str>, String>>,
    scripts: BTreeMap<PathBuf, Result<Script, String>>,
    told: Vec<String>,
    more: usize,
}

impl<'a> Reader<'a> {
    const fn new(source: &'a Source, rules: Rules<'a>) -> Self {
        Self {
            source,
            rules,
            tasks: Vec::new(),
            lines_of_ids: BTreeMap::new(),
            folders: BTreeMap::new(),
            scripts: BTreeMap::new(),
            told: Vec::new(),
            more: 0,
        }
    }

    fn finish(self) -> Result<Vec<InputTask>, InputError> {
        if self.told.is_empty() {
            Ok(self.tasks)
        } else {
            Err(InputError::Mistakes { told: self.told, more: self.more })
        }
    }

    fn refuse(&mut self, line: usize, mistake: &LineError) {
        if self.told.len() < SHOWN {
            self.told.push(format!("{}:{line}: {mistake}", self.source));
        } else {
            self.more += 1;
        }
    }

    fn line(&mut self, number: usize, bytes: &[u8]) {
        let bytes = if number == 1 { bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes) } else { bytes };
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text.trim(),
            Err(error) => {
                let at = error.valid_up_to() + 1;
                let what = format!("not UTF-8 at byte {at} of the line; save the input as UTF-8");
                return self.refuse(number, &LineError { field: String::new(), what });
            }
        };
        if text.is_empty() {
            return;
        }
        let text = repair_surrogates(text);
        match TaskLine::parse(&text, number) {
            Ok(line) => self.task(number, &text, line),
            Err(mistakes) => mistakes.iter().for_each(|mistake| self.refuse(number, mistake)),
        }
    }

    fn task(&mut self, number: usize, text: &str, line: TaskLine) {
        let id = line.id.clone();
        let mut mistakes = Vec::new();
        if let Some(first) = self.lines_of_ids.get(&id) {
            let what = format!("{id:?} is the id of line {first} too; give each task an id of its own");
            mistakes.push(mistake("id", what));
        } else {
            self.lines_of_ids.insert(id.clone(), number);
        }
        let spec = self.complete(line, &mut mistakes);
        // It was read as JSON before, so this reads too.
        let value = serde_json::from_str(text).unwrap_or_default();
        let hash = hex(&Sha256::digest(canonical(&value)));
        match spec {
            Some(spec) if mistakes.is_empty() => self.tasks.push(InputTask { line: number, id, hash, spec }),
            Some(_) | None => mistakes.iter().for_each(|mistake| self.refuse(number, mistake)),
        }
    }

    /// Fills in the defaults and looks up what the line names.
    fn complete(&mut self, line: TaskLine, mistakes: &mut Vec<LineError>) -> Option<TaskSpec> {
        let Rules { defaults, model: known_model, tool: known_tool } = self.rules;
        let script = self.script(line.script, mistakes);
        let model = line.model.or_else(|| match &script {
            Some(_) => Some(SCRIPTED.to_owned()),
            None => defaults.model.clone(),
        });
        match &model {
            Some(name) => mistakes.extend(known_model(name).err().map(|what| mistake("model", what))),
            None => mistakes.push(mistake("model", "is missing; name one here, by --model or in [defaults]")),
        }
        let default_tools =
            || Some(defaults.tools.as_ref()?.iter().map(|tool| tool.as_str().into()).collect());
        let tools: Option<Vec<Arc<str>>> = line.tools.or_else(default_tools);
        for tool in tools.iter().flatten() {
            mistakes.extend(known_tool(tool).err().map(|what| mistake("tools", what)));
        }
        let workspace = match (&line.workspace, &defaults.workspace) {
            (Some(path), _) => self.source.folder().join(path),
            (None, Some(path)) => path.clone(),
            (None, None) => PathBuf::from("."),
        };
        let workspace = match self.folders.entry(workspace).or_insert_with_key(|path| folder(path)) {
            Ok(path) => path.clone(),
            Err(what) => {
                mistakes.push(mistake("workspace", what.clone()));
                return None;
            }
        };
        Some(TaskSpec {
            task: line.task,
            task_id: Some(line.id),
            batch: None,
            attempt: 1,
            predecessor: None,
            system: line.system.or_else(|| defaults.system.as_deref().map(Arc::from)),
            facts: over(&defaults.facts, line.facts),
            model: model?.into(),
            workspace,
            tools,
            limits: line.limits.or(defaults.limits),
            priority: line.priority.unwrap_or(defaults.priority),
            labels: over(&defaults.labels, line.labels),
            meta: line.meta,
            params: params(line.params.unwrap_or_default(), &defaults.params),
            script,
        })
    }

    fn script(&mut self, source: Option<ScriptSource>, mistakes: &mut Vec<LineError>) -> Option<Script> {
        match source? {
            ScriptSource::Inline(script) => Some(script),
            ScriptSource::File(name) => {
                let path = self.source.folder().join(name);
                match self.scripts.entry(path).or_insert_with_key(|path| read_script(path)) {
                    Ok(script) => Some(script.clone()),
                    Err(what) => {
                        mistakes.push(mistake("script", what.clone()));
                        None
                    }
                }
            }
        }
    }
}

/// Reads the replies of a scripted model from a file.
///
/// # Errors
/// What is wrong with the file, and where.
pub fn read_script(path: &Path) -> Result<Script, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    serde_json::from_str(&repair_surrogates(&text)).map_err(|error| {
        let what = error.to_string();
        let what = what.rsplit_once(" at line ").map_or(what.as_str(), |(what, _)| what).replace('`', "'");
        let (line, column) = (error.line(), error.column());
        format!("{}:{line}:{column}: {what}; want a JSON list of replies", path.display())
    })
}

/// The real path of a folder that is there.
///
/// # Errors
/// What is there instead.
pub fn folder(path: &Path) -> Result<Arc<str>, String> {
    let real = path.canonicalize().map_err(|error| {
        if error.kind() == io::ErrorKind::NotFound {
            format!("{} does not exist; create the folder, or name another", path.display())
        } else {
            format!("{} cannot be opened: {error}", path.display())
        }
    })?;
    if !real.is_dir() {
        return Err(format!("{} is no folder; name the folder that tools work in", path.display()));
    }
    real.to_str().map(Arc::from).ok_or_else(|| format!("{} is not UTF-8; rename the folder", path.display()))
}

fn mistake(field: &str, what: impl Into<String>) -> LineError {
    LineError { field: field.to_owned(), what: what.into() }
}

fn over(defaults: &BTreeMap<String, String>, own: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut merged = defaults.clone();
    merged.extend(own);
    merged
}

fn params(own: Params, defaults: &Params) -> Params {
    Params {
        temperature: own.temperature.or(defaults.temperature),
        top_p: own.top_p.or(defaults.top_p),
        max_tokens: own.max_tokens.or(defaults.max_tokens),
        seed: own.seed.or(defaults.seed),
        reasoning_effort: own.reasoning_effort.or_else(|| defaults.reasoning_effort.clone()),
        tool_choice: own.tool_choice.or_else(|| defaults.tool_choice.clone()),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
