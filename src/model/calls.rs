//! Puts tool calls together from the pieces in which servers send them.
//!
//! One rule set for whatever a server leaves out, repeats or interleaves:
//! - an index is the key of its call; calls come out in the order of their indexes;
//! - without an index, an id or a name that is new opens a call, and anything else continues the call opened last;
//! - of several nameless pieces in one delta, the last continues the call opened last, the one before it the call
//!   opened before, and so on;
//! - an empty id or name is an absent one.
//!
//! Work is linear in the pieces, whatever the indexes. Knows nothing of what arguments hold.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use serde_json::value::RawValue;

use super::{ModelError, ProposedCall, exchange::Held};
use crate::domain::{outcome::FaultClass, text};

/// One piece of a call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Piece<'a> {
    pub(crate) index: Option<i64>,
    pub(crate) id: Option<&'a str>,
    pub(crate) name: Option<&'a str>,
    /// More of the arguments' text.
    pub(crate) arguments: Cow<'a, str>,
}

/// The calls of one answer so far.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    /// In the order in which they were opened.
    slots: Vec<Slot>,
    by_index: BTreeMap<i64, usize>,
    by_id: HashMap<Arc<str>, usize>,
    /// Bytes of ids, names and arguments.
    bytes: usize,
    /// Which delta is being taken.
    delta: usize,
}

#[derive(Debug, Default)]
struct Slot {
    index: Option<i64>,
    id: Option<Arc<str>>,
    name: String,
    arguments: String,
    /// The delta that touched it last.
    delta: usize,
}

impl Calls {
    /// Takes the pieces of one delta.
    pub(crate) fn take<'a>(&mut self, pieces: impl ExactSizeIterator<Item = Piece<'a>>) {
        self.delta += 1;
        let count = pieces.len();
        for (place, piece) in pieces.enumerate() {
            self.add(piece, count - 1 - place);
        }
    }

    /// Adds a piece that `behind` others follow in its delta.
    fn add(&mut self, piece: Piece<'_>, behind: usize) {
        let piece = Piece {
            id: piece.id.filter(|id| !id.is_empty()),
            name: piece.name.filter(|name| !name.is_empty()),
            ..piece
        };
        if piece.index.is_none() && piece.id.is_none() && piece.name.is_none() && piece.arguments.is_empty() {
            return;
        }
        let place = self.find(&piece, behind).unwrap_or_else(|| {
            self.slots.push(Slot { index: piece.index, ..Slot::default() });
            self.slots.len() - 1
        });
        if let Some(index) = piece.index {
            self.by_index.insert(index, place);
        }
        let slot = &mut self.slots[place];
        if let (None, Some(id)) = (&slot.id, piece.id) {
            let id: Arc<str> = id.into();
            self.bytes += id.len();
            self.by_id.insert(Arc::clone(&id), place);
            slot.id = Some(id);
        }
        if let (true, Some(name)) = (slot.name.is_empty(), piece.name) {
            name.clone_into(&mut slot.name);
            self.bytes += name.len();
        }
        self.bytes += piece.arguments.len();
        slot.arguments.push_str(&piece.arguments);
        slot.delta = self.delta;
    }

    /// The place of the call that a piece continues; none if it opens one.
    fn find(&self, piece: &Piece<'_>, behind: usize) -> Option<usize> {
        let place = match (piece.index, piece.id) {
            (Some(index), _) => *self.by_index.get(&index)?,
            (None, Some(id)) => match self.by_id.get(id) {
                Some(place) => *place,
                // The id of a call that was opened by its name alone.
                None => self
                    .slots
                    .len()
                    .checked_sub(1)
                    .filter(|last| piece.name.is_none() && self.slots[*last].id.is_none())?,
            },
            (None, None) if piece.name.is_some() => self.slots.len().checked_sub(1)?,
            (None, None) => self.slots.len().checked_sub(1)?.saturating_sub(behind),
        };
        (!self.slots[place].is_over(piece, self.delta)).then_some(place)
    }

    /// How much there is of them.
    pub(crate) const fn held(&self) -> Held {
        Held { bytes: self.bytes, parts: self.slots.len() }
    }

    /// The calls, in their order.
    pub(crate) fn finish(mut self) -> Vec<ProposedCall> {
        self.slots.sort_by_key(|slot| slot.index.unwrap_or(i64::MAX));
        self.slots
            .into_iter()
            .map(|slot| ProposedCall { id: slot.id, name: slot.name.into(), arguments: slot.arguments })
            .collect()
    }
}

