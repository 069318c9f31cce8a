//! Events, as a stream has them.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::schema;

/// One event of a stream: its fields as server-sent events have them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StreamEvent {
    /// The place to go on from. Only what is of record has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Its kind.
    pub event: String,
    /// JSON: an [`EventView`] if it has an id.
    #[schema(schema_with = schema::json_text)]
    pub data: String,
}

/// An event of record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EventView {
    /// The version of its form.
    pub v: u32,
    /// Its place among all events.
    pub pos: u64,
    /// The run that it happened in.
    #[schema(format = "uuid")]
    pub run: String,
    /// Its place in the run's log; the first is 1.
    pub seq: u64,
    /// When it happened.
    #[schema(format = DateTime)]
    pub at: String,
    /// The turn that it happened in; 0: before the first.
    pub turn: u32,
    /// What happened, as `run_start` or `tool_end`.
    pub kind: String,
    /// The rest, by kind.
    #[schema(value_type = Object)]
    pub data: Value,
}
