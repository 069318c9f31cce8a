//! Workspaces of runs' own: where they lie in a state, and what an earlier process left of them.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
};

use futures_util::{StreamExt as _, stream};

use super::{herder::Herder, input::InputTask, own_files, state::State};
use crate::{
    config::{self, Config},
    domain::id::RunId,
    store::{EventStore, RunFilter, StoreError},
    tool::{
        isolate::{Change, Folders, Isolation, Keep, Options, WORK, change_of},
        process::ProcessRunner,
        workspace::Told,
    },
};

/// Workspaces that are put away at once.
const AT_ONCE: usize = 8;

/// What makes workspaces of runs' own in this state. Changes nothing.
pub fn isolation(config: &Config, state: &State) -> Isolation {
    let settings = &config.isolate;
    let options = Options {
        base: settings.base.clone(),
        branch: settings.branch.clone(),
        setup: settings.setup.clone(),
        setup_timeout: settings.setup_timeout(),
        copy: settings.copy.clone(),
        max_copy_bytes: settings.max_copy_bytes(),
        keep: match settings.keep {
            config::Keep::Failed => Keep::Failed,
            config::Keep::Always => Keep::Always,
            config::Keep::Never => Keep::Never,
        },
        env_pass: config.tools.env_pass.clone(),
        limits: super::tools::process_limits(config.tools.process),
        grace: config.supervisor.grace(),
    };
    let elsewhere = super::state::default_folder().unwrap_or_else(std::env::temp_dir);
    let folders = Folders {
        work: state.aside().join(WORK),
        elsewhere: elsewhere.join(WORK),
        patches: patches(state),
        own: own_files::paths(config, state),
    };
    Isolation::new(options, folders, ProcessRunner::default())
}

/// Where the patches of a state lie.
pub fn patches(state: &State) -> PathBuf {
    state.aside().join("patches")
}

/// What a run changed, if it had a workspace of its own and has ended.
pub async fn change(patches: &Path, run: RunId) -> Option<Change> {
    let patches = patches.to_owned();
    tokio::task::spawn_blocking(move || change_of(&patches, run)).await.ok().flatten()
}

/// What a run of this herder's changed, or that it is not known yet.
pub async fn change_by(herder: &Herder, run: RunId) -> Option<Change> {
    herder.supervisor.services().workspaces.isolation()?.change(run).await
}

/// Puts away what an earlier process did not get to: the workspaces of runs that have ended, and what was begun for
/// those that the log does not know.
///
/// # Errors
/// The log cannot be read.
pub async fn recover(isolation: &Isolation, store: &dyn EventStore) -> Result<(), StoreError> {
    let left = isolation.left_behind().await;
    let known = put_away(isolation, store, left.clone()).await?;
    for run in left.into_iter().filter(|run| !known.contains(run)) {
        isolation.discard_unfinished(run).await;
    }
    Ok(())
}

/// Puts away the workspaces of those of these runs that have ended. Returns which of them the log knows.
///
/// # Errors
/// The log cannot be read.
pub async fn put_away(
    isolation: &Isolation,
    store: &dyn EventStore,
    runs: Vec<RunId>,
) -> Result<BTreeSet<RunId>, StoreError> {
    if runs.is_empty() {
        return Ok(BTreeSet::new());
    }
    let records = store.runs(RunFilter { among: Some(runs), ..RunFilter::default() }).await?;
    let ended = records.iter().filter_map(|record| Some((record, record.end.as_ref()?)));
    let closing = ended.map(|(record, end)| {
        let task: Arc<str> = record.asked.as_ref().map(|asked| asked.about.clone()).unwrap_or_default();
        async move { isolation.close(record.run, end.outcome, &task).await }
    });
    stream::iter(closing).buffer_unordered(AT_ONCE).collect::<()>().await;
    Ok(records.iter().map(|record| record.run).collect())
}

/// Whether tasks can have the workspaces of their own that they ask for, as far as that is known before they are made.
///
/// # Errors
/// A sentence for each folder that they cannot be made from, with the first line that names it.
pub async fn check(isolation: &Isolation, tasks: &[InputTask]) -> Result<(), Vec<String>> {
    let mut seen = BTreeSet::new();
    let mut told = Vec::new();
    for InputTask { line, spec, .. } in tasks {
        if seen.insert((spec.isolate, spec.workspace.clone()))
            && let Err(error) = isolation.check(spec.isolate, Path::new(&*spec.workspace)).await
        {
            told.push(format!("line {line}: isolate: {}", Told(&error)));
        }
    }
    if told.is_empty() { Ok(()) } else { Err(told) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Durability;

    #[tokio::test]
    async fn of_runs_that_the_log_does_not_know_only_what_was_never_made_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let state = State::to_write(place.path(), Durability::Process).unwrap();
        let work = place.path().join("work");
        let leave = |number: u8, stage: &str| {
            let run = RunId::from_bytes([number; 16]);
            let root = work.join(run.to_string());
            std::fs::create_dir_all(&root).unwrap();
            std::fs::write(root.join("a.txt"), "work").unwrap();
            let meta = serde_json::json!({
                "made_by": "herder", "run": run, "isolate": "copy", "workspace": "/w", "root": root, "below": "",
                "base": "", "origin": null, "stage": stage,
            });
            std::fs::write(work.join(format!("{run}.json")), meta.to_string()).unwrap();
            root
        };
        let (begun, made) = (leave(1, "setting_up"), leave(2, "made"));
        let (config, _) = config::load(&config::Sources::default()).unwrap();
        recover(&isolation(&config, &state), &*state.store).await.unwrap();
        assert!(!begun.exists());
        assert_eq!(std::fs::read_to_string(made.join("a.txt")).unwrap(), "work");
    }
}
