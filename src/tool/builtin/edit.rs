//! The tool `edit`: exact replacements in a file.
//!
//! A call names many edits, or one in the short form. The schema admits both and every spelling; that a call has one
//! of them, whole, is checked here: providers refuse a schema with alternatives at its top.

use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    on_path::{OnPath, Prepared, Refused},
    spec,
};
use crate::{
    domain::call::{EffectClass, Scope, ToolSpec},
    tool::{
        text_edit,
        workspace::{Resolved, mutate},
    },
};

pub(super) struct Edit;

#[derive(Deserialize)]
#[serde(try_from = "Spelled")]
pub(super) struct Arguments {
    path: String,
    edits: Vec<text_edit::Edit>,
}

/// The arguments as a model spells them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Spelled {
    path: String,
    edits: Option<Vec<Piece>>,
    #[serde(alias = "oldText")]
    old_text: Option<String>,
    #[serde(alias = "newText")]
    new_text: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Piece {
    #[serde(alias = "oldText")]
    old_text: String,
    #[serde(alias = "newText")]
    new_text: String,
}

impl TryFrom<Spelled> for Arguments {
    type Error = &'static str;

    fn try_from(spelled: Spelled) -> Result<Self, Self::Error> {
        let Spelled { path, edits, old_text, new_text } = spelled;
        let edits = match (edits, old_text, new_text) {
            (Some(pieces), None, None) => pieces
                .into_iter()
                .map(|Piece { old_text, new_text }| text_edit::Edit { old_text, new_text })
                .collect(),
            (None, Some(old_text), Some(new_text)) => vec![text_edit::Edit { old_text, new_text }],
            (None, Some(_), None) => return Err("new_text is missing"),
            (None, None, Some(_)) => return Err("old_text is missing"),
            (None, None, None) => return Err("edits is missing"),
            (Some(_), Some(_), _) | (Some(_), _, Some(_)) => {
                return Err("give either edits, or old_text and new_text, not both");
            }
        };
        Ok(Self { path, edits })
    }
}

impl OnPath for Edit {
    type Arguments = Arguments;

    fn spec(&self) -> ToolSpec {
        let old_text =
            json!({ "type": "string", "description": "Text to replace. Must occur exactly once." });
        let new_text =
            json!({ "type": "string", "description": "Text to put in its place, taken literally." });
        let other = |name| -> Value {
            json!({ "type": "string", "description": format!("Another name for {name}.") })
        };
        spec(
            "edit",
            "Replaces text in a file. Each old_text must occur exactly once in the file as it is before the call, \
             white space included; add lines around it to make it unique. Edits may not overlap; all are made or \
             none. Line ends and a byte order mark are kept. Give edits, or old_text and new_text for a single one.",
            json!({
                "type": "object",
                "properties": {
                    "path": { "type": "string", "description": "The file, relative to the workspace or absolute inside it." },
                    "edits": {
                        "type": "array",
                        "minItems": 1,
                        "maxItems": 100,
                        "items": {
                            "type": "object",
                            "properties": {
                                "old_text": old_text,
                                "new_text": new_text,
                                "oldText": other("old_text"),
                                "newText": other("new_text"),
                            },
                            "additionalProperties": false,
                        },
                    },
                    "old_text": old_text,
                    "new_text": new_text,
                    "oldText": other("old_text"),
                    "newText": other("new_text"),
                },
                "required": ["path"],
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
        Ok(Prepared::change(mutate::edit(&target, &arguments.edits)?))
    }

    fn plan(&self, arguments: Arguments, target: &Resolved) -> Result<Option<mutate::Change>, Refused> {
        Ok(Some(mutate::edit(target, &arguments.edits)?))
    }
}
