//! What request bodies of every protocol have in common: fields that settings replace, words for what a protocol has no
//! field for, ids that fit its pattern, the choice of tools in whichever protocol's words, and what a kept block is.

use std::{borrow::Cow, fmt::Write as _};

use serde::{Deserialize, Serialize, ser::SerializeMap};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::domain::{json::RawJson, task::ResponseFormat};

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

/// What ids begin with that stand for one that does not fit.
const ALIAS: &str = "id_";

/// The id, or one that stands for it in every request, of 35 letters, digits and `_`. No id that fits looks like one
/// that stands for another.
pub(super) fn fitting_id(id: &str, fits: impl FnOnce(&str) -> bool) -> Cow<'_, str> {
    if !id.starts_with(ALIAS) && fits(id) {
        return Cow::Borrowed(id);
    }
    let mut alias = ALIAS.to_owned();
    for byte in &Sha256::digest(id)[..16] {
        // Writing to a string does not fail.
        let _ = write!(alias, "{byte:02x}");
    }
    Cow::Owned(alias)
}

/// Letters and digits that the ids of servers that want nothing else have.
const SHORT: usize = 9;

/// The id if it is nine letters and digits, or nine that stand for it in every request. No two of a conversation stand for
/// each other but by a chance of one in billions.
pub(super) fn short_id(id: &str) -> Cow<'_, str> {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    if id.len() == SHORT && id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Cow::Borrowed(id);
    }
    let mut number =
        Sha256::digest(id)[..8].iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    let alias = (0..SHORT).map(|_| {
        let digit = number % 62;
        number /= 62;
        usize::try_from(digit).ok().and_then(|digit| DIGITS.get(digit)).copied().map_or('0', char::from)
    });
    Cow::Owned(alias.collect())
}

/// Which tools the model may call, or must: said in the words of any protocol, since tasks know nothing of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ToolChoice<'a> {
    Auto,
    None,
    /// Some tool.
    Required,
    /// This one.
    Tool(&'a str),
    /// Something that no other protocol has a word for.
    Other(&'a Value),
}

impl<'a> ToolChoice<'a> {
    pub(super) fn new(said: &'a Value) -> Self {
        let plain = said.as_object().is_none_or(|fields| fields.len() == 1);
        let name = said["name"].as_str().or_else(|| said["function"]["name"].as_str());
        match (said.as_str().or_else(|| said["type"].as_str()), name) {
            (Some("auto"), _) if plain => Self::Auto,
            (Some("none"), _) if plain => Self::None,
            (Some("required" | "any"), _) if plain => Self::Required,
            (Some("function" | "tool"), Some(name))
                if said.as_object().is_some_and(|fields| fields.len() == 2) =>
            {
                Self::Tool(name)
            }
            _ => Self::Other(said),
        }
    }
}

/// What a kept block is, by its own word.
pub(super) fn kind(block: &RawJson) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Typed<'a> {
        #[serde(borrow, rename = "type")]
        kind: Cow<'a, str>,
    }
    serde_json::from_str(block.get()).ok().map(|Typed { kind }| kind)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_choice_of_tools_is_understood_in_the_words_of_every_protocol() {
        for said in [json!("auto"), json!({"type": "auto"})] {
            assert_eq!(ToolChoice::new(&said), ToolChoice::Auto);
        }
        for said in [json!("required"), json!("any"), json!({"type": "any"})] {
            assert_eq!(ToolChoice::new(&said), ToolChoice::Required);
        }
        assert_eq!(ToolChoice::new(&json!("none")), ToolChoice::None);
        let forced = [
            json!({"type": "function", "function": {"name": "read"}}),
            json!({"type": "function", "name": "read"}),
            json!({"type": "tool", "name": "read"}),
        ];
        for said in forced {
            assert_eq!(ToolChoice::new(&said), ToolChoice::Tool("read"), "{said}");
        }
        for said in [
            json!("always"),
            json!(7),
            json!({"type": "function"}),
            json!({"type": "auto", "disable_parallel_tool_use": true}),
            json!({"type": "allowed_tools", "mode": "auto", "tools": []}),
        ] {
            assert_eq!(ToolChoice::new(&said), ToolChoice::Other(&said));
        }
    }

    #[test]
    fn ids_that_do_not_fit_get_others_that_do_and_no_two_the_same() {
        let fits = |id: &str| (1..=40).contains(&id.len());
        let long = "x".repeat(41);
        let stands_for_long = fitting_id(&long, fits).into_owned();
        assert!(fits(&stands_for_long));
        let ids = ["", &long, &stands_for_long, "functions.read:0", "id_"];
        let fitting: std::collections::BTreeSet<_> = ids.iter().map(|id| fitting_id(id, fits)).collect();
        assert_eq!(fitting.len(), ids.len());
        assert_eq!(fitting_id("functions.read:0", fits), "functions.read:0");
    }

    #[test]
    fn an_id_that_is_not_nine_letters_and_digits_gets_nine_of_its_own() {
        assert_eq!(short_id("aB3456789"), "aB3456789");
        let ids: Vec<String> = (0..10_000).map(|at| format!("call_{at}")).collect();
        let short: std::collections::BTreeSet<_> = ids.iter().map(|id| short_id(id)).collect();
        assert_eq!(short.len(), ids.len());
        for id in &short {
            assert!(id.len() == SHORT && id.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{id}");
            assert_eq!(&short_id(id), id);
        }
    }

    #[test]
    fn a_block_without_a_kind_is_of_none() {
        let block =
            |json: &str| RawJson(serde_json::value::RawValue::from_string(json.to_owned()).unwrap().into());
        assert_eq!(kind(&block(r#"{"data": 1, "type": "reason\u0069ng"}"#)).as_deref(), Some("reasoning"));
        for json in ["{}", "[]", "7", r#"{"type": null}"#] {
            assert_eq!(kind(&block(json)), None, "{json}");
        }
    }
}
