//! Puts what a run changed into its patch, and its workspace away.
//!
//! Each step finds what the one before it left on disk, so that all of it can be done again from the start.

use std::path::{Path, PathBuf};

use super::{
    Change, IsolateError, Isolation, Keep, blocking,
    meta::{self, Meta, Origin, Stage, change_of, patch_of},
    nested::nested_in,
    repository::{Repository, remove_all},
};
use crate::{
    crash::{self, Point},
    domain::{id::RunId, outcome::Outcome},
};

/// Characters of a task that a commit's first line has.
const SUBJECT: usize = 64;

/// Characters of what git says that a sentence of herder's has.
const SAID: usize = 200;

/// What becomes of the branch of a worktree that is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Branch {
    Stays,
    Goes,
    /// Unless something was committed to it.
    GoesIfEmpty,
}

impl Isolation {
    pub(super) async fn put_away(
        &self,
        run: RunId,
        outcome: Outcome,
        task: &str,
    ) -> Result<(), IsolateError> {
        let work = &self.folders.work;
        let Some(meta) = meta::read(work, run).await.filter(|meta| meta.stage != Stage::Kept) else {
            return Ok(());
        };
        if let Some(origin) = &meta.origin {
            self.repository(origin).seal(run, &meta.root).await?;
        }
        self.unlock(&meta).await?;
        let patches = self.folders.patches.clone();
        let is_known = |change: &Change| change.error.is_none();
        let change = match blocking(move || Ok(change_of(&patches, run))).await?.filter(is_known) {
            Some(change) => change,
            None => {
                crash::point(Point::BeforePatch);
                let change = self.take_stock(&meta, outcome, task).await?;
                crash::point(Point::AfterCommit);
                meta::write_change(&self.folders.patches, run, &change).await?;
                crash::point(Point::AfterPatch);
                change
            }
        };
        match &change.kept {
            Some(kept) => {
                match &change.left_out {
                    Some(why) => tracing::warn!(run.id = %run, kept, "workspace of a run is kept: {why}"),
                    None => tracing::info!(run.id = %run, kept, "workspace of a run is kept"),
                }
                meta::write(work, &Meta { stage: Stage::Kept, ..meta }).await
            }
            None => self.remove(&meta, change.branch.as_ref().map_or(Branch::Goes, |_| Branch::Stays)).await,
        }
    }

    /// What the run changed. The patch is in its place after this, and the commit on its branch.
    async fn take_stock(&self, meta: &Meta, outcome: Outcome, task: &str) -> Result<Change, IsolateError> {
        let is_done = outcome == Outcome::Done;
        let root = meta.root.clone();
        let is_there = blocking(move || Ok(root.is_dir())).await?;
        let mut files = 0;
        let (mut nested_new, mut left) = (Vec::new(), None);
        let (mut patch_path, mut tip) = (None, None);
        let is_made = meta.stage == Stage::Made && is_there;
        if is_made {
            let view = self.view(meta);
            let top = meta.root.clone();
            let nested = blocking(move || Ok(nested_in(&top))).await?;
            let taken = view.take_in(&meta.brought, nested.keys()).await?;
            left = taken.left;
            let is_new = |path: &Path, like| meta.nested.get(&*path.to_string_lossy()) != Some(like);
            let new = nested.iter().filter(|(path, like)| is_new(path, like));
            nested_new = view.not_ignored(new.map(|(path, _)| path.clone()).collect()).await?;
            let patch = self.patch_path(meta.run).await?;
            files = view.patch(&meta.base, &patch).await?;
            if files > 0 {
                patch_path = Some(patch.to_string_lossy().into_owned());
                crash::point(Point::BeforeCommit);
                if let Some(origin) = &meta.origin {
                    let repository = self.repository(origin);
                    tip = if is_done {
                        let message = message(task, meta.run);
                        Some(
                            repository
                                .commit(&self.git, &origin.branch, &meta.base, &taken.tree, message)
                                .await?,
                        )
                    } else {
                        repository.tip(&self.git, &origin.branch).await?.map(|(tip, _)| tip)
                    };
                }
            }
        }
        // A failed setup leaves nothing changed, but something to look at.
        let has_something = files > 0 || meta.stage == Stage::SettingUp;
        let is_wanted = match self.options.keep {
            Keep::Always => true,
            Keep::Failed => !is_done && has_something,
            Keep::Never => false,
        };
        // Nothing else has what is in no patch.
        let keeps = is_wanted || !nested_new.is_empty() || left.is_some();
        let kept = (keeps && is_there && meta.stage != Stage::Making)
            .then(|| meta.place().to_string_lossy().into_owned());
        let branch = match &meta.origin {
            Some(origin) if kept.is_some() => Some(origin.branch.clone()),
            Some(origin) => tip.filter(|tip| *tip != meta.base).map(|_| origin.branch.clone()),
            None => None,
        };
        let base = meta.origin.as_ref().map(|_| meta.base.clone());
        let left_out = left_out_of(&nested_new, left.as_deref(), kept.as_deref());
        Ok(Change { branch, base, patch_path, files_changed: files, kept, error: None, left_out })
    }

