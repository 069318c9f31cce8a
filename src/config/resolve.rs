//! Which server a model's name stands for, with which key it is asked, and what is known of it.
//!
//! A table of the configuration comes before the catalogue, key by key. The customary key of a server goes only to its
//! customary address: a model with another `base_url` names its key itself, and has only the figures that it states.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    num::{NonZeroU32, NonZeroU64},
    path::PathBuf,
};

use super::{
    CallIds, Config, ConfigError, ModelTable, Provider, Reasoning, Secret, TokenLimit,
    catalogue::{Figures, Server},
};
use crate::domain::text::bare_url;

#[cfg(test)]
mod tests;

/// Where the limit of an answer has its newer name.
const OPENAI_HOST: &str = "https://api.openai.com/";

/// What Anthropic takes for a token that it puts into its cache, as a multiple of one that it does not.
const CACHE_WRITE: f64 = 1.25;

/// A model as it can be asked: every setting found.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    pub provider: Provider,
    /// The name at the server.
    pub model: String,
    /// The server's address; none of the scripted model.
    pub base_url: Option<String>,
    pub key: Key,
    pub headers: BTreeMap<String, Secret>,
    pub extra_body: serde_json::Map<String, serde_json::Value>,
    pub context_window: Option<u32>,
    /// As many as an answer can have.
    pub max_output_tokens: Option<u32>,
    /// As many as an answer is to have by itself, if the table says so.
    pub answer_tokens: Option<u32>,
    pub requests_per_minute: Option<NonZeroU32>,
    pub tokens_per_minute: Option<NonZeroU64>,
    pub max_concurrency: Option<NonZeroU32>,
    /// Whose limits it shares.
    pub account: String,
    pub price: Price,
    pub fallbacks: Vec<String>,
    pub reasoning: Reasoning,
    pub token_limit: TokenLimit,
    pub call_ids: CallIds,
    /// Whether the server is asked to keep the beginning of a conversation, where that is asked for.
    pub prompt_cache: bool,
}

/// A model's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    /// It has none, and nobody said that it should.
    None,
    Found(Secret),
    /// It is not where it should be; how that is put right.
    Missing(String),
}

/// What a model's tokens cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Price {
    /// Nobody said.
    Unknown,
    /// Nothing.
    Free,
    /// US dollars for a million tokens.
    PerMtok { input: f64, output: f64, cached: f64, cache_write: f64 },
}

impl Price {
    /// Tokens that the provider had cached, or put there, cost what others do, unless said otherwise. Anthropic takes more
    /// for putting them there, and is asked to.
    fn of(provider: Provider, free: bool, figures: &Figures) -> Self {
        let written = |input| if provider == Provider::Anthropic { input * CACHE_WRITE } else { input };
        match (free, figures.input_usd_per_mtok, figures.output_usd_per_mtok) {
            (true, _, _) => Self::Free,
            (false, Some(input), Some(output)) => Self::PerMtok {
                input,
                output,
                cached: figures.cached_usd_per_mtok.unwrap_or(input),
                cache_write: figures.cache_write_usd_per_mtok.unwrap_or_else(|| written(input)),
            },
            (false, _, _) => Self::Unknown,
        }
    }
}

/// What a name stands for.
pub(super) struct Found<'c> {
    pub(super) provider: Provider,
    model: &'c str,
    table: Cow<'c, ModelTable>,
    server: Option<(&'c str, &'c Server)>,
}

impl Config {
    /// Whether a model's name stands for something: a `[models.NAME]` table, or `server:model`.
    ///
    /// # Errors
    /// What is wrong with the name, and what would be right.
    pub fn check_model(&self, name: &str) -> Result<(), String> {
        self.find(name).map(drop)
    }

    /// Every model that has a table, then every other of the catalogue.
    pub fn model_names(&self) -> impl Iterator<Item = &str> {
        let known = self.catalogue.models().filter(|name| !self.models.contains_key(*name));
        self.models.keys().map(String::as_str).chain(known)
    }

