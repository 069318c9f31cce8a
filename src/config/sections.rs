//! The sections of the configuration, typed. What each key means, and its default, stands in `config/default.toml`.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
    time::Duration,
};

use serde::Deserialize;

use super::{ConfigError, Network, Secret};
use crate::domain::{
    admission::Slots,
    budget::{Period, UserBudget},
    call::EffectClass,
    restart::RestartPolicy,
    task::{Isolate, OnTruncated, Params, ResponseFormat},
    usage::{Limits, NanoUsd, dollars},
};

/// What a task has that does not say otherwise.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Defaults {
    pub model: Option<String>,
    pub system: Option<String>,
    pub workspace: Option<PathBuf>,
    #[serde(default)]
    pub isolate: Isolate,
    pub tools: Option<Vec<String>>,
    /// The name of a built-in policy, or the path of a file with rules.
    pub policy: String,
    pub priority: i32,
    pub labels: BTreeMap<String, String>,
    pub facts: BTreeMap<String, String>,
    pub limits: Limits,
    pub params: Params,
    pub response_format: Option<ResponseFormat>,
    #[serde(default)]
    pub on_truncated: OnTruncated,
    #[serde(default)]
    pub stop_on_tool_error: bool,
}

/// How runs are looked after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Supervisor {
    pub max_live_runs: Slots,
    pub restart: RestartPolicy,
    shards: usize,
    grace_s: u64,
    drain_s: u64,
    /// What may be spent from the start of the process on.
    #[serde(default, deserialize_with = "dollars::deserialize")]
    pub max_cost_usd: Option<NanoUsd>,
}

/// What users may spend.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// The user's name, or * for each who has none of the period by name.
    pub user: String,
    pub per: Period,
    #[serde(deserialize_with = "dollars::deserialize")]
    usd: Option<NanoUsd>,
}

impl From<&Budget> for UserBudget {
    fn from(budget: &Budget) -> Self {
        let user = (budget.user != "*").then(|| budget.user.as_str().into());
        Self { user, per: budget.per, cap: budget.usd.unwrap_or_default() }
    }
}

impl Supervisor {
    /// How many supervisors share the live runs.
    pub fn shards(&self) -> NonZeroUsize {
        NonZeroUsize::new(self.shards)
            .or_else(|| std::thread::available_parallelism().ok())
            .unwrap_or(NonZeroUsize::MIN)
    }

    /// How long a cancelled tool has to end by itself.
    pub const fn grace(&self) -> Duration {
        Duration::from_secs(self.grace_s)
    }

    /// How long runs have to reach the end of their turn when herder stops.
    pub const fn drain(&self) -> Duration {
        Duration::from_secs(self.drain_s)
    }
}

/// Whether people are asked about calls that policy leaves to them, where there are any to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Approvals {
    /// If not, those calls are denied.
    pub ask: bool,
    expire_s: Option<NonZeroU32>,
}

impl Approvals {
    /// How long they have to answer before a call is denied.
    pub fn expire(&self) -> Option<Duration> {
        self.expire_s.map(|seconds| Duration::from_secs(u64::from(seconds.get())))
    }
}

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timeouts {
    pub(super) stall_s: u64,
    pub(super) stall_warn_s: u64,
    turn_s: Option<u64>,
    first_token_s: Option<u64>,
    tool_s: u64,
}

impl Timeouts {
    /// Without progress of the model for this long, the request is given up.
    pub const fn stall(&self) -> Duration {
        Duration::from_secs(self.stall_s)
    }

    /// Without progress of the model for this long, a person is warned.
    pub const fn stall_warn(&self) -> Duration {
        Duration::from_secs(self.stall_warn_s)
    }

    /// For one whole answer.
    pub fn turn(&self) -> Option<Duration> {
        self.turn_s.map(Duration::from_secs)
    }

    /// Until the first word of an answer.
    pub fn first_token(&self) -> Option<Duration> {
        self.first_token_s.map(Duration::from_secs)
    }

    /// For one tool call.
    pub const fn tool(&self) -> Duration {
        Duration::from_secs(self.tool_s)
    }
}

/// What tools may use, and what they show.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tools {
    pub max_parallel: NonZeroUsize,
    pub output_lines: NonZeroUsize,
    pub output_bytes: NonZeroUsize,
    pub line_chars: NonZeroUsize,
    bash_timeout_s: NonZeroU32,
    pub env_pass: Vec<String>,
    pub read_roots: Vec<PathBuf>,
    pub process: ProcessLimits,
}

impl Tools {
    /// For one command of `bash` that does not say otherwise.
    pub fn bash_timeout(&self) -> Duration {
        Duration::from_secs(self.bash_timeout_s.get().into())
    }
}

