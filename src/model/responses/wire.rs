//! The shapes of an answer in Responses: everything optional, nothing trusted.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::domain::{text, usage::Usage};

/// One event of a stream. Which fields it has depends on its type.
#[derive(Deserialize)]
pub(super) struct Event<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Option<Cow<'a, str>>,
    pub(super) output_index: Option<i64>,
    #[serde(borrow)]
    pub(super) item_id: Option<Cow<'a, str>>,
    pub(super) content_index: Option<i64>,
    pub(super) summary_index: Option<i64>,
    #[serde(borrow)]
    pub(super) delta: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) text: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) refusal: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) part: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) item: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) response: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

/// The whole answer: what a stream ends with, or all there is.
#[derive(Deserialize)]
pub(super) struct Response<'a> {
    #[serde(borrow)]
    pub(super) status: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) output: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) incomplete_details: Option<Incomplete<'a>>,
}

#[derive(Deserialize)]
pub(super) struct Incomplete<'a> {
    #[serde(borrow)]
    pub(super) reason: Option<Cow<'a, str>>,
}

/// One item of an answer.
#[derive(Deserialize)]
pub(super) struct Item<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) call_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) name: Option<Cow<'a, str>>,
    /// A string that holds JSON, or, from some servers, that JSON itself.
    #[serde(borrow)]
    pub(super) arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    summary: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) encrypted_content: Option<Cow<'a, str>>,
}

impl<'a> Item<'a> {
    /// What it says, or thinks.
    pub(super) fn content(&self) -> Vec<Part<'a>> {
        parts(self.content)
    }

    /// What it thinks, in short.
    pub(super) fn summary(&self) -> Vec<Part<'a>> {
        parts(self.summary)
    }
}

fn parts(raw: Option<&RawValue>) -> Vec<Part<'_>> {
    let list = raw.and_then(|raw| serde_json::from_str(raw.get()).ok());
    // Some servers send the text alone.
    list.unwrap_or_else(|| vec![Part { kind: None, text: raw, refusal: None }])
}

#[derive(Deserialize)]
pub(super) struct Part<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) text: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) refusal: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct Counts {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    input_tokens_details: Option<InputDetails>,
}

#[derive(Deserialize)]
struct InputDetails {
    cached_tokens: Option<u64>,
}

impl From<Counts> for Usage {
    fn from(counts: Counts) -> Self {
        Self {
            input: counts.input_tokens.unwrap_or_default(),
            output: counts.output_tokens.unwrap_or_default(),
            cached: counts.input_tokens_details.and_then(|details| details.cached_tokens).unwrap_or_default(),
            ..Self::default()
        }
    }
}

/// A string's text; anything else says nothing.
pub(super) fn words(raw: Option<&RawValue>) -> String {
    raw.and_then(|raw| text::from_json(raw.get()).ok()).unwrap_or_default()
}

/// The text of arguments: a string's, or the JSON itself.
pub(super) fn arguments(raw: Option<&RawValue>) -> String {
    raw.map(|raw| text::from_json(raw.get()).unwrap_or_else(|_| raw.get().to_owned())).unwrap_or_default()
}
