//! The results of a batch as they are read: one line for each settled task, in the order in which they were settled.
//!
//! Lines are made from the log one at a time as somebody reads them, so a slow reader costs nobody anything.

use std::{collections::BTreeSet, sync::Arc};

use futures_util::{Stream, stream};
use tokio::sync::watch;

use super::{
    Batches, ControlError,
    board::{Board, Closed, Found},
    entry::Entry,
    status::{BatchState, Status},
};
use crate::{
    app::{
        batch::{History, ResultLine, end_of},
        conversation::chat_completions,
    },
    domain::{
        event::Event,
        id::{BatchId, RunId, Seq},
        run::Run,
    },
    store::{EventStore, StoreError},
    tool::isolate::{Change, Isolation},
};

/// Why there are no more results.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("run {0} has no result in the log")]
    NoResult(RunId),
    /// There will be more once the batch goes on.
    #[error("the batch has stopped before its end")]
    Unfinished,
}

/// How results are read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading {
    /// Goes on as they come, until the batch has ended.
    pub follow: bool,
    /// With the whole conversation of each.
    pub with_messages: bool,
    /// Passes over so many of the first: lines that a reader has had, those included that later ones replaced.
    pub after: usize,
}

/// Somebody who reads the results of a batch.
struct Reader {
    store: Arc<dyn EventStore>,
    isolation: Option<Arc<Isolation>>,
    entry: Arc<Entry>,
    board: Option<Arc<Board>>,
    changed: watch::Receiver<Status>,
    next: usize,
    how: Reading,
    is_over: bool,
}

impl Batches {
    /// The result lines of a batch: those of record, and if the reader follows, those that are still to come, until it has
    /// ended. After an error there is no more.
    ///
    /// Lines keep their order while this process lives; a later one has them in the order of the ends on record.
    ///
    /// # Errors
    /// There is no such batch, or the log cannot be read.
    pub async fn results(
        &self,
        id: BatchId,
        how: Reading,
    ) -> Result<impl Stream<Item = Result<Vec<u8>, ResultsError>> + Send + use<>, ControlError> {
        let entry = self.entry(id)?;
        let (store, changed) = (self.0.store.clone(), entry.status.subscribe());
        let isolation = self.0.supervisor.services().workspaces.isolation().cloned();
        // Who follows waits for the lines themselves.
        let board = if how.follow { None } else { Some(board(&*store, &entry).await?) };
        let reader = Reader { store, isolation, entry, board, changed, next: how.after, how, is_over: false };
        Ok(stream::unfold(reader, Reader::read))
    }
}

/// Where the tasks of a batch stand. One that is being changed, or taken up, is waited for.
async fn board(store: &dyn EventStore, entry: &Entry) -> Result<Arc<Board>, StoreError> {
    let work = entry.work.lock().await;
    if let Some(board) = entry.board() {
        return Ok(board);
    }
    let history = History::read(store, entry.id).await?;
    let status = watch::Sender::new(entry.status.borrow().clone());
    let board = Board::new(status, history.ids(), &history, &BTreeSet::new(), &entry.order());
    board.close(match work.record.state {
        BatchState::Open => Closed::Unfinished,
        BatchState::Cancelled | BatchState::Ended => Closed::Complete,
    });
    Ok(Arc::new(board))
}

/// Whether a batch has been ended, and its runs have yet to.
async fn is_ending(entry: &Entry) -> bool {
    let work = entry.work.lock().await;
    work.record.state != BatchState::Open && work.record.summary.is_none() && entry.board().is_none()
}

impl Reader {
    async fn line(&self, run: RunId) -> Result<Vec<u8>, ResultsError> {
        let change = match &self.isolation {
            Some(isolation) => isolation.change(run).await,
            None => None,
        };
        line(&*self.store, run, change, self.how.with_messages).await
    }

    async fn read(mut self) -> Option<(Result<Vec<u8>, ResultsError>, Self)> {
        while !self.is_over {
            if self.how.follow && self.board.is_none() {
                self.changed.mark_unchanged();
                if is_ending(&self.entry).await {
                    self.is_over = self.changed.changed().await.is_err();
                    continue;
                }
            }
            let board = match &self.board {
                Some(board) => board.clone(),
                None => match board(&*self.store, &self.entry).await {
                    Ok(board) => self.board.insert(board).clone(),
                    Err(error) => {
                        self.is_over = true;
                        return Some((Err(error.into()), self));
                    }
                },
            };
            self.changed.mark_unchanged();
            match board.next(&mut self.next) {
                Found::Result(run) => {
                    let line = self.line(run).await;
                    self.is_over = line.is_err();
                    return Some((line, self));
                }
                Found::Wait if self.how.follow => {
                    // Closed only with the batch, which this knows of.
                    self.is_over = self.changed.changed().await.is_err();
                }
                Found::Closed(Closed::Unfinished) if self.how.follow => {
                    self.is_over = true;
                    return Some((Err(ResultsError::Unfinished), self));
                }
                Found::Wait | Found::Closed(_) => return None,
            }
        }
        None
    }
}

/// Of the log only what the line holds is read: a run's may be long.
async fn line(
    store: &dyn EventStore,
    run: RunId,
    change: Option<Change>,
    with_messages: bool,
) -> Result<Vec<u8>, ResultsError> {
    let log = if with_messages {
        store.read(run, Seq::START).await?
    } else {
        store.read_some(run, Seq::START, 1).await?
    };
    let Some(Event::Submitted(spec)) = log.first().map(|envelope| &envelope.fact.event) else {
        return Err(ResultsError::NoResult(run));
    };
    let end = end_of(store, run).await?.ok_or(ResultsError::NoResult(run))?;
    let mut line = ResultLine::new(run, spec, &end).with_change(change);
    if with_messages {
        let state = Run::replay(run, log.iter().map(|envelope| &envelope.fact));
        line = line.with_messages(chat_completions(spec, state.history()));
    }
    Ok(line.to_bytes())
}