/// What the processes of one command may use up. What is absent is not limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessLimits {
    pub memory_mib: Option<u64>,
    pub cpu_s: Option<u64>,
    pub processes: Option<u64>,
    pub file_size_mib: Option<u64>,
}

/// How a run's own workspace is made, and what becomes of it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Isolation {
    pub base: Option<String>,
    pub branch: String,
    pub setup: Option<String>,
    setup_timeout_s: NonZeroU32,
    pub copy: Vec<String>,
    max_copy_mib: u64,
    pub keep: Keep,
}

impl Isolation {
    /// For the setup command.
    pub fn setup_timeout(&self) -> Duration {
        Duration::from_secs(self.setup_timeout_s.get().into())
    }

    /// What one copy may have.
    pub const fn max_copy_bytes(&self) -> u64 {
        self.max_copy_mib.saturating_mul(1 << 20)
    }
}

/// Which workspaces stay once their run has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Keep {
    /// Those of runs that are not done.
    Failed,
    Always,
    Never,
}

/// How the log is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Store {
    pub durability: Durability,
}

/// What a stored event survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// A loss of power.
    Power,
    /// The end of the process, however it ends.
    Process,
}

/// How `herder serve` is reached, beside its socket.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Daemon {
    pub listen: Option<SocketAddr>,
    pub token_file: Option<PathBuf>,
    /// What whoever shows the token may do.
    pub tcp_role: Role,
    pub group: Option<String>,
    pub max_connections: NonZeroUsize,
    /// What others than the daemon's own user may do, by user name or number.
    pub roles: BTreeMap<String, Role>,
}

/// What a user may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Look.
    Viewer,
    /// Submit, steer, cancel, pause and retune, too.
    Operator,
    /// Answer what a run asks leave for, too.
    Approver,
}

/// Somebody to tell when something happens.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Notify {
    /// What they want to hear of.
    pub on: Vec<Occasion>,
    /// A program that is started, and its arguments; it gets the news as JSON on its stdin.
    #[serde(default)]
    pub command: Vec<String>,
    /// Where the news is posted as JSON.
    pub url: Option<Secret>,
}

/// What can be worth telling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Occasion {
    /// A batch has ended, however it did.
    BatchEnd,
    /// A run has ended otherwise than done.
    RunFailed,
    /// An account at a provider is shut.
    LatchClosed,
    /// More than 80 % of a budget is spent.
    #[serde(rename = "cap-80")]
    Cap80,
    /// A run asks people about a call.
    ApprovalWanted,
}

impl Occasion {
    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BatchEnd => "batch-end",
            Self::RunFailed => "run-failed",
            Self::LatchClosed => "latch-closed",
            Self::Cap80 => "cap-80",
            Self::ApprovalWanted => "approval-wanted",
        }
    }
}

/// What is told about herder itself.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Telemetry {
    /// A level, or directives for parts of the program.
    pub log: String,
    pub log_format: LogFormat,
}

/// Who log lines are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// People.
    Text,
    /// Programs.
    Json,
}

/// A tool that is a command of the user's. The call's arguments are its stdin, as JSON.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandTool {
    pub description: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    pub schema: Schema,
    /// What a call does to the world, at most.
    #[serde(default = "outside")]
    pub effect: EffectClass,
    /// Whether calls may share the workspace with others that only read.
    #[serde(default)]
    pub read_only: bool,
    /// As `[confine]` says if left out.
    pub network: Option<Network>,
    timeout_s: Option<u64>,
    /// Where it is configured, for errors.
    #[serde(skip)]
    pub place: String,
}

impl CommandTool {
    /// How long a call may take, where the tool says so itself.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout_s.map(Duration::from_secs)
    }
}

const fn outside() -> EffectClass {
    EffectClass::Outside
}

/// The JSON Schema of a tool's arguments: in place, or in a file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged, expecting = "want a table with a JSON Schema, or the path of a JSON file with one")]
pub enum Schema {
    File(PathBuf),
    Inline(serde_json::Map<String, serde_json::Value>),
}

impl Schema {
    /// The schema itself, read from its file if it has one.
    ///
    /// # Errors
    /// A file that cannot be read or is no JSON object.
    pub fn read(&self) -> Result<serde_json::Value, ConfigError> {
        let path = match self {
            Self::Inline(schema) => return Ok(schema.clone().into()),
            Self::File(path) => path,
        };
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Read { path: path.clone(), source })?;
        let schema: serde_json::Map<_, _> = serde_json::from_str(&text).map_err(|error| {
            let place = format!("{}:{}", path.display(), error.line());
            let what = format!("{error}; want a JSON object with a JSON Schema");
            ConfigError::Invalid { place, field: String::new(), what }
        })?;
        Ok(schema.into())
    }
}
