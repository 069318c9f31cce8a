//! Models and the accounts they are asked by, and the money that is spent there.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::PauseMode;
use crate::config::Key;

/// Why an account at a provider is asked nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LatchReason {
    /// The server wants to be left alone for long.
    RateLimit,
    /// Money or quota is used up.
    Quota,
    /// The key is refused.
    Auth,
}

/// An account at a provider that is shut: its runs wait without a slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Latch {
    /// The account.
    pub account: String,
    pub reason: LatchReason,
    /// When it opens by itself. `null`: when somebody resumes one of its models.
    #[schema(format = DateTime)]
    pub until: Option<String>,
    /// What the server said.
    pub said: String,
}

/// How much is asked of a model now, and of those that share its limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ModelLoad {
    /// Requests that may be out at once. `null`: any number.
    pub limit: Option<u32>,
    /// Turns that have a place, those that wait to ask again included.
    pub in_flight: u32,
    /// Turns that wait for a place.
    pub waiting: u32,
    /// Turns that have a place and wait until they may send.
    pub held_back: u32,
    /// Runs that were started and have not asked yet.
    pub pledged: u32,
    /// Requests that may be sent in the minute to come. `null`: any number.
    pub requests_left: Option<u64>,
    /// Tokens that may be sent in the minute to come. `null`: any number.
    pub tokens_left: Option<u64>,
    /// Times that the limit was lowered.
    pub cuts: u64,
}

/// Whether there is a model's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeyState {
    Found,
    Missing,
    /// It has none, and nobody said that it should.
    None,
}

impl From<&Key> for KeyState {
    fn from(key: &Key) -> Self {
        match key {
            Key::Found(_) => Self::Found,
            Key::Missing(_) => Self::Missing,
            Key::None => Self::None,
        }
    }
}

/// A model that runs can ask.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ModelView {
    /// What runs call it.
    pub name: String,
    /// Who serves it.
    pub provider: String,
    /// What its server calls it.
    pub model: String,
    /// The address of its server, without what is secret in it.
    #[serde(default)]
    pub server: Option<String>,
    /// Whether the daemon has its key. `null`: the configuration does not know the model any more.
    #[serde(default)]
    pub key: Option<KeyState>,
    /// What it shares its limits with.
    #[serde(default)]
    pub account: Option<String>,
    /// Tokens that a request and its answer may have together.
    pub context_window: Option<u64>,
    /// Tokens that an answer may have.
    #[serde(default)]
    pub max_output_tokens: Option<u32>,
    /// Dollars for a million tokens.
    pub input_usd_per_mtok: Option<f64>,
    #[serde(default)]
    pub cached_usd_per_mtok: Option<f64>,
    #[serde(default)]
    pub cache_write_usd_per_mtok: Option<f64>,
    pub output_usd_per_mtok: Option<f64>,
    /// Requests that may be sent in a minute, as configured.
    #[serde(default)]
    pub requests_per_minute: Option<u32>,
    /// Tokens that may be sent in a minute, as configured.
    #[serde(default)]
    pub tokens_per_minute: Option<u64>,
    /// Requests that may be out at once, as configured.
    #[serde(default)]
    pub max_concurrency: Option<u32>,
    /// Models that go on, in this order, with a run that this one is given up for.
    #[serde(default)]
    pub fallbacks: Vec<String>,
    /// How it is paused, if it is.
    pub paused: Option<PauseMode>,
    /// Why its account is shut, if it is.
    #[serde(default)]
    pub latched: Option<Latch>,
    /// How much is asked of it. `null`: no run has named it since the daemon started.
    #[serde(default)]
    pub load: Option<ModelLoad>,
    /// Open runs that ask it.
    pub open_runs: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ModelList {
    pub models: Vec<ModelView>,
}

/// Whose money is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BudgetKind {
    /// All of the daemon, from its start on.
    Process,
    /// A user, in one period.
    User,
}

/// What was spent of a budget.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BudgetView {
    pub kind: BudgetKind,
    /// The user, if it is one's.
    pub user: Option<String>,
    /// When it counts anew, if it ever does.
    #[schema(format = DateTime)]
    pub until: Option<String>,
    pub spent_usd: f64,
    /// What requests under way may come to.
    pub reserved_usd: f64,
    /// The most that may be spent. `null`: there is no limit.
    pub cap_usd: Option<f64>,
}
