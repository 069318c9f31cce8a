//! One append on its way into the file, encoded by whoever hands it over.

use std::sync::Arc;

use super::{check, tail::Kept};
use crate::{
    domain::{
        event::{Event, Fact, encode},
        id::{Pos, RunId, Seq},
        outcome::Outcome,
        task::TaskSpec,
        time::Timestamp,
    },
    store::runs::about,
};

#[derive(Debug)]
pub(super) struct Append {
    pub(super) run: RunId,
    pub(super) expected: Seq,
    pub(super) count: u64,
    pub(super) body: Vec<u8>,
    /// The checksum of all that.
    pub(super) sum: u32,
    /// What `body` is, for those who follow the log at its head.
    pub(super) facts: Arc<[Fact]>,
    pub(super) milestones: Vec<Milestone>,
}

/// A fact that changes what is known of a run without reading its log.
#[derive(Debug)]
pub(super) enum Milestone {
    Submitted { at: Timestamp, spec: Arc<TaskSpec>, about: String, labels: Option<String> },
    Ended { at: Timestamp, outcome: Outcome, end: Vec<u8> },
}

impl Append {
    /// `facts` after event `expected` of `run`.
    pub(super) fn of(run: RunId, expected: Seq, facts: &[Fact]) -> Result<Self, serde_json::Error> {
        let body = encode(facts)?;
        let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        Ok(Self {
            run,
            expected,
            count: facts.len() as u64,
            sum: check::sum(&run, signed(expected.plus(1).get()), signed(facts.len() as u64), &body),
            body,
            milestones: facts.iter().filter_map(milestone).collect::<Result<_, _>>()?,
            facts: facts.into(),
        })
    }

    pub(super) fn kept(&self, pos: Pos) -> Kept {
        let first = self.expected.plus(1);
        Kept { pos, run: self.run, first, facts: Arc::clone(&self.facts), bytes: self.body.len() }
    }
}

/// What a fact changes beside the log, if it changes anything.
pub(super) fn milestone(fact: &Fact) -> Option<Result<Milestone, serde_json::Error>> {
    if let Event::Submitted(spec) = &fact.event {
        let labels = (!spec.labels.is_empty()).then(|| serde_json::to_string(&spec.labels)).transpose();
        return Some(labels.map(|labels| Milestone::Submitted {
            at: fact.at,
            spec: Arc::clone(spec),
            about: about(&spec.task),
            labels,
        }));
    }
    if let Event::RunEnd(end) = &fact.event {
        let encoded = serde_json::to_vec(end);
        return Some(encoded.map(|bytes| Milestone::Ended { at: fact.at, outcome: end.outcome, end: bytes }));
    }
    None
}
