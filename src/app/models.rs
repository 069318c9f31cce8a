//! The models that a configuration and its tasks name, each with the provider that serves it.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use super::accounts::Accounts;
use crate::{
    config::{self, Config, ConfigError, Key, Provider, Reasoning},
    domain::usage::{NanoUsd, Price},
    model::{
        Model, ModelProvider, Models, Secret,
        anthropic::{self, Anthropic},
        http::{self, SetupError},
        openai::{self, CallIds, OpenAi, Profile, SendReasoning, TokenLimit},
        responses::{self, Responses},
        scripted::Scripted,
    },
};

/// Why a model cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum ModelsError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("model {name:?}")]
    Setup { name: String, source: SetupError },
    #[error("{0}")]
    Unpriced(String),
    /// It is not asked for itself.
    #[error("a fallback of model {of:?}")]
    Fallback { of: Arc<str>, source: Box<Self> },
}

/// That the cost of a model cannot be limited.
fn unpriced(name: &str) -> String {
    format!(
        "model {name:?} has no known price, so its cost cannot be limited; give it prices in [models.NAME], or free = true \
         there, or take one that config/models.toml has a price of"
    )
}

/// Whether what a model costs is known, and what those cost that go on in its place.
///
/// # Errors
/// It is not, in words.
pub fn check_price(models: &Models, name: &str) -> Result<(), String> {
    let Some(model) = models.get(name) else { return Ok(()) };
    let fallbacks = model.fallbacks.iter().filter_map(|name| models.get(name));
    std::iter::once(model.clone()).chain(fallbacks).try_for_each(|model| match is_priced(&model) {
        Err(what) if *model.name != *name => Err(format!("a fallback of model {name:?}: {what}")),
        priced => priced,
    })
}

/// Whether what a model itself costs is known.
pub(super) fn is_priced(model: &Model) -> Result<(), String> {
    if model.price.is_some() { Ok(()) } else { Err(unpriced(&model.name)) }
}

/// Sets models up as runs come to ask for them. Those of one server share its connections, those of one account its limits.
#[derive(Default)]
pub struct ModelSetup {
    scripted: Arc<Scripted>,
    client: OnceLock<reqwest::Client>,
    accounts: Accounts,
}

impl ModelSetup {
    /// Sets up the models of these names, and those that they fall back on.
    ///
    /// # Errors
    /// The first model that is not configured, or whose server cannot be set up.
    pub fn models<'a>(
        &self,
        config: &Config,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<Models, ModelsError> {
        let models = Models::default();
        for name in names {
            self.add(&models, config, name)?;
        }
        Ok(models)
    }

