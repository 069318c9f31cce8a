//! The tool `list`: what is in a folder.

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
            list::{MAX_ENTRIES, list},
        },
    },
};

pub(super) struct List {
    pub(super) limits: Limits,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    #[serde(default = "super::workspace_itself")]
    path: String,
}

impl OnPath for List {
    type Arguments = Arguments;

    fn spec(&self) -> ToolSpec {
        let most = MAX_ENTRIES.min(self.limits.lines);
        spec(
            "list",
            &format!(
                "Lists a folder, sorted by name, at most {most} entries. Folders end in \"/\"; links are marked and not \
                 followed. Folders below are not listed."
            ),
            json!({
                "type": "object",
                "properties": {
                    "path": { "type": "string", "description": "The folder, relative to the workspace or absolute. Default: the workspace." },
                },
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
        Scope::Tree
    }

    fn prepare(&self, _: Arguments, target: Resolved, _: &CancellationToken) -> Result<Prepared, Refused> {
        let limits = self.limits;
        Ok(Prepared::look(move || list(&target, limits).map_or_else(|error| failed(&error), Output::ok)))
    }
}
