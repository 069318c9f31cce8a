//! Batches, as they are submitted and shown.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{Tokens, number, schema};
use crate::domain::event::ParkReason;

/// How a batch is worked on: parameters of its submission.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, IntoParams, ToSchema)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct BatchOptions {
    /// What it is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Runs of it that are under way at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, example = 8)]
    pub concurrency: Option<u32>,
    /// US dollars that all of it may cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 0, example = 5.0)]
    pub max_cost_usd: Option<f64>,
    /// Further attempts at a task that failed in a way that may pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
    /// When to give up, as `soon,fail=10%`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(pattern = "^(soon|now),fail=[1-9][0-9]?%?$", example = "soon,fail=10%")]
    pub halt: Option<String>,
    /// When it is submitted again: give tasks that are not done another attempt; `all`, or an outcome or detail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(schema_with = schema::retry_failed)]
    pub retry_failed: Option<String>,
    /// When it is submitted again: start tasks again whose line has changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_stale: Option<bool>,
    /// Only tasks of these ids are worked on, the others are left as they are; may come more than once. Absent: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[param(style = Form, explode)]
    pub only: Vec<String>,
    /// Of those at most this many, the first ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<u32>,
}

/// How far a batch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BatchState {
    /// It is being worked on.
    Open,
    /// It is held.
    Paused,
    /// Every task that was to run has ended.
    Ended,
    /// Somebody ended it.
    Cancelled,
    /// Too many tasks failed.
    Halted,
    /// It cannot go on; `error` says why.
    Broken,
}

/// What a run waits for that gave its slot up, or has had none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WaitReason {
    /// A person who resumes it, or what it belongs to.
    Paused,
    /// The time at which the provider wants to be asked again.
    RateLimit,
    /// Money or quota at the provider.
    Quota,
    /// A key that the provider accepts.
    Auth,
    /// A larger budget.
    Budget,
    /// A person who decides about a call.
    Approval,
}

/// Runs that wait for the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BatchWait {
    pub reason: WaitReason,
    /// When the first of them goes on by itself. `null`: when somebody sees to it.
    #[schema(format = DateTime)]
    pub until: Option<String>,
    /// How many they are.
    pub runs: u64,
}

impl From<ParkReason> for WaitReason {
    fn from(reason: ParkReason) -> Self {
        match reason {
            ParkReason::Paused => Self::Paused,
            ParkReason::RateLimit => Self::RateLimit,
            ParkReason::Quota => Self::Quota,
            ParkReason::Auth => Self::Auth,
            ParkReason::Budget => Self::Budget,
            ParkReason::Approval => Self::Approval,
        }
    }
}

impl From<WaitReason> for ParkReason {
    fn from(reason: WaitReason) -> Self {
        match reason {
            WaitReason::Paused => Self::Paused,
            WaitReason::RateLimit => Self::RateLimit,
            WaitReason::Quota => Self::Quota,
            WaitReason::Auth => Self::Auth,
            WaitReason::Budget => Self::Budget,
            WaitReason::Approval => Self::Approval,
        }
    }
}

/// A batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BatchView {
    /// Its id.
    #[schema(format = "uuid")]
    pub id: String,
    /// What it is called.
    pub name: String,
    /// How far it is.
    pub state: BatchState,
    /// When it was submitted.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// Tasks in it.
    pub tasks: u64,
    /// Tasks that have not started.
    pub waiting: u64,
    /// Tasks whose run has been submitted and has not ended.
    pub open: u64,
    /// Those of them that have a slot.
    #[serde(default)]
    pub running: u64,
    /// What those of them wait for that have none and are held by no person.
    #[serde(default)]
    pub waits: Vec<BatchWait>,
    /// Requests of its runs that failed and were sent again, since the daemon started.
    #[serde(default)]
    pub retries: u64,
    /// Tasks that have ended, by outcome.
    pub ended: BTreeMap<String, u64>,
    /// Runs of it that are under way at once.
    pub concurrency: Option<u32>,
    /// Tokens used up so far, by runs that have ended.
    pub usage: Tokens,
    /// What they cost, where the price is known.
    pub cost_usd: Option<f64>,
    /// US dollars that all of it may cost. `null`: any number.
    #[serde(default)]
    pub max_cost_usd: Option<f64>,
    /// What it needs before its other tasks are started, if that is not time: `budget: cost`.
    #[serde(default)]
    pub waits_for: Option<String>,
    /// Why it cannot be worked on.
    pub error: Option<String>,
}

/// Batches, oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BatchList {
    pub batches: Vec<BatchView>,
}

/// What is changed of a batch. What is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchPatch {
    /// Runs of it that are under way at once.
    #[serde(default, deserialize_with = "number::whole", skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub concurrency: Option<u32>,
    /// US dollars that all of it may cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub max_cost_usd: Option<f64>,
}
