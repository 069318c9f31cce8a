//! Which server a model's name stands for, and with which key it is asked.

use std::{collections::BTreeMap, fmt, num::NonZeroU32, path::PathBuf};

use serde::Deserialize;

use super::{Config, ConfigError};

/// Text that no log, no error and no listing shows.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Wraps text that must not be shown.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, for the one place that sends it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// What speaks for a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Provider {
    /// Replays a script.
    Scripted,
    /// Chat Completions, at any compatible server.
    Openai,
}

impl Provider {
    /// The name in front of the colon.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Scripted => "scripted",
            Self::Openai => "openai",
        }
    }

    fn named(name: &str) -> Option<Self> {
        [Self::Scripted, Self::Openai].into_iter().find(|provider| provider.as_str() == name)
    }
}

/// A `[models.NAME]` table.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelTable {
    pub provider: Provider,
    /// The name at the server; by itself the name of the table.
    pub model: Option<String>,
    pub base_url: Option<String>,
    pub api_key_env: Option<String>,
    pub api_key_file: Option<PathBuf>,
    #[serde(default)]
    pub headers: BTreeMap<String, Secret>,
    #[serde(default)]
    pub extra_body: serde_json::Map<String, serde_json::Value>,
    pub context_window: Option<u32>,
    pub max_output_tokens: Option<u32>,
    pub max_concurrency: Option<NonZeroU32>,
    pub input_usd_per_mtok: Option<f64>,
    pub output_usd_per_mtok: Option<f64>,
    pub cached_usd_per_mtok: Option<f64>,
    #[serde(default)]
    pub free: bool,
}

/// A model as it can be asked: every setting found.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    pub provider: Provider,
    /// The name at the server.
    pub model: String,
    /// The server; absent: the provider's own.
    pub base_url: Option<String>,
    pub api_key: Option<Secret>,
    pub headers: BTreeMap<String, Secret>,
    pub extra_body: serde_json::Map<String, serde_json::Value>,
    pub context_window: Option<u32>,
    pub max_output_tokens: Option<u32>,
    pub max_concurrency: Option<NonZeroU32>,
    pub price: Price,
}

/// What a model's tokens cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Price {
    /// Nobody said.
    Unknown,
    /// Nothing.
    Free,
    /// US dollars for a million tokens.
    PerMtok { input: f64, output: f64, cached: f64 },
}

impl ModelTable {
    /// The table's price. Cached tokens cost what others do, unless said otherwise.
    pub fn price(&self) -> Price {
        match (self.free, self.input_usd_per_mtok, self.output_usd_per_mtok) {
            (true, _, _) => Price::Free,
            (false, Some(input), Some(output)) => {
                Price::PerMtok { input, output, cached: self.cached_usd_per_mtok.unwrap_or(input) }
            }
            (false, _, _) => Price::Unknown,
        }
    }
}

impl Config {
    /// Whether a model's name stands for something: a `[models.NAME]` table, or `provider:model`.
    ///
    /// # Errors
    /// What is wrong with the name, and what would be right.
    pub fn check_model(&self, name: &str) -> Result<(), String> {
        self.find_model(name).map(drop)
    }

    /// Finds the server and the key of a model, named as by [`Self::check_model`].
    ///
    /// The customary key of a provider goes only to the customary address: a model with a `base_url` of its own names
    /// its key itself.
    ///
    /// # Errors
    /// A name that stands for nothing, or a key that is not where the table says.
    pub fn model(&self, name: &str) -> Result<Model, ConfigError> {
        let invalid =
            |what| ConfigError::Invalid { place: format!("model {name:?}"), field: String::new(), what };
        let (table, model) = self.find_model(name).map_err(invalid)?;
        let customary = |variable: &str| {
            let known = matches!(table.provider, Provider::Openai) && table.base_url.is_none();
            known.then(|| self.variable(variable)).flatten()
        };
        let api_key = match (&table.api_key_env, &table.api_key_file) {
            (Some(variable), _) => Some(self.variable(variable).ok_or_else(|| {
                invalid(format!("the variable {variable} of api_key_env is not set; set it to the key"))
            })?),
            (None, Some(path)) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|source| ConfigError::Read { path: path.clone(), source })?;
                Some(text.trim().to_owned())
            }
            (None, None) => customary("OPENAI_API_KEY"),
        };
        Ok(Model {
            base_url: customary("OPENAI_BASE_URL").or_else(|| table.base_url.clone()),
            api_key: api_key.map(Secret),
            price: table.price(),
            provider: table.provider,
            model,
            headers: table.headers,
            extra_body: table.extra_body,
            context_window: table.context_window,
            max_output_tokens: table.max_output_tokens,
            max_concurrency: table.max_concurrency,
        })
    }

    fn find_model(&self, name: &str) -> Result<(ModelTable, String), String> {
        if let Some(table) = self.models.get(name) {
            let model = table.model.clone().unwrap_or_else(|| name.to_owned());
            return Ok((table.clone(), model));
        }
        let known = || {
            let tables: Vec<_> = self.models.keys().map(|name| format!("{name:?}")).collect();
            let tables = if tables.is_empty() { "there are none".to_owned() } else { tables.join(", ") };
            format!(
                "want scripted:NAME, openai:NAME, or a [models.NAME] table of the configuration ({tables})"
            )
        };
        let Some((provider, model)) = name.split_once(':') else {
            return Err(format!("no model is called {name:?}; {}", known()));
        };
        let Some(provider) = Provider::named(provider) else {
            return Err(format!("no provider is called {provider:?}; {}", known()));
        };
        if model.is_empty() {
            return Err(format!("the model's name is missing behind the colon; {}", known()));
        }
        let table = ModelTable {
            provider,
            model: None,
            base_url: None,
            api_key_env: None,
            api_key_file: None,
            headers: BTreeMap::new(),
            extra_body: serde_json::Map::new(),
            context_window: None,
            max_output_tokens: None,
            max_concurrency: None,
            input_usd_per_mtok: None,
            output_usd_per_mtok: None,
            cached_usd_per_mtok: None,
            free: false,
        };
        Ok((table, model.to_owned()))
    }
}
