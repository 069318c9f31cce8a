//! The results of a batch as they are read: one line for each settled task, in the order in which they were settled.
//!
//! Lines are made from the log one at a time as somebody reads them, so a slow reader costs nobody anything.

use std::{collections::BTreeSet, sync::Arc};

use futures_util::{Stream, stream};
use tokio::sync::watch;

use super::{
    Batches, ControlError,
    board::{Board, Closed, Found},
    status::Status,
};
use crate::{
    app::{
        batch::{History, ResultLine},
        conversation::chat_completions,
    },
    domain::{
        event::Event,
        id::{BatchId, RunId, Seq},
        run::Run,
    },
    store::{EventStore, StoreError},
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

/// Somebody who reads the results of a batch.
struct Reader {
    store: Arc<dyn EventStore>,
    board: Arc<Board>,
    changed: watch::Receiver<Status>,
    next: usize,
    follow: bool,
    with_messages: bool,
    is_over: bool,
}

impl Batches {
    /// The result lines of a batch: those of record, and if the reader follows, those that are still to come, until it has
    /// ended. After an error there is no more.
    ///
    /// # Errors
    /// There is no such batch, or the log cannot be read.
    pub async fn results(
        &self,
        id: BatchId,
        follow: bool,
        with_messages: bool,
    ) -> Result<impl Stream<Item = Result<Vec<u8>, ResultsError>> + Send + use<>, ControlError> {
        let entry = self.entry(id)?;
        let (store, changed) = (self.0.store.clone(), entry.status.subscribe());
        // A batch that is being changed, or taken up, is waited for.
        let work = entry.work.lock().await;
        let board = match entry.board() {
            Some(board) => board,
            None => {
                let history = History::read(&*store, id).await?;
                let status = watch::Sender::new(entry.status.borrow().clone());
                let board = Board::new(status, history.ids(), &history, &BTreeSet::new());
                board.close(Closed::Complete);
                Arc::new(board)
            }
        };
        drop(work);
        let reader = Reader { store, board, changed, next: 0, follow, with_messages, is_over: false };
        Ok(stream::unfold(reader, Reader::read))
    }
}

impl Reader {
    async fn read(mut self) -> Option<(Result<Vec<u8>, ResultsError>, Self)> {
        while !self.is_over {
            self.changed.mark_unchanged();
            match self.board.next(&mut self.next) {
                Found::Result(run) => {
                    let line = line(&*self.store, run, self.with_messages).await;
                    self.is_over = line.is_err();
                    return Some((line, self));
                }
                Found::Wait if self.follow => {
                    // Closed only with the batch, which this knows of.
                    self.is_over = self.changed.changed().await.is_err();
                }
                Found::Closed(Closed::Unfinished) if self.follow => {
                    self.is_over = true;
                    return Some((Err(ResultsError::Unfinished), self));
                }
                Found::Wait | Found::Closed(_) => return None,
            }
        }
        None
    }
}

async fn line(store: &dyn EventStore, run: RunId, with_messages: bool) -> Result<Vec<u8>, ResultsError> {
    let log = store.read(run, Seq::START).await?;
    let (mut spec, mut end) = (None, None);
    for envelope in &log {
        if let Event::Submitted(one) = &envelope.fact.event {
            spec = Some(one);
        } else if let Event::RunEnd(one) = &envelope.fact.event {
            end = Some(one);
        }
    }
    let (Some(spec), Some(end)) = (spec, end) else { return Err(ResultsError::NoResult(run)) };
    let mut line = ResultLine::new(run, spec, end);
    if with_messages {
        let state = Run::replay(run, log.iter().map(|envelope| &envelope.fact));
        line = line.with_messages(chat_completions(spec, state.history()));
    }
    Ok(line.to_bytes())
}
