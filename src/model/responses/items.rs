//! What came of each item of an answer, however its pieces name it.
//!
//! An id that is known decides which item a piece belongs to, then the index, then which item was opened last: servers
//! number all items alike, change an item's id from event to event, or leave either out. What comes again, as a whole
//! after its pieces, is told once.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use serde_json::value::RawValue;

use crate::{
    domain::json::RawJson,
    model::{
        ProposedCall,
        calls::{Calls, Piece},
        exchange::Held,
    },
};

/// The items of an answer so far.
#[derive(Debug, Default)]
pub(super) struct Items {
    /// In the order in which they were opened.
    items: Vec<Item>,
    /// The item of an index that was opened last.
    by_index: BTreeMap<i64, usize>,
    by_id: HashMap<Arc<str>, usize>,
    by_call: HashMap<Arc<str>, usize>,
    /// Bytes of each part of an item that are told.
    told: BTreeMap<(usize, Voice, i64), usize>,
    /// Bytes of calls and of kept reasoning.
    bytes: usize,
}

/// One item.
#[derive(Debug, Default)]
pub(super) struct Item {
    index: Option<i64>,
    /// No more of it comes.
    pub(super) done: bool,
    pub(super) body: Body,
}

/// What an item is.
#[derive(Debug, Default)]
pub(super) enum Body {
    /// Not said, or nothing that is asked for.
    #[default]
    Other,
    Message,
    Call(Call),
    /// What is to be sent back of it, once it is there.
    Reasoning(Option<RawJson>),
}

#[derive(Debug, Default)]
pub(super) struct Call {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: String,
}

/// Kinds of text that an item may hold, each in parts of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Voice {
    Text,
    Refusal,
    Summary,
    Thought,
}

/// Which item a piece means, as far as it says.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Name<'a> {
    pub(super) index: Option<i64>,
    pub(super) id: Option<&'a str>,
    pub(super) call_id: Option<&'a str>,
}

/// An item before a piece of reasoning: the reply holds it, and only its place is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stub {
    Message,
    FunctionCall,
}

impl Stub {
    const fn json(self) -> &'static str {
        match self {
            Self::Message => r#"{"type":"message"}"#,
            Self::FunctionCall => r#"{"type":"function_call"}"#,
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "message" => Some(Self::Message),
            "function_call" => Some(Self::FunctionCall),
            _ => None,
        }
    }
}

impl Items {
    /// Opens an item, unless its id says that it is open.
    pub(super) fn open(&mut self, name: Name<'_>) -> usize {
        match self.known(name) {
            Some(place) if !self.items[place].done => place,
            Some(_) | None => self.push(name),
        }
    }

    /// The item that a piece belongs to; opened if there is none.
    pub(super) fn find(&mut self, name: Name<'_>) -> usize {
        let found = self.known(name).or_else(|| match name.index {
            Some(index) => self.by_index.get(&index).copied(),
            None => self.items.len().checked_sub(1).filter(|last| !self.items[*last].done),
        });
        found.unwrap_or_else(|| self.push(name))
    }

    /// The item that an item of the whole answer is, where its index may be a place among others.
    pub(super) fn settle(&mut self, name: Name<'_>, is: impl Fn(&Body) -> bool) -> usize {
        let numbered = || {
            let index = name.index?;
            let place = match self.by_index.get(&index) {
                Some(place) => *place,
                None => usize::try_from(index)
                    .ok()
                    .filter(|place| self.items.get(*place).is_some_and(|item| item.index.is_none()))?,
            };
            is(&self.items[place].body).then_some(place)
        };
        let found = self.known(name).or_else(numbered);
        let found = found.or_else(|| name.call_id.and_then(|id| self.by_call.get(id).copied()));
        found.unwrap_or_else(|| self.push(name))
    }

    fn known(&self, name: Name<'_>) -> Option<usize> {
        name.id.and_then(|id| self.by_id.get(id)).copied()
    }

    fn push(&mut self, name: Name<'_>) -> usize {
        let place = self.items.len();
        self.items.push(Item { index: name.index, ..Item::default() });
        let said = |id: Option<&str>| id.filter(|id| !id.is_empty()).map(|id| (id.into(), place));
        self.by_index.extend(name.index.map(|index| (index, place)));
        self.by_id.extend(said(name.id));
        self.by_call.extend(said(name.call_id));
        place
    }

