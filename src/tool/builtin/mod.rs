//! The tools that herder brings along.
//!
//! Each is what a model is told of it, and a thin layer over an engine that knows nothing of calls. They keep to what
//! their descriptions say, since that is all that a model has to go by.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Tool, output::Limits, workspace::sensitive::Sensitive};
use crate::domain::call::ToolSpec;

mod edit;
mod grep;
mod list;
mod on_path;
mod read;
mod write;

use on_path::PathTool;

/// How the built-in tools do their work.
#[derive(Debug)]
pub struct BuiltinOptions {
    /// Bounds of a refusal and of a diff. What is read has bounds of its own.
    pub output: Limits,
    /// Whether `grep` looks into files that are likely to hold secrets.
    pub sensitive: Sensitive,
}

/// All of them.
pub fn builtin(options: &BuiltinOptions) -> Vec<Arc<dyn Tool>> {
    let BuiltinOptions { output, sensitive } = options;
    vec![
        Arc::new(PathTool::new(read::Read, *output)),
        Arc::new(PathTool::new(list::List, *output)),
        Arc::new(PathTool::new(grep::Grep { sensitive: *sensitive }, *output)),
        Arc::new(PathTool::new(edit::Edit, *output)),
        Arc::new(PathTool::new(write::Write, *output)),
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
