//! The models that a configuration and its tasks name, each with the provider that serves it.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use crate::{
    config::{self, Config, ConfigError, Provider},
    domain::usage::{NanoUsd, Price},
    model::{
        Model, ModelProvider, Models, Secret,
        http::{self, SetupError},
        openai::{OpenAi, Profile, Settings},
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
    #[error(
        "model {0:?}: there is no key for {OPENAI}; set OPENAI_API_KEY, or OPENAI_BASE_URL if another server is meant"
    )]
    NoKey(String),
    #[error("{0}")]
    Unpriced(String),
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
    match std::iter::once(model.clone()).chain(fallbacks).find(|model| model.price.is_none()) {
        Some(model) => Err(unpriced(&model.name)),
        None => Ok(()),
    }
}

/// Where OpenAI itself answers.
const OPENAI: &str = "https://api.openai.com/v1";

/// Sets models up as runs come to ask for them. Those of one server share its connections.
#[derive(Default)]
pub struct ModelSetup {
    scripted: Arc<Scripted>,
    client: OnceLock<reqwest::Client>,
}

impl ModelSetup {
    /// Sets up the models of these names.
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
            for fallback in models.get(name).iter().flat_map(|model| &model.fallbacks) {
                self.add(&models, config, fallback)?;
            }
            check_price(&models, name).map_err(ModelsError::Unpriced)?;
        }
        Ok(())
    }

    /// Sets a model up, unless there is one of that name.
    ///
    /// # Errors
    /// It is not configured, or its server cannot be set up.
    pub fn add(&self, models: &Models, config: &Config, name: &str) -> Result<(), ModelsError> {
        if models.get(name).is_none() {
            models.insert(self.model(config, name)?);
        }
        Ok(())
    }

    /// Sets a model up as the configuration says.
    ///
    /// # Errors
    /// It is not configured, or its server cannot be set up.
    pub fn model(&self, config: &Config, name: &str) -> Result<Model, ModelsError> {
        let model = config.model(name)?;
        let provider: Arc<dyn ModelProvider> = match model.provider {
            Provider::Scripted => self.scripted.clone(),
            Provider::Openai if model.base_url.is_none() && model.api_key.is_none() => {
                return Err(ModelsError::NoKey(name.to_owned()));
            }
            Provider::Openai => {
                let failed = |source| ModelsError::Setup { name: name.to_owned(), source };
                let client = self.client().map_err(failed)?;
                Arc::new(OpenAi::new(client, settings(&model)).map_err(failed)?)
            }
        };
        Ok(Model {
            wire_name: model.model.as_str().into(),
            context_tokens: model.context_window.map(u64::from),
            price: price(model.price),
            max_output_tokens: model.max_output_tokens,
            ..Model::new(name, provider)
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
        config::Price::PerMtok { input, output, cached } => Some(Price {
            input: NanoUsd::from_usd(input),
            cached: NanoUsd::from_usd(cached),
            cache_written: NanoUsd::from_usd(input),
            output: NanoUsd::from_usd(output),
        }),
    }
}

fn settings(model: &config::Model) -> Settings {
    let headers: BTreeMap<String, String> =
        model.headers.iter().map(|(name, value)| (name.clone(), value.expose().to_owned())).collect();
    Settings {
        base_url: model.base_url.clone().unwrap_or_else(|| OPENAI.to_owned()),
        api_key: Secret::new(model.api_key.as_ref().map_or("", config::Secret::expose)),
        headers,
        extra_body: model.extra_body.clone(),
        profile: Profile::default(),
    }
}