    /// Whether the costs of these models can be limited.
    ///
    /// # Errors
    /// The first whose price is not known, or that is not configured.
    pub fn check_prices<'a>(
        &self,
        config: &Config,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), ModelsError> {
        let models = Models::default();
        for name in names {
            self.add(&models, config, name)?;
            check_price(&models, name).map_err(ModelsError::Unpriced)?;
        }
        Ok(())
    }

    /// Sets a model up, and those that it falls back on, unless there is one of that name.
    ///
    /// # Errors
    /// One is not configured, or its server cannot be set up.
    pub fn add(&self, models: &Models, config: &Config, name: &str) -> Result<(), ModelsError> {
        let mut wanted: Vec<(Arc<str>, Option<Arc<str>>)> = vec![(name.into(), None)];
        while let Some((name, of)) = wanted.pop() {
            if models.get(&name).is_none() {
                let model = self.model(config, &name).map_err(|source| match of {
                    Some(of) => ModelsError::Fallback { of, source: Box::new(source) },
                    None => source,
                })?;
                wanted.extend(model.fallbacks.iter().map(|next| (next.clone(), Some(name.clone()))));
                models.insert(model);
            }
        }
        Ok(())
    }

    /// Sets a model up as the configuration says.
    ///
    /// # Errors
    /// It is not configured, or its server cannot be set up.
    pub fn model(&self, config: &Config, name: &str) -> Result<Model, ModelsError> {
        let model = config.model(name)?;
        let failed = |source| ModelsError::Setup { name: name.to_owned(), source };
        let provider: Arc<dyn ModelProvider> = match model.provider {
            Provider::Scripted => self.scripted.clone(),
            Provider::Openai => {
                let client = self.client().map_err(failed)?;
                Arc::new(OpenAi::new(client, chat(&model)).map_err(failed)?)
            }
            Provider::Anthropic => {
                let client = self.client().map_err(failed)?;
                Arc::new(Anthropic::new(client, messages(&model)).map_err(failed)?)
            }
            Provider::Responses => {
                let client = self.client().map_err(failed)?;
                Arc::new(Responses::new(client, items(&model)).map_err(failed)?)
            }
        };
        Ok(Model {
            name: name.into(),
            wire_name: model.model.as_str().into(),
            provider,
            context_tokens: model.context_window.map(u64::from),
            price: price(model.price),
            max_output_tokens: model.max_output_tokens,
            answer_tokens: model.answer_tokens,
            governor: self.accounts.governor(name, &model, config.supervisor.max_live_runs),
            fallbacks: model.fallbacks.iter().map(|name| name.as_str().into()).collect(),
        })
    }

    fn client(&self) -> Result<reqwest::Client, SetupError> {
        match self.client.get() {
            Some(client) => Ok(client.clone()),
            None => {
                // Two at once make two; one is kept.
                let client = http::client()?;
                Ok(self.client.get_or_init(|| client).clone())
            }
        }
    }
}

fn price(price: config::Price) -> Option<Price> {
    match price {
        config::Price::Unknown => None,
        config::Price::Free => Some(Price::default()),
        config::Price::PerMtok { input, output, cached, cache_write } => Some(Price {
            input: NanoUsd::from_usd(input),
            cached: NanoUsd::from_usd(cached),
            cache_written: NanoUsd::from_usd(cache_write),
            output: NanoUsd::from_usd(output),
        }),
    }
}

fn chat(model: &config::Model) -> openai::Settings {
    openai::Settings {
        base_url: model.base_url.clone().unwrap_or_default(),
        api_key: key(model),
        headers: headers(model),
        extra_body: model.extra_body.clone(),
        profile: Profile {
            reasoning: match model.reasoning {
                Reasoning::Never => SendReasoning::Never,
                Reasoning::ReasoningContent => SendReasoning::AsReasoningContent,
                Reasoning::Reasoning => SendReasoning::AsReasoning,
            },
            token_limit: match model.token_limit {
                config::TokenLimit::MaxTokens => TokenLimit::MaxTokens,
                config::TokenLimit::MaxCompletionTokens => TokenLimit::MaxCompletionTokens,
            },
            call_ids: match model.call_ids {
                config::CallIds::Usual => CallIds::Usual,
                config::CallIds::Short => CallIds::Short,
            },
        },
    }
}

fn messages(model: &config::Model) -> anthropic::Settings {
    anthropic::Settings {
        base_url: model.base_url.clone().unwrap_or_default(),
        api_key: key(model),
        headers: headers(model),
        extra_body: model.extra_body.clone(),
        prompt_cache: model.prompt_cache,
    }
}

fn items(model: &config::Model) -> responses::Settings {
    responses::Settings {
        base_url: model.base_url.clone().unwrap_or_default(),
        api_key: key(model),
        headers: headers(model),
        extra_body: model.extra_body.clone(),
    }
}

fn key(model: &config::Model) -> Secret {
    match &model.key {
        Key::Found(key) => Secret::new(key.expose()),
        Key::None | Key::Missing(_) => Secret::default(),
    }
}

fn headers(model: &config::Model) -> BTreeMap<String, String> {
    model.headers.iter().map(|(name, value)| (name.clone(), value.expose().to_owned())).collect()
}
