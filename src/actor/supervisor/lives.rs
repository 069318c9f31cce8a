//! What a shard knows of its runs.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::AtomicBool},
};

use ractor::{ActorId, ActorRef};

use super::{
    message::{Reply, Stopping},
    revival::Death,
};
use crate::{
    actor::{executor::ExecutorMsg, run::RunMsg},
    domain::{
        id::{RunId, Seq},
        outcome::Outcome,
        run::Input,
        time::Timestamp,
    },
    model::governor::Pledge,
};

/// What a shard knows of its runs.
pub(super) struct Lives {
    pub(super) executor: ActorRef<ExecutorMsg>,
    pub(super) runs: HashMap<RunId, Life>,
    pub(super) by_actor: HashMap<ActorId, RunId>,
    pub(super) stopping: Stopping,
}

/// What is known of one run.
#[derive(Default)]
pub(super) struct Life {
    /// Which of its lives this is; what belongs to an earlier one is stale.
    pub(super) number: u64,
    pub(super) actor: Option<ActorRef<RunMsg>>,
    /// Whether its end, or that it was left unfinished, is on its way to the root.
    pub(super) ended: Arc<AtomicBool>,
    /// How its last actor died, if it has none.
    pub(super) death: Option<Death>,
    /// It was told to end as this. An actor that dies may not have heard it.
    pub(super) wish: Option<Outcome>,
    /// It is to send no further request.
    pub(super) held: bool,
    /// It did not end when it was told to.
    pub(super) stuck: bool,
    /// Where its log stood when its last actor began, or when it got its slot; and the deaths since that the log does not
    /// know of.
    pub(super) head: Seq,
    pub(super) untraced: Vec<Timestamp>,
    /// What was asked of it while it had no actor.
    pub(super) asked: Vec<(Input, Reply)>,
    /// Until its first actor asks.
    pub(super) pledge: Option<Pledge>,
}

impl Life {
    /// Of a run whose log stands there.
    pub(super) fn of(head: Seq) -> Self {
        Self { head, ..Self::default() }
    }
}

impl Lives {
    pub(super) fn forget(&mut self, run: RunId) {
        if let Some(actor) = self.runs.remove(&run).and_then(|life| life.actor) {
            // It has stopped already, unless its task turned out not to be of record.
            actor.stop(None);
        }
    }

    pub(super) fn hold(&mut self, run: RunId, held: bool, message: RunMsg) {
        let Some(life) = self.runs.get_mut(&run) else { return };
        life.held = held;
        if let Some(actor) = &life.actor {
            let _ = actor.cast(message);
        }
    }

    pub(super) fn tell_all(&self, message: impl Fn() -> RunMsg) {
        for actor in self.runs.values().filter_map(|life| life.actor.as_ref()) {
            let _ = actor.cast(message());
        }
    }
}
