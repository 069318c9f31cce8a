//! The tool `grep`: the lines of many files that match.

use std::path::Path;

use serde::Deserialize;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{
    on_path::{OnPath, Prepared, Refused, failed},
    spec,
};
use crate::{
    domain::call::{EffectClass, Failure, Scope, ToolSpec},
    tool::{
        Output,
        output::Limits,
        workspace::{
            Resolved,
            grep::{GrepError, MAX_MATCHES, Query, grep},
            sensitive::Sensitive,
        },
    },
};

pub(super) struct Grep {
    pub(super) sensitive: Sensitive,
    pub(super) limits: Limits,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    pattern: String,
    #[serde(default = "super::workspace_itself")]
    path: String,
    glob: Option<String>,
    #[serde(default)]
    literal: bool,
    #[serde(default)]
    ignore_case: bool,
    #[serde(default)]
    context: usize,
}

impl OnPath for Grep {
    type Arguments = Arguments;

    fn spec(&self) -> ToolSpec {
        let skipped = match self.sensitive {
            Sensitive::Include => ".git and binary files",
            Sensitive::Skip => ".git, binary files and files that are likely to hold secrets",
        };
        let most = MAX_MATCHES.min(self.limits.lines);
        spec(
            "grep",
            &format!(
                "Searches a file, or all files below a folder, for lines that match a pattern, and gives them as \
                 path:line:text, at most {most}. Leaves out what .gitignore names, {skipped}."
            ),
            json!({
                "type": "object",
                "properties": {
                    "pattern": { "type": "string", "description": "A regular expression for one line, without look-around and back-references." },
                    "path": { "type": "string", "description": "The file or folder, relative to the workspace or absolute. Default: the workspace." },
                    "glob": { "type": "string", "description": "Only files whose path matches, or name if it has no slash: *.rs, src/**/*.ts. With ! in front: only the others." },
                    "literal": { "type": "boolean", "description": "Take the pattern as plain text. Default false." },
                    "ignore_case": { "type": "boolean", "description": "Default false." },
                    "context": { "type": "integer", "minimum": 0, "maximum": 20, "description": "Lines to show before and after each match. Default 0." },
                },
                "required": ["pattern"],
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

    fn scope(&self, target: &Resolved) -> Scope {
        if Path::new(&**target.key()).is_dir() { Scope::Tree } else { Scope::File }
    }

    fn prepare(
        &self,
        arguments: Arguments,
        target: Resolved,
        cancel: &CancellationToken,
    ) -> Result<Prepared, Refused> {
        let Arguments { pattern, path: _, glob, literal, ignore_case, context } = arguments;
        let (sensitive, limits) = (self.sensitive, self.limits);
        let query = Query { pattern, literal, ignore_case, glob, context, sensitive, limits };
        let cancel = cancel.clone();
        Ok(Prepared::look(move || match grep(&target, &query, &|| cancel.is_cancelled()) {
            Ok(matches) => Output::ok(matches.text),
            Err(error @ GrepError::Stopped) => Output::failed(Failure::Cancelled, error.to_string()),
            Err(error @ (GrepError::Path(_) | GrepError::Pattern { .. } | GrepError::Glob { .. })) => {
                failed(&error)
            }
        }))
    }
}
