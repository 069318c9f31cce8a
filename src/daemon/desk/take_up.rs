//! Runs that an earlier daemon left: those whose model can be asked go on; the others wait for a configuration that has it.

use std::sync::{Arc, PoisonError};

use futures_util::{StreamExt as _, stream};
use serde_json::json;

use super::Desk;
use crate::{
    app::batches::BatchState,
    config::Occasion,
    domain::id::{BatchId, RunId},
    store::RunFilter,
};

/// Logs that are read at once.
const AT_ONCE: usize = 8;

impl Desk {
    /// Has these open runs go on.
    pub async fn take_up(&self, runs: Vec<RunId>) {
        let left = stream::iter(runs)
            .map(|run| async move { (!self.take_up_one(run).await).then_some(run) })
            .buffered(AT_ONCE)
            .filter_map(std::future::ready)
            .collect::<Vec<_>>()
            .await;
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) = left;
    }

    /// Tries again what could not be taken up.
    pub(super) async fn take_up_the_rest(&self) {
        let left = std::mem::take(&mut *self.left.lock().unwrap_or_else(PoisonError::into_inner));
        self.take_up(left).await;
        self.batches.take_up_the_rest().await;
    }

    async fn take_up_one(&self, run: RunId) -> bool {
        let named = RunFilter { id_prefix: Some(run.to_string()), limit: Some(1), ..RunFilter::default() };
        let record = match self.store().runs(named).await {
            Ok(mut found) => found.pop(),
            Err(error) => {
                tracing::error!(run.id = %run, %error, "open run not taken up");
                return false;
            }
        };
        let model = record.and_then(|record| Some(record.asked.as_ref()?.model.clone())).unwrap_or_default();
        if let Err(error) = self.herder.add_model()(&self.config(), &model) {
            tracing::error!(run.id = %run, %error, "open run waits for its model to be configured");
            return false;
        }
        match self.herder.supervisor.resume(run).await {
            Ok(_) => true,
            Err(error) => {
                tracing::error!(run.id = %run, %error, "open run not taken up");
                false
            }
        }
    }

    /// Tells whoever wants to hear of it when the batches that are open end.
    pub async fn watch_batches(self: &Arc<Self>) {
        for status in self.batches.list().await {
            if status.state == BatchState::Open {
                self.watch_batch(status.id);
            }
        }
    }

    /// Tells whoever wants to hear of it when this batch ends.
    pub(super) fn watch_batch(self: &Arc<Self>, id: BatchId) {
        let Ok(mut watch) = self.batches.watch(id) else { return };
        let desk = self.clone();
        tokio::spawn(async move {
            let ended = watch.wait_for(|status| status.state != BatchState::Open).await;
            // Closed when the daemon stops before.
            let Ok(status) = ended.map(|status| status.clone()) else { return };
            let news = json!({
                "id": status.id.to_string(), "name": status.name, "state": status.state,
                "tasks": status.counts.tasks, "ended": status.counts.settled, "halted": status.halted,
            });
            desk.teller.tell(&desk.config().notify, Occasion::BatchEnd, &news);
        });
    }
}
