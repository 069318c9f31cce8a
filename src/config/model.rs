//! What a `[models.NAME]` table can say, and what is wrong with one that says it.

use std::{
    collections::BTreeMap,
    fmt,
    num::{NonZeroU32, NonZeroU64},
    path::PathBuf,
};

use reqwest::{
    Url,
    header::{HeaderName, HeaderValue},
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
    /// Where the file of its key is configured, for errors.
    #[serde(skip)]
    pub key_place: String,
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
        if let Some((key, what)) = wrong_provider(config, name, table).or_else(|| wrong_server(table)) {
            return refuse(key, &what);
        }
        if let Some((header, what)) =
            table.headers.iter().find_map(|(name, value)| Some((name, wrong_header(name, value)?)))
        {
            return Err(layers.refuse(&["models", name, "headers", header], what));
        }
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
        if let Some((key, what)) = wrong_figures(config, name, table) {
            return refuse(key, &what);
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

/// A name that stands for one server, of a table that names another provider.
fn wrong_provider(config: &Config, name: &str, table: &ModelTable) -> Option<(&'static str, String)> {
    let own = table.provider?;
    let (server, _) = name.split_once(':')?;
    let by_name = match config.catalogue.servers().get(server) {
        Some(server) => server.provider,
        None if server == Provider::Scripted.as_str() => Provider::Scripted,
        None => return None,
    };
    (own != by_name).then(|| {
        let (own, by_name) = (own.as_str(), by_name.as_str());
        let what = format!(
            "is {own}, yet {server}: in front of the model's name is a server of the provider {by_name}; leave \
             provider out, or give the table another name"
        );
        ("provider", what)
    })
}

/// What is wrong with where a model is, and with where its key is. No value is told: it may be the key itself.
fn wrong_server(table: &ModelTable) -> Option<(&'static str, String)> {
    if table.model.as_deref().is_some_and(|model| model.trim().is_empty()) {
        return Some(("model", "is empty; give the model's name at the server, or leave it out".to_owned()));
    }
    if table.base_url.as_deref().is_some_and(|url| !is_http(url)) {
        return Some(("base_url", NO_URL.to_owned()));
    }
    let variable = table.api_key_env.as_deref()?;
    let what = if variable.is_empty() {
        "is empty; name the variable that holds the key, or leave it out"
    } else if !is_variable(variable) {
        "is no name of a variable; want the name of the one that holds the key, as MY_KEY, and not the key itself"
    } else {
        return None;
    };
    Some(("api_key_env", what.to_owned()))
}

/// What is said of an address that cannot be asked.
pub(super) const NO_URL: &str = "is no http or https URL; want one as \"http://127.0.0.1:8000/v1\"";

/// Whether an address can be asked at all.
pub(super) fn is_http(url: &str) -> bool {
    Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
}

/// Whether this can be a variable's name, and is not most likely a key that was put in the place of one.
fn is_variable(name: &str) -> bool {
    let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !name.starts_with(|c: char| c.is_ascii_digit());
    let is_key = name.len() >= KEY_LENGTH
        && name.contains(|c: char| c.is_ascii_lowercase())
        && name.contains(|c: char| c.is_ascii_digit());
    is_name && !is_key
}

/// Keys are at least this long, and have small letters and digits, which names of variables that long do not.
const KEY_LENGTH: usize = 32;

/// What is wrong with a header. Its value is not told.
fn wrong_header(name: &str, value: &Secret) -> Option<&'static str> {
    if name.parse::<HeaderName>().is_err() {
        Some("is no name that HTTP can carry; want letters, digits and -, as X-Team")
    } else if value.expose().parse::<HeaderValue>().is_err() {
        Some("has a value that HTTP cannot carry; want text on one line, without control characters")
    } else {
        None
    }
}

/// What is wrong with a table's figures by themselves, or with those that it leaves to the catalogue.
fn wrong_figures(config: &Config, name: &str, table: &ModelTable) -> Option<(&'static str, String)> {
    let tokens = [("context_window", table.context_window), ("max_output_tokens", table.max_output_tokens)];
    if let Some((key, _)) = tokens.into_iter().find(|(_, tokens)| *tokens == Some(0)) {
        return Some((key, "must be a number of tokens, 1 or more; leave it out if nobody knows".to_owned()));
    }
    let known = config.known(name).unwrap_or_default();
    let figures = table.figures(known);
    if let (Some(most), Some(window)) = (table.max_output_tokens, figures.context_window)
        && most > window
    {
        return Some((
            "max_output_tokens",
            format!("must not be more than context_window, which is {window}"),
        ));
    }
    let missing = match (figures.input_usd_per_mtok, figures.output_usd_per_mtok) {
        (None, _) => "input_usd_per_mtok",
        (Some(_), None) => "output_usd_per_mtok",
        (Some(_), Some(_)) => return None,
    };
    let (stated, _) =
        table.figures(Figures::default()).prices().into_iter().find(|(_, price)| price.is_some())?;
    Some((stated, format!("stands without {missing}; what a model costs wants both")))
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
