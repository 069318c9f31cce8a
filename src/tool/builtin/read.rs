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
        workspace::{
            Resolved,
            read::{Window, read},
        },
    },
};

pub(super) struct Read;

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
        spec(
            "read",
            "Reads a text file, at most 2,000 lines or 50 KiB at once. If there is more, a note at the end says how \
             to read on. Lines are cut after 2,000 characters; line ends are shown as LF.",
            json!({
                "type": "object",
                "properties": {
                    "path": { "type": "string", "description": "The file, relative to the workspace or absolute." },
                    "offset": { "type": "integer", "minimum": 1, "description": "First line to read, from 1. Default 1." },
                    "limit": { "type": "integer", "minimum": 1, "description": "How many lines. Default and maximum 2,000." },
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
        Ok(Prepared::look(move || read(&target, window).map_or_else(|error| failed(&error), Output::ok)))
    }
}
