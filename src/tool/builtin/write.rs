//! The tool `write`: the whole content of a file.

use serde::Deserialize;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{
    on_path::{OnPath, Prepared, Refused},
    spec,
};
use crate::{
    domain::call::{EffectClass, Scope, ToolSpec},
    tool::workspace::{Resolved, mutate},
};

pub(super) struct Write;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    path: String,
    content: String,
}

impl OnPath for Write {
    type Arguments = Arguments;

    fn spec(&self) -> ToolSpec {
        spec(
            "write",
            "Creates a file, with the folders it lies in, or replaces the whole content of one. To change a part of \
             a file use edit.",
            json!({
                "type": "object",
                "properties": {
                    "path": { "type": "string", "description": "The file, relative to the workspace or absolute inside it." },
                    "content": { "type": "string", "description": "All that the file is to hold." },
                },
                "required": ["path", "content"],
                "additionalProperties": false,
            }),
        )
    }

    fn effect(&self) -> EffectClass {
        EffectClass::Write
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
        Ok(Prepared::change(mutate::write(&target, &arguments.content)?))
    }

    fn plan(&self, arguments: Arguments, target: &Resolved) -> Result<Option<mutate::Change>, Refused> {
        Ok(Some(mutate::write(target, &arguments.content)?))
    }
}
