//! What a `[models.NAME]` table can say, and what is wrong with one that says it.

use std::{
    collections::BTreeMap,
    fmt,
    num::{NonZeroU32, NonZeroU64},
    path::PathBuf,
};

use serde::Deserialize;

use super::{
    Config, ConfigError,
    catalogue::{Figures, wrong_price},
    layer::Layers,
};

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
    /// Messages.
    Anthropic,
    /// OpenAI's Responses.
    Responses,
}

impl Provider {
    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Scripted => "scripted",
            Self::Openai => "openai",
            Self::Anthropic => "anthropic",
            Self::Responses => "responses",
        }
    }
}

/// Whether, and in which field, a server is sent its reasoning again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reasoning {
    #[default]
    Never,
    ReasoningContent,
    Reasoning,
}

/// What a server calls the limit of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenLimit {
    MaxTokens,
    MaxCompletionTokens,
}

/// Which ids of calls a server takes that are not its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallIds {
    #[default]
    Usual,
    /// Nine letters and digits.
    Short,
}

/// A `[models.NAME]` table. What it leaves out is taken from the catalogue, if that has the model.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelTable {
    /// By itself that of the server in front of the colon, if the table has such a name.
    pub provider: Option<Provider>,
    /// The name at the server; by itself the name of the table.
    pub model: Option<String>,
    pub base_url: Option<String>,
    pub api_key_env: Option<String>,
    pub api_key_file: Option<PathBuf>,
    pub headers: BTreeMap<String, Secret>,
    pub extra_body: serde_json::Map<String, serde_json::Value>,
    pub context_window: Option<u32>,
    pub max_output_tokens: Option<u32>,
    pub requests_per_minute: Option<NonZeroU32>,
    pub tokens_per_minute: Option<NonZeroU64>,
    pub max_concurrency: Option<NonZeroU32>,
    /// Models of one account share its limits.
    pub account: Option<String>,
    pub input_usd_per_mtok: Option<f64>,
    pub output_usd_per_mtok: Option<f64>,
    pub cached_usd_per_mtok: Option<f64>,
    pub cache_write_usd_per_mtok: Option<f64>,
    pub free: bool,
    /// Models that go on with a run that this one is given up for.
    pub fallbacks: Vec<String>,
    pub reasoning: Option<Reasoning>,
    pub token_limit: Option<TokenLimit>,
    pub call_ids: Option<CallIds>,
    pub prompt_cache: Option<bool>,
}

impl ModelTable {
    /// What the table says, and the catalogue where it says nothing.
    pub(super) fn figures(&self, known: Figures) -> Figures {
        Figures {
            context_window: self.context_window.or(known.context_window),
            max_output_tokens: self.max_output_tokens.or(known.max_output_tokens),
            input_usd_per_mtok: self.input_usd_per_mtok.or(known.input_usd_per_mtok),
            cached_usd_per_mtok: self.cached_usd_per_mtok.or(known.cached_usd_per_mtok),
            cache_write_usd_per_mtok: self.cache_write_usd_per_mtok.or(known.cache_write_usd_per_mtok),
            output_usd_per_mtok: self.output_usd_per_mtok.or(known.output_usd_per_mtok),
            reasoning: self.reasoning.or(known.reasoning),
        }
    }
}

/// Checks every table, once the catalogue is there.
pub(super) fn check(config: &Config, layers: &Layers<'_>) -> Result<(), ConfigError> {
    for (name, table) in &config.models {
        let refuse = |key, what: &str| Err(layers.refuse(&["models", name, key], what));
        let provider = match config.find(name) {
            Ok(found) => found.provider,
            Err(what) => return Err(layers.refuse(&["models", name], what)),
        };
        if table.api_key_env.is_some() && table.api_key_file.is_some() {
            return refuse("api_key_file", "stands beside api_key_env; keep one of the two");
        }
        for (key, price) in table.figures(Figures::default()).prices() {
            if let Some(what) = wrong_price(price) {
                return refuse(key, what);
            }
            if table.free && price.is_some() {
                return refuse(key, "stands beside free = true; keep one of the two");
            }
        }
        if let Some((key, what)) = unreserved(&table.extra_body) {
            return Err(layers.refuse(&["models", name, "extra_body", key], what));
        }
        if table.account.as_deref().is_some_and(|account| account.trim().is_empty()) {
            return refuse("account", "is empty; give a name, or leave it out");
        }
        if let Some(other) = shares_account(config, name, table) {
            let what =
                format!("is that of {other:?} too, which has another key; give each key its own account");
            return refuse("account", &what);
        }
        let openai = provider == Provider::Openai;
        for (key, stated, means) in [
            ("reasoning", table.reasoning.is_some(), openai),
            ("token_limit", table.token_limit.is_some(), openai),
            ("call_ids", table.call_ids.is_some(), openai),
            ("prompt_cache", table.prompt_cache.is_some(), provider == Provider::Anthropic),
        ] {
            if stated && !means {
                return refuse(
                    key,
                    &format!("means nothing to the provider {}; leave it out", provider.as_str()),
                );
            }
        }
        if let Some(what) = wrong_fallbacks(config, name, table) {
            return refuse("fallbacks", &what);
        }
    }
    Ok(())
}

/// What would have a server answer more than was reserved for it.
fn unreserved(extra_body: &serde_json::Map<String, serde_json::Value>) -> Option<(&str, &'static str)> {
    const TOKENS: &str = "is sent with each request, within every limit; set max_output_tokens of the model instead, or \
                          max_tokens in [defaults.params] or a task's params";
    const TABLE: [(&str, &str); 4] = [
        ("max_tokens", TOKENS),
        ("max_completion_tokens", TOKENS),
        ("max_output_tokens", TOKENS),
        ("n", "one answer is heard, and all would be paid for; leave it out"),
    ];
    TABLE.into_iter().find(|(key, _)| extra_body.contains_key(*key))
}

/// An earlier table of the same account that takes its key from elsewhere: what is known of the one key would be forgotten
/// for the other.
fn shares_account<'c>(config: &'c Config, name: &str, table: &ModelTable) -> Option<&'c str> {
    let account = table.account.as_ref()?;
    let earlier = config.models.iter().take_while(|(other, _)| *other != name);
    let earlier = earlier.filter(|(_, other)| other.account.as_ref() == Some(account));
    let own = config.key_source(name)?;
    let mut others = earlier.map(|(other, _)| other.as_str());
    others.find(|other| config.key_source(other).is_some_and(|source| source != own))
}

/// What is wrong with a table's fallbacks: one that is nothing, or a way back to the model itself.
fn wrong_fallbacks(config: &Config, name: &str, table: &ModelTable) -> Option<String> {
    if let Some(what) = table.fallbacks.iter().find_map(|fallback| config.check_model(fallback).err()) {
        return Some(what);
    }
    let next =
        |name: &str| config.models.get(name).map(|table| table.fallbacks.as_slice()).unwrap_or_default();
    let mut seen: Vec<&str> = Vec::new();
    let mut open: Vec<(&str, String)> = vec![(name, name.to_owned())];
    while let Some((at, way)) = open.pop() {
        for fallback in next(at) {
            let way = format!("{way} > {fallback}");
            if fallback == name {
                return Some(format!("leads back to the model itself ({way}); take one out"));
            }
            if !seen.contains(&fallback.as_str()) {
                seen.push(fallback);
                open.push((fallback, way));
            }
        }
    }
    None
}
