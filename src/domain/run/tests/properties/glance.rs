//! A glance at a run is never at odds with the run.

use super::*;
use crate::domain::glance::{CallStage, Glance, Stand};

impl World {
    pub(super) fn assert_glances_agree(&self) {
        let (mut run, mut glance) = (Run::new(run_id()), Glance::new(run_id()));
        for append in &self.appends {
            for fact in append {
                run.evolve(fact);
                glance.evolve(fact);
            }
            assert_eq!((glance.seq, glance.turn), (run.seq(), run.turn()));
            assert_eq!((glance.usage, glance.answered), (run.usage(), run.answered()));
            assert_eq!((glance.started_at, glance.last_at), (run.started_at(), run.last_at));
            assert_eq!(glance.ending, run.ending);
            assert_eq!((glance.paused, glance.parked), (run.is_paused(), run.parked()));
            assert_eq!(glance.is_interrupted(), run.is_interrupted());
            let at =
                |stage| glance.calls().iter().filter(move |call| call.stage == stage).map(|call| &call.id);
            let waiting: Vec<_> = run.waiting_calls().map(|call| &call.id).collect();
            assert_eq!(at(CallStage::Waiting).collect::<Vec<_>>(), waiting);
            assert_eq!(at(CallStage::Running).next().is_some(), run.is_acting());
            match (&glance.stand, run.phase()) {
                (Stand::New, Phase::New)
                | (Stand::Queued, Phase::Queued)
                | (Stand::Between, Phase::Between) => {}
                (
                    Stand::Thinking { retries, not_before: due },
                    Phase::Thinking { attempt, not_before, .. },
                ) => {
                    assert_eq!((*retries, *due), (attempt - 1, *not_before));
                }
                (Stand::Acting(open), Phase::Acting(calls)) => {
                    let unanswered = calls.iter().filter(|open| !open.is_answered());
                    let unanswered: Vec<_> = unanswered.map(|open| &open.call.id).collect();
                    assert_eq!(open.iter().map(|call| &call.id).collect::<Vec<_>>(), unanswered);
                }
                (Stand::Ended(outcome), Phase::Ended(ended)) => assert_eq!(outcome, ended),
                (stand, phase) => panic!("{stand:?} for {phase:?}"),
            }
        }
    }
}
