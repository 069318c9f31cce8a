//! How far a batch is, in numbers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::board::Standing;
use crate::{
    actor::supervisor::Wait,
    domain::{
        id::BatchId,
        time::Timestamp,
        usage::{NanoUsd, Usage},
    },
};

/// What has become of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchState {
    /// It goes on.
    Open,
    /// Somebody ended it: what had not started never does.
    Cancelled,
    /// Nothing is left to do, or it gave up.
    Ended,
}

/// How far a batch is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Status {
    pub id: BatchId,
    pub name: String,
    pub key: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub created_at: Timestamp,
    pub state: BatchState,
    /// Runs that may be in flight at once.
    pub concurrency: usize,
    #[serde(flatten)]
    pub counts: Counts,
    /// Of those in flight, the runs that have a slot.
    pub running: usize,
    /// What those wait for that have none, and are held by no person.
    #[serde(skip)]
    pub waits: Vec<Wait>,
    /// Requests of its runs that failed and were sent again, since this process began.
    pub retries: u64,
    /// The most that all of it may cost.
    pub max_cost: Option<NanoUsd>,
    /// Too many tasks were not done.
    pub halted: bool,
    /// What has not started waits for a larger budget.
    pub unaffordable: bool,
    /// Why it does not go on, though it is open, or what could not be gone on with. Not told while somebody works on it.
    pub error: Option<String>,
    /// How often it has come to its end since this process began.
    #[serde(skip)]
    pub ends: u64,
}

/// The tasks of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    pub tasks: usize,
    /// Tasks that wait for their first attempt, or their next.
    pub waiting: usize,
    /// Tasks with a run that is submitted and not over.
    pub in_flight: usize,
    /// Settled tasks, by the outcome of their latest attempt.
    pub settled: BTreeMap<String, usize>,
    /// What all attempts that have ended used up.
    pub usage: Usage,
}

impl Counts {
    pub(super) fn enter(&mut self, standing: Standing) {
        match standing {
            Standing::Waiting | Standing::Retrying => self.waiting += 1,
            Standing::InFlight => self.in_flight += 1,
            Standing::Left => {}
            Standing::Settled(_, outcome) => {
                *self.settled.entry(outcome.as_str().to_owned()).or_default() += 1;
            }
        }
    }

    pub(super) fn leave(&mut self, standing: Standing) {
        match standing {
            Standing::Waiting | Standing::Retrying => self.waiting -= 1,
            Standing::InFlight => self.in_flight -= 1,
            Standing::Left => {}
            Standing::Settled(_, outcome) => {
                if let Some(count) = self.settled.get_mut(outcome.as_str()) {
                    *count -= 1;
                    if *count == 0 {
                        self.settled.remove(outcome.as_str());
                    }
                }
            }
        }
    }
}
