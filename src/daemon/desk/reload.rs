//! The configuration, read again or changed while runs are at work.
//!
//! What can change without stopping anything does; the rest is told, and takes effect at the next start. A change by
//! a client is a layer above all others, until the daemon stops.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError},
};

use serde_json::Value;

use super::{By, Desk, list::refuse, submit::invalid};
use crate::{
    config::{self, Config, Effective, Files, Flag},
    daemon::wire::{ApiError, Changed, Code, ConfigPatch, ConfigView, ReloadReport},
    domain::{admission::Slots, budget::Node},
};

/// Where a value comes from that a client changed.
const LIVE: &str = "a client's change";

/// Keys, or sections of them, that take effect at once.
const LIVE_KEYS: &[&str] = &[
    "defaults.model",
    "defaults.system",
    "defaults.workspace",
    "defaults.isolate",
    "defaults.tools",
    "defaults.priority",
    "defaults.labels",
    "defaults.facts",
    "defaults.limits",
    "defaults.params",
    "defaults.response_format",
    "defaults.on_truncated",
    "defaults.stop_on_tool_error",
    "models",
    "notify",
    "retention",
    "supervisor.max_live_runs",
    "supervisor.max_cost_usd",
    "supervisor.drain_s",
    "budget",
];

/// What is new.
enum Change {
    /// What the files say.
    Files,
    /// What a client says.
    Flags(Vec<Flag>),
}

impl Desk {
    /// The configuration in force, without secrets.
    pub fn config_view(&self) -> ConfigView {
        let effective = self.config.read().unwrap_or_else(PoisonError::into_inner).1.clone();
        let mut view = effective.to_json();
        ConfigView { config: view["config"].take(), sources: view["sources"].take() }
    }

    /// Reads the configuration again.
    ///
    /// # Errors
    /// It has a mistake; then nothing was changed.
    pub async fn reload(self: &Arc<Self>, by: &By) -> Result<ReloadReport, ApiError> {
        let report = self.apply(Change::Files).await?;
        self.take_up_the_rest().await;
        self.audit(by, "reload", "config", !report.applied.is_empty(), Some(report.applied.join(", ")));
        Ok(report)
    }

    /// Changes values until the daemon stops. What the files say by now does not matter.
    ///
    /// # Errors
    /// A value is none; then nothing was changed.
    pub async fn change_config(self: &Arc<Self>, patch: &ConfigPatch, by: &By) -> Result<Changed, ApiError> {
        let ConfigPatch { max_live_runs, max_turns, drain_s } = *patch;
        if max_live_runs == Some(0) || max_turns == Some(0) {
            return Err(refuse("max_live_runs, max_turns", "want at least 1"));
        }
        let flag = |path: &[&str], value: u32| Flag::new(LIVE, path, i64::from(value));
        let flags: Vec<Flag> = [
            max_live_runs.map(|value| flag(&["supervisor", "max_live_runs"], value)),
            max_turns.map(|value| flag(&["defaults", "limits", "max_turns"], value)),
            drain_s.map(|value| flag(&["supervisor", "drain_s"], value)),
        ]
        .into_iter()
        .flatten()
        .collect();
        let told: Vec<_> =
            flags.iter().map(|flag| format!("{}={}", flag.path.join("."), flag.value)).collect();
        let changed = !self.apply(Change::Flags(flags)).await?.applied.is_empty();
        self.audit(by, "set", "config", changed, Some(told.join(" ")));
        Ok(Changed { changed, seq: None })
    }

    /// Off the async threads: files are read, here or for keys of models.
    async fn apply(self: &Arc<Self>, change: Change) -> Result<ReloadReport, ApiError> {
        let desk = self.clone();
        let applied = tokio::task::spawn_blocking(move || desk.apply_now(change)).await;
        applied.unwrap_or_else(|error| Err(ApiError::new(Code::Internal, error.to_string())))
    }

    fn apply_now(&self, change: Change) -> Result<ReloadReport, ApiError> {
        // Held to the end: two changes at once would lose one.
        let mut layers = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut sources, mut files) = layers.clone();
        match change {
            Change::Files => files = Files::read(&sources).map_err(|error| invalid(&error))?,
            Change::Flags(flags) => {
                sources
                    .flags
                    .retain(|old| !flags.iter().any(|new| new.name == old.name && new.path == old.path));
                sources.flags.extend(flags);
            }
        }
        let (config, effective) = config::merge(&sources, &files).map_err(|error| invalid(&error))?;
        self.herder.replace_models(&config).map_err(|error| invalid(&error))?;
        let report = self.compare(&effective);
        let slots = config.supervisor.max_live_runs;
        self.herder.supervisor.set_max_live_runs(slots.most().get());
        self.herder.supervisor.follow_models(matches!(slots, Slots::Follow { .. }));
        self.herder.supervisor.set_cap(Node::Process, config.supervisor.max_cost_usd);
        self.herder.supervisor.set_budgets(config.budget.iter().map(Into::into).collect());
        self.batches.look_again();
        self.batches.reconfigure(Arc::new(config.clone()));
        self.put(config, effective);
        *layers = (sources, files);
        Ok(report)
    }

    fn put(&self, config: Config, effective: Effective) {
        *self.config.write().unwrap_or_else(PoisonError::into_inner) =
            (Arc::new(config), Arc::new(effective));
    }

    /// What differs from what is in force.
    fn compare(&self, next: &Effective) -> ReloadReport {
        let now = flat(&self.config.read().unwrap_or_else(PoisonError::into_inner).1);
        let next = flat(next);
        let keys: std::collections::BTreeSet<&String> = now.keys().chain(next.keys()).collect();
        let changed = keys.into_iter().filter(|key| now.get(*key) != next.get(*key)).cloned();
        let (applied, at_next_start) = changed.partition(|key| {
            LIVE_KEYS.iter().any(|live| {
                key.strip_prefix(live).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            })
        });
        ReloadReport { applied, at_next_start }
    }
}

/// Every value by its dotted name. A list is one value.
fn flat(effective: &Effective) -> BTreeMap<String, Value> {
    let mut values = BTreeMap::new();
    let mut open = vec![(String::new(), effective.to_json()["config"].take())];
    while let Some((name, value)) = open.pop() {
        match value {
            Value::Object(fields) => open.extend(
                fields
                    .into_iter()
                    .map(|(key, value)| (if name.is_empty() { key } else { format!("{name}.{key}") }, value)),
            ),
            value
            @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
                values.insert(name, value);
            }
        }
    }
    values
}