    /// Finds the server and the key of a model, named as by [`Self::check_model`].
    ///
    /// # Errors
    /// A name that stands for nothing, or a key that is not where it should be.
    pub fn model(&self, name: &str) -> Result<Model, ConfigError> {
        let invalid =
            |what| ConfigError::Invalid { place: format!("model {name:?}"), field: String::new(), what };
        let model = self.describe(name).map_err(invalid)?;
        let file = self.models.get(name).filter(|table| table.api_key_file.is_some());
        match (&model.key, file) {
            (Key::Missing(what), Some(table)) => Err(ConfigError::Invalid {
                place: table.key_place.clone(),
                field: format!("models.{name}.api_key_file"),
                what: what.clone(),
            }),
            (Key::Missing(what), None) => Err(invalid(what.clone())),
            (Key::None | Key::Found(_), _) => Ok(model),
        }
    }

    /// The same, whether or not there is a key.
    ///
    /// # Errors
    /// What is wrong with the name, and what would be right.
    pub fn describe(&self, name: &str) -> Result<Model, String> {
        let found = self.find(name)?;
        let table = found.table.as_ref();
        let moved = self.moved(&found);
        let base_url = table.base_url.clone().or_else(|| moved.clone());
        let base_url = base_url.or_else(|| found.server.map(|(_, server)| server.base_url.clone()));
        let known = found.server.map(|(name, _)| self.catalogue.figures(name, found.model));
        let figures = table.figures(known.unwrap_or_default());
        let is_openai = base_url.as_deref().is_some_and(|url| url.starts_with(OPENAI_HOST));
        let own_limit = if is_openai { TokenLimit::MaxCompletionTokens } else { TokenLimit::MaxTokens };
        Ok(Model {
            key: self.key(&found, base_url.as_deref(), moved.is_some()),
            account: account(&found, base_url.as_deref(), moved.is_some()),
            price: Price::of(found.provider, table.free, &figures),
            context_window: figures.context_window,
            max_output_tokens: figures.max_output_tokens,
            answer_tokens: table.max_output_tokens,
            reasoning: figures.reasoning.unwrap_or_default(),
            token_limit: table.token_limit.unwrap_or(own_limit),
            call_ids: table.call_ids.or(found.server.map(|(_, server)| server.call_ids)).unwrap_or_default(),
            prompt_cache: table.prompt_cache.unwrap_or(true),
            requests_per_minute: table.requests_per_minute,
            tokens_per_minute: table.tokens_per_minute,
            max_concurrency: table.max_concurrency,
            provider: found.provider,
            model: found.model.to_owned(),
            base_url,
            headers: table.headers.clone(),
            extra_body: table.extra_body.clone(),
            fallbacks: table.fallbacks.clone(),
        })
    }

    /// What the catalogue knows of a model.
    pub(super) fn known(&self, name: &str) -> Option<Figures> {
        let found = self.find(name).ok()?;
        found.server.map(|(server, _)| self.catalogue.figures(server, found.model))
    }

    /// Finds what a name stands for.
    pub(super) fn find<'c>(&'c self, name: &'c str) -> Result<Found<'c>, String> {
        let scripted = || name.strip_prefix("scripted:").filter(|model| !model.is_empty());
        let named = self.catalogue.split(name);
        let Some(table) = self.models.get(name) else {
            let (provider, model, server) = match (named, scripted()) {
                (Some((name, server, model)), _) => (server.provider, model, Some((name, server))),
                (None, Some(model)) => (Provider::Scripted, model, None),
                (None, None) => return Err(self.no_model(name)),
            };
            return Ok(Found { provider, model, table: Cow::Owned(ModelTable::default()), server });
        };
        let named = named.filter(|(_, server, _)| table.provider.is_none_or(|own| own == server.provider));
        let provider = table.provider.or_else(|| named.map(|(_, server, _)| server.provider));
        let provider = provider.or_else(|| scripted().map(|_| Provider::Scripted));
        let provider = provider.ok_or("missing field 'provider'")?;
        let model = table.model.as_deref().or_else(|| named.map(|(_, _, model)| model)).unwrap_or(name);
        let server = match (&table.base_url, named) {
            (None, Some((name, server, _))) => Some((name, server)),
            (None, None) => self.server(|name, _| name == provider.as_str()),
            (Some(url), _) => {
                let url = url.trim_end_matches('/');
                self.server(|_, server| {
                    server.provider == provider && server.base_url.trim_end_matches('/') == url
                })
            }
        };
        Ok(Found { provider, model, table: Cow::Borrowed(table), server })
    }

    fn server(&self, fits: impl Fn(&str, &Server) -> bool) -> Option<(&str, &Server)> {
        let mut servers = self.catalogue.servers().iter().map(|(name, server)| (name.as_str(), server));
        servers.find(|(name, server)| fits(name, server))
    }

