//! Taking old runs off the record: when somebody asks, and by itself as the configuration says.

use std::time::Duration;

use super::{By, Desk};
use crate::{
    app::{
        prune::{Act, Place, Pruned, Terms, prune},
        state::log_bytes,
    },
    config::Retention,
    daemon::wire::{ApiError, Code, Prune, PruneReport},
    domain::time::Timestamp,
    store::StoreError,
};

/// Between two times that it happens by itself.
const DAY: Duration = Duration::from_secs(24 * 3_600);

impl Desk {
    /// Removes runs that are old, or says which would be.
    ///
    /// # Errors
    /// The log cannot be read or written; what had gone by then is gone.
    pub async fn prune(&self, ask: Prune, by: &By) -> Result<PruneReport, ApiError> {
        self.open()?;
        let Prune { older_than_s, keep_failed, dry_run } = ask;
        let (act, age) =
            (if dry_run { Act::Look } else { Act::Remove }, Duration::from_secs(older_than_s.into()));
        let pruned = self.prune_older(age, keep_failed, act, by).await?;
        let Pruned { runs, batches, unfinished } =
            pruned.ok_or_else(|| ApiError::new(Code::Unavailable, "the daemon is stopping"))?;
        Ok(PruneReport { dry_run, runs, batches, unfinished, log_bytes: log_bytes(&self.place.state) })
    }

    /// Removes what the configuration says is old, now and once a day, until the daemon is over.
    pub async fn keep_pruned(&self) {
        loop {
            let Retention { older_than, keep_failed } = self.config().retention;
            if let Some(age) = older_than {
                match self.prune_older(age.0, keep_failed, Act::Remove, &By::default()).await {
                    Ok(Some(Pruned { runs, batches, .. })) => {
                        tracing::info!(runs, batches, "old runs removed")
                    }
                    Ok(None) => return,
                    Err(error) => tracing::warn!(%error, "old runs could not be removed"),
                }
            }
            if self.until_over(tokio::time::sleep(DAY)).await.is_none() {
                return;
            }
        }
    }

    /// Nothing if the daemon is over before. What was removed by then is gone, and what is left is whole.
    async fn prune_older(
        &self,
        age: Duration,
        keep_failed: bool,
        act: Act,
        by: &By,
    ) -> Result<Option<Pruned>, StoreError> {
        // One at a time, or two would count the same.
        let Some(_alone) = self.until_over(self.pruning.lock()).await else { return Ok(None) };
        let age = i64::try_from(age.as_micros()).unwrap_or(i64::MAX);
        let before = Timestamp::from_micros(self.now().as_micros().saturating_sub(age));
        let isolation = self.herder.supervisor.services().workspaces.isolation().cloned();
        let place =
            Place { folder: self.place.state.clone(), batches: Some(self.batches.clone()), isolation };
        let terms = Terms { before, keep_failed };
        let Some(pruned) = self.until_over(prune(&**self.store(), &place, terms, act)).await else {
            return Ok(None);
        };
        let pruned = pruned?;
        if act == Act::Remove {
            let Pruned { runs, batches, .. } = pruned;
            let told = format!("runs {runs}, batches {batches}, older than {} s", age / 1_000_000);
            self.audit(by, "prune", "runs", runs + batches > 0, Some(told));
        }
        Ok(Some(pruned))
    }
}
