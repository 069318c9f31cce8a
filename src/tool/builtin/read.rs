//! The tool `read`: a window of a text file.

use serde::Deserialize;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{
    on_path::{OnPath, Prepared, Refused, failed},
    spec,
};
use crate::{
    domain::call::{EffectClass, Scope, ToolSpec},
    tool::{
        Output,
        output::Limits,
        workspace::{
            Resolved,
            read::{Window, read},
        },
    },
};

pub(super) struct Read {
    pub(super) limits: Limits,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    path: String,
    offset: Option<u64>,
    limit: Option<u64>,
}

impl OnPath for Read {
    type Arguments = Arguments;

    fn spec(&self) -> ToolSpec {
        let Limits { lines, bytes, line_chars } = self.limits;
        spec(
            "read",
            &format!(
                "Reads a text file, at most {lines} lines or {bytes} bytes at once. If there is more, a note at the end \
                 says how to read on. Lines are cut after {line_chars} characters; line ends are shown as LF."
            ),
            json!({
                "type": "object",
                "properties": {
                    "path": { "type": "string", "description": "The file, relative to the workspace or absolute." },
                    "offset": { "type": "integer", "minimum": 1, "description": "First line to read, from 1. Default 1." },
                    "limit": { "type": "integer", "minimum": 1, "description": format!("How many lines. Default and maximum {lines}.") },
                },
                "required": ["path"],
                "additionalProperties": false,
            }),
        )
    }

    fn effect(&self) -> EffectClass {
        EffectClass::Read
    }

    fn path<'a>(&self, arguments: &'a Arguments) -> &'a str {
        &arguments.path
    }

    fn scope(&self, _: &Resolved) -> Scope {
        Scope::File
    }

    fn prepare(
        &self,
        arguments: Arguments,
        target: Resolved,
        _: &CancellationToken,
    ) -> Result<Prepared, Refused> {
        let window = Window { offset: arguments.offset, limit: arguments.limit };
        let limits = self.limits;
        Ok(Prepared::look(move || {
            read(&target, window, limits).map_or_else(|error| failed(&error), Output::ok)
        }))
    }
}
