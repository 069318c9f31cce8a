//! A run's workspace, from before its actor starts until it has ended: the folder of its task, or one of its own.
//!
//! All of it is for tasks beside the actors: file systems and git may take any time.

use std::{panic::AssertUnwindSafe, path::PathBuf, sync::Arc};

use futures_util::FutureExt as _;
use ractor::ActorRef;

use super::{message::RootMsg, over::Ended};
use crate::{
    actor::Services,
    domain::{
        event::Event,
        id::{RunId, Seq},
        run::Run,
    },
    tool::{
        isolate::Begun,
        workspace::{Told, Workspace},
    },
};

/// Opens the workspace of a run that is about to have an actor.
pub(super) async fn open(services: &Arc<Services>, run: &Run) -> Result<Arc<Workspace>, String> {
    let Some(spec) = run.spec() else { return Err("the log does not begin with a task".to_owned()) };
    if spec.isolate.is_none() {
        let (services, path) = (services.clone(), spec.workspace.clone());
        let opened = tokio::task::spawn_blocking(move || services.workspaces.get(&path)).await;
        return match opened {
            Ok(opened) => opened.map_err(|error| Told(&error).to_string()),
            Err(error) => Err(error.to_string()),
        };
    }
    let Some(isolation) = services.workspaces.isolation() else {
        return Err(format!("isolate = {:?} is not set up here", spec.isolate.as_str()));
    };
    let begun = if run.started_at().is_some() { Begun::Yes } else { Begun::No };
    let site = isolation.open(run.id(), spec, begun).await.map_err(|error| Told(&error).to_string())?;
    open_own(services, run.id(), site).await
}

/// The workspace of a run that is not live, if it is there.
pub(super) async fn find(services: &Arc<Services>, run: &Run) -> Option<Arc<Workspace>> {
    let spec = run.spec()?;
    if spec.isolate.is_none() {
        return open(services, run).await.ok();
    }
    let site = services.workspaces.isolation()?.find(run.id()).await?;
    open_own(services, run.id(), site).await.ok()
}

async fn open_own(services: &Arc<Services>, run: RunId, path: PathBuf) -> Result<Arc<Workspace>, String> {
    let Some(real) = path.to_str().map(Arc::from) else {
        return Err(format!("{} is not valid UTF-8", path.display()));
    };
    let services = services.clone();
    let get = move || services.workspaces.get_own(run, &real);
    match tokio::task::spawn_blocking(get).await {
        Ok(opened) => opened.map_err(|error| Told(&error).to_string()),
        Err(error) => Err(error.to_string()),
    }
}

/// Puts away the own workspace of a run whose end is on disk, and tells the root when that is done. Whether there is one.
pub(super) fn close(services: &Arc<Services>, root: &ActorRef<RootMsg>, ended: &Ended) -> bool {
    let isolation = services.workspaces.isolation().filter(|isolation| isolation.knows(ended.run));
    let (Some(isolation), Ok(end)) = (isolation.cloned(), ended.end.clone()) else { return false };
    let (services, root, run) = (services.clone(), root.clone(), ended.run);
    tokio::spawn(async move {
        let work = async {
            let task = task(&services, run).await;
            isolation.close(run, end.outcome, &task).await;
        };
        // Whatever goes wrong, those who wait for the run are told.
        if AssertUnwindSafe(work).catch_unwind().await.is_err() {
            tracing::error!(run.id = %run, "putting away a workspace panicked");
        }
        services.workspaces.disown(run);
        let _ = root.cast(RootMsg::Closed(run));
    });
    true
}

async fn task(services: &Services, run: RunId) -> Arc<str> {
    let log = services.store.read_some(run, Seq::START, 1).await.unwrap_or_default();
    match log.into_iter().next().map(|envelope| envelope.fact.event) {
        Some(Event::Submitted(spec)) => spec.task.clone(),
        Some(_) | None => Arc::default(),
    }
}
