//! The command line's vocabulary that several commands share. Each flag that stands for a key of the configuration
//! becomes one, so that a flag and a file are two ways to say the same thing.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};

use crate::{
    actor::run::Form,
    config::{Config, Flag},
    domain::{
        batch::RetryFailed,
        task::{Isolate, ResponseFormat},
        usage::NanoUsd,
    },
};

mod confine;
mod filter;

pub use confine::ConfineArgs;
pub(super) use filter::since;
pub use filter::{FilterArgs, OriginArgs, Since, StandingArg};

/// Flags of every command, before or after its name.
#[derive(Clone, Debug, Args)]
pub struct GlobalArgs {
    /// Read this configuration over the user's own
    #[arg(long, global = true, value_name = "FILE", help_heading = "Everywhere")]
    pub config: Option<PathBuf>,
    /// What calls may do: read-only, edit-workspace, careful, trusted, or a file with rules
    #[arg(long, global = true, value_name = "NAME|FILE", help_heading = "Everywhere")]
    pub policy: Option<String>,
    /// The folder that holds the log of runs
    #[arg(long, global = true, value_name = "DIR", help_heading = "Everywhere")]
    pub state: Option<PathBuf>,
    /// The daemon's socket [env: HERDER_SOCKET]
    #[arg(long, global = true, value_name = "PATH", help_heading = "Everywhere")]
    pub socket: Option<PathBuf>,
}

impl GlobalArgs {
    /// The socket that was named, by the flag or by the variable.
    pub(super) fn socket(&self) -> Option<PathBuf> {
        let variable =
            || std::env::var_os("HERDER_SOCKET").filter(|path| !path.is_empty()).map(PathBuf::from);
        self.socket.clone().or_else(variable)
    }

    pub(super) fn flags(&self, flags: &mut Vec<Flag>) {
        flags.extend(self.policy.as_deref().map(|name| Flag::new("--policy", &["defaults", "policy"], name)));
    }
}

/// What a task has that does not say otherwise.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Tasks that do not say otherwise")]
pub struct TaskArgs {
    /// Ask this model: `provider:model`, or the name of a [models.NAME] table
    #[arg(long, short, value_name = "NAME")]
    pub model: Option<String>,
    /// Rules for the model, beside herder's own
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    /// The tools that the model may use, as read,grep,edit
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub tools: Option<Vec<String>>,
    /// The folder that tools work in [default: the current folder]
    #[arg(long, short, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    /// Give each run a workspace of its own, made from that folder
    #[arg(long, value_name = "HOW")]
    pub isolate: Option<IsolateArg>,
    /// The JSON Schema that a run's last answer must fit, in this file
    #[arg(long, value_name = "FILE", value_parser = schema)]
    pub schema: Option<ResponseFormat>,
    /// Turns that a run may take
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_turns: Option<u32>,
    /// Time that a run may take, as 90s or 10m; what passes while herder is down does not count
    ///
    /// Nor does, where herder was killed, what had passed since its last record of the run.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// Dollars that a run may cost
    #[arg(long, value_name = "USD", value_parser = usd)]
    pub run_max_cost: Option<NanoUsd>,
    /// Time without progress of the model after which a request is given up
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub stall: Option<Duration>,
    /// Runs with a higher one start first
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub priority: Option<i32>,
    /// A name and a value to find runs by; may be given more than once
    #[arg(long = "label", short = 'l', value_name = "NAME=VALUE", value_parser = label)]
    pub labels: Vec<(String, String)>,
}

impl TaskArgs {
    /// What no key of the configuration can say: TOML has no null, and a schema may.
    pub(super) fn fill(&self, config: &mut Config) {
        if self.schema.is_some() {
            config.defaults.response_format.clone_from(&self.schema);
        }
    }

    pub(super) fn flags(&self, flags: &mut Vec<Flag>) {
        let text = |flag, key, value: &Option<String>| {
            value.as_deref().map(|value| Flag::new(flag, &["defaults", key], value))
        };
        flags.extend(text("--model", "model", &self.model));
        flags.extend(text("--system", "system", &self.system));
        let workspace = self.workspace.as_ref().map(|path| path.to_string_lossy().into_owned());
        flags.extend(text("--workspace", "workspace", &workspace));
        flags.extend(
            self.isolate
                .map(|how| Flag::new("--isolate", &["defaults", "isolate"], Isolate::from(how).as_str())),
        );
        flags.extend(self.tools.clone().map(|tools| Flag::new("--tools", &["defaults", "tools"], tools)));
        let limit = |flag, key, value: i64| Flag::new(flag, &["defaults", "limits", key], value);
        flags.extend(self.max_turns.map(|turns| limit("--max-turns", "max_turns", turns.into())));
        flags.extend(self.timeout.map(|time| limit("--timeout", "wall_time_s", seconds(time))));
        flags
            .extend(self.run_max_cost.map(|cost| {
                Flag::new("--run-max-cost", &["defaults", "limits", "max_cost_usd"], cost.usd())
            }));
        if let Some(time) = self.stall {
            // Who sets the one has an opinion of the other, which must not be later.
            flags.push(Flag::new("--stall", &["timeouts", "stall_s"], seconds(time)));
            flags.push(Flag::new("--stall", &["timeouts", "stall_warn_s"], seconds(time / 2)));
        }
        flags.extend(
            self.priority.map(|value| Flag::new("--priority", &["defaults", "priority"], i64::from(value))),
        );
        flags.extend(
            self.labels
                .iter()
                .map(|(name, value)| Flag::new("--label", &["defaults", "labels", name], value.as_str())),
        );
    }
}

