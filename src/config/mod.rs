//! The configuration: built in < user's file < `--config` < `HERDER_*` < flags, merged, checked once, then only read.
//!
//! An error is one sentence with the place of the value at fault, and every value in force can be asked where it comes
//! from. The layers are merged here, over the `toml` crate's spanned tables, because the crates that merge layers keep
//! no line numbers. Knows nothing of who uses the values; the process's environment is handed in.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use crate::domain::admission::Slots;

mod catalogue;
mod confine;
mod effective;
mod layer;
mod model;
pub mod policies;
mod resolve;
mod retention;
mod sections;
#[cfg(test)]
mod tests;

use catalogue::Catalogue;
pub use confine::{Confine, ConfineFiles, Network};
pub use effective::Effective;
use layer::{Layers, Origin, Spelling};
pub use model::{CallIds, ModelTable, Provider, Reasoning, Secret, TokenLimit};
pub use resolve::{Key, Model, Price};
pub use retention::{Age, Retention};
pub use sections::{
    Approvals, Budget, CommandTool, Daemon, Defaults, Durability, Isolation, Keep, LogFormat, Notify,
    Occasion, ProcessLimits, Role, Schema, Store, Supervisor, Telemetry, Timeouts, Tools,
};

const BUILT_IN: &str = include_str!("../../config/default.toml");
const PREFIX: &str = "HERDER_";

/// Everything that can be set.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    pub defaults: Defaults,
    pub supervisor: Supervisor,
    pub timeouts: Timeouts,
    pub approvals: Approvals,
    pub tools: Tools,
    pub confine: Confine,
    pub isolate: Isolation,
    pub store: Store,
    pub retention: Retention,
    pub telemetry: Telemetry,
    pub daemon: Daemon,
    #[serde(default)]
    pub notify: Vec<Notify>,
    #[serde(default)]
    pub budget: Vec<Budget>,
    #[serde(default)]
    pub models: BTreeMap<String, ModelTable>,
    #[serde(default)]
    pub command_tools: BTreeMap<String, CommandTool>,
    /// What is known of models that have no table, or of what their tables leave out.
    #[serde(skip)]
    catalogue: Catalogue,
    /// What the process was started with; holds keys, so it is never shown.
    #[serde(skip)]
    environment: Environment,
    /// The files that it is read from, there or not.
    #[serde(skip)]
    files: Vec<PathBuf>,
}

/// Where to look for configuration.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The user's file; it need not exist. The user's `models.toml` lies beside it, and need not either.
    pub user_file: Option<PathBuf>,
    /// The file that was named; it must exist.
    pub file: Option<PathBuf>,
    /// The process's environment.
    pub environment: Environment,
    /// What flags say.
    pub flags: Vec<Flag>,
}

impl Sources {
    /// The files that they name, there or not.
    fn files(&self) -> impl Iterator<Item = PathBuf> {
        let models = self.user_file.as_ref().map(|path| path.with_file_name("models.toml"));
        [self.user_file.clone(), models, self.file.clone()].into_iter().flatten()
    }
}

/// A flag that stands for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    /// As it was written, with its dashes.
    pub name: &'static str,
    /// The keys that lead to the value.
    pub path: Vec<String>,
    /// The value, as TOML.
    pub value: String,
}

impl Flag {
    /// A flag with its value, for the key at `path`.
    pub fn new(name: &'static str, path: &[&str], value: impl Into<toml::Value>) -> Self {
        let path = path.iter().map(|key| (*key).to_owned()).collect();
        Self { name, path, value: value.into().to_string() }
    }
}

impl From<Slots> for toml::Value {
    fn from(slots: Slots) -> Self {
        match slots {
            Slots::Fixed(runs) => Self::Integer(i64::try_from(runs.get()).unwrap_or(i64::MAX)),
            Slots::Follow { .. } => Self::String(slots.to_string()),
        }
    }
}

/// Names and values; blind to Debug, since keys of accounts are among them.
#[derive(Clone, Default)]
pub struct Environment(BTreeMap<String, String>);

impl FromIterator<(String, String)> for Environment {
    fn from_iter<T: IntoIterator<Item = (String, String)>>(variables: T) -> Self {
        Self(variables.into_iter().collect())
    }
}

impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} variables", self.0.len())
    }
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file that was named cannot be read.
    #[error("{}: cannot be read", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// A value is not right.
    #[error("{place}: {}{what}", if field.is_empty() { String::new() } else { format!("{field}: ") })]
    Invalid { place: String, field: String, what: String },
}

impl Config {
    /// Whether what all work costs is limited, whatever tasks and batches say.
    pub fn limits_costs(&self) -> bool {
        self.supervisor.max_cost_usd.is_some() || !self.budget.is_empty()
    }

    /// What it and its policy are read from, again when herder is started again. Some may not be there yet.
    pub fn files(&self) -> impl Iterator<Item = PathBuf> {
        let policy = &self.defaults.policy;
        let policy = policies::builtin(policy).is_none().then(|| PathBuf::from(policy));
        self.files.iter().cloned().chain(policy)
    }
}

/// The user's own file: `$XDG_CONFIG_HOME/herder/config.toml`, or what is customary in its place.
pub fn user_file() -> Option<PathBuf> {
    directories::ProjectDirs::from("", "", "herder").map(|dirs| dirs.config_dir().join("config.toml"))
}

/// The text of the files that sources name, as it was when they were read.
#[derive(Clone, Debug, Default)]
pub struct Files {
    layers: Vec<(PathBuf, String)>,
    models: Option<(PathBuf, String)>,
}

