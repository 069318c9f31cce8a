//! What request bodies of every protocol have in common: fields that settings replace, and words for what a protocol
//! has no field for. Knows no protocol.

use serde::{Serialize, ser::SerializeMap};
use serde_json::{Map, Value};

use crate::domain::task::ResponseFormat;

/// What stands for a tool's output of nothing: many servers refuse a blank message.
pub(super) const NO_OUTPUT: &str = "(no output)";

/// Whether there is nothing in it but white space.
pub(super) fn is_blank(text: &str) -> bool {
    text.trim_start().is_empty()
}

/// Asks the model in words for an answer of this form.
pub(super) fn in_words(format: &ResponseFormat) -> String {
    let only = "When you call no tool, answer with JSON only: no words around it, no code fence.";
    match format {
        ResponseFormat::JsonObject => format!("{only} The answer is one JSON object."),
        ResponseFormat::JsonSchema { json_schema } => {
            format!("{only} The answer fits this JSON Schema:\n{}", json_schema.schema)
        }
    }
}

/// Writes fields, where those of the settings come before our own.
pub(super) struct Fields<'a, M> {
    pub(super) map: M,
    pub(super) extra: &'a Map<String, Value>,
}

impl<M: SerializeMap> Fields<'_, M> {
    pub(super) fn put<T: Serialize>(&mut self, name: &str, value: Option<T>) -> Result<(), M::Error> {
        match value {
            Some(value) if !self.extra.contains_key(name) => self.map.serialize_entry(name, &value),
            Some(_) | None => Ok(()),
        }
    }

    pub(super) fn end(mut self) -> Result<M::Ok, M::Error> {
        for (name, value) in self.extra.iter().filter(|(_, value)| !value.is_null()) {
            self.map.serialize_entry(name, value)?;
        }
        self.map.end()
    }
}
