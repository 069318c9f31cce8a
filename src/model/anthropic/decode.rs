//! An answer in Messages, as servers send it rather than as it is specified.
//!
//! What the blocks hold decides, not the stop reason alone. An answer ends with `message_stop`, or at least with a stop
//! reason; one that just stops gave nothing. Blocks and events that are missing, doubled or unknown do no harm, and
//! work is linear in what comes.

use std::{borrow::Cow, collections::BTreeMap};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::value::{RawValue, to_raw_value};

use super::{
    turns::Stub,
    wire::{Counts, WireBlock, WireDelta, WireEvent, WireMessage},
};
use crate::{
    domain::{
        json::RawJson,
        outcome::{FaultClass, Stop},
        text,
    },
    model::{
        Delta, ModelError, ProposedCall,
        calls::{Calls, Piece, answerable},
        exchange::{Codec, Deltas, Held},
        fault,
        sse::{Event, Flow},
    },
};

/// An answer that is being read.
#[derive(Debug, Default)]
pub(in crate::model) struct Answer {
    calls: Calls,
    /// Blocks that have begun and not ended, by their index.
    open: BTreeMap<i64, Block>,
    /// The index of the block that began last, for what comes without one.
    latest: i64,
    /// Bytes that starts of open calls brought along.
    given: usize,
    /// Calls that have begun: an index may come again, a place among these does not.
    begun: i64,
    /// What came since a block was kept.
    since: Vec<Stub>,
    counts: Counts,
    finish: Option<Finish>,
    /// The server said that no more comes.
    done: bool,
}

/// A block of which more may come.
#[derive(Debug)]
enum Block {
    Thought(Thought),
    Call {
        /// Its index among the calls.
        place: i64,
        id: Option<String>,
        /// Arguments that its start brought along; they count if nothing follows.
        given: String,
    },
    /// Nothing that has to be put together.
    Other,
}

/// Thinking, as the server wants it back.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename = "thinking")]
struct Thought {
    thinking: String,
    signature: String,
}

/// What a stop reason says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finish {
    /// The model had no more to say, or wants tools run: the calls tell.
    Whole,
    /// There would have been more.
    Cut,
    Refused,
}

impl Codec for Answer {
    fn event(&mut self, event: Event<'_>, out: &mut Deltas) -> Result<Flow, ModelError> {
        if event.data.trim() == "[DONE]" {
            return self.stop(out);
        }
        if event.name == "error" {
            return Err(self.failed(event.data, out));
        }
        let told: WireEvent = parse(event.data)?;
        match told.kind.as_deref().unwrap_or(event.name) {
            "error" => return Err(self.failed(event.data, out)),
            _ if told.error.is_some() => return Err(self.failed(event.data, out)),
            "message_start" => self.counts.merge(told.message.and_then(|it| it.usage).unwrap_or_default()),
            "content_block_start" => {
                if let Some(block) = told.content_block {
                    self.start(told.index, block, out);
                }
            }
            "content_block_delta" => self.delta(told.index, told.delta.unwrap_or_default(), out),
            "content_block_stop" => {
                if let Some(block) = self.open.remove(&told.index.unwrap_or(self.latest)) {
                    self.close(block, out);
                }
            }
            "message_delta" => {
                self.counts.merge(told.usage.unwrap_or_default());
                self.finish(told.delta.and_then(|delta| delta.stop_reason).as_deref());
            }
            "message_stop" => return self.stop(out),
            _ => {}
        }
        Ok(Flow::More)
    }

