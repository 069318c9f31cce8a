//! What of the runs is held back as a whole: all of them, a batch, or those of a model.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{
    id::BatchId,
    run::{Phase, Run},
    task::TaskSpec,
};

/// Which runs a gate is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Every run.
    All,
    /// The runs of a batch.
    Batch(BatchId),
    /// The runs that ask a model, by its name.
    Model(Arc<str>),
}

/// How a gate holds its runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PauseMode {
    /// None starts; those that are live go on.
    Soft,
    /// Those that are live are held too, before their next request.
    Hold,
}

/// The gates that are shut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gates(BTreeMap<Scope, PauseMode>);

impl Scope {
    fn covers(&self, of: Option<BatchId>, asks: &str) -> bool {
        match self {
            Self::All => true,
            Self::Batch(batch) => of == Some(*batch),
            Self::Model(model) => **model == *asks,
        }
    }
}

impl Gates {
    /// Shuts a gate; says whether that changed anything.
    pub fn shut(&mut self, scope: Scope, mode: PauseMode) -> bool {
        self.0.insert(scope, mode) != Some(mode)
    }

    /// Opens a gate; says whether it was shut.
    pub fn open(&mut self, scope: &Scope) -> bool {
        self.0.remove(scope).is_some()
    }

    /// Those that are shut.
    pub fn iter(&self) -> impl Iterator<Item = (&Scope, PauseMode)> {
        self.0.iter().map(|(scope, mode)| (scope, *mode))
    }

    /// The first that is shut for the runs of a batch that ask a model, or for single runs.
    pub fn shut_for(&self, batch: Option<BatchId>, model: &str) -> Option<&Scope> {
        self.0.keys().find(|scope| scope.covers(batch, model))
    }

    /// Whether a run that has no slot is kept from getting one: by a gate, or since a person has paused it.
    pub fn keep(&self, run: &Run) -> bool {
        let shut = |spec: &Arc<TaskSpec>| self.shut_for(spec.batch, &spec.model).is_some();
        // One whose process died in the midst of its calls ends its turn first, as it would have.
        let is_held = run.is_paused() && !(run.parked().is_none() && matches!(run.phase(), Phase::Acting(_)));
        is_held || run.spec().is_some_and(shut)
    }

    /// Whether a run that is live is to be held before its next request.
    pub fn hold(&self, spec: &TaskSpec) -> bool {
        self.iter().any(|(scope, mode)| mode == PauseMode::Hold && scope.covers(spec.batch, &spec.model))
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::domain::{id::RunId, run::Input, time::Timestamp};

    fn batch(n: u128) -> BatchId {
        BatchId::new(Uuid::from_u128(n))
    }

    fn spec(model: &str, batch: Option<BatchId>) -> Arc<TaskSpec> {
        let task = serde_json::json!({"task": "t", "attempt": 1, "model": model, "workspace": "/w"});
        Arc::new(TaskSpec { batch, ..serde_json::from_value(task).unwrap() })
    }

    fn run(inputs: impl IntoIterator<Item = Input>) -> Run {
        let mut run = Run::new(RunId::from_bytes([7; 16]));
        for input in inputs {
            let facts = run.decide(input, Timestamp::default()).unwrap();
            facts.iter().for_each(|fact| run.evolve(fact));
        }
        run
    }

    #[test]
    fn a_gate_holds_the_runs_of_its_scope_and_no_other() {
        let mut gates = Gates::default();
        let specs = [spec("a", Some(batch(1))), spec("b", Some(batch(1))), spec("a", None)];
        let held = |gates: &Gates| specs.iter().map(|spec| gates.hold(spec)).collect::<Vec<_>>();
        for (scope, expected) in [
            (Scope::All, [true, true, true]),
            (Scope::Batch(batch(1)), [true, true, false]),
            (Scope::Model("a".into()), [true, false, true]),
        ] {
            assert!(gates.shut(scope.clone(), PauseMode::Hold));
            assert_eq!(held(&gates), expected, "{scope:?}");
            assert!(gates.open(&scope));
        }
        assert_eq!(held(&gates), [false; 3]);
    }

    #[test]
    fn a_soft_gate_keeps_runs_from_starting_and_holds_none_that_is_live() {
        let mut gates = Gates::default();
        gates.shut(Scope::All, PauseMode::Soft);
        let spec = spec("a", None);
        assert!(!gates.hold(&spec));
        assert!(gates.keep(&run([Input::Submit(spec)])));
    }

    #[test]
    fn a_paused_run_is_kept_whatever_gates_are_open() {
        assert!(!Gates::default().keep(&run([Input::Submit(spec("a", None))])));
        assert!(Gates::default().keep(&run([Input::Submit(spec("a", None)), Input::Pause])));
    }

    #[test]
    fn shutting_or_opening_a_gate_twice_changes_nothing() {
        let mut gates = Gates::default();
        assert!(gates.shut(Scope::All, PauseMode::Soft));
        assert!(!gates.shut(Scope::All, PauseMode::Soft));
        assert!(gates.shut(Scope::All, PauseMode::Hold), "another mode is a change");
        assert_eq!(gates.iter().collect::<Vec<_>>(), [(&Scope::All, PauseMode::Hold)]);
        assert!(gates.open(&Scope::All));
        assert!(!gates.open(&Scope::All));
    }
}
