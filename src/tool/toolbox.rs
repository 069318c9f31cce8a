//! The tools of a process by name: the registry is the allowlist.

use std::{collections::BTreeMap, sync::Arc};

use jsonschema::Validator;
use serde_json::Value;

use super::Tool;
use crate::domain::{
    call::{Failure, ToolSpec},
    id::RunId,
};

/// Every tool that a run may be given.
#[derive(Default)]
pub struct Toolbox {
    tools: BTreeMap<Arc<str>, Entry>,
}

struct Entry {
    tool: Arc<dyn Tool>,
    validator: Validator,
}

/// Why a tool cannot be registered.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    #[error("the name {0:?} is taken by another tool")]
    Duplicate(Arc<str>),
    #[error("schema: not a JSON Schema: {why}")]
    Schema { why: String },
    #[error("schema: must describe an object, with \"type\": \"object\"")]
    NotAnObject,
    #[error("the name {0:?} is not 1 to 64 letters, digits, '_' or '-'")]
    Name(Arc<str>),
}

/// How many faults of one call's arguments the model is told of.
const FAULTS_SHOWN: usize = 5;

impl Toolbox {
    /// Adds a tool.
    ///
    /// # Errors
    /// The name is taken or unfit, or the schema is none that can be shown to a model and checked.
    pub fn register(&mut self, tool: Arc<dyn Tool>) -> Result<(), RegisterError> {
        let ToolSpec { name, schema, .. } = tool.spec().clone();
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        if name.is_empty() || name.len() > 64 || !name.bytes().all(fits) {
            return Err(RegisterError::Name(name));
        }
        if schema.get("type").and_then(Value::as_str) != Some("object") {
            return Err(RegisterError::NotAnObject);
        }
        let validator = jsonschema::validator_for(&schema)
            .map_err(|error| RegisterError::Schema { why: error.to_string() })?;
        if self.tools.contains_key(&name) {
            return Err(RegisterError::Duplicate(name));
        }
        self.tools.insert(name, Entry { tool, validator });
        Ok(())
    }

    /// The names of all tools, sorted.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.tools.keys()
    }

    /// A tool by its name.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.get(name).map(|entry| &entry.tool)
    }

    /// Tells every tool that a run has ended.
    pub fn forget(&self, run: RunId) {
        self.tools.values().for_each(|entry| entry.tool.forget(run));
    }

    /// Finds the tool that a call names and checks the arguments against its schema.
    ///
    /// # Errors
    /// What is wrong, in words that let the model correct itself.
    pub fn check(
        &self,
        offered: &[Arc<str>],
        name: &str,
        arguments: &Value,
    ) -> Result<&Arc<dyn Tool>, (Failure, String)> {
        let entry = self.tools.get(name).filter(|_| offered.iter().any(|one| **one == *name));
        let Some(Entry { tool, validator }) = entry else {
            let mut why = format!("no tool named {name} is registered");
            if !offered.is_empty() {
                why.push_str("; the tools are: ");
                why.push_str(&offered.join(", "));
            }
            return Err((Failure::UnknownTool, why));
        };
        if validator.is_valid(arguments) {
            return Ok(tool);
        }
        let mut why = format!("invalid arguments for {name}:");
        for fault in validator.iter_errors(arguments).take(FAULTS_SHOWN) {
            let path = fault.instance_path().to_string();
            let at = if path.is_empty() { "arguments".to_owned() } else { path };
            why.push_str(&format!("\n- {at}: {}", short(&fault.to_string())));
        }
        Err((Failure::InvalidArguments, why))
    }
}

/// A fault quotes the value that it found, which may be a whole file.
fn short(fault: &str) -> String {
    const LIMIT: usize = 300;
    match fault.char_indices().nth(LIMIT) {
        Some((end, _)) => format!("{}...", fault.get(..end).unwrap_or_default()),
        None => fault.to_owned(),
    }
}
