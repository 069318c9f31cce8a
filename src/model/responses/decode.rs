//! An answer in Responses, as servers send it rather than as it is specified.
//!
//! What the items hold decides, whether it came in pieces, as a whole, or both. An answer ends with an event that says
//! how it ended; one that just stops gave nothing. Events and fields that are missing, null or unknown do no harm.

use serde_json::value::RawValue;

use super::{
    items::{Body, Items, Name, Voice},
    wire::{self, Counts, Item, Part, Response, words},
};
use crate::{
    domain::{
        outcome::{FaultClass, Stop},
        text,
        usage::Usage,
    },
    model::{
        Delta, ModelError,
        calls::answerable,
        exchange::{Codec, Deltas, Held},
        fault,
        sse::{Event, Flow},
    },
};

/// An answer that is being read.
#[derive(Debug, Default)]
pub(in crate::model) struct Answer {
    items: Items,
    /// It declined in a part of its own.
    refused: bool,
    /// Which item spoke last.
    speaker: Option<usize>,
    /// Which item, and which part of it, thought aloud last.
    thinker: Option<(usize, Voice, i64)>,
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Whole,
    Length,
    Filtered,
}

impl Codec for Answer {
    fn event(&mut self, event: Event<'_>, out: &mut Deltas) -> Result<Flow, ModelError> {
        if event.data.trim() == "[DONE]" {
            self.end(out)?;
        }
        if event.name == "error" {
            return Err(fault::from_error(
                &text::from_json(event.data).unwrap_or_else(|_| event.data.into()),
            ));
        }
        let json = text::repair_surrogates(event.data);
        let told: wire::Event<'_> = serde_json::from_str(&json).map_err(|error| garbled(&error, &json))?;
        let kind = told.kind.as_deref().unwrap_or(event.name);
        let last = kind.strip_prefix("response.").and_then(Ending::named);
        if let Some(ending) = last {
            let response = told.response.map(|raw| read(raw.get())).transpose()?;
            self.finish(response, ending, out)?;
            return Ok(Flow::Done);
        }
        if kind == "error" || told.error.is_some() {
            return Err(fault::from_error(&text::from_json(&json).unwrap_or_default()));
        }
        self.piece(kind, &told, out)?;
        Ok(Flow::More)
    }

    fn end(&mut self, _: &mut Deltas) -> Result<(), ModelError> {
        Err(cut("the answer ended early, without the event that ends it"))
    }

    fn whole(&mut self, body: &str, out: &mut Deltas) -> Result<(), ModelError> {
        let json = text::repair_surrogates(body);
        let response: Response<'_> = read(&json)?;
        if response.output.is_none() && response.status.is_none() && response.error.is_none() {
            return Err(fault::from_error(&text::from_json(&json).unwrap_or_default()));
        }
        self.finish(Some(response), Ending::Completed, out)
    }

    fn held(&self) -> Held {
        self.items.held()
    }
}

/// The events that end an answer, and the states of an answer that go with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Completed,
    Incomplete,
    Failed,
}

impl Ending {
    fn named(name: &str) -> Option<Self> {
        match name {
            "completed" | "done" => Some(Self::Completed),
            "incomplete" => Some(Self::Incomplete),
            "failed" | "cancelled" => Some(Self::Failed),
            _ => None,
        }
    }
}

