//! The model that a run asks, and the one that goes on where it is given up.

use std::sync::Arc;

use super::{Form, RunActor, RunState};
use crate::{
    actor::{Services, supervisor::RootMsg},
    domain::run::{Input, Run},
    model::Model,
};

/// The model that the run is at, and the form that its answer must have.
///
/// # Errors
/// Why the run cannot go on.
pub fn means(services: &Services, run: &Run) -> Result<(Arc<Model>, Option<Arc<Form>>), String> {
    let name = run.model().map(|name| &**name).unwrap_or_default();
    let model = services.models.get(name).ok_or_else(|| format!("model {name:?} is not to be had"))?;
    let format = run.spec().and_then(|spec| spec.response_format.as_ref());
    let form = format.map(Form::of).transpose().map_err(|error| format!("response_format: {error}"))?;
    Ok((model, form.map(Arc::new)))
}

/// The model that can go on with a run: the next of those behind the task's own that has not been asked yet and is to be
/// had.
pub fn fallback_of(services: &Services, run: &Run) -> Option<Arc<str>> {
    let models = &services.models;
    let first = models.get(run.models().first().or(run.model())?)?;
    let is_new =
        |name: &&Arc<str>| **name != first.name && !run.models().contains(name) && models.get(name).is_some();
    first.fallbacks.iter().find(is_new).cloned()
}

impl RunActor {
    /// Says which model goes on if what is reported has this one given up.
    pub(super) fn offer_fallback(&self, state: &RunState, input: &mut Input) {
        if let Input::ModelFailed { fallback, .. } = input {
            *fallback = self.fallback(state);
        } else if let Input::Replied { proposal, .. } = input {
            proposal.fallback = self.fallback(state);
        }
    }

    pub(super) fn fallback(&self, state: &RunState) -> Option<Arc<str>> {
        fallback_of(&self.services, &state.run)
    }

    /// Asks the model that the run is at from now on; says whether it is to be had.
    pub(super) fn follows_model(&self, state: &mut RunState) -> bool {
        let Some(name) = state.run.model().filter(|name| **name != state.model.name) else { return true };
        let Some(model) = self.services.models.get(name) else { return false };
        state.model = model;
        // The supervisor may have gone down already, and with it whoever minds.
        let _ = self.supervisor.cast(RootMsg::Switched(Box::new(state.run.clone())));
        // It is a place at the other one's.
        state.progress.permit = None;
        true
    }
}