/// The calls of an answer that is over. Where it was cut, one without its name is left out, since nothing can answer it.
///
/// # Errors
/// A call without a name in an answer that was not cut.
pub(crate) fn answerable(
    mut calls: Vec<ProposedCall>,
    was_cut: bool,
) -> Result<Vec<ProposedCall>, ModelError> {
    if was_cut {
        calls.retain(|call| !call.name.is_empty());
    } else if calls.iter().any(|call| call.name.is_empty()) {
        return Err(ModelError::new(FaultClass::Transient, "the answer holds a call without a name"));
    }
    Ok(calls)
}

impl Slot {
    /// Whether a piece that carries a name belongs to another call all the same. Servers that number calls wrongly, or
    /// not at all, and those that repeat the name in each piece are told apart by what the piece brings along.
    fn is_over(&self, piece: &Piece<'_>, delta: usize) -> bool {
        let Some(name) = piece.name.filter(|_| !self.name.is_empty()) else { return false };
        let other_id = matches!((&self.id, piece.id), (Some(mine), Some(id)) if **mine != *id);
        let restarts =
            self.arguments.trim_end().ends_with('}') && piece.arguments.trim_start().starts_with('{');
        match piece.index {
            Some(_) => other_id,
            None => other_id || self.name != name || restarts || self.delta == delta,
        }
    }
}

impl ProposedCall {
    /// Whether nothing is missing from its arguments, as far as they tell.
    pub(crate) fn is_whole(&self) -> bool {
        self.arguments.is_empty() || serde_json::from_str::<&RawValue>(&self.arguments).is_ok()
    }

