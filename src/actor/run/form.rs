//! Whether an answer is of the form that it must have.

use std::sync::Arc;

use jsonschema::Validator;
use serde_json::Value;

use crate::domain::{form::bare_json, task::ResponseFormat};

/// How many faults of one answer the model is told of.
const FAULTS_SHOWN: usize = 5;

/// The form of an answer, ready to be checked.
#[derive(Debug)]
pub enum Form {
    /// A JSON object.
    Object,
    /// What a schema describes.
    Schema(Box<Validator>),
}

impl Form {
    /// Makes a form ready.
    ///
    /// # Errors
    /// What is wrong with its schema.
    pub fn of(format: &ResponseFormat) -> Result<Self, String> {
        match format {
            ResponseFormat::JsonObject => Ok(Self::Object),
            ResponseFormat::JsonSchema { json_schema } => {
                match jsonschema::validator_for(&json_schema.schema) {
                    Ok(validator) => Ok(Self::Schema(Box::new(validator))),
                    Err(error) => Err(format!("not a JSON Schema: {}", short(&error.to_string()))),
                }
            }
        }
    }

    /// What is wrong with an answer, in words for the model.
    pub fn misfit(&self, text: &str) -> Option<Arc<str>> {
        let value: Value = match serde_json::from_str(bare_json(text)) {
            Ok(value) => value,
            Err(error) => return Some(format!("it is no JSON: {error}").into()),
        };
        match self {
            Self::Object => (!value.is_object()).then(|| "it is JSON, but no object".into()),
            Self::Schema(validator) if validator.is_valid(&value) => None,
            Self::Schema(validator) => {
                let mut why = "it is JSON, but does not fit the schema:".to_owned();
                for fault in validator.iter_errors(&value).take(FAULTS_SHOWN) {
                    let path = fault.instance_path().to_string();
                    let at = if path.is_empty() { "the answer" } else { path.as_str() };
                    why.push_str(&format!("\n- {at}: {}", short(&fault.to_string())));
                }
                Some(why.into())
            }
        }
    }
}

/// A fault quotes the value that it found, which may be the whole answer.
fn short(fault: &str) -> String {
    const LIMIT: usize = 300;
    match fault.char_indices().nth(LIMIT) {
        Some((end, _)) => format!("{}...", fault.get(..end).unwrap_or_default()),
        None => fault.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn form(schema: &Value) -> Result<Form, String> {
        let format = json!({"type": "json_schema", "json_schema": {"schema": schema}});
        Form::of(&serde_json::from_value(format).unwrap())
    }

    #[test]
    fn an_answer_that_is_no_json_is_told_where() {
        let why = Form::Object.misfit("{\"a\": 1,}").unwrap();
        assert_eq!(&*why, "it is no JSON: trailing comma at line 1 column 9");
        assert_eq!(&*Form::Object.misfit("[1]").unwrap(), "it is JSON, but no object");
        assert_eq!(Form::Object.misfit("```json\n{\"a\": 1}\n```"), None);
        assert!(Form::Object.misfit("Sure! {\"a\": 1}").is_some());
    }

    #[test]
    fn faults_are_told_with_their_paths_and_in_short() {
        let items = json!({"type": "array", "items": {"type": "integer"}});
        let schema = json!({"type": "object", "properties": {"n": items}, "required": ["n", "m"]});
        let form = form(&schema).unwrap();
        assert_eq!(form.misfit(r#"{"n": [1], "m": null}"#), None);
        let why = form.misfit(r#"{"n": [1, "x"]}"#).unwrap();
        assert!(why.contains("\n- /n/1: \"x\" is not of type \"integer\""), "{why}");
        assert!(why.contains("\n- the answer: \"m\" is a required property"), "{why}");

        let long = json!({"n": vec!["x".repeat(10_000); 20], "m": 1}).to_string();
        let why = form.misfit(&long).unwrap();
        assert!(why.lines().count() == 1 + FAULTS_SHOWN && why.len() < 2_000, "{why}");
    }

    #[test]
    fn what_is_no_schema_is_told() {
        let why = form(&json!({"type": "objekt"})).unwrap_err();
        assert!(why.starts_with("not a JSON Schema: "), "{why}");
    }
}
