//! What runs and batches left in a state folder beside the log.
//!
//! A file that cannot be removed is told of and left: it is of nobody, and the next time finds it again.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use crate::domain::{
    id::{BatchId, RunId},
    time::Timestamp,
};

/// Outputs that were too long for the log, a folder a run.
const SPILL: &str = "spill";

/// Folders whose entries are named by a run, with more behind a dot perhaps.
const OF_RUNS: [&str; 2] = [SPILL, "patches"];

/// Letters of a run's id, written out.
const ID: usize = 36;

/// What there was when it was looked.
pub(super) struct Files {
    folder: PathBuf,
    of_run: Arc<BTreeMap<RunId, Vec<PathBuf>>>,
}

impl Files {
    /// Looks what there is in a state folder.
    pub(super) async fn of(folder: &Path) -> Self {
        let folder = folder.to_owned();
        let at = folder.clone();
        let of_run = blocking(move || look(&at)).await.unwrap_or_default();
        Self { folder, of_run: Arc::new(of_run) }
    }

    /// Removes what there is of these.
    pub(super) async fn remove(&self, batch: Option<BatchId>, runs: &[RunId]) {
        let paths = runs.iter().filter_map(|run| self.of_run.get(run)).flatten();
        let mut paths: Vec<PathBuf> = paths.cloned().collect();
        let inputs = batch.map(|batch| (self.folder.join("batches"), batch.to_string()));
        blocking(move || {
            paths.extend(inputs.into_iter().flat_map(|(folder, batch)| {
                entries(&folder).filter(move |path| is_named(path, &batch))
            }));
            for path in paths {
                if let Err(error) = remove(&path) {
                    tracing::warn!(path = %path.display(), %error, "what an old run left could not be removed");
                }
            }
        })
        .await;
    }

    /// Runs whose outputs were last written to before then.
    pub(super) fn spilled_before(&self, before: Timestamp) -> Vec<RunId> {
        let before = u64::try_from(before.as_micros()).unwrap_or_default();
        let before = SystemTime::UNIX_EPOCH + Duration::from_micros(before);
        let is_old = |path: &PathBuf| {
            path.starts_with(self.folder.join(SPILL))
                && path.symlink_metadata().and_then(|facts| facts.modified()).is_ok_and(|at| at < before)
        };
        let spilled = self.of_run.iter().filter(|(_, paths)| paths.iter().any(is_old));
        spilled.map(|(run, _)| *run).collect()
    }
}

fn look(folder: &Path) -> BTreeMap<RunId, Vec<PathBuf>> {
    let mut of_run: BTreeMap<RunId, Vec<PathBuf>> = BTreeMap::new();
    for path in OF_RUNS.iter().flat_map(|name| entries(&folder.join(name))) {
        let name = path.file_name().and_then(|name| name.to_str());
        let Some(run) = name.and_then(|name| name.get(..ID)?.parse::<RunId>().ok()) else { continue };
        if is_named(&path, &run.to_string()) {
            of_run.entry(run).or_default().push(path);
        }
    }
    of_run
}

/// Whether an entry's name is this one, or goes on behind a dot.
fn is_named(path: &Path, id: &str) -> bool {
    let rest = path.file_name().and_then(|name| name.to_str()?.strip_prefix(id));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn remove(path: &Path) -> io::Result<()> {
    let removed = match path.symlink_metadata() {
        Ok(facts) if facts.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Nothing if it panicked, which has told of itself.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}