    /// The call as it goes on: a surrogate that never found its other half would spoil the arguments for every reader.
    pub(crate) fn mended(mut self) -> Self {
        if let Cow::Owned(repaired) = text::repair_surrogates(&self.arguments) {
            self.arguments = repaired;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A piece: index, id, name, arguments.
    type Row = (Option<i64>, &'static str, &'static str, &'static str);
    /// A call: id, name, arguments.
    type Made = (&'static str, &'static str, &'static str);
    type Case = (&'static str, &'static [&'static [Row]], &'static [Made]);

    fn assemble(deltas: &[&[Row]]) -> Vec<(String, String, String)> {
        let mut calls = Calls::default();
        for delta in deltas {
            calls.take(delta.iter().map(|(index, id, name, arguments)| Piece {
                index: *index,
                id: Some(id),
                name: Some(name),
                arguments: (*arguments).into(),
            }));
        }
        let text = |call: ProposedCall| {
            (call.id.as_deref().unwrap_or_default().to_owned(), call.name.to_string(), call.arguments)
        };
        calls.finish().into_iter().map(text).collect()
    }

    #[test]
    fn pieces_become_the_calls_that_were_meant() {
        let table: &[Case] = &[
            (
                "no index, new ids",
                &[&[(None, "a", "read", "{1}")], &[(None, "b", "read", "{2}")]],
                &[("a", "read", "{1}"), ("b", "read", "{2}")],
            ),
            (
                "no index, one call in pieces",
                &[&[(None, "a", "bash", "")], &[(None, "", "", "{")], &[(None, "", "", "}")]],
                &[("a", "bash", "{}")],
            ),
            (
                "no index, two calls in one delta, continued by place",
                &[
                    &[(None, "a", "x", "{"), (None, "b", "x", "{")],
                    &[(None, "", "", "1}"), (None, "", "", "2}")],
                ],
                &[("a", "x", "{1}"), ("b", "x", "{2}")],
            ),
            (
                "no index and no id: two calls of one tool in one delta",
                &[&[(None, "", "x", ""), (None, "", "x", "")]],
                &[("", "x", ""), ("", "x", "")],
            ),
            (
                "no index and no id: whole calls one after the other",
                &[&[(None, "", "x", "{1}")], &[(None, "", "x", "{2}")], &[(None, "", "y", "{3}")]],
                &[("", "x", "{1}"), ("", "x", "{2}"), ("", "y", "{3}")],
            ),
            (
                "the name is repeated in each piece",
                &[&[(None, "a", "x", "{")], &[(None, "a", "x", "1")], &[(None, "", "x", "}")]],
                &[("a", "x", "{1}")],
            ),
            (
                "an id that comes after the name",
                &[&[(None, "", "x", "{")], &[(None, "a", "", "}")]],
                &[("a", "x", "{}")],
            ),
            (
                "empty id and name on continuations",
                &[&[(Some(0), "a", "grep", "{")], &[(Some(0), "", "", "}")]],
                &[("a", "grep", "{}")],
            ),
            (
                "interleaved by index, last index first",
                &[
                    &[(Some(1), "b", "x", "{")],
                    &[(Some(0), "a", "x", "{")],
                    &[(Some(1), "", "", "2}")],
                    &[(Some(0), "", "", "1}")],
                ],
                &[("a", "x", "{1}"), ("b", "x", "{2}")],
            ),
            (
                "one id twice in one delta is two calls",
                &[&[(Some(0), "d", "x", "1"), (Some(1), "d", "x", "2")]],
                &[("d", "x", "1"), ("d", "x", "2")],
            ),
            (
                "one id twice in one delta, without an index",
                &[&[(None, "d", "x", "1"), (None, "d", "x", "2")]],
                &[("d", "x", "1"), ("d", "x", "2")],
            ),
            (
                "index 0 for every call, ids and names new",
                &[&[(Some(0), "a", "x", "{1}")], &[(Some(0), "b", "y", "{2")], &[(Some(0), "", "", "}")]],
                &[("a", "x", "{1}"), ("b", "y", "{2}")],
            ),
            (
                "an id made up anew for each piece",
                &[&[(Some(0), "a", "x", "{")], &[(Some(0), "b", "", "}")]],
                &[("a", "x", "{}")],
            ),
            (
                "a monstrous index",
                &[&[(Some(4_000_000_000), "b", "x", "{}")], &[(Some(-1), "a", "x", "{}")]],
                &[("a", "x", "{}"), ("b", "x", "{}")],
            ),
            ("nothing at all", &[&[(None, "", "", "")], &[]], &[]),
        ];
        for (what, deltas, expected) in table {
            let expected: Vec<_> = expected
                .iter()
                .map(|(a, b, c)| ((*a).to_owned(), (*b).to_owned(), (*c).to_owned()))
                .collect();
            assert_eq!(assemble(deltas), expected, "{what}");
        }
    }

    #[test]
    fn a_hundred_thousand_calls_stay_apart() {
        let mut calls = Calls::default();
        for number in (0..100_000_i64).rev() {
            let id = format!("c{number}");
            let index = Some(number);
            calls.take([Piece { index, id: Some(&id), name: Some("x"), arguments: "{".into() }].into_iter());
            calls.take([Piece { index, arguments: "}".into(), ..Piece::default() }].into_iter());
        }
        let calls = calls.finish();
        assert_eq!((calls.len(), calls[7].id.as_deref(), &*calls[7].arguments), (100_000, Some("c7"), "{}"));
    }
}
