//! The shapes of an answer in Chat Completions: everything optional, nothing trusted.

use std::{borrow::Cow, fmt, ops::Deref};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::domain::usage::Usage;

/// One event of a stream, or a whole answer.
#[derive(Deserialize)]
pub(super) struct Chunk<'a> {
    #[serde(borrow)]
    pub(super) choices: Option<Choices<'a>>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

/// What a chunk holds of the first answer, should there be several: nobody asked for more. Nearly always it is one part,
/// which needs no allocation.
#[derive(Default)]
pub(super) struct Choices<'a> {
    first: Option<Choice<'a>>,
    more: Vec<Choice<'a>>,
}

impl<'a> Choices<'a> {
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Choice<'a>> {
        self.first.iter_mut().chain(&mut self.more)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Choices<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ChoicesVisitor)
    }
}

struct ChoicesVisitor;

impl<'de> Visitor<'de> for ChoicesVisitor {
    type Value = Choices<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of choices")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut choices = Choices::default();
        while let Some(choice) = list.next_element::<Choice<'de>>()? {
            if choice.index != 0 {
                continue;
            }
            match choices.first {
                None => choices.first = Some(choice),
                Some(_) => choices.more.push(choice),
            }
        }
        Ok(choices)
    }
}

#[derive(Deserialize)]
pub(super) struct Choice<'a> {
    #[serde(default)]
    pub(super) index: i64,
    #[serde(borrow)]
    pub(super) delta: Option<Part<'a>>,
    /// What a whole answer has in place of `delta`.
    #[serde(borrow)]
    pub(super) message: Option<Box<Part<'a>>>,
    #[serde(borrow)]
    pub(super) finish_reason: Option<Str<'a>>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct Part<'a> {
    #[serde(default)]
    pub(super) content: Text,
    #[serde(default)]
    pub(super) reasoning_content: Text,
    #[serde(default)]
    pub(super) reasoning: Text,
    #[serde(default)]
    pub(super) refusal: Text,
    #[serde(borrow)]
    pub(super) tool_calls: Option<Vec<WireCall<'a>>>,
    /// A call as it was before there were several.
    #[serde(borrow)]
    pub(super) function_call: Option<WireFunction<'a>>,
}

#[derive(Deserialize)]
pub(super) struct WireCall<'a> {
    pub(super) index: Option<i64>,
    #[serde(borrow)]
    pub(super) id: Option<Str<'a>>,
    #[serde(borrow)]
    pub(super) function: Option<WireFunction<'a>>,
}

impl WireCall<'_> {
    /// Whether the piece brings anything, so that empty ones don't pass for work.
    pub(super) fn says_something(&self) -> bool {
        self.function.as_ref().is_some_and(|function| {
            function.name.as_ref().is_some_and(|name| !name.is_empty())
                || function.arguments.is_some_and(|arguments| arguments.get() != "\"\"")
        })
    }
}

#[derive(Deserialize)]
pub(super) struct WireFunction<'a> {
    #[serde(borrow)]
    pub(super) name: Option<Str<'a>>,
    /// A string that holds JSON, or, from some servers, that JSON itself.
    #[serde(borrow)]
    pub(super) arguments: Option<&'a RawValue>,
}

/// Text that is not copied unless it holds escapes. In an `Option`, a bare `Cow` always is.
#[derive(Deserialize)]
pub(super) struct Str<'a>(#[serde(borrow)] Cow<'a, str>);

impl Deref for Str<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

#[derive(Deserialize)]
pub(super) struct Counts {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    prompt_tokens_details: Option<PromptDetails>,
    /// Where some servers put what others put in the details.
    prompt_cache_hit_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct PromptDetails {
    cached_tokens: Option<u64>,
}

impl From<Counts> for Usage {
    fn from(counts: Counts) -> Self {
        let cached = counts.prompt_tokens_details.and_then(|details| details.cached_tokens);
        Self {
            input: counts.prompt_tokens.unwrap_or_default(),
            output: counts.completion_tokens.unwrap_or_default(),
            cached: cached.or(counts.prompt_cache_hit_tokens).unwrap_or_default(),
            ..Self::default()
        }
    }
}

/// Text that may come as a string, as a list of parts, or as something else, which is no text.
#[derive(Default)]
pub(super) struct Text(pub(super) Option<String>);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor).map(Self)
    }
}

struct TextVisitor;

#[derive(Deserialize)]
struct TextPart {
    #[serde(default)]
    text: Text,
}

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text")
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Some(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Self::Value, E> {
        Ok(Some(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Self::Value, A::Error> {
        let mut joined = String::new();
        while let Some(part) = parts.next_element::<TextPart>()? {
            joined.push_str(part.text.0.as_deref().unwrap_or_default());
        }
        Ok(Some(joined))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }
}