/// Who decides about calls that policy leaves to people.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Calls that people decide about")]
pub struct AskArgs {
    /// Have runs wait for people who answer with `herder approve` and `herder reject`; else such a call is denied
    #[arg(long)]
    pub park: bool,
    /// Time to answer in, after which the call is denied; for calls asked about from now on
    ///
    /// A call that people were asked about before keeps the time that it was given then.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub approval_timeout: Option<Duration>,
}

impl AskArgs {
    pub(super) fn flags(&self, flags: &mut Vec<Flag>) {
        flags.extend(
            self.approval_timeout
                .map(|time| Flag::new("--approval-timeout", &["approvals", "expire_s"], seconds(time))),
        );
    }
}

/// Where a run works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum IsolateArg {
    /// In the folder itself, with the others
    None,
    /// In a copy of the folder
    Copy,
    /// In a git worktree of the folder's repository, on a branch of its own
    Worktree,
}

impl From<IsolateArg> for Isolate {
    fn from(arg: IsolateArg) -> Self {
        match arg {
            IsolateArg::None => Self::None,
            IsolateArg::Copy => Self::Copy,
            IsolateArg::Worktree => Self::Worktree,
        }
    }
}

/// How the work is kept.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Log and metrics")]
pub struct KeepArgs {
    /// What an event of record survives
    #[arg(long, value_name = "WHAT")]
    pub durability: Option<DurabilityArg>,
    /// Time that runs have to reach the end of their turn when herder is told to stop
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub drain: Option<Duration>,
}

/// How the work is kept and watched.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Log and metrics")]
pub struct WorkArgs {
    #[command(flatten)]
    pub keep: KeepArgs,
    /// Serve Prometheus metrics at this address of this machine, as 127.0.0.1:9090
    #[arg(long, value_name = "ADDR")]
    pub metrics: Option<std::net::SocketAddr>,
}

impl WorkArgs {
    pub(super) fn flags(&self, flags: &mut Vec<Flag>) {
        self.keep.flags(flags);
    }
}

impl KeepArgs {
    pub(super) fn flags(&self, flags: &mut Vec<Flag>) {
        flags.extend(self.durability.map(|durability| {
            let name = match durability {
                DurabilityArg::Power => "power",
                DurabilityArg::Process => "process",
            };
            Flag::new("--durability", &["store", "durability"], name)
        }));
        flags.extend(self.drain.map(|time| Flag::new("--drain", &["supervisor", "drain_s"], seconds(time))));
    }
}

/// What a stored event survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DurabilityArg {
    /// A loss of power
    Power,
    /// The end of the process; faster on slow disks
    Process,
}

fn seconds(time: Duration) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}

/// Reads a length of time: seconds, or numbers with units.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let time = match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => text.parse::<jiff::SignedDuration>().ok().and_then(|time| Duration::try_from(time).ok()),
    };
    time.filter(|time| time.as_secs() > 0)
        .ok_or_else(|| "want at least a second, as 90, 90s, 10m or 1h30m".to_owned())
}

/// Reads the form of an answer: the JSON Schema in a file.
fn schema(path: &str) -> Result<ResponseFormat, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot be read: {error}"))?;
    let schema = serde_json::from_str(&text).map_err(|error| format!("is no JSON: {error}"))?;
    let form = ResponseFormat::of_schema(schema);
    Form::of(&form).map(|_| form)
}

/// Reads which ended tasks get another attempt.
pub(super) fn retry_failed(class: &str) -> Result<RetryFailed, String> {
    if class == "all" {
        return Ok(RetryFailed::All);
    }
    let names = || RetryFailed::names().collect::<Vec<_>>().join(", ");
    RetryFailed::named(class).ok_or_else(|| format!("want nothing, or one of {}", names()))
}

/// Reads an amount of dollars.
pub(super) fn usd(text: &str) -> Result<NanoUsd, String> {
    let usd: Option<f64> = text.strip_prefix('$').unwrap_or(text).parse().ok();
    let usd = usd.filter(|usd| usd.is_finite() && *usd >= 0.0);
    usd.map(NanoUsd::from_usd).ok_or_else(|| "want US dollars, as 5 or 0.50".to_owned())
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        Some(_) | None => Err("want a name and a value, as team=search".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_seconds_or_numbers_with_units() {
        assert_eq!(duration("90"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("10m"), Ok(Duration::from_secs(600)));
        assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5400)));
        for wrong in ["", "0", "-5s", "soon", "200ms"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_label_has_a_name_and_a_value() {
        assert_eq!(label("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert!(label("=b").is_err() && label("a").is_err());
    }
}
