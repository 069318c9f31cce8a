//! Fills in what a line leaves to defaults, and looks up what either names.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::Rules;
use crate::actor::run::Form;
use crate::domain::{
    batch::{LineError, ScriptSource, TaskLine},
    script::Script,
    task::{Params, ResponseFormat, TaskSpec},
};

/// What a task with a script asks if its line names no model.
pub const SCRIPTED: &str = "scripted:inline";

/// A mistake, by who made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The line.
    Line(LineError),
    /// A default that the line relies on.
    Default(LineError),
}

/// A line that cannot be completed: the task as far as it goes, and why it goes no further.
#[derive(Debug)]
pub(super) struct Incomplete {
    pub(super) spec: Box<TaskSpec>,
    pub(super) faults: Vec<Fault>,
}

/// Completes lines; what many of them name is looked up once.
pub(super) struct Completer<'a> {
    rules: Rules<'a>,
    /// What paths in lines are relative to; absent: they are absolute, and no files of replies are read.
    base: Option<&'a Path>,
    folders: BTreeMap<PathBuf, Result<Arc<str>, String>>,
    scripts: BTreeMap<PathBuf, Result<Script, String>>,
    /// The form that was looked at last, and what is wrong with it: most lines have that of the one before.
    form: Option<(ResponseFormat, Option<String>)>,
}

impl<'a> Completer<'a> {
    pub(super) const fn new(rules: Rules<'a>, base: Option<&'a Path>) -> Self {
        Self { rules, base, folders: BTreeMap::new(), scripts: BTreeMap::new(), form: None }
    }

    /// The task as a run takes it on.
    pub(super) fn complete(&mut self, line: TaskLine) -> Result<TaskSpec, Incomplete> {
        let defaults = self.rules.defaults;
        let mut faults = Vec::new();
        let scripted = line.script.is_some();
        let spec = TaskSpec {
            script: self.script(line.script, &mut faults),
            workspace: self.workspace(line.workspace, &mut faults),
            isolate: line.isolate.unwrap_or(defaults.isolate),
            model: self.model(line.model, scripted, &mut faults),
            tools: self.tools(line.tools, &mut faults),
            task: line.task,
            task_id: Some(line.id),
            batch: None,
            attempt: 1,
            predecessor: None,
            parent: None,
            before: Vec::new(),
            system: line.system.or_else(|| defaults.system.as_deref().map(Arc::from)),
            facts: over(&defaults.facts, line.facts),
            limits: line.limits.or(defaults.limits),
            priority: line.priority.unwrap_or(defaults.priority),
            labels: over(&defaults.labels, line.labels),
            submission: None,
            owner: None,
            meta: line.meta,
            params: params(line.params.unwrap_or_default(), &defaults.params),
            response_format: self.form(line.response_format, &mut faults),
            on_truncated: line.on_truncated.unwrap_or(defaults.on_truncated),
            stop_on_tool_error: line.stop_on_tool_error.unwrap_or(defaults.stop_on_tool_error),
        };
        if faults.is_empty() { Ok(spec) } else { Err(Incomplete { spec: Box::new(spec), faults }) }
    }

    fn model(&self, own: Option<String>, scripted: bool, faults: &mut Vec<Fault>) -> Arc<str> {
        let wrong = |what| LineError { field: "model".to_owned(), what };
        let (name, fault): (String, fn(LineError) -> Fault) =
            match (own, scripted, &self.rules.defaults.model) {
                (Some(name), _, _) => (name, Fault::Line),
                (None, true, _) => (SCRIPTED.to_owned(), Fault::Line),
                (None, false, Some(name)) => (name.clone(), Fault::Default),
                (None, false, None) => {
                    let what = "is missing; name one here, by --model or in [defaults]".to_owned();
                    faults.push(Fault::Line(wrong(what)));
                    return Arc::default();
                }
            };
        faults.extend((self.rules.model)(&name).err().map(|what| fault(wrong(what))));
        name.into()
    }

    fn tools(&self, own: Option<Vec<Arc<str>>>, faults: &mut Vec<Fault>) -> Option<Vec<Arc<str>>> {
        let fault: fn(LineError) -> Fault = if own.is_some() { Fault::Line } else { Fault::Default };
        let defaults = self.rules.defaults.tools.as_ref();
        let tools = own.or_else(|| Some(defaults?.iter().map(|tool| tool.as_str().into()).collect()));
        let unknown = tools.iter().flatten().filter_map(|tool| (self.rules.tool)(tool).err());
        faults.extend(unknown.map(|what| fault(LineError { field: "tools".to_owned(), what })));
        tools
    }

