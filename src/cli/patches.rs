//! Patches of runs, from a state folder or the daemon.

use super::{Context, UsageError, asking::source, folder};
use crate::{
    app::isolation,
    cli::asking::Source,
    daemon::{
        client::{Client, Route},
        wire::RunDetail,
    },
    tool::isolate::patch_of,
};

/// What a run changed.
#[derive(Debug)]
pub(super) struct RunPatch {
    pub(super) detail: RunDetail,
    /// Empty if it changed nothing.
    pub(super) bytes: Vec<u8>,
}

/// The patches of these runs, in their order.
pub(super) async fn patches(runs: &[String], context: &Context) -> anyhow::Result<Vec<RunPatch>> {
    let source = source(context).await?;
    let mut patches = Vec::with_capacity(runs.len());
    for name in runs {
        let detail = match &source {
            Source::Folder(state) => folder::detail(state, name, false).await?,
            Source::Daemon(client, _) => client.get(&Route::to(["v1", "runs", name])).await?,
        };
        let bytes = match (&source, has_patch(name, &detail)?) {
            (_, false) => Vec::new(),
            (Source::Folder(state), true) => {
                let run = detail.run.id.parse()?;
                let path = patch_of(&isolation::patches(state), run);
                std::fs::read(&path).map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?
            }
            (Source::Daemon(client, _), true) => fetch(client, &detail.run.id).await?,
        };
        patches.push(RunPatch { detail, bytes });
    }
    if let Source::Folder(state) = source {
        state.close().await;
    }
    Ok(patches)
}

async fn fetch(client: &Client, run: &str) -> anyhow::Result<Vec<u8>> {
    Ok(client.bytes(&Route::to(["v1", "runs", run, "patch"])).await?)
}

/// Whether a run changed anything; an error, if that cannot be said.
fn has_patch(name: &str, RunDetail { run, isolate, .. }: &RunDetail) -> Result<bool, UsageError> {
    let why = match run.files_changed {
        Some(files) => return Ok(files > 0),
        None if isolate.as_deref().is_none_or(|how| how == "none") => {
            "had no workspace of its own, so nobody knows what it changed; --isolate gives it one"
        }
        None if run.outcome.is_none() => "has not ended yet",
        None => "ended before it had its workspace, or what it changed has yet to be put away",
    };
    Err(UsageError(format!("{name}: the run {why}")))
}
