//! A conversation as Messages wants it: turns of user and assistant that alternate, made of blocks.
//!
//! Results of calls come first in the turn that follows them; nothing blank is sent, whoever said it; ids and names
//! fit the protocol's patterns; kept blocks stand where they stood, among the texts and calls of their answer. Texts,
//! arguments and kept blocks are borrowed. Knows nothing of sampling.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::{
    domain::{
        call::{Arguments, ToolCall, ToolResult},
        json::RawJson,
        message::{Message, Reply},
    },
    model::body::{NO_OUTPUT, fitting_id, is_blank, kind},
};

/// What the user says where the conversation does not begin with the user.
const OPENING: &str = "(go on)";

/// Characters that an id, and a name, may have.
const LONGEST: usize = 64;

#[derive(Debug, Serialize)]
pub(super) struct Turn<'a> {
    role: Role,
    content: Vec<Block<'a>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Role {
    User,
    Assistant,
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Block<'a> {
    Text {
        text: Cow<'a, str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    ToolUse {
        id: Cow<'a, str>,
        name: Cow<'a, str>,
        input: &'a Arguments,
    },
    ToolResult {
        tool_use_id: Cow<'a, str>,
        content: &'a str,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    /// A block of the server's own, as it came.
    #[serde(untagged)]
    Kept(&'a RawJson),
}

/// Asks the server to keep everything up to here.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(super) enum CacheControl {
    Ephemeral,
}

/// A block that the reply itself holds: only its place, before a kept block, is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Stub {
    Text {
        /// How much of the reply's text was said here.
        bytes: usize,
    },
    ToolUse,
}

/// The turns of a conversation, as `model` is to see them.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(super) struct Turns<'a>(Vec<Turn<'a>>);

impl<'a> Turns<'a> {
    pub(super) fn new(conversation: &'a [Message], model: &str) -> Self {
        let mut turns = Self(Vec::new());
        for message in conversation {
            match message {
                Message::System(text) | Message::User(text) if is_blank(text) => {}
                Message::System(text) | Message::User(text) => {
                    turns.of(Role::User).push(Block::text(&**text));
                }
                Message::Assistant(reply) if is_blank(&reply.text) && reply.calls.is_empty() => {}
                Message::Assistant(reply) => turns.assistant(reply, model),
                Message::Tool(result) => turns.of(Role::User).push(Block::result(result)),
            }
        }
        if turns.0.is_empty() {
            turns.of(Role::User).push(Block::text(OPENING));
        }
        turns
    }

    fn assistant(&mut self, reply: &'a Reply, model: &str) {
        if self.0.is_empty() {
            self.of(Role::User).push(Block::text(OPENING));
        }
        let kept = reply.kept.as_ref().filter(|kept| *kept.model == *model);
        let blocks = self.of(Role::Assistant);
        let mut calls = reply.calls.iter();
        let mut rest = &*reply.text;
        for block in kept.into_iter().flat_map(|kept| &kept.blocks) {
            if matches!(kind(block).as_deref(), Some("thinking" | "redacted_thinking")) {
                blocks.push(Block::Kept(block));
                continue;
            }
            match serde_json::from_str(block.get()) {
                Ok(Stub::Text { bytes }) => {
                    let (text, after) = rest.split_at_checked(bytes).unwrap_or((rest, ""));
                    blocks.extend(Some(text).filter(|text| !is_blank(text)).map(Block::text));
                    rest = after;
                }
                Ok(Stub::ToolUse) => blocks.extend(calls.next().map(Block::call)),
                // Blocks of other protocols, whose server may call a model by the same name, mean nothing here.
                Err(_) => {}
            }
        }
        blocks.extend(Some(rest.trim_end()).filter(|text| !is_blank(text)).map(Block::text));
        blocks.extend(calls.map(Block::call));
        // As the last word, a thought is refused, and white space at its end.
        while let Some(Block::Kept(_)) = blocks.last() {
            blocks.pop();
        }
        if let Some(Block::Text { text: Cow::Borrowed(text), .. }) = blocks.last_mut() {
            *text = text.trim_end();
        }
    }

    /// The blocks of the last turn, which is this one's.
    fn of(&mut self, role: Role) -> &mut Vec<Block<'a>> {
        if self.0.last().is_none_or(|last| last.role != role) {
            self.0.push(Turn { role, content: Vec::new() });
        }
        let last = self.0.len() - 1;
        &mut self.0[last].content
    }

    /// Whether the model may think before it goes on. Between two words of the user it thinks from its first block on
    /// or not at all, however many calls lie between; and it can't begin in the middle of a sentence of its own.
    pub(super) fn may_think(&self) -> bool {
        let asked = self.0.iter().rposition(Turn::is_words);
        let begun = asked.and_then(|at| self.0.get(at + 1));
        let in_thought = begun.is_none_or(|turn| matches!(turn.content.first(), Some(Block::Kept(_))));
        in_thought && self.0.last().is_some_and(|turn| turn.role == Role::User)
    }

    /// Marks what the next request will repeat. Two turns: the earlier is what the request before had marked.
    pub(super) fn cache(&mut self) {
        let users = self.0.iter_mut().rev().filter(|turn| turn.role == Role::User);
        for block in users.take(2).filter_map(|turn| turn.content.last_mut()) {
            block.cache();
        }
    }
}

impl Turn<'_> {
    /// Whether a person speaks, and does not only bring results.
    fn is_words(&self) -> bool {
        self.role == Role::User && !matches!(self.content.first(), Some(Block::ToolResult { .. }))
    }
}

impl<'a> Block<'a> {
    pub(super) fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self::Text { text: text.into(), cache_control: None }
    }

    fn call(call: &'a ToolCall) -> Self {
        let ToolCall { id, provider_id: _, name, arguments } = call;
        Self::ToolUse { id: fitting_id(id.as_str(), fits), name: fitting_name(name), input: arguments }
    }

    fn result(result: &'a ToolResult) -> Self {
        Self::ToolResult {
            tool_use_id: fitting_id(result.call.as_str(), fits),
            content: Some(&*result.output).filter(|text| !is_blank(text)).unwrap_or(NO_OUTPUT),
            is_error: !result.ok,
            cache_control: None,
        }
    }

    pub(super) fn cache(&mut self) {
        match self {
            Self::Text { cache_control, .. } | Self::ToolResult { cache_control, .. } => {
                *cache_control = Some(CacheControl::Ephemeral);
            }
            Self::ToolUse { .. } | Self::Kept(_) => {}
        }
    }
}

fn fits(text: &str) -> bool {
    (1..=LONGEST).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

/// The name, or what is left of one that no tool can have; its call was refused, and is sent to be seen.
fn fitting_name(name: &str) -> Cow<'_, str> {
    if fits(name) {
        return Cow::Borrowed(name);
    }
    let fitting = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let name: String = name.chars().map(fitting).take(LONGEST).collect();
    Cow::Owned(if name.is_empty() { "_".to_owned() } else { name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_tool_can_have_becomes_one_that_can_be_sent() {
        let long = "y".repeat(100);
        for (name, sent) in
            [("read", "read"), ("a.b c", "a_b_c"), ("", "_"), ("é", "_"), (&long, &long[..64])]
        {
            assert_eq!(fitting_name(name), sent);
        }
    }
}
