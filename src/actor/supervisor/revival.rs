//! What becomes of a run whose actor died: it is read from its log again, and goes on, ends, or is given up.
//!
//! Deaths are counted by the restarts that the log holds. A log that takes nothing any more holds none, so those are
//! counted here; else such a run would be started again for ever.

use std::{sync::Arc, time::Duration};

use crate::{
    actor::Services,
    domain::{
        event::{Event, RunEnd},
        id::{RunId, Seq},
        outcome::{Breakage, Outcome},
        restart::{self, Exit},
        run::Run,
        time::Timestamp,
    },
};

/// How an actor ended before its run did.
#[derive(Clone, Debug)]
pub(super) struct Death {
    pub exit: Exit,
    pub error: Option<String>,
}

/// What is known of a run beside its log.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub death: Death,
    /// The run is to end as this.
    pub wish: Option<Outcome>,
    /// It did not end when it was told to.
    pub stuck: bool,
    /// Where its log stood when its last actor began.
    pub head: Seq,
    /// Earlier deaths that left no trace in the log.
    pub untraced: Vec<Timestamp>,
}

/// What is done.
#[derive(Debug)]
pub(super) enum Next {
    /// It has an actor again.
    GoOn { death: Death, untraced: Vec<Timestamp> },
    /// It ends, as it was told to before.
    End { death: Death, outcome: Outcome },
    /// It ends, since it cannot be gone on with.
    GiveUp { breakage: Breakage, error: String },
    /// It has ended; nobody said so.
    Over(Arc<RunEnd>),
    /// Its log cannot be read: nothing can be done for it now, and whoever takes it up next goes on from its log.
    Leave,
    /// Its log has nothing of it, not even its task. The root hears that from where the task was submitted.
    Nothing,
}

/// Reads the run's log and waits as long as is due.
pub(super) async fn next(services: &Services, run: RunId, case: Case) -> (Run, Next) {
    let log = match services.store.read(run, Seq::START).await {
        Ok(log) => log,
        Err(error) => {
            tracing::error!(run.id = %run, %error, "log of a dead run could not be read");
            return (Run::new(run), Next::Leave);
        }
    };
    let state = Run::replay(run, log.iter().map(|envelope| &envelope.fact));
    if let Some(Event::RunEnd(end)) = log.into_iter().next_back().map(|envelope| envelope.fact.event) {
        return (state, Next::Over(Arc::new(*end)));
    }
    if state.spec().is_none() {
        return (state, Next::Nothing);
    }
    let (next, delay) = decide(services, &state, case);
    tokio::time::sleep(delay).await;
    (state, next)
}

fn decide(services: &Services, run: &Run, case: Case) -> (Next, Duration) {
    let Case { death, wish, stuck, head, mut untraced } = case;
    let give_up = |breakage, error| (Next::GiveUp { breakage, error }, Duration::ZERO);
    if stuck {
        return give_up(Breakage::Stuck, "the run did not end when it was told to".to_owned());
    }
    if let Some(outcome) = wish {
        // It need not wait to be ended.
        return (Next::End { death, outcome }, Duration::ZERO);
    }
    if run.seq() > head {
        untraced.clear();
    }
    let now = services.clock.now();
    let traced = run.idle_restarts();
    let earlier = if traced.len() >= untraced.len() { traced } else { &untraced };
    match restart::decide(services.settings.restart, death.exit, earlier, now, crate::actor::jitter()) {
        restart::Restart::After(delay) => {
            untraced.push(now);
            (Next::GoOn { death, untraced }, delay)
        }
        restart::Restart::Forbidden => give_up(Breakage::Panic, death.words()),
        restart::Restart::TooMany => give_up(Breakage::RestartLimit, death.words()),
    }
}

impl Death {
    fn words(self) -> String {
        self.error.unwrap_or_else(|| "the run's actor ended before the run".to_owned())
    }
}
