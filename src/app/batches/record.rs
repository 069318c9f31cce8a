//! What is of record of a batch beside its tasks: the options of its row in the log.
//!
//! A stored format: fields are added with a default, never renamed.

use std::{collections::BTreeMap, num::NonZeroUsize};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::status::{BatchState, Counts};
use crate::domain::batch::{Halt, HaltAfter, HaltHow};

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
    #[serde(default)]
    pub(super) labels: BTreeMap<String, String>,
    pub(super) state: BatchState,
    #[serde(default)]
    pub(super) paused: bool,
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

mod halt {
    use super::*;

    pub(super) fn serialize<S: Serializer>(halt: &Option<Halt>, to: S) -> Result<S::Ok, S::Error> {
        halt.map(written).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Halt>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| text.parse().map_err(serde::de::Error::custom)).transpose()
    }

    /// As [`Halt`] reads it.
    fn written(halt: Halt) -> String {
        let how = match halt.how {
            HaltHow::Soon => "soon",
            HaltHow::Now => "now",
        };
        match halt.after {
            HaltAfter::Tasks(count) => format!("{how},fail={count}"),
            HaltAfter::PercentOfAll(percent) => format!("{how},fail={percent}%"),
        }
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
                + r#""paused":false,"starts_nothing":false}"#;
        let record: Record = serde_json::from_str(&text).expect("a record");
        assert_eq!(record.halt, "now,fail=10%".parse().ok());
        assert_eq!(serde_json::to_string(&record).expect("JSON"), text);
        let least = r#"{"digest":"d","retries":0,"concurrency":1,"state":"ended"}"#;
        assert_eq!(serde_json::from_str::<Record>(least).expect("a record").halt, None);
    }
}
