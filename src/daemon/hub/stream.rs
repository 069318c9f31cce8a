//! One client's events: read from the log at the client's pace, then handed over as they come.
//!
//! While it catches up it holds one page of the log and no place in a queue that matters. At the head it takes a queue
//! first and reads once more then, so nothing falls between; what comes twice is told by its place. Once it has caught
//! up, a reader whose queue overflows is told so and cut off; its cursor resumes where it stopped.

use std::{collections::BTreeSet, sync::Arc, time::Duration, vec};

use axum::body::Bytes;
use futures_util::{Stream, stream};
use tokio::time::{Instant, sleep_until};

use super::{
    Shared,
    filter::Filter,
    frame::{Chunk, End, Frame},
    queue::Found,
    registry::{Deltas, Subscription},
};
use crate::{
    domain::{
        event::{Envelope, Event},
        id::{Pos, RunId, Seq},
    },
    store::{RunFilter, StoreError},
};

/// Events of the log that are held at once.
const PAGE: usize = 64;
/// How long a client hears nothing before it is told that it is still served.
const SILENCE: Duration = Duration::from_secs(15);

/// The last event that a client has, and what its place is counted in.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cursor {
    Run(RunId, Seq),
    All(Pos),
}

impl Cursor {
    const fn id(self) -> u64 {
        match self {
            Self::Run(_, seq) => seq.get(),
            Self::All(pos) => pos.get(),
        }
    }

    /// Moves on to an event, unless it is not news.
    fn advance(&mut self, pos: Pos, seq: Seq) -> bool {
        let is_news = match self {
            Self::Run(_, last) => seq > *last,
            Self::All(last) => pos > *last,
        };
        if is_news {
            match self {
                Self::Run(_, last) => *last = seq,
                Self::All(last) => *last = pos,
            }
        }
        is_news
    }

    const fn is_of_run(self) -> bool {
        matches!(self, Self::Run(..))
    }
}

#[derive(Debug)]
enum State {
    New,
    /// Reads the log; near its head with a queue that fills meanwhile.
    Reading(Option<Subscription>),
    /// Has read what the queue does not have, and has yet to hand on a page of it.
    Arriving(Subscription),
    Following(Subscription),
    /// The run has ended, and the client has all of it.
    Ended,
    Over,
}

/// What is to be done with what was gathered.
enum Step {
    Gather,
    Send,
    Wait,
}

/// One client's events, as chunks of server-sent events.
pub struct EventStream {
    shared: Arc<Shared>,
    cursor: Cursor,
    filter: Filter,
    deltas: Deltas,
    state: State,
    page: vec::IntoIter<Envelope>,
    /// The runs of the batch that is asked for, as long as the log is read.
    members: BTreeSet<RunId>,
    ping_at: Instant,
}

impl EventStream {
    pub(super) fn new(shared: Arc<Shared>, cursor: Cursor, filter: Filter, deltas: Deltas) -> Self {
        Self {
            shared,
            cursor,
            filter,
            deltas,
            state: State::New,
            page: Vec::new().into_iter(),
            members: BTreeSet::new(),
            ping_at: Instant::now() + SILENCE,
        }
    }

    /// The chunks as they come.
    pub fn into_stream(self) -> impl Stream<Item = Bytes> + Send {
        stream::unfold(self, |mut this| async move { this.next().await.map(|chunk| (chunk, this)) })
    }

    /// The next chunk; nothing once the stream is over. To be awaited to its end.
    pub async fn next(&mut self) -> Option<Bytes> {
        let mut chunk = Chunk::default();
        while !chunk.is_full() && !matches!(self.state, State::Over) {
            if self.shared.closing.is_cancelled() {
                self.end(&mut chunk, &End::Closing);
                break;
            }
            match self.step(&mut chunk).await {
                Ok(Step::Gather) => {}
                Ok(Step::Send) => break,
                Ok(Step::Wait) => self.wait(&mut chunk).await,
                Err(error) => self.end(&mut chunk, &End::from(&error)),
            }
        }
        self.ping_at = Instant::now() + SILENCE;
        (!chunk.is_empty()).then(|| chunk.into_bytes())
    }

    fn end(&mut self, chunk: &mut Chunk, end: &End) {
        chunk.end(end);
        self.state = State::Over;
    }

    async fn step(&mut self, chunk: &mut Chunk) -> Result<Step, StoreError> {
        if self.page.len() > 0 {
            return Ok(self.gather(chunk));
        }
        match std::mem::replace(&mut self.state, State::Over) {
            State::New => {
                chunk.hello(self.cursor.id());
                self.members = self.members().await?;
                self.state = State::Reading(None);
                return Ok(Step::Send);
            }
            State::Reading(subscription) => self.read(subscription).await?,
            // A client that did not read on meanwhile goes on catching up.
            State::Arriving(subscription) if subscription.queue().has_overflowed() => {
                self.state = State::Reading(None);
            }
            State::Arriving(subscription) => {
                self.members = BTreeSet::new();
                subscription.mark_caught_up();
                self.state = State::Following(subscription);
            }
            State::Following(subscription) => return Ok(self.follow(subscription, chunk)),
            State::Ended => {
                chunk.end(&End::Ended);
                return Ok(Step::Send);
            }
            State::Over => {}
        }
        Ok(Step::Gather)
    }