impl Answer {
    /// Takes an event that does not end the answer.
    fn piece(&mut self, kind: &str, event: &wire::Event<'_>, out: &mut Deltas) -> Result<(), ModelError> {
        let name = Name { index: event.output_index, id: event.item_id.as_deref(), call_id: None };
        let part = event.content_index.unwrap_or_default();
        let summary = event.summary_index.unwrap_or_default();
        match kind.strip_prefix("response.").unwrap_or(kind) {
            "output_item.added" => {
                let item = event.item.map(|raw| read(raw.get())).transpose()?;
                if let Some(item) = item {
                    let place = self.items.open(named(event.output_index, &item));
                    self.item(place, &item, None, out);
                    work(out);
                }
            }
            "output_item.done" => {
                if let Some(raw) = event.item {
                    let item = read(raw.get())?;
                    let place = self.items.find(named(event.output_index, &item));
                    self.item(place, &item, Some(raw), out);
                    self.items.at(place).done = true;
                }
            }
            "content_part.added" | "content_part.done" => {
                if let Some(Ok(content)) = event.part.map(|raw| serde_json::from_str(raw.get())) {
                    let place = self.items.find(name);
                    self.content(place, part, &content, out);
                }
            }
            "output_text.delta" => self.delta(name, Voice::Text, part, event, out),
            "refusal.delta" => self.delta(name, Voice::Refusal, part, event, out),
            "reasoning_summary_text.delta" => self.delta(name, Voice::Summary, summary, event, out),
            "reasoning_text.delta" => self.delta(name, Voice::Thought, part, event, out),
            "output_text.done" => self.rest(name, Voice::Text, part, event.text, out),
            "refusal.done" => self.rest(name, Voice::Refusal, part, event.refusal, out),
            "reasoning_summary_text.done" => self.rest(name, Voice::Summary, summary, event.text, out),
            "reasoning_text.done" => self.rest(name, Voice::Thought, part, event.text, out),
            "function_call_arguments.delta" => {
                let place = self.items.find(name);
                let more = words(event.delta);
                self.items.call(place, |call| {
                    if !more.is_empty() {
                        call.arguments.push_str(&more);
                        work(out);
                    }
                });
            }
            "function_call_arguments.done" => {
                let place = self.items.find(name);
                self.items.call(place, |call| call.arguments_are(wire::arguments(event.arguments)));
            }
            _ => {}
        }
        Ok(())
    }

    fn delta(&mut self, name: Name<'_>, voice: Voice, part: i64, event: &wire::Event<'_>, out: &mut Deltas) {
        let place = self.items.find(name);
        let more = self.items.more(place, voice, part, words(event.delta));
        self.say(place, voice, part, more, out);
    }

    fn rest(&mut self, name: Name<'_>, voice: Voice, part: i64, whole: Option<&RawValue>, out: &mut Deltas) {
        let place = self.items.find(name);
        self.tell(place, voice, part, whole, out);
    }

    /// Takes an item as far as it is whole; `raw` is the text of one that is.
    fn item(&mut self, place: usize, item: &Item<'_>, raw: Option<&RawValue>, out: &mut Deltas) {
        match item.kind.as_deref() {
            Some("message") => {
                self.items.at(place).is_message();
                for (part, content) in (0..).zip(item.content()) {
                    self.content(place, part, &content, out);
                }
            }
            Some("function_call") => {
                self.items.call(place, |call| {
                    let id = item.call_id.as_deref().or(item.id.as_deref().filter(|_| raw.is_some()));
                    call.is_named(id, item.name.as_deref());
                    call.arguments_are(wire::arguments(item.arguments));
                });
            }
            Some("reasoning") => {
                let secret = item.encrypted_content.as_deref().is_some_and(|secret| !secret.is_empty());
                self.items.keep(place, raw.filter(|_| secret));
                for (part, content) in (0..).zip(item.summary()) {
                    self.tell(place, Voice::Summary, part, content.text, out);
                }
                for (part, content) in (0..).zip(item.content()) {
                    self.tell(place, Voice::Thought, part, content.text, out);
                }
            }
            Some(_) | None => {}
        }
    }

    fn content(&mut self, place: usize, part: i64, content: &Part<'_>, out: &mut Deltas) {
        let voice = match content.kind.as_deref() {
            Some("summary_text") => Voice::Summary,
            Some("reasoning_text") => Voice::Thought,
            Some(_) | None => Voice::Text,
        };
        self.tell(place, voice, part, content.text, out);
        self.tell(place, Voice::Refusal, part, content.refusal, out);
    }

    /// Tells what of a whole part was not told yet.
    fn tell(&mut self, place: usize, voice: Voice, part: i64, whole: Option<&RawValue>, out: &mut Deltas) {
        let rest = self.items.rest(place, voice, part, &words(whole));
        self.say(place, voice, part, rest, out);
    }

    /// Tells text. Items of text, and parts of thought, are paragraphs of their own.
    fn say(&mut self, place: usize, voice: Voice, part: i64, mut text: String, out: &mut Deltas) {
        if text.is_empty() {
            return;
        }
        let goes_on = match voice {
            Voice::Text | Voice::Refusal => {
                self.items.at(place).is_message();
                self.refused |= voice == Voice::Refusal;
                self.speaker.replace(place).is_none_or(|last| last == place)
            }
            Voice::Summary | Voice::Thought => {
                self.items.keep(place, None);
                let key = (place, voice, part);
                self.thinker.replace(key).is_none_or(|last| last == key)
            }
        };
        if !goes_on {
            text.insert_str(0, "\n\n");
        }
        out.push_back(match voice {
            Voice::Text | Voice::Refusal => Delta::Text(text),
            Voice::Summary | Voice::Thought => Delta::Reasoning(text),
        });
    }

