//! Runs that an earlier daemon left: those whose model can be asked go on; the others wait for a configuration that has it.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError},
};

use futures_util::{StreamExt as _, stream};
use serde_json::json;

use super::{Desk, submit::invalid};
use crate::{
    config::Occasion,
    daemon::wire::{ApiError, Code},
    domain::id::{BatchId, RunId},
    store::{RunFilter, RunRecord},
};

/// Logs that are read at once.
const AT_ONCE: usize = 8;

impl Desk {
    /// Has these open runs go on.
    pub async fn take_up(&self, runs: Vec<RunId>) {
        let left = stream::iter(runs)
            .map(|run| async move {
                let taken = match self.record(run).await {
                    Ok(record) => self.take_up_one(&record).await,
                    Err(error) => Err(error),
                };
                let why = taken.err()?.message;
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

    async fn record(&self, run: RunId) -> Result<RunRecord, ApiError> {
        let named = RunFilter { id_prefix: Some(run.to_string()), limit: Some(1), ..RunFilter::default() };
        let found = self.store().runs(named).await?.pop();
        found.ok_or_else(|| ApiError::new(Code::UnknownRun, format!("there is no run {run}")))
    }

    /// Has an open run go on that nobody is at work on, or says why it cannot.
    pub(super) async fn take_up_one(&self, record: &RunRecord) -> Result<(), ApiError> {
        let model = record.asked.as_ref().map(|asked| asked.model.clone()).unwrap_or_default();
        let (add_model, config) = (self.herder.add_model(), self.config());
        // A key may lie in a file.
        let added =
            tokio::task::spawn_blocking(move || add_model(&config, &model).map_err(|error| invalid(&error)));
        match added.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                let what = format!("the run waits for its model to be configured: {}", error.message);
                return Err(ApiError::new(Code::Busy, what));
            }
            Err(error) => return Err(ApiError::new(Code::Internal, error.to_string())),
        }
        self.herder.supervisor.resume(record.run).await?;
        self.left.lock().unwrap_or_else(PoisonError::into_inner).remove(&record.run);
        Ok(())
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
            while let Ok(status) = watch.wait_for(|status| status.ends > told).await.map(|it| it.clone()) {
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