    /// Removes a workspace, and what is known of it.
    pub(super) async fn remove(&self, meta: &Meta, branch: Branch) -> Result<(), IsolateError> {
        crash::point(Point::BeforeRemoval);
        match &meta.origin {
            Some(origin) => {
                let (repository, name) = (self.repository(origin), &origin.branch);
                repository.remove(meta.run, &meta.root).await?;
                crash::point(Point::AfterRemoval);
                match branch {
                    Branch::Stays => {}
                    Branch::Goes => repository.delete(&self.git, name, None).await?,
                    Branch::GoesIfEmpty => repository.delete(&self.git, name, Some(&meta.base)).await?,
                }
            }
            None => {
                let root = meta.root.clone();
                blocking(move || remove_all(&root)).await?;
            }
        }
        let (index, objects) = (self.index(meta), self.folders.work.join(format!("{}.git", meta.run)));
        blocking(move || {
            // It is not there if the workspace was hardly begun; and it is found by nobody any more.
            let _ = std::fs::remove_file(&index);
            remove_all(&objects)
        })
        .await?;
        meta::forget(&self.folders.work, meta.run).await
    }

    pub(super) fn repository(&self, Origin { top, common, .. }: &Origin) -> Repository {
        self.repositories.at(top.clone(), common.clone(), PathBuf::new())
    }

    /// Where the patch goes, as whoever reads of it can find it.
    async fn patch_path(&self, run: RunId) -> Result<PathBuf, IsolateError> {
        let patches = self.folders.patches.clone();
        blocking(move || {
            use std::os::unix::fs::DirBuilderExt as _;
            let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&patches);
            let real =
                made.and_then(|()| patches.canonicalize()).map_err(IsolateError::io("make", patches))?;
            Ok(patch_of(&real, run))
        })
        .await
    }
}

/// Says what of a workspace is in no patch.
fn left_out_of(nested: &[PathBuf], left: Option<&str>, kept: Option<&str>) -> Option<String> {
    let kept = kept?;
    let names: Vec<String> = nested.iter().map(|path| path.display().to_string()).collect();
    let repositories = (!names.is_empty())
        .then(|| format!("what is in repositories within the workspace ({})", names.join(", ")));
    let files = left.map(|said| {
        let said: String = said.lines().next().unwrap_or_default().chars().take(SAID).collect();
        format!("files that git could not take in ({said})")
    });
    let what: Vec<String> = repositories.into_iter().chain(files).collect();
    (!what.is_empty())
        .then(|| format!("the patch does not have {}; the workspace is kept at {kept}", what.join(", nor ")))
}

/// A commit's message: the beginning of the task, and which run it was.
fn message(task: &str, run: RunId) -> String {
    let line = task.trim().lines().next().unwrap_or_default();
    let subject: String = line.chars().take(SUBJECT).collect();
    let more = if subject.len() < line.len() { "..." } else { "" };
    let subject = if subject.is_empty() { "Work of a run" } else { subject.as_str() };
    format!("{subject}{more}\n\nherder-run: {run}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_called_by_the_beginning_of_its_task() {
        let run = RunId::from_bytes([1; 16]);
        assert_eq!(message("Fix it\nnow", run), format!("Fix it\n\nherder-run: {run}\n"));
        assert!(message(&"x".repeat(100), run).starts_with(&format!("{}...\n", "x".repeat(64))));
    }
}
