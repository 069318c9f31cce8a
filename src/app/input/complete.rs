//! Fills in what a line leaves to defaults, and looks up what either names.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::Rules;
use crate::domain::{
    batch::{LineError, ScriptSource, TaskLine},
    script::Script,
    task::{Params, TaskSpec},
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

/// Completes lines; what many of them name is looked up once.
pub(super) struct Completer<'a> {
    rules: Rules<'a>,
    /// What paths in lines are relative to; absent: they are absolute.
    base: Option<&'a Path>,
    folders: BTreeMap<PathBuf, Result<Arc<str>, String>>,
    scripts: BTreeMap<PathBuf, Result<Script, String>>,
}

impl<'a> Completer<'a> {
    pub(super) const fn new(rules: Rules<'a>, base: Option<&'a Path>) -> Self {
        Self { rules, base, folders: BTreeMap::new(), scripts: BTreeMap::new() }
    }

    /// The task as a run takes it on.
    pub(super) fn complete(&mut self, line: TaskLine) -> Result<TaskSpec, Vec<Fault>> {
        let defaults = self.rules.defaults;
        let mut faults = Vec::new();
        let scripted = line.script.is_some();
        let script = self.script(line.script).unwrap_or_else(|fault| {
            faults.push(fault);
            None
        });
        let model = self.model(line.model, scripted);
        let tools = self.tools(line.tools);
        let workspace = self.workspace(line.workspace.as_deref());
        match (model, tools, workspace) {
            (Ok(model), Ok(tools), Ok(workspace)) if faults.is_empty() => Ok(TaskSpec {
                task: line.task,
                task_id: Some(line.id),
                batch: None,
                attempt: 1,
                predecessor: None,
                system: line.system.or_else(|| defaults.system.as_deref().map(Arc::from)),
                facts: over(&defaults.facts, line.facts),
                model,
                workspace,
                tools,
                limits: line.limits.or(defaults.limits),
                priority: line.priority.unwrap_or(defaults.priority),
                labels: over(&defaults.labels, line.labels),
                submission: None,
                meta: line.meta,
                params: params(line.params.unwrap_or_default(), &defaults.params),
                script,
            }),
            (model, tools, workspace) => {
                faults.extend(workspace.err());
                faults.extend(model.err());
                faults.extend(tools.err().into_iter().flatten());
                Err(faults)
            }
        }
    }

    fn model(&self, own: Option<String>, scripted: bool) -> Result<Arc<str>, Fault> {
        let (name, fault): (String, fn(LineError) -> Fault) =
            match (own, scripted, &self.rules.defaults.model) {
                (Some(name), _, _) => (name, Fault::Line),
                (None, true, _) => (SCRIPTED.to_owned(), Fault::Line),
                (None, false, Some(name)) => (name.clone(), Fault::Default),
                (None, false, None) => {
                    let what = "is missing; name one here, by --model or in [defaults]".to_owned();
                    return Err(Fault::Line(LineError { field: "model".to_owned(), what }));
                }
            };
        match (self.rules.model)(&name) {
            Ok(()) => Ok(name.into()),
            Err(what) => Err(fault(LineError { field: "model".to_owned(), what })),
        }
    }

    fn tools(&self, own: Option<Vec<Arc<str>>>) -> Result<Option<Vec<Arc<str>>>, Vec<Fault>> {
        let fault: fn(LineError) -> Fault = if own.is_some() { Fault::Line } else { Fault::Default };
        let defaults = self.rules.defaults.tools.as_ref();
        let tools = own.or_else(|| Some(defaults?.iter().map(|tool| tool.as_str().into()).collect()));
        let unknown: Vec<_> = tools
            .iter()
            .flatten()
            .filter_map(|tool| (self.rules.tool)(tool).err())
            .map(|what| fault(LineError { field: "tools".to_owned(), what }))
            .collect();
        if unknown.is_empty() { Ok(tools) } else { Err(unknown) }
    }

    fn workspace(&mut self, own: Option<&str>) -> Result<Arc<str>, Fault> {
        let wrong = |what| LineError { field: "workspace".to_owned(), what };
        let (path, fault): (_, fn(LineError) -> Fault) = match (own, &self.rules.defaults.workspace) {
            (Some(path), _) => (self.based(Path::new(path)), Fault::Line),
            (None, Some(path)) if self.base.is_none() => (self.based(path), Fault::Default),
            (None, Some(path)) => (Ok(path.clone()), Fault::Default),
            (None, None) if self.base.is_none() => {
                let what = "is missing; want an absolute path, here or in [defaults]".to_owned();
                return Err(Fault::Line(wrong(what)));
            }
            (None, None) => (Ok(PathBuf::from(".")), Fault::Default),
        };
        let path = path.map_err(|what| fault(wrong(what)))?;
        let found = self.folders.entry(path).or_insert_with_key(|path| folder(path));
        found.clone().map_err(|what| fault(wrong(what)))
    }

    /// Where a path of the input leads.
    fn based(&self, path: &Path) -> Result<PathBuf, String> {
        match self.base {
            Some(base) => Ok(base.join(path)),
            None if path.is_absolute() => Ok(path.to_path_buf()),
            None => Err(format!("{} is relative; want an absolute path", path.display())),
        }
    }

    fn script(&mut self, source: Option<ScriptSource>) -> Result<Option<Script>, Fault> {
        let name = match source {
            None => return Ok(None),
            Some(ScriptSource::Inline(script)) => return Ok(Some(script)),
            Some(ScriptSource::File(name)) => name,
        };
        let wrong = |what| Fault::Line(LineError { field: "script".to_owned(), what });
        let path = self.based(Path::new(&name)).map_err(wrong)?;
        let found = self.scripts.entry(path).or_insert_with_key(|path| read_script(path));
        found.clone().map(Some).map_err(wrong)
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
    let spec = Completer::new(rules, Some(Path::new("."))).complete(line).map_err(|faults| {
        let said = faults.first().map(|(Fault::Line(mistake) | Fault::Default(mistake))| mistake.to_string());
        SingleError(said.unwrap_or_default())
    })?;
    Ok(TaskSpec { task_id: None, ..spec })
}

/// Why a task of the command line is refused.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SingleError(String);

/// Reads the replies of a scripted model from a file.
///
/// # Errors
/// What is wrong with the file, and where.
pub fn read_script(path: &Path) -> Result<Script, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    serde_json::from_str(&crate::domain::text::repair_surrogates(&text)).map_err(|error| {
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
