//! Settles what the last process left in doubt, before anything is done that would blur it.

use std::sync::Arc;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::{Supervisor, leftovers::end_leftovers, told, workspace};
use crate::{
    actor::{Services, executor::doubt},
    domain::{
        event::{Fact, RestartCause},
        id::{RunId, Seq},
        run::{Input, Run},
    },
    store::StoreError,
};

const RESTART: Input = Input::Restart { cause: RestartCause::Process, error: None };

/// Runs that are settled at once.
const AT_ONCE: usize = 16;

impl Supervisor {
    /// Puts on record, for runs that are about to be taken up, whether the changes that they were making when herder
    /// stopped were made. It comes before the first of them is: whichever goes on first may work on the same files, and
    /// then they no longer tell. What they have left running is ended, before the first of the files is looked at. None of the runs
    /// may be live.
    ///
    /// A run whose log cannot be read, or whose workspace is gone, is left as it is: whoever takes it up is told.
    ///
    /// # Errors
    /// The log does not take it.
    pub async fn settle(&self, runs: impl IntoIterator<Item = RunId>) -> Result<(), StoreError> {
        let runs: Vec<RunId> = runs.into_iter().collect();
        let still = stream::iter(runs).map(|run| self.still_one(run)).buffer_unordered(AT_ONCE);
        let doubtful: Vec<Option<RunId>> = still.try_collect().await?;
        // Settling only looks at the files, so what it finds for one run does not hang on another.
        let settled = stream::iter(doubtful.into_iter().flatten()).map(|run| self.settle_one(run));
        settled.buffer_unordered(AT_ONCE).try_collect().await
    }

    /// Ends what the run has left running, which may be changing files; gives it back if it changed one itself.
    async fn still_one(&self, run: RunId) -> Result<Option<RunId>, StoreError> {
        let Some(mut state) = self.read_to_settle(run).await? else { return Ok(None) };
        end_leftovers(&state).await;
        told(&mut state, RESTART, self.services.clock.now());
        Ok(state.in_doubt().next().map(|_| run))
    }

    async fn read_to_settle(&self, run: RunId) -> Result<Option<Run>, StoreError> {
        match self.services.store.read(run, Seq::START).await {
            Ok(log) => Ok(Some(Run::replay(run, log.iter().map(|envelope| &envelope.fact)))),
            Err(StoreError::Damaged { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn settle_one(&self, run: RunId) -> Result<(), StoreError> {
        let store = &self.services.store;
        let Some(state) = self.read_to_settle(run).await? else { return Ok(()) };
        let head = state.seq();
        let facts = settled(&self.services, state).await;
        if !facts.is_empty() {
            store.durable(store.append(run, head, &facts)?).await?;
        }
        Ok(())
    }
}

/// What there is to say about a run's calls in doubt; nothing if it has none.
async fn settled(services: &Arc<Services>, mut run: Run) -> Vec<Fact> {
    let now = services.clock.now();
    let mut facts = told(&mut run, RESTART, now);
    let doubts: Vec<_> = run.in_doubt().map(|(call, change)| (call.clone(), change.clone())).collect();
    if doubts.is_empty() {
        return Vec::new();
    }
    let Some(workspace) = workspace::find(services, &run).await else { return Vec::new() };
    for (call, change) in doubts {
        let input = match doubt::settle(&workspace, &change).await {
            Some(output) => Input::CallEnded(output.answer(call, None)),
            None => Input::NotMade(call),
        };
        facts.extend(told(&mut run, input, now));
    }
    // It goes on when it has a slot; no time of it passes until then.
    facts.extend(told(&mut run, Input::Interrupt, now));
    facts
}