    fn form(&mut self, own: Option<ResponseFormat>, faults: &mut Vec<Fault>) -> Option<ResponseFormat> {
        let fault: fn(LineError) -> Fault = if own.is_some() { Fault::Line } else { Fault::Default };
        let form = own.or_else(|| self.rules.defaults.response_format.clone());
        let field = "response_format.json_schema.schema".to_owned();
        let form = form?;
        if self.form.as_ref().is_none_or(|(last, _)| *last != form) {
            self.form = Some((form.clone(), Form::of(&form).err()));
        }
        let wrong = self.form.as_ref().and_then(|(_, wrong)| wrong.clone());
        faults.extend(
            wrong.map(|what| fault(LineError { field, what: format!("{what}; want a JSON Schema") })),
        );
        Some(form)
    }

    fn workspace(&mut self, own: Option<String>, faults: &mut Vec<Fault>) -> Arc<str> {
        let wrong = |what| LineError { field: "workspace".to_owned(), what };
        let (is_own, default) = (own.is_some(), self.rules.defaults.workspace.as_ref());
        let (path, fault): (PathBuf, fn(LineError) -> Fault) = match (own, default) {
            (Some(path), _) => (path.into(), Fault::Line),
            (None, Some(path)) => (path.clone(), Fault::Default),
            (None, None) if self.base.is_none() => {
                let what = "is missing; want an absolute path, here or in [defaults]".to_owned();
                faults.push(Fault::Line(wrong(what)));
                return Arc::default();
            }
            (None, None) => (PathBuf::from("."), Fault::Default),
        };
        // A default is relative to where herder was started, if it may be relative at all.
        let at = match self.base {
            Some(base) if is_own => Ok(base.join(&path)),
            Some(_) => Ok(path.clone()),
            None if path.is_absolute() => Ok(path.clone()),
            None => Err(format!("{} is relative; want an absolute path", path.display())),
        };
        let found = at.and_then(|at| self.folders.entry(at).or_insert_with_key(|at| folder(at)).clone());
        found.unwrap_or_else(|what| {
            faults.push(fault(wrong(what)));
            path.to_string_lossy().into()
        })
    }

    fn script(&mut self, source: Option<ScriptSource>, faults: &mut Vec<Fault>) -> Option<Script> {
        let name = match source? {
            ScriptSource::Inline(script) => return Some(script),
            ScriptSource::File(name) => name,
        };
        let found = match self.base {
            Some(base) => {
                let found = self.scripts.entry(base.join(name)).or_insert_with_key(|path| read_script(path));
                found.clone()
            }
            // Whoever sent it has the file; here it may be anything.
            None => Err("want the replies themselves, not a file".to_owned()),
        };
        let wrong = |what| Fault::Line(LineError { field: "script".to_owned(), what });
        found.map_err(|what| faults.push(wrong(what))).ok()
    }
}

/// One task that is given on the command line, completed as a line of an input would be.
///
/// # Errors
/// The first thing that is wrong with it.
pub fn single(task: &str, script: Option<&Path>, rules: Rules<'_>) -> Result<TaskSpec, SingleError> {
    let script = match script {
        Some(path) => Some(ScriptSource::Inline(read_script(path).map_err(SingleError)?)),
        None => None,
    };
    if task.trim().is_empty() {
        return Err(SingleError("the task is empty; say what to do".to_owned()));
    }
    let line = TaskLine { script, ..TaskLine::of("run", task) };
    let spec = Completer::new(rules, Some(Path::new("."))).complete(line).map_err(
        |Incomplete { faults, .. }| {
            let said =
                faults.first().map(|(Fault::Line(mistake) | Fault::Default(mistake))| mistake.to_string());
            SingleError(said.unwrap_or_default())
        },
    )?;
    Ok(TaskSpec { task_id: None, ..spec })
}

/// Why a task of the command line is refused.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SingleError(String);

/// Bytes that a file of replies may have.
const MAX_SCRIPT: u64 = 64 << 20;

/// Reads the replies of a scripted model from a file.
///
/// # Errors
/// What is wrong with the file, and where.
pub fn read_script(path: &Path) -> Result<Script, String> {
    let text = read_bounded(path)?;
    serde_json::from_str(&crate::domain::text::repair_surrogates(&text)).map_err(|error| {
        let what = error.to_string();
        let what = what.rsplit_once(" at line ").map_or(what.as_str(), |(what, _)| what).replace('`', "'");
        let (line, column) = (error.line(), error.column());
        format!("{}:{line}:{column}: {what}; want a JSON list of replies", path.display())
    })
}

/// The text of a regular file. Others may never end, or wait for somebody before they begin.
fn read_bounded(path: &Path) -> Result<String, String> {
    let unread = |error: io::Error| format!("{} cannot be read: {error}", path.display());
    if !path.metadata().map_err(unread)?.is_file() {
        return Err(format!("{} is no regular file; name a file of replies", path.display()));
    }
    let mut text = String::new();
    let mut file = File::open(path).map_err(unread)?.take(MAX_SCRIPT + 1);
    file.read_to_string(&mut text).map_err(unread)?;
    if text.len() as u64 > MAX_SCRIPT {
        return Err(format!("{} is larger than {} MiB; shorten it", path.display(), MAX_SCRIPT >> 20));
    }
    Ok(text)
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
