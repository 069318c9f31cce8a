//! Another model goes on where one is given up.

use super::{RunActor, RunState};
use crate::domain::run::Input;

impl RunActor {
    /// Says which model goes on if what is reported has this one given up: the next of the task's own model that has not been
    /// asked yet and is to be had.
    pub(super) fn offer_fallback(&self, state: &RunState, input: &mut Input) {
        let models = &self.services.models;
        let is_new = |name: &&_| !state.run.models().contains(name) && models.get(name).is_some();
        let next = || {
            let first = models.get(state.run.models().first()?)?;
            first.fallbacks.iter().find(is_new).cloned()
        };
        if let Input::ModelFailed { fallback, .. } = input {
            *fallback = next();
        } else if let Input::Replied { proposal, .. } = input {
            proposal.fallback = next();
        }
    }

    /// Asks the model that the run is at from now on; says whether it is to be had.
    pub(super) fn follows_model(&self, state: &mut RunState) -> bool {
        let Some(name) = state.run.model().filter(|name| **name != state.model.name) else { return true };
        let Some(model) = self.services.models.get(name) else { return false };
        state.model = model;
        // It is a place at the other one's.
        state.progress.permit = None;
        true
    }
}