    /// Takes the end: what the whole answer adds to its pieces, what it used up, and why it ended.
    fn finish(
        &mut self,
        response: Option<Response<'_>>,
        ending: Ending,
        out: &mut Deltas,
    ) -> Result<(), ModelError> {
        let usage = response.as_ref().and_then(|response| response.usage);
        let usage = usage.and_then(|raw| serde_json::from_str::<Counts>(raw.get()).ok()).map(Usage::from);
        let ended = ended(response.as_ref(), ending).inspect_err(|_| out.extend(usage.map(Delta::Usage)))?;
        let streamed = !self.items.is_empty();
        for (index, raw) in (0..).zip(response.iter().flat_map(|response| &response.output).flatten()) {
            let item = read(raw.get())?;
            let name = named(Some(index), &item);
            let place = if streamed {
                self.items.settle(name, |body| is(body, &item))
            } else {
                self.items.open(name)
            };
            self.item(place, &item, Some(raw), out);
            self.items.at(place).done = true;
        }
        let (calls, kept) = std::mem::take(&mut self.items).finish();
        let calls = answerable(calls, ended == Ended::Length)?;
        let stop = match ended {
            Ended::Length => Stop::Length,
            Ended::Filtered => Stop::Refusal,
            Ended::Whole if !calls.is_empty() => Stop::ToolCalls,
            Ended::Whole if self.refused => Stop::Refusal,
            Ended::Whole => Stop::EndTurn,
        };
        if !calls.is_empty() {
            out.extend(kept.into_iter().map(Delta::Keep));
        }
        out.extend(calls.into_iter().map(|call| Delta::Call(call.mended())));
        out.extend(usage.map(Delta::Usage));
        out.push_back(Delta::Stop(stop));
        Ok(())
    }
}

/// How an answer ended, by its own state or, where it has none, by the event that it came with.
fn ended(response: Option<&Response<'_>>, ending: Ending) -> Result<Ended, ModelError> {
    let status = response.and_then(|response| response.status.as_deref());
    let error = response.and_then(|response| response.error);
    let reason = response.and_then(|response| response.incomplete_details.as_ref()?.reason.as_deref());
    match status.map_or(Some(ending), Ending::named) {
        _ if let Some(error) = error => {
            Err(fault::from_error(&text::from_json(error.get()).unwrap_or_default()))
        }
        Some(Ending::Completed) => Ok(Ended::Whole),
        Some(Ending::Incomplete) if reason == Some("content_filter") => Ok(Ended::Filtered),
        Some(Ending::Incomplete) => Ok(Ended::Length),
        Some(Ending::Failed) => Err(cut("the server ended the answer with an error")),
        None => Err(cut(&format!("the answer ended as {}", fault::quote(status.unwrap_or_default())))),
    }
}

/// Whether what came in pieces may be this item.
fn is(body: &Body, item: &Item<'_>) -> bool {
    match (body, item.kind.as_deref()) {
        (Body::Message, Some("message")) | (Body::Reasoning(_), Some("reasoning")) => true,
        (Body::Call(call), Some("function_call")) => {
            call.id.is_empty() || item.call_id.as_deref().is_none_or(|id| *id == *call.id)
        }
        (Body::Message | Body::Reasoning(_) | Body::Call(_) | Body::Other, _) => false,
    }
}

fn named<'a>(index: Option<i64>, item: &'a Item<'_>) -> Name<'a> {
    Name { index, id: item.id.as_deref(), call_id: item.call_id.as_deref() }
}

/// Says that work goes on, once for several pieces of it.
fn work(out: &mut Deltas) {
    if out.back() != Some(&Delta::Progress) {
        out.push_back(Delta::Progress);
    }
}

fn read<'a, T: serde::Deserialize<'a>>(json: &'a str) -> Result<T, ModelError> {
    serde_json::from_str(json).map_err(|error| garbled(&error, json))
}

fn garbled(error: &serde_json::Error, json: &str) -> ModelError {
    // The error quotes what it did not expect, however long that is.
    let error = fault::quote(&error.to_string());
    cut(&format!("the answer is not valid JSON ({error}): {}", fault::quote(json)))
}

fn cut(message: &str) -> ModelError {
    ModelError::new(FaultClass::Transient, message)
}
