//! Runs that an earlier daemon left: those whose model can be asked go on; the others wait for a configuration that has it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, PoisonError},
};

use futures_util::{StreamExt as _, stream};
use serde_json::json;

use super::{Desk, submit::invalid};
use crate::{
    app::spent,
    config::Occasion,
    daemon::wire::{ApiError, Code},
    domain::id::{BatchId, RunId},
    store::{RunRecord, StoreError},
};

/// Runs that are taken up at once. A log is read behind what those that go on already are writing, so each has to wait for
/// the disk: many wait together.
const AT_ONCE: usize = 256;

impl Desk {
    /// Counts what users have spent before. Comes before any run goes on.
    ///
    /// # Errors
    /// The log cannot be read.
    pub async fn restore_spent(&self) -> Result<(), StoreError> {
        let (config, add_model) = (self.config(), self.herder.add_model());
        // Without its model a run does not go on, and says so then.
        spent::restore_users(&self.herder.supervisor, &|name| drop(add_model(&config, name))).await
    }

    /// Settles what an earlier daemon left in doubt. Comes before any run goes on, of a batch or not, since whichever does
    /// first may work on the same files.
    ///
    /// # Errors
    /// The log cannot be read or written.
    pub async fn settle(&self) -> Result<(), StoreError> {
        // What was never called is in no doubt, and that is known of each run whose log can be read.
        let in_doubt = self.hub.board().ids(|glance| !glance.calls().is_empty());
        self.herder.supervisor.settle(in_doubt).await
    }

    /// Has these open runs go on.
    pub async fn take_up(&self, runs: Vec<RunId>) {
        let model = |run| self.hub.board().get(run).map(|glance| glance.model.clone());
        let first = |run| self.hub.board().get(run).map(|glance| glance.first_model.clone());
        let named = runs.iter().flat_map(|run| [model(*run), first(*run)]).flatten();
        let mut missing = BTreeMap::new();
        // Where only the first is missing, a run that has left it goes on without what else it could fall back on.
        for name in named.collect::<BTreeSet<_>>() {
            if let Err(error) = self.add_model(&name).await {
                missing.insert(name, error.message);
            }
        }
        let missing = &missing;
        let left = stream::iter(runs)
            .map(|run| async move {
                let why = match model(run).and_then(|name| missing.get(&name)) {
                    Some(why) => why.clone(),
                    None => ApiError::from(self.herder.supervisor.resume(run).await.err()?).message,
                };
                tracing::error!(run.id = %run, why, "open run not taken up");
                Some((run, why))
            })
            .buffered(AT_ONCE)
            .filter_map(std::future::ready)
            .collect::<BTreeMap<_, _>>()
            .await;
        self.left.lock().unwrap_or_else(PoisonError::into_inner).extend(left);
    }

    /// Tries again what could not be taken up.
    pub(super) async fn take_up_the_rest(&self) {
        let left = std::mem::take(&mut *self.left.lock().unwrap_or_else(PoisonError::into_inner));
        self.take_up(left.into_keys().collect()).await;
        self.batches.take_up_the_rest();
    }

    /// Why an open run was not taken up, if it was not.
    pub(super) fn left(&self, run: RunId) -> Option<String> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).get(&run).cloned()
    }

    /// Has an open run go on that nobody is at work on, or says why it cannot.
    pub(super) async fn take_up_one(&self, record: &RunRecord) -> Result<(), ApiError> {
        let first = record.asked.as_ref().map(|asked| asked.model.clone()).unwrap_or_default();
        let model =
            self.hub.board().get(record.run).map_or_else(|| first.clone(), |glance| glance.model.clone());
        if model != first {
            // Without it the run goes on all the same.
            drop(self.add_model(&first).await);
        }
        self.add_model(&model).await?;
        self.herder.supervisor.resume(record.run).await?;
        self.left.lock().unwrap_or_else(PoisonError::into_inner).remove(&record.run);
        Ok(())
    }

    /// Has a model be there for runs that go on.
    async fn add_model(&self, name: &str) -> Result<(), ApiError> {
        let (add_model, config, model) = (self.herder.add_model(), self.config(), name.to_owned());
        // A key may lie in a file.
        let added =
            tokio::task::spawn_blocking(move || add_model(&config, &model).map_err(|error| invalid(&error)));
        match added.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                let what = format!("the run waits for its model to be configured: {}", error.message);
                Err(ApiError::new(Code::Busy, what))
            }
            Err(error) => Err(ApiError::new(Code::Internal, error.to_string())),
        }
    }

    /// Tells whoever wants to hear of it when batches end.
    pub async fn watch_batches(self: &Arc<Self>) {
        for status in self.batches.list().await {
            self.watch_batch(status.id);
        }
    }

    /// Tells whoever wants to hear of it when this batch ends, each time that it does.
    pub(super) fn watch_batch(self: &Arc<Self>, id: BatchId) {
        let Some(mut watch) = self.batches.watch_ends(id) else { return };
        let desk = self.clone();
        tokio::spawn(async move {
            let mut told = 0;
            // Closed when the daemon stops before.
            while let Some(Ok(status)) = desk
                .until_over(async { watch.wait_for(|status| status.ends > told).await.map(|it| it.clone()) })
                .await
            {
                told = status.ends;
                let news = json!({
                    "id": status.id.to_string(), "name": status.name, "state": status.state,
                    "tasks": status.counts.tasks, "ended": status.counts.settled, "halted": status.halted,
                });
                desk.teller.tell(&desk.config().notify, Occasion::BatchEnd, &news);
            }
        });
    }
}
