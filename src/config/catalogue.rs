//! What is known of the usual servers and models: `config/models.toml`, and the user's `models.toml` over it.
//!
//! A mistake in the user's file is told with its line, as one in the configuration. Knows nothing of what a
//! configuration says of the same models.

use std::{collections::BTreeMap, path::PathBuf};

use serde::Deserialize;

use super::{
    ConfigError,
    layer::{Layers, Origin},
    model::{CallIds, NO_URL, Provider, Reasoning, is_http},
};

const BUILT_IN: &str = include_str!("../../config/models.toml");

/// The servers and models that can be named without a table of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Catalogue {
    #[serde(default)]
    servers: BTreeMap<String, Server>,
    #[serde(default)]
    models: BTreeMap<String, Figures>,
}

/// A server by the word in front of the colon.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Server {
    pub(super) provider: Provider,
    pub(super) base_url: String,
    /// The variable that moves it to another address.
    pub(super) base_url_env: Option<String>,
    /// The variable of its key; absent: it wants none.
    pub(super) api_key_env: Option<String>,
    /// The server whose models, and whose accounts, it has.
    pub(super) same_as: Option<String>,
    #[serde(default)]
    pub(super) call_ids: CallIds,
}

/// What is known of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Figures {
    pub(super) context_window: Option<u32>,
    pub(super) max_output_tokens: Option<u32>,
    pub(super) input_usd_per_mtok: Option<f64>,
    pub(super) cached_usd_per_mtok: Option<f64>,
    pub(super) cache_write_usd_per_mtok: Option<f64>,
    pub(super) output_usd_per_mtok: Option<f64>,
    pub(super) reasoning: Option<Reasoning>,
}

impl Figures {
    /// The prices by their keys.
    pub(super) const fn prices(&self) -> [(&'static str, Option<f64>); 4] {
        [
            ("input_usd_per_mtok", self.input_usd_per_mtok),
            ("output_usd_per_mtok", self.output_usd_per_mtok),
            ("cached_usd_per_mtok", self.cached_usd_per_mtok),
            ("cache_write_usd_per_mtok", self.cache_write_usd_per_mtok),
        ]
    }
}

/// Why a number is no price.
pub(super) fn wrong_price(price: Option<f64>) -> Option<&'static str> {
    let wrong = price.is_some_and(|usd| !usd.is_finite() || usd < 0.0);
    wrong.then_some("must be a number of US dollars, 0 or more")
}

impl Catalogue {
    /// Reads the built-in catalogue, and the user's over it.
    pub(super) fn read(user: Option<&(PathBuf, String)>) -> Result<Self, ConfigError> {
        let mut layers = Layers::default();
        layers.add_document(Origin::BuiltIn, BUILT_IN, |_, _| {})?;
        if let Some((path, text)) = user {
            layers.add_document(Origin::File(path.clone()), text, |_, _| {})?;
        }
        let catalogue: Self = layers.read()?;
        catalogue.check(&layers)?;
        Ok(catalogue)
    }

    fn check(&self, layers: &Layers<'_>) -> Result<(), ConfigError> {
        for (name, server) in &self.servers {
            let refuse = |key, what: String| Err(layers.refuse(&["servers", name, key], what));
            if server.provider == Provider::Scripted {
                return refuse(
                    "provider",
                    "scripted has no server; want openai, anthropic or responses".to_owned(),
                );
            }
            if !is_http(&server.base_url) {
                return refuse("base_url", NO_URL.to_owned());
            }
            if let Some(other) = server.same_as.as_ref().filter(|other| !self.servers.contains_key(*other)) {
                return refuse(
                    "same_as",
                    format!("no server is called {other:?}; want {}", self.server_names()),
                );
            }
        }
        for (name, figures) in &self.models {
            if self.split(name).is_none() {
                let what = format!(
                    "want a server and its model, as \"openai:gpt-5\"; servers are {}",
                    self.server_names()
                );
                return Err(layers.refuse(&["models", name], what));
            }
            for (key, price) in figures.prices() {
                if let Some(what) = wrong_price(price) {
                    return Err(layers.refuse(&["models", name, key], what));
                }
            }
        }
        Ok(())
    }

    fn server_names(&self) -> String {
        self.servers.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
    }

    /// Every server by its name.
    pub(super) const fn servers(&self) -> &BTreeMap<String, Server> {
        &self.servers
    }

    /// Every model, as `server:model`.
    pub(super) fn models(&self) -> impl Iterator<Item = &str> {
        self.models.keys().map(String::as_str)
    }

