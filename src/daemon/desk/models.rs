//! The models that runs can ask: those of the configuration, and those that runs have named.

use std::collections::{BTreeMap, BTreeSet};

use super::Desk;
use crate::{
    config::Price,
    daemon::wire::{ApiError, Code, GateKind, ModelList, ModelView},
    domain::gate::Scope,
};

impl Desk {
    /// Every model that is configured, or that a run was submitted for.
    pub async fn models(&self) -> ModelList {
        let config = self.config();
        let known = self.herder.supervisor.services().models.names();
        let names: BTreeSet<&str> =
            config.models.keys().map(String::as_str).chain(known.iter().map(|name| &**name)).collect();
        let gates = self.gates().await;
        let mut open: BTreeMap<String, u64> = BTreeMap::new();
        for glance in self.hub.board().page(|_| true, |_| (), 0, usize::MAX).runs {
            *open.entry(glance.model.to_string()).or_default() += 1;
        }
        let view = |name: &str| {
            let model = config.describe(name).ok();
            let price = model.as_ref().map(|model| model.price);
            let (input, output) = match price {
                Some(Price::PerMtok { input, output, .. }) => (Some(input), Some(output)),
                Some(Price::Free) => (Some(0.0), Some(0.0)),
                Some(Price::Unknown) | None => (None, None),
            };
            let gate =
                gates.iter().find(|gate| gate.kind == GateKind::Model && gate.name.as_deref() == Some(name));
            ModelView {
                name: name.to_owned(),
                provider: model.as_ref().map_or("unknown", |model| model.provider.as_str()).to_owned(),
                context_window: model.as_ref().and_then(|model| model.context_window).map(u64::from),
                model: model.map(|model| model.model).unwrap_or_default(),
                input_usd_per_mtok: input,
                output_usd_per_mtok: output,
                paused: gate.map(|gate| gate.mode),
                open_runs: open.get(name).copied().unwrap_or_default(),
            }
        };
        ModelList { models: names.into_iter().map(view).collect() }
    }

    /// The runs that ask a model.
    ///
    /// # Errors
    /// There can be no model of that name.
    pub fn model_scope(&self, name: &str) -> Result<Scope, ApiError> {
        match self.config().check_model(name) {
            Ok(()) => Ok(Scope::Model(name.into())),
            Err(what) => Err(ApiError::new(Code::UnknownModel, what)),
        }
    }
}
