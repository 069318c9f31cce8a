//! The tools that herder brings along.
//!
//! Each is what a model is told of it, and a thin layer over an engine that knows nothing of calls. They keep to what
//! their descriptions say, since that is all that a model has to go by.

use std::{sync::Arc, time::Duration};

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Tool, launcher::Launcher, workspace::sensitive::Sensitive};
use crate::domain::call::ToolSpec;

mod bash;
mod edit;
mod grep;
mod list;
mod on_path;
mod read;
mod write;

use on_path::PathTool;

/// How the built-in tools do their work.
#[derive(Clone, Debug)]
pub struct BuiltinOptions {
    /// Runs what `bash` runs; its bounds of output are those of all these tools.
    pub launcher: Arc<Launcher>,
    /// How long a command of `bash` may take that does not say it.
    pub bash_timeout: Duration,
    /// Whether `grep` looks into files that are likely to hold secrets.
    pub sensitive: Sensitive,
}

/// All of them.
pub fn builtin(options: BuiltinOptions) -> Vec<Arc<dyn Tool>> {
    let BuiltinOptions { launcher, bash_timeout, sensitive } = options;
    let limits = launcher.output;
    vec![
        Arc::new(PathTool::new(read::Read { limits }, limits)),
        Arc::new(PathTool::new(list::List { limits }, limits)),
        Arc::new(PathTool::new(grep::Grep { sensitive, limits }, limits)),
        Arc::new(PathTool::new(edit::Edit, limits)),
        Arc::new(PathTool::new(write::Write, limits)),
        Arc::new(bash::Bash::new(launcher, bash_timeout)),
    ]
}

fn spec(name: &str, description: &str, schema: Value) -> ToolSpec {
    ToolSpec { name: name.into(), description: description.into(), schema: Arc::new(schema) }
}

/// Reads arguments, also those that a schema does not say everything about.
fn parse<T: DeserializeOwned>(spec: &ToolSpec, arguments: &Value) -> Result<T, String> {
    T::deserialize(arguments).map_err(|error| format!("invalid arguments for {}: {error}", spec.name))
}

/// The path that a tool takes when a call names none.
fn workspace_itself() -> String {
    ".".to_owned()
}

#[cfg(test)]
mod tests;
