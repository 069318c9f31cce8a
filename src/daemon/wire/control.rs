//! The daemon itself: how it is, what it is held to, what was asked of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{BudgetView, Counts, Latch, Tokens, number};

/// Whether a request changed anything. The same again changes nothing, and is no mistake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Changed {
    /// False: it was so already.
    pub changed: bool,
    /// For one run: the place in its log of what was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
}

/// How far a pause goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PauseMode {
    /// Nothing starts; what is live goes on to its end.
    Soft,
    /// What is live is held before its next request, too, and gives its slot up.
    #[default]
    Hold,
}

/// How to pause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Pause {
    /// How far it goes; `hold` if it is not said. One run is always held.
    #[serde(default)]
    pub mode: PauseMode,
}

/// What is paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum GateKind {
    All,
    Batch,
    Model,
}

/// A pause of many runs. Single runs that are paused say so themselves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Gate {
    pub kind: GateKind,
    /// The batch's id or the model's name; absent for all.
    pub name: Option<String>,
    pub mode: PauseMode,
}

/// How the daemon is to stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Stop {
    /// Do not wait for runs to end their turn.
    #[serde(default)]
    pub now: bool,
}

/// Which runs are to be taken off the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"older_than_s": 2_592_000, "keep_failed": true, "dry_run": true}))]
#[serde(deny_unknown_fields)]
pub struct Prune {
    /// Those that ended more than so many seconds ago. Runs of a batch go together, once all of it has ended and is so old.
    #[serde(deserialize_with = "number::required")]
    pub older_than_s: u32,
    /// But not those that did not end as done, nor batches in which a task did not.
    #[serde(default)]
    pub keep_failed: bool,
    /// Only say what would go.
    #[serde(default)]
    pub dry_run: bool,
}

/// What was taken off the record, or would be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PruneReport {
    /// Whether it was only looked.
    pub dry_run: bool,
    /// Runs, those of batches included.
    pub runs: u64,
    /// Batches.
    pub batches: u64,
    /// Batches that are old and stay, since not all of their tasks have ended.
    pub unfinished: u64,
    /// Bytes of the log now. A daemon keeps the room and uses it again; `herder prune` gives it back when no daemon runs.
    pub log_bytes: Option<u64>,
}

/// Answer of `/healthz` and `/readyz`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// `ok`; anything else is a refusal.
    pub status: String,
}

/// How much is going on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Load {
    /// Runs that have a slot.
    pub live: u64,
    /// Runs that wait for one.
    pub queued: u64,
    /// Runs that are held.
    pub held: u64,
    /// Live runs that wait for the model.
    pub thinking: u64,
    /// Live runs whose calls are under way.
    pub acting: u64,
    /// Calls at work.
    pub calls_running: u64,
    /// Calls that wait for a lock or a permit.
    pub calls_waiting: u64,
    /// Calls that people are to decide about.
    #[serde(default)]
    pub approvals: u64,
}

/// How fast it goes, over the last minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Rates {
    /// Turns a second.
    pub turns_per_s: f64,
    /// Tokens a second, both ways.
    pub tokens_per_s: f64,
    /// Runs that ended, a minute.
    pub runs_per_min: f64,
    /// Dollars a minute, where prices are known.
    #[serde(default)]
    pub usd_per_min: f64,
}

/// The daemon in one look.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Status {
    /// The program's version.
    pub version: String,
    /// The version of the API.
    pub api: u32,
    /// Its process.
    pub pid: u32,
    /// Where it keeps its runs.
    pub state: String,
    /// Its socket.
    pub socket: String,
    /// Where else it listens.
    pub listen: Option<String>,
    /// When it was started.
    #[schema(format = DateTime)]
    pub started_at: String,
    /// `starting`, `ready` or `stopping`.
    pub phase: String,
    /// Runs that may have a slot at once.
    pub max_live_runs: u64,
    pub load: Load,
    pub rates: Rates,
    /// All runs of record.
    pub runs: Counts,
    /// Tokens and money of runs that have not ended.
    pub open_usage: Tokens,
    pub open_cost_usd: Option<f64>,
    /// Batches that are being worked on.
    pub open_batches: u64,
    /// What is paused.
    pub paused: Vec<Gate>,
    /// Accounts at providers that are shut.
    #[serde(default)]
    pub shut: Vec<Latch>,
    /// What was spent of the budgets of the process and of users.
    #[serde(default)]
    pub budgets: Vec<BudgetView>,
    /// Connections that follow events.
    pub followers: u64,
    /// Bytes of memory that the process holds.
    pub rss_bytes: Option<u64>,
    /// Bytes of its state folder's log.
    pub log_bytes: Option<u64>,
    /// Why nothing starts and nothing goes on, as that the log's disk is full; absent while all is well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// What can be changed while the daemon runs. What is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"max_live_runs": 40}))]
#[serde(deny_unknown_fields)]
pub struct ConfigPatch {
    /// Runs that may have a slot at once.
    #[serde(default, deserialize_with = "number::whole", skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub max_live_runs: Option<u32>,
    /// Turns that a run submitted from now on may take, if its task does not say.
    #[serde(default, deserialize_with = "number::whole", skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub max_turns: Option<u32>,
    /// Seconds that runs have to reach the end of their turn when the daemon stops.
    #[serde(default, deserialize_with = "number::whole", skip_serializing_if = "Option::is_none")]
    pub drain_s: Option<u32>,
}

/// The configuration in force, without secrets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ConfigView {
    /// Its sections and values.
    #[schema(value_type = Object)]
    pub config: Value,
    /// Where each value comes from, by its dotted name.
    #[schema(value_type = Object)]
    pub sources: Value,
}

/// What became of reading the configuration again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReloadReport {
    /// Keys that changed and are in force now.
    pub applied: Vec<String>,
    /// Keys that changed and take effect at the next start.
    pub at_next_start: Vec<String>,
}

/// Something that was asked of the daemon to change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    /// When it was asked.
    #[schema(format = DateTime)]
    pub at: String,
    /// Who asked: the user's number, absent over TCP.
    pub uid: Option<u32>,
    /// Who asked: the user's name.
    pub user: Option<String>,
    /// What the client calls itself.
    pub client: Option<String>,
    /// What was asked: submit, cancel, pause ...
    pub verb: String,
    /// Of what: a run, a batch, a model.
    pub target: String,
    /// Whether it changed anything.
    pub changed: bool,
    pub detail: Option<String>,
}

/// Entries, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditList {
    pub entries: Vec<AuditEntry>,
}

/// What runs came to, of one group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StatsRow {
    /// The group: a model, a batch, a day, a label's value.
    pub group: String,
    pub runs: u64,
    /// Those that ended, by outcome.
    pub ended: BTreeMap<String, u64>,
    pub turns: u64,
    pub calls: u64,
    pub usage: Tokens,
    pub cost_usd: Option<f64>,
    /// Milliseconds of the median and of the slowest hundredth of runs that ended.
    pub p50_ms: Option<u64>,
    pub p99_ms: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StatsList {
    pub by: String,
    pub rows: Vec<StatsRow>,
}
