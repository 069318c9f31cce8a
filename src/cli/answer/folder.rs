//! Answers to runs of a state folder: put on record here, or left for the process that has the folder to itself.

use std::{path::PathBuf, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::Answering;
use crate::{
    app::{
        approvals::{AnswerError, Found, NameError, Spool, Spooled, find, name_of_run, remove},
        state::{State, StateError},
    },
    cli::{Context, UsageError, approvals::shown, asking},
    clock::SystemClock,
    config::Durability,
    daemon::{
        client::ClientError,
        wire::{Answered, ApiError, ApprovalDetail},
    },
    domain::{id::Seq, run::Answer},
    store::folder::{FolderError, Holder},
};

/// How long the process that has the folder may take to take an answer up.
const PATIENCE: Duration = Duration::from_secs(30);

/// Between two looks at whether it has.
const PAUSE: Duration = Duration::from_millis(200);

/// A folder with runs.
pub(super) struct Folder {
    path: PathBuf,
    durability: Durability,
    access: Access,
}

/// What may be done with it.
enum Access {
    /// Nobody else writes to it.
    Ours(State),
    /// Another process has it, and puts on record what it is left.
    Theirs(State, Holder),
}

impl Folder {
    /// Takes the folder for as long as this lives, unless another process has it.
    pub(super) async fn new(state: State, context: &Context) -> anyhow::Result<Self> {
        let path = state.folder.as_ref().map(|folder| folder.path().to_owned()).unwrap_or_default();
        let durability = context.config.store.durability;
        let access = match State::to_write(&path, durability) {
            Ok(ours) => {
                state.close().await;
                Access::Ours(ours)
            }
            Err(StateError::Folder(FolderError::InUse { holder, .. })) => Access::Theirs(state, holder),
            Err(error) => return Err(error.into()),
        };
        let mut folder = Self { path, durability, access };
        match &folder.access {
            Access::Ours(_) => folder.settle().await,
            Access::Theirs(_, holder) => folder.check_daemon(*holder, context).await?,
        }
        Ok(folder)
    }

    pub(super) const fn state(&self) -> &State {
        match &self.access {
            Access::Ours(state) | Access::Theirs(state, _) => state,
        }
    }

    pub(super) async fn detail(&self, name: &str) -> anyhow::Result<ApprovalDetail> {
        let found = find(&*self.state().store, name).await.map_err(refused)?;
        let run = name_of_run(&*self.state().store, &found.run).await?;
        let none = || UsageError(format!("{name}: there is no such approval"));
        Ok(shown::detail_of(&found, &run).ok_or_else(none)?)
    }

    pub(super) async fn answer(
        &mut self,
        name: &str,
        answering: &Answering,
        by: Option<Arc<str>>,
    ) -> anyhow::Result<Answered> {
        let store = self.state().store.clone();
        let found = find(&*store, name).await.map_err(refused)?;
        let answer = found.answer(&answering.said, None).map_err(not_taken)?;
        let command = answering.command.clone();
        let seq = if found.answered(&answer, &command).map_err(not_taken)?.is_some() {
            None
        } else if let Access::Ours(_) = self.access {
            let given = found.resolve_unattended(&*store, &SystemClock, answer, (command, by)).await;
            Some(given.map_err(not_taken)?)
        } else {
            Some(self.leave(&found, answer, (command, by)).await?)
        };
        Ok(Answered {
            id: found.name(),
            answer: answering.verdict(),
            command_id: answering.command.to_string(),
            changed: seq.is_some(),
            seq: seq.map(Seq::get),
        })
    }

    /// Leaves an answer for the process that has the folder, and waits until it is of record. If that process goes away
    /// meanwhile, it is put on record here.
    async fn leave(
        &mut self,
        found: &Found,
        answer: Answer,
        (command, by): (Arc<str>, Option<Arc<str>>),
    ) -> anyhow::Result<Seq> {
        let spooled = Spooled::new((found.run.id(), found.number), answer.clone(), (command.clone(), by));
        let place = Spool::of(&self.path).put(&spooled)?;
        let until = Instant::now() + PATIENCE;
        loop {
            let now = found.again(&*self.state().store).await?;
            if now.resolution().is_some() {
                // Else whoever has the folder would still try to.
                remove(&place)?;
                now.answered(&answer, &command).map_err(not_taken)?;
                return Ok(now.run.seq());
            }
            match &self.access {
                Access::Theirs(_, holder) if Instant::now() > until => anyhow::bail!(
                    "the answer to {} is left for {holder}, which has not taken it up within {} s; it still may",
                    found.name(),
                    PATIENCE.as_secs()
                ),
                Access::Theirs(..) => {
                    tokio::time::sleep(PAUSE).await;
                    self.take_over().await;
                }
                // It was settled as the folder was taken, and has come to nothing.
                Access::Ours(_) => {
                    let seq = now.resolve_unattended(
                        &*self.state().store,
                        &SystemClock,
                        answer,
                        (command, spooled.by),
                    );
                    return seq.await.map_err(not_taken);
                }
            }
        }
    }

    /// Takes the folder if nobody has it any more.
    async fn take_over(&mut self) {
        if let Ok(ours) = State::to_write(&self.path, self.durability) {
            self.access = Access::Ours(ours);
            self.settle().await;
        }
    }

    async fn settle(&mut self) {
        Spool::of(&self.path).settle(&*self.state().store, &SystemClock).await;
    }

    /// The daemon is asked, since it puts on record who asked it.
    async fn check_daemon(&self, holder: Holder, context: &Context) -> anyhow::Result<()> {
        match asking::daemon(context).await {
            Some(status) if holder.pid() == Some(status.pid) => Err(UsageError(format!(
                "{}: the daemon, process {}, keeps its runs there; leave --state out to ask it",
                self.path.display(),
                status.pid
            ))
            .into()),
            Some(_) | None => Ok(()),
        }
    }
}

fn refused(error: NameError) -> anyhow::Error {
    ClientError::Refused(ApiError::from(error)).into()
}

fn not_taken(error: AnswerError) -> anyhow::Error {
    ClientError::Refused(ApiError::from(error)).into()
}