    fn end(&mut self, out: &mut Deltas) -> Result<(), ModelError> {
        for (_, block) in std::mem::take(&mut self.open) {
            self.close(block, out);
        }
        // What was used up was used up for nothing, too.
        out.extend(self.counts.usage().map(Delta::Usage));
        let calls = std::mem::take(&mut self.calls).finish();
        // Without a reason nothing but the calls themselves says that they are whole.
        if self.finish.is_none() && !(self.done && calls.iter().all(ProposedCall::is_whole)) {
            return Err(broken("the answer ended early, without a stop reason"));
        }
        let calls = answerable(calls, self.finish == Some(Finish::Cut))?;
        let stop = match self.finish {
            Some(Finish::Cut) => Stop::Length,
            Some(Finish::Refused) => Stop::Refusal,
            Some(Finish::Whole) | None if calls.is_empty() => Stop::EndTurn,
            Some(Finish::Whole) | None => Stop::ToolCalls,
        };
        out.extend(calls.into_iter().map(|call| Delta::Call(call.mended())));
        out.push_back(Delta::Stop(stop));
        Ok(())
    }

    fn whole(&mut self, body: &str, out: &mut Deltas) -> Result<(), ModelError> {
        let message: WireMessage = parse(body)?;
        if message.error.is_some() {
            return Err(self.failed(body, out));
        }
        let Some(content) = message.content else {
            return Err(broken(&format!("the answer is no message: {}", fault::quote(body))));
        };
        for (block, index) in content.into_iter().zip(0..) {
            self.start(Some(index), block, out);
            if let Some(block) = self.open.remove(&index) {
                self.close(block, out);
            }
        }
        self.counts.merge(message.usage.unwrap_or_default());
        self.finish(message.stop_reason.as_deref());
        self.end(out)
    }

    fn held(&self) -> Held {
        self.calls.held() + Held { bytes: self.given, parts: self.open.len() }
    }
}

impl Answer {
    /// Begins a block; one that was open at its index is over.
    fn start(&mut self, index: Option<i64>, raw: Box<RawValue>, out: &mut Deltas) {
        // A block in no known form is an unknown block.
        let block: WireBlock = text::from_json(raw.get()).unwrap_or_default();
        let index = index.unwrap_or_else(|| self.latest.saturating_add(1));
        match self.open.remove(&index) {
            // Told twice.
            Some(Block::Call { place, id: Some(id), given }) if block.id.as_ref() == Some(&id) => {
                self.open.insert(index, Block::Call { place, id: Some(id), given });
                return;
            }
            Some(before) => self.close(before, out),
            None => {}
        }
        self.latest = index;
        let begun = match block.kind.as_deref() {
            Some("text") => {
                self.text(block.text, out);
                Block::Other
            }
            Some("thinking") => {
                let thinking = block.thinking.unwrap_or_default();
                say(Some(thinking.clone()), Delta::Reasoning, out);
                Block::Thought(Thought { thinking, signature: block.signature.unwrap_or_default() })
            }
            Some("redacted_thinking") => {
                self.keep(raw, out);
                Block::Other
            }
            Some("tool_use") => {
                work(out);
                let place = self.begun;
                self.begun += 1;
                self.since.push(Stub::ToolUse);
                self.piece(place, block.id.as_deref(), block.name.as_deref(), "");
                let given = block.input.as_deref().map(given).unwrap_or_default().into_owned();
                self.given += given.len();
                Block::Call { place, id: block.id.filter(|id| !id.is_empty()), given }
            }
            Some(_) | None => {
                work(out);
                Block::Other
            }
        };
        self.open.insert(index, begun);
    }

    /// Takes more of a block. Text needs none to belong to.
    fn delta(&mut self, index: Option<i64>, delta: WireDelta, out: &mut Deltas) {
        let json = delta.partial_json.filter(|json| !json.is_empty());
        let signature = delta.signature.filter(|signature| !signature.is_empty());
        if json.is_some() || signature.is_some() {
            work(out);
        }
        match self.open.get_mut(&index.unwrap_or(self.latest)) {
            Some(Block::Thought(thought)) => {
                thought.thinking.push_str(delta.thinking.as_deref().unwrap_or_default());
                if let Some(signature) = signature {
                    thought.signature = signature;
                }
            }
            Some(Block::Call { place, given, .. }) => {
                let place = *place;
                if let Some(json) = json {
                    self.given -= given.len();
                    *given = String::new();
                    self.piece(place, None, None, &json);
                }
            }
            Some(Block::Other) | None => {}
        }
        say(delta.thinking, Delta::Reasoning, out);
        self.text(delta.text, out);
    }

