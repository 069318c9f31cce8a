//! The models of a process by name.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard},
};

use super::{
    ModelProvider,
    governor::{Account, Concurrency, Governor, Rates},
};
use crate::domain::usage::Price;

/// Every model that a run may ask. More come in while runs are at work: a run keeps the one that it began with.
#[derive(Default)]
pub struct Models {
    models: RwLock<BTreeMap<Arc<str>, Arc<Model>>>,
}

/// A model and the provider that serves it.
pub struct Model {
    /// What runs call it.
    pub name: Arc<str>,
    /// What its server calls it.
    pub wire_name: Arc<str>,
    /// Who serves it.
    pub provider: Arc<dyn ModelProvider>,
    /// Tokens that a request and its answer may have together, where that is known.
    pub context_tokens: Option<u64>,
    /// What it costs, where that is known.
    pub price: Option<Price>,
    /// Tokens that an answer may have, where that is known.
    pub max_output_tokens: Option<u32>,
    /// Tokens that an answer may have where the task says nothing, if somebody has said so.
    pub answer_tokens: Option<u32>,
    /// How much may be asked of it at once and in a minute.
    pub governor: Arc<Governor>,
    /// Models that go on, in this order, with a run that this one is given up for.
    pub fallbacks: Vec<Arc<str>>,
}

impl Model {
    /// A model without limits, of which nothing else is known, by the same name at its server.
    pub fn new(name: &str, provider: Arc<dyn ModelProvider>) -> Self {
        Self {
            name: name.into(),
            wire_name: name.into(),
            provider,
            context_tokens: None,
            price: None,
            max_output_tokens: None,
            answer_tokens: None,
            governor: Governor::new(
                Account::lone(name),
                Rates { concurrency: Concurrency::Unlimited, ..Rates::default() },
            ),
            fallbacks: Vec::new(),
        }
    }
}

impl Models {
    /// Adds a model, or replaces the one of that name.
    pub fn insert(&self, model: Model) {
        let mut models = self.models.write().unwrap_or_else(PoisonError::into_inner);
        models.insert(model.name.clone(), Arc::new(model));
    }

    /// A model by its name.
    pub fn get(&self, name: &str) -> Option<Arc<Model>> {
        self.read().get(name).cloned()
    }

    /// The names of all models, sorted.
    pub fn names(&self) -> Vec<Arc<str>> {
        self.read().keys().cloned().collect()
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<Arc<str>, Arc<Model>>> {
        self.models.read().unwrap_or_else(PoisonError::into_inner)
    }
}