    async fn members(&self) -> Result<BTreeSet<RunId>, StoreError> {
        let Some(batch) = self.filter.batch else { return Ok(BTreeSet::new()) };
        let records =
            self.shared.store.runs(RunFilter { batch: Some(batch), ..RunFilter::default() }).await?;
        Ok(records.into_iter().map(|record| record.run).collect())
    }

    /// Reads the next page. At the head of the log it takes a queue and reads once more, and has then arrived.
    async fn read(&mut self, subscription: Option<Subscription>) -> Result<(), StoreError> {
        let page = self.next_page().await?;
        let queued_after =
            subscription.as_ref().map_or_else(|| *self.shared.seen.borrow(), Subscription::after);
        let is_all = page.last().is_none_or(|last| last.pos >= queued_after);
        self.state = match subscription {
            _ if !is_all => State::Reading(subscription),
            None => State::Reading(Some(self.shared.subscribe(&self.filter, self.deltas))),
            Some(_) if page.is_empty() && self.has_ended().await? => State::Ended,
            Some(subscription) => State::Arriving(subscription),
        };
        self.page = page.into_iter();
        Ok(())
    }

    /// Moves what is left of the page into the chunk.
    fn gather(&mut self, chunk: &mut Chunk) -> Step {
        while !chunk.is_full()
            && let Some(envelope) = self.page.next()
        {
            if !self.cursor.advance(envelope.pos, envelope.seq) || !self.admits(&envelope) {
                continue;
            }
            let frame = Frame::of(&envelope);
            chunk.event(self.cursor.id(), &frame);
            if frame.ends && self.cursor.is_of_run() {
                self.state = State::Ended;
                break;
            }
        }
        // A long search that finds nothing is no reason to look dead.
        if chunk.is_empty() && Instant::now() >= self.ping_at {
            chunk.ping();
        }
        if chunk.is_empty() { Step::Gather } else { Step::Send }
    }

    async fn next_page(&self) -> Result<Vec<Envelope>, StoreError> {
        match self.cursor {
            Cursor::Run(run, after) => self.shared.store.read_some(run, after, PAGE).await,
            Cursor::All(after) => self.shared.store.read_all(after, PAGE).await,
        }
    }

    /// Whether the run that is followed ended before the cursor, so that nothing will ever come.
    async fn has_ended(&self) -> Result<bool, StoreError> {
        let Cursor::Run(run, after) = self.cursor else { return Ok(false) };
        // As long as the board has it, its end has not been handed to the queue that is held.
        if self.shared.board.get(run).is_some() {
            return Ok(false);
        }
        let filter =
            RunFilter { id_prefix: Some(run.to_string()), ended: Some(true), ..RunFilter::default() };
        let ended = !self.shared.store.runs(filter).await?.is_empty();
        // It may have ended since the last look.
        Ok(ended && self.shared.store.read_some(run, after, 1).await?.is_empty())
    }

    fn admits(&mut self, envelope: &Envelope) -> bool {
        let Filter { batch, runs, kinds } = &self.filter;
        if let Event::Submitted(spec) = &envelope.fact.event
            && batch.is_some()
            && spec.batch == *batch
        {
            self.members.insert(envelope.run);
        }
        (batch.is_none() || self.members.contains(&envelope.run))
            && (runs.is_empty() || runs.contains(&envelope.run))
            && kinds.has(envelope.fact.event.kind())
    }

    /// Gathers what waits in the queue.
    fn follow(&mut self, subscription: Subscription, chunk: &mut Chunk) -> Step {
        while !chunk.is_full() {
            match subscription.queue().take() {
                Found::Event(frame) => {
                    if self.cursor.advance(frame.pos, frame.seq) {
                        chunk.event(self.cursor.id(), &frame);
                        if frame.ends && self.cursor.is_of_run() {
                            self.state = State::Ended;
                            return Step::Send;
                        }
                    }
                }
                Found::Delta(text) => chunk.delta(&text),
                Found::Missed(count) => chunk.lagged(count),
                Found::Overflowed => {
                    chunk.gap(self.cursor.id());
                    return Step::Send;
                }
                Found::Closed(end) => {
                    chunk.end(&end);
                    return Step::Send;
                }
                Found::Nothing => break,
            }
        }
        self.state = State::Following(subscription);
        if chunk.is_empty() { Step::Wait } else { Step::Send }
    }

    /// Waits for something to gather; sends a sign of life if there is nothing for long.
    async fn wait(&self, chunk: &mut Chunk) {
        let State::Following(subscription) = &self.state else { return };
        tokio::select! {
            () = subscription.queue().news() => {}
            () = self.shared.closing.cancelled() => {}
            () = sleep_until(self.ping_at) => chunk.ping(),
        }
    }
}