    /// The server that a `server:model` names, and the model's name there.
    pub(super) fn split<'n>(&self, name: &'n str) -> Option<(&str, &Server, &'n str)> {
        let (server, model) = name.split_once(':')?;
        let (server, found) = self.servers.get_key_value(server)?;
        (!model.is_empty()).then_some((server.as_str(), found, model))
    }

    /// What is known of a server's model: of itself, or else of the one without the date.
    pub(super) fn figures(&self, server: &str, model: &str) -> Figures {
        let listed = |server: &str, model: &str| self.models.get(&format!("{server}:{model}")).copied();
        let known = |server: &str| {
            listed(server, model).or_else(|| family(model).and_then(|family| listed(server, family)))
        };
        let other = self.servers.get(server).and_then(|server| server.same_as.as_deref());
        known(server).or_else(|| other.and_then(known)).unwrap_or_default()
    }
}

/// A model's name without the date, or the "latest", that it ends with.
fn family(model: &str) -> Option<&str> {
    if let Some(family) = model.strip_suffix("-latest") {
        return Some(family);
    }
    // Forms of a date, where 0 stands for any digit.
    ["-0000-00-00", "-00000000"].into_iter().find_map(|form| {
        let (family, date) = model.split_at_checked(model.len().checked_sub(form.len())?)?;
        let fits = date
            .bytes()
            .zip(form.bytes())
            .all(|(byte, form)| if form == b'0' { byte.is_ascii_digit() } else { byte == form });
        (fits && !family.is_empty()).then_some(family)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_with_a_date_has_the_figures_of_its_family_unless_it_has_its_own() {
        let catalogue = Catalogue::read(None).expect("reads");
        let input = |server, model| catalogue.figures(server, model).input_usd_per_mtok;
        assert_eq!(input("openai", "gpt-5-2025-08-07"), input("openai", "gpt-5"));
        assert_eq!(input("anthropic", "claude-sonnet-4-5-20250929"), Some(3.0));
        assert_eq!(input("anthropic", "claude-haiku-4-5-latest"), Some(1.0));
        assert_eq!(
            (input("openai", "gpt-4o-2024-05-13"), input("openai", "gpt-4o-2024-08-06")),
            (Some(5.0), Some(2.5))
        );
        assert_eq!(input("responses", "gpt-5-mini"), Some(0.25));
        for unknown in ["gpt-5-2025-8-07", "-2025-08-07", "gpt-5-x", "gpt"] {
            assert_eq!(input("openai", unknown), None, "{unknown}");
        }
        assert_eq!(input("groq", "gpt-5"), None);
    }

    #[test]
    fn the_users_file_replaces_single_figures_and_adds_servers() {
        let text = "[models.\"openai:gpt-5\"]\ninput_usd_per_mtok = 9\n[servers.team]\nprovider = \"openai\"\n\
             base_url = \"http://h/v1\"\n[models.\"team:m\"]\ncontext_window = 7\n";
        let catalogue =
            Catalogue::read(Some(&(PathBuf::from("models.toml"), text.to_owned()))).expect("reads");
        let figures = catalogue.figures("openai", "gpt-5");
        assert_eq!((figures.input_usd_per_mtok, figures.context_window), (Some(9.0), Some(400_000)));
        assert_eq!(catalogue.figures("team", "m").context_window, Some(7));
        assert_eq!(catalogue.split("team:m").map(|(name, _, model)| (name, model)), Some(("team", "m")));
    }

    #[test]
    fn a_mistake_in_the_users_file_is_told_with_its_line() {
        let refusal = |text: &str| {
            let user = (PathBuf::from("models.toml"), text.to_owned());
            Catalogue::read(Some(&user)).expect_err("refused").to_string()
        };
        assert_eq!(
            refusal("[models.\"openai:gpt-5\"]\n\noutput_usd_per_mtok = -1\n"),
            "models.toml:3: models.openai:gpt-5.output_usd_per_mtok: must be a number of US dollars, 0 or more"
        );
        assert!(
            refusal("[models.\"gpt-5\"]\ncontext_window = 1\n")
                .starts_with("models.toml:1: models.gpt-5: want a server")
        );
        assert!(
            refusal("[models.\"openai:x\"]\nprice = 1\n")
                .starts_with("models.toml:2: models.openai:x.price: unknown field")
        );
        assert!(
            refusal("[servers.x]\nprovider = \"scripted\"\nbase_url = \"http://h\"\n")
                .starts_with("models.toml:2: ")
        );
        assert!(refusal("[servers.x]\nbase_url = \"http://h\"\n").ends_with("missing field 'provider'"));
    }

    #[test]
    fn a_cached_token_of_the_catalogue_never_costs_more_than_a_fresh_one() {
        for (name, figures) in &Catalogue::read(None).expect("reads").models {
            let (input, output) = (figures.input_usd_per_mtok, figures.output_usd_per_mtok);
            assert_eq!(input.is_some(), output.is_some(), "{name}");
            assert!(input <= output && figures.cached_usd_per_mtok <= input, "{name}");
            assert!(figures.max_output_tokens <= figures.context_window, "{name}");
        }
    }
}