    pub(super) fn at(&mut self, place: usize) -> &mut Item {
        &mut self.items[place]
    }

    /// What `piece` adds to a part of an item.
    pub(super) fn more(&mut self, place: usize, voice: Voice, part: i64, piece: String) -> String {
        *self.told.entry((place, voice, part)).or_default() += piece.len();
        piece
    }

    /// What of the whole part of an item was not told yet.
    pub(super) fn rest(&mut self, place: usize, voice: Voice, part: i64, whole: &str) -> String {
        let told = self.told.entry((place, voice, part)).or_default();
        let rest = whole.get(*told..).unwrap_or_default();
        *told += rest.len();
        rest.to_owned()
    }

    /// Has `change` done to the call that an item is, if it is one.
    pub(super) fn call(&mut self, place: usize, change: impl FnOnce(&mut Call)) {
        if let Some(call) = self.items[place].call() {
            let before = call.bytes();
            change(call);
            self.bytes = self.bytes + call.bytes() - before;
        }
    }

    /// Keeps the reasoning that an item is.
    pub(super) fn keep(&mut self, place: usize, raw: Option<&RawValue>) {
        if self.items[place].keep(raw) {
            self.bytes += raw.map_or(0, |raw| raw.get().len());
        }
    }

    /// How much there is of them.
    pub(super) fn held(&self) -> Held {
        Held { bytes: self.bytes, parts: self.items.len() + self.told.len() }
    }

    /// Whether there is any.
    pub(super) const fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The calls in their order, and what is kept for the request that answers them.
    pub(super) fn finish(mut self) -> (Vec<ProposedCall>, Vec<RawJson>) {
        self.items.sort_by_key(|item| item.index.unwrap_or(i64::MAX));
        let (mut calls, mut kept, mut before) = (Calls::default(), Vec::new(), Vec::new());
        for (index, item) in (0..).zip(&self.items) {
            match &item.body {
                Body::Message => before.push(Stub::Message),
                Body::Call(call) => {
                    before.push(Stub::FunctionCall);
                    calls.take(std::iter::once(Piece {
                        index: Some(index),
                        id: Some(&call.id),
                        name: Some(&call.name),
                        arguments: call.arguments.as_str().into(),
                    }));
                }
                Body::Reasoning(Some(raw)) => {
                    kept.extend(before.drain(..).filter_map(|stub| raw_json(stub.json())));
                    kept.push(raw.clone());
                }
                Body::Reasoning(None) | Body::Other => {}
            }
        }
        (calls.finish(), kept)
    }
}

impl Call {
    const fn bytes(&self) -> usize {
        self.id.len() + self.name.len() + self.arguments.len()
    }

    /// Takes what the call is called, where that is not known yet.
    pub(super) fn is_named(&mut self, id: Option<&str>, name: Option<&str>) {
        for (mine, said) in [(&mut self.id, id), (&mut self.name, name)] {
            if let (true, Some(said)) = (mine.is_empty(), said) {
                said.clone_into(mine);
            }
        }
    }

    /// Takes the whole arguments, unless they are left out.
    pub(super) fn arguments_are(&mut self, whole: String) {
        if !whole.is_empty() {
            self.arguments = whole;
        }
    }
}

impl Item {
    /// Makes it a message, unless it is something else.
    pub(super) fn is_message(&mut self) {
        if let Body::Other = self.body {
            self.body = Body::Message;
        }
    }

    /// Its call; it is made one if it was nothing yet.
    fn call(&mut self) -> Option<&mut Call> {
        if let Body::Other = self.body {
            self.body = Body::Call(Call::default());
        }
        match &mut self.body {
            Body::Call(call) => Some(call),
            Body::Other | Body::Message | Body::Reasoning(_) => None,
        }
    }

    /// Keeps the reasoning that it is; says whether it was kept now.
    fn keep(&mut self, raw: Option<&RawValue>) -> bool {
        match &mut self.body {
            Body::Reasoning(kept @ None) => *kept = raw.map(|raw| RawJson(raw.to_owned().into())),
            body @ Body::Other => *body = Body::Reasoning(raw.map(|raw| RawJson(raw.to_owned().into()))),
            Body::Reasoning(Some(_)) | Body::Message | Body::Call(_) => return false,
        }
        true
    }
}

fn raw_json(json: &str) -> Option<RawJson> {
    RawValue::from_string(json.to_owned()).ok().map(|raw| RawJson(raw.into()))
}