    fn no_model(&self, name: &str) -> String {
        let tables: Vec<_> = self.models.keys().map(|name| format!("{name:?}")).collect();
        let tables = if tables.is_empty() { "there are none".to_owned() } else { tables.join(", ") };
        let servers: Vec<_> = self.catalogue.servers().keys().map(|name| format!("{name}:NAME")).collect();
        let what = match name.split_once(':') {
            None => format!("no model is called {name:?}"),
            Some((server, "")) if server == "scripted" || self.catalogue.servers().contains_key(server) => {
                "the model's name is missing behind the colon".to_owned()
            }
            Some((server, _)) => format!("no provider is called {server:?}"),
        };
        format!(
            "{what}; want scripted:NAME, {}, or a [models.NAME] table of the configuration ({tables})",
            servers.join(", ")
        )
    }

    /// The address that a variable gives a server, for models without one of their own.
    fn moved(&self, found: &Found<'_>) -> Option<String> {
        let (_, server) = found.server.filter(|_| found.table.base_url.is_none())?;
        server.base_url_env.as_deref().and_then(|variable| self.variable(variable))
    }

    /// Where the key of a model is to be found, if it has one.
    pub(super) fn key_source(&self, name: &str) -> Option<PathBuf> {
        let found = self.find(name).ok()?;
        let customary = || found.server.and_then(|(_, server)| server.api_key_env.as_ref());
        let variable = found.table.api_key_env.as_ref();
        match (&found.table.api_key_file, variable) {
            (Some(path), None) => Some(path.clone()),
            (Some(_) | None, _) => variable.or_else(customary).map(PathBuf::from),
        }
    }

    fn key(&self, found: &Found<'_>, base_url: Option<&str>, is_moved: bool) -> Key {
        let table = found.table.as_ref();
        if let Some(variable) = &table.api_key_env {
            return self.variable(variable).map_or_else(
                || {
                    Key::Missing(format!(
                        "the variable {variable} of api_key_env is not set; set it to the key"
                    ))
                },
                |key| Key::Found(Secret::new(key)),
            );
        }
        if let Some(path) = &table.api_key_file {
            return match std::fs::read_to_string(path) {
                Ok(text) if text.trim().is_empty() => {
                    Key::Missing(format!("{} is empty; put the key there", path.display()))
                }
                Ok(text) => Key::Found(Secret::new(text.trim())),
                Err(error) => Key::Missing(format!("{} cannot be read: {error}", path.display())),
            };
        }
        let Some((server, variable)) =
            found.server.and_then(|(_, server)| Some((server, server.api_key_env.as_deref()?)))
        else {
            return Key::None;
        };
        if let Some(key) = self.variable(variable) {
            return Key::Found(Secret::new(key));
        }
        let in_a_header =
            |name: &String| ["authorization", "x-api-key"].iter().any(|key| name.eq_ignore_ascii_case(key));
        if is_moved || table.headers.keys().any(in_a_header) {
            return Key::None;
        }
        let other = server.base_url_env.as_deref().filter(|_| table.base_url.is_none());
        let other = other.map(|variable| format!(", or {variable} if another server is meant"));
        let address = bare_url(base_url.unwrap_or_default());
        Key::Missing(format!("there is no key for {address}; set {variable}{}", other.unwrap_or_default()))
    }
}

/// Who is asked: the same for the same address and key.
fn account(found: &Found<'_>, base_url: Option<&str>, is_moved: bool) -> String {
    let table = found.table.as_ref();
    if let Some(account) = &table.account {
        return account.clone();
    }
    let Some(base_url) = base_url else { return found.provider.as_str().to_owned() };
    let address = bare_url(base_url);
    let address = address.trim_end_matches('/');
    let address = address.split_once("://").map_or(address, |(_, address)| address);
    let place = match found.server {
        Some((name, server)) if !is_moved => server.same_as.as_deref().unwrap_or(name),
        Some(_) | None => address,
    };
    let customary = found.server.and_then(|(_, server)| server.api_key_env.as_ref());
    match (&table.api_key_env, &table.api_key_file) {
        (Some(variable), _) if Some(variable) != customary => format!("{place} ({variable})"),
        (None, Some(path)) => format!("{place} ({})", path.display()),
        (Some(_) | None, _) => place.to_owned(),
    }
}
