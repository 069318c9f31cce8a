//! What runs changed in workspaces of their own.

use super::Desk;
use crate::{
    daemon::wire::{ApiError, Code},
    domain::id::RunId,
    tool::isolate::{Change, change_of, patch_of},
};

impl Desk {
    /// What a run changed in a workspace of its own, if it has ended.
    pub(super) fn change(&self, run: RunId) -> Option<Change> {
        let isolation = self.herder.supervisor.services().workspaces.isolation()?;
        change_of(isolation.patches(), run)
    }

    /// The patch with it.
    ///
    /// # Errors
    /// There is no such run, or it has none.
    pub async fn patch(&self, name: &str) -> Result<Vec<u8>, ApiError> {
        let run = self.run_named(name).await?;
        let patches = self.herder.supervisor.services().workspaces.isolation();
        let path = patches.map(|isolation| patch_of(isolation.patches(), run));
        let read = tokio::task::spawn_blocking(move || path.and_then(|path| std::fs::read(path).ok())).await;
        read.ok().flatten().ok_or_else(|| ApiError::new(Code::NoPatch, no_patch(run)))
    }
}

fn no_patch(run: RunId) -> String {
    format!("run {run} has no patch: it has not ended, changed nothing, or had no workspace of its own")
}
