//! Which events a stream is to have.

use std::collections::BTreeSet;

use crate::domain::{
    event::Event,
    id::{BatchId, RunId},
};

/// Which events a stream of all runs is to have. What is empty does not narrow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only those of runs of this batch.
    pub batch: Option<BatchId>,
    /// Only those of these runs.
    pub runs: BTreeSet<RunId>,
    /// Only those of these kinds.
    pub kinds: Kinds,
}

/// Kinds of events; none stands for all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kinds(Vec<&'static str>);

/// A name that no kind of event has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no event is of kind {0:?}; want one of: {all}", all = Event::KINDS.join(", "))]
pub struct UnknownKind(pub String);

impl Kinds {
    /// The kinds of these names.
    ///
    /// # Errors
    /// The first name that no kind has.
    pub fn named<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, UnknownKind> {
        let known = |name: &str| Event::KINDS.iter().copied().find(|kind| *kind == name);
        let named = |name: &'a str| known(name).ok_or_else(|| UnknownKind(name.to_owned()));
        names.into_iter().map(named).collect::<Result<_, _>>().map(Self)
    }

    /// Whether a kind is among them.
    pub fn has(&self, kind: &str) -> bool {
        self.0.is_empty() || self.0.contains(&kind)
    }
}