impl Files {
    /// Reads them.
    ///
    /// # Errors
    /// The first that is not there, or no text.
    pub fn read(sources: &Sources) -> Result<Self, ConfigError> {
        let read = |path: &PathBuf| Ok((path.clone(), read_text(path)?));
        let user_file = sources.user_file.as_ref().filter(|path| path.exists());
        let models = sources.user_file.as_ref().map(|path| path.with_file_name("models.toml"));
        Ok(Self {
            layers: user_file.into_iter().chain(&sources.file).map(read).collect::<Result<_, _>>()?,
            models: models.filter(|path| path.exists()).as_ref().map(read).transpose()?,
        })
    }
}

/// Reads the files, merges the layers and checks the result.
///
/// # Errors
/// The first value that is not right.
pub fn load(sources: &Sources) -> Result<(Config, Effective), ConfigError> {
    merge(sources, &Files::read(sources)?)
}

/// Merges the layers, whatever the files say by now, and checks the result.
///
/// # Errors
/// The first value that is not right.
pub fn merge(sources: &Sources, files: &Files) -> Result<(Config, Effective), ConfigError> {
    let mut layers = Layers::default();
    layers.add_document(Origin::BuiltIn, BUILT_IN, |_, _| {})?;
    for (path, text) in &files.layers {
        let folder = path.parent().unwrap_or(Path::new(""));
        layers.add_document(Origin::File(path.clone()), text, |keys, value| {
            if names_a_file(keys, value) {
                *value = Cow::Owned(folder.join(&**value).to_string_lossy().into_owned());
            }
        })?;
    }
    // An empty variable is customarily one that is not set.
    for (name, value) in sources.environment.0.iter().filter(|(_, value)| !value.is_empty()) {
        if let Some(path) = variable_path(name) {
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            layers.add_value(Origin::Variable(name.clone()), &path, value, Spelling::Loose)?;
        }
    }
    for flag in &sources.flags {
        let path: Vec<&str> = flag.path.iter().map(String::as_str).collect();
        layers.add_value(Origin::Flag(flag.name), &path, &flag.value, Spelling::Toml)?;
    }
    let mut config: Config = layers.read()?;
    for (name, tool) in &mut config.command_tools {
        tool.place = layers.place_of(&["command_tools", name, "schema"]);
    }
    for (name, table) in &mut config.models {
        table.key_place = layers.place_of(&["models", name, "api_key_file"]);
    }
    config.catalogue = Catalogue::read(files.models.as_ref())?;
    config.environment = sources.environment.clone();
    config.files = sources.files().collect();
    config.check(&layers)?;
    Ok((config, Effective::of(&layers)))
}

/// The keys that a variable stands for: `HERDER_TOOLS__MAX_PARALLEL` is `tools.max_parallel`. Variables without a double
/// underscore have meanings of their own.
fn variable_path(name: &str) -> Option<Vec<String>> {
    let path = name.strip_prefix(PREFIX)?;
    path.contains("__").then(|| path.split("__").map(str::to_ascii_lowercase).collect())
}

fn read_text(path: &Path) -> Result<String, ConfigError> {
    let bytes =
        std::fs::read(path).map_err(|source| ConfigError::Read { path: path.to_path_buf(), source })?;
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        let place = format!("{}:{line}", path.display());
        ConfigError::Invalid {
            place,
            field: String::new(),
            what: "not UTF-8; save the file as UTF-8".to_owned(),
        }
    })
}

/// Whether a value is a path, which in a file is relative to that file.
fn names_a_file(keys: &[&str], value: &str) -> bool {
    match keys {
        ["defaults", "workspace"]
        | ["tools", "read_roots"]
        | ["models", _, "api_key_file"]
        | ["daemon", "token_file"]
        | ["command_tools", _, "schema"] => true,
        ["defaults", "policy"] => is_policy_file(value),
        _ => false,
    }
}

/// Whether a policy is named by a file and not by its name.
pub fn is_policy_file(policy: &str) -> bool {
    policy.contains('/') || Path::new(policy).extension().is_some()
}

impl Config {
    fn variable(&self, name: &str) -> Option<String> {
        self.environment.0.get(name).filter(|value| !value.is_empty()).cloned()
    }

    fn check(&self, layers: &Layers<'_>) -> Result<(), ConfigError> {
        if self.timeouts.stall_warn_s > self.timeouts.stall_s {
            let what = format!("must not be more than timeouts.stall_s, which is {}", self.timeouts.stall_s);
            return Err(layers.refuse(&["timeouts", "stall_warn_s"], what));
        }
        model::check(self, layers)?;
        self.check_write_roots(layers)?;
        if let Some(listen) = self.daemon.listen.filter(|listen| !listen.ip().is_loopback()) {
            let what =
                format!("{listen} can be reached from other machines; want one of this, as 127.0.0.1:7070");
            return Err(layers.refuse(&["daemon", "listen"], what));
        }
        for notify in &self.notify {
            let url = notify.url.as_ref().map(Secret::expose);
            let what = match (notify.on.is_empty(), notify.command.is_empty(), url) {
                (true, ..) => "on: is empty; say of what to tell, as [\"batch-end\"]",
                (_, true, None) => "wants a command or a url",
                (_, false, Some(_)) => "has a command and a url; make it two",
                (_, true, Some(url)) if !url.starts_with("http://") && !url.starts_with("https://") => {
                    "url: want one that begins with http:// or https://"
                }
                (false, false, None) | (false, true, Some(_)) => continue,
            };
            return Err(layers.refuse(&["notify"], what.to_owned()));
        }
        for (name, tool) in &self.command_tools {
            if tool.command.first().is_none_or(String::is_empty) {
                let what = "is empty; give the program and its arguments, as [\"program\", \"argument\"]";
                return Err(layers.refuse(&["command_tools", name, "command"], what));
            }
        }
        Ok(())
    }
}