    fn text(&mut self, text: Option<String>, out: &mut Deltas) {
        let more = text.as_ref().map_or(0, String::len);
        match self.since.last_mut() {
            Some(Stub::Text { bytes }) => *bytes += more,
            Some(Stub::ToolUse) | None if more > 0 => self.since.push(Stub::Text { bytes: more }),
            Some(Stub::ToolUse) | None => {}
        }
        say(text, Delta::Text, out);
    }

    /// Keeps a block, and the places of those before it.
    fn keep(&mut self, block: Box<RawValue>, out: &mut Deltas) {
        let stubs = self.since.drain(..).filter_map(|stub| to_raw_value(&stub).ok());
        out.extend(stubs.chain([block]).map(|raw| Delta::Keep(RawJson(raw.into()))));
    }

    /// Ends a block. Thoughts without a signature are worth nothing to the server.
    fn close(&mut self, block: Block, out: &mut Deltas) {
        match block {
            Block::Thought(thought) if !thought.signature.is_empty() => {
                if let Ok(raw) = to_raw_value(&thought) {
                    self.keep(raw, out);
                }
            }
            Block::Call { place, given, .. } => {
                self.given -= given.len();
                self.piece(place, None, None, &given);
            }
            Block::Thought(_) | Block::Other => {}
        }
    }

    fn piece(&mut self, place: i64, id: Option<&str>, name: Option<&str>, arguments: &str) {
        self.calls.take([Piece { index: Some(place), id, name, arguments: arguments.into() }].into_iter());
    }

    fn finish(&mut self, reason: Option<&str>) {
        self.finish = match reason {
            None | Some("") => self.finish,
            // After a pause the server wants its own tools' blocks back, which nothing here keeps.
            Some("max_tokens" | "model_context_window_exceeded" | "pause_turn") => Some(Finish::Cut),
            Some("refusal") => Some(Finish::Refused),
            Some(_) => Some(Finish::Whole),
        };
    }

    fn stop(&mut self, out: &mut Deltas) -> Result<Flow, ModelError> {
        self.done = true;
        self.end(out)?;
        Ok(Flow::Done)
    }

    fn failed(&self, error: &str, out: &mut Deltas) -> ModelError {
        out.extend(self.counts.usage().map(Delta::Usage));
        fault::from_error(&text::from_json(error).unwrap_or_else(|_| error.into()))
    }
}

/// The arguments that a call's start brings: mostly an empty object, which says that they follow.
fn given(input: &RawValue) -> Cow<'_, str> {
    match input.get() {
        "{}" | "null" => Cow::Borrowed(""),
        json if json.starts_with('"') => text::from_json(json).map_or(Cow::Borrowed(json), Cow::Owned),
        json => Cow::Borrowed(json),
    }
}

fn say(text: Option<String>, delta: impl Fn(String) -> Delta, out: &mut Deltas) {
    out.extend(text.filter(|text| !text.is_empty()).map(delta));
}

fn work(out: &mut Deltas) {
    if out.back() != Some(&Delta::Progress) {
        out.push_back(Delta::Progress);
    }
}

fn parse<T: DeserializeOwned>(json: &str) -> Result<T, ModelError> {
    text::from_json(json).map_err(|error: serde_json::Error| {
        // The error quotes what it did not expect, however long that is.
        let error = fault::quote(&error.to_string());
        broken(&format!("the answer is not valid JSON ({error}): {}", fault::quote(json)))
    })
}

fn broken(message: &str) -> ModelError {
    ModelError::new(FaultClass::Transient, message)
}

#[cfg(test)]
mod tests;
