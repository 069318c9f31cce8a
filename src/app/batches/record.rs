//! What is of record of a batch beside its tasks: the options of its row in the log.
//!
//! A stored format: fields are added with a default, never renamed.

use std::{collections::BTreeMap, num::NonZeroUsize, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::status::{BatchState, Counts};
use crate::domain::{batch::Halt, usage::NanoUsd};

/// What is of record of a batch.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Record {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<String>,
    /// SHA-256 of the whole input, in hex.
    pub(super) digest: String,
    pub(super) retries: u32,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "halt")]
    pub(super) halt: Option<Halt>,
    pub(super) concurrency: NonZeroUsize,
    /// What all of its attempts together may cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) max_cost: Option<NanoUsd>,
    /// The user who submitted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) owner: Option<Arc<str>>,
    #[serde(default)]
    pub(super) labels: BTreeMap<String, String>,
    pub(super) state: BatchState,
    /// Places in the input that are to be worked on, each range from one up to before another; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) chosen: Option<Vec<(usize, usize)>>,
    /// Tasks that had failed when it went on after an end: they are no reason to give up.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) excused: usize,
    /// It goes on for single tasks that somebody had done again; what has no run never starts.
    #[serde(default)]
    pub(super) starts_nothing: bool,
    /// How it ended, once it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) summary: Option<Summary>,
}

/// How a batch ended.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Summary {
    pub(super) counts: Counts,
    pub(super) halted: bool,
}

impl Record {
    /// Stands for a record that is not understood.
    pub(super) const fn unread(key: Option<String>) -> Self {
        Self {
            key,
            digest: String::new(),
            retries: 0,
            halt: None,
            concurrency: NonZeroUsize::MIN,
            max_cost: None,
            owner: None,
            labels: BTreeMap::new(),
            state: BatchState::Open,
            chosen: None,
            excused: 0,
            starts_nothing: false,
            summary: None,
        }
    }

    /// The places of an input of so many tasks that are to be worked on.
    pub(super) fn places(&self, count: usize) -> Vec<usize> {
        match &self.chosen {
            None => (0..count).collect(),
            Some(ranges) => ranges.iter().flat_map(|(from, to)| *from..(*to).min(count)).collect(),
        }
    }
}

/// What a record says of these places, in order, of an input of so many tasks.
pub(super) fn ranges(places: &[usize], count: usize) -> Option<Vec<(usize, usize)>> {
    if places.len() == count {
        return None;
    }
    let runs = places.chunk_by(|one, next| one + 1 == *next);
    Some(runs.filter_map(|run| Some((*run.first()?, run.last()? + 1))).collect())
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
const fn is_zero(count: &usize) -> bool {
    *count == 0
}

mod halt {
    use super::*;

    pub(super) fn serialize<S: Serializer>(halt: &Option<Halt>, to: S) -> Result<S::Ok, S::Error> {
        halt.map(|halt| halt.to_string()).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Halt>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| text.parse().map_err(serde::de::Error::custom)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let text =
            r#"{"digest":"d","retries":2,"halt":"now,fail=10%","concurrency":3,"labels":{},"state":"open","#
                .to_owned()
                + r#""chosen":[[0,2],[5,6]],"excused":1,"starts_nothing":false}"#;
        let record: Record = serde_json::from_str(&text).expect("a record");
        assert_eq!(record.halt, "now,fail=10%".parse().ok());
        assert_eq!(serde_json::to_string(&record).expect("JSON"), text);
        assert_eq!(record.places(6), [0, 1, 5]);
        assert_eq!((ranges(&[0, 1, 5], 6), ranges(&[0, 1], 2)), (record.chosen, None));
        let least = r#"{"digest":"d","retries":0,"concurrency":1,"state":"ended","paused":true}"#;
        let least: Record = serde_json::from_str(least).expect("a record");
        assert_eq!((least.halt, least.places(2)), (None, vec![0, 1]));
    }
}
