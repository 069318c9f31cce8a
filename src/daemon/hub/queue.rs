//! What waits for one reader: bounded, and never waited for.
//!
//! Events are all there or the reader is cut off: one that does not fit empties the queue at once, so a reader that
//! stopped reading costs nothing. Text as it is spoken may get lost; it is only counted then.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use axum::body::Bytes;
use tokio::sync::Notify;

use super::frame::{End, Frame};

/// Events that may wait: more than a burst of one run, and with [`BYTES`] what a reader may cost at most.
pub(super) const EVENTS: usize = 1_024;
/// Bytes of events that may wait: a page of the log that is full of long outputs comes at once. Readers of one thing
/// share them. One event always may wait, however large it is.
pub(super) const BYTES: usize = 4 << 20;
/// Bytes of spoken text that may wait: about what a model says in ten seconds, over many runs.
pub(super) const DELTA_BYTES: usize = 64 << 10;

/// A queue with one reader.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    news: Notify,
}

#[derive(Debug, Default)]
struct State {
    entries: VecDeque<Entry>,
    events: usize,
    event_bytes: usize,
    delta_bytes: usize,
    missed: u64,
    fate: Fate,
}

#[derive(Debug, Default)]
enum Fate {
    #[default]
    Open,
    Overflowed,
    Closed(End),
}

#[derive(Debug)]
enum Entry {
    Event(Frame),
    Delta(Bytes),
}

/// What a reader finds.
#[derive(Debug)]
pub(super) enum Found {
    Event(Frame),
    Delta(Bytes),
    /// So many pieces of text got lost.
    Missed(u64),
    Nothing,
    /// Events got lost.
    Overflowed,
    /// Nothing will come any more.
    Closed(End),
}

impl Queue {
    /// Adds an event, and says whether it took it.
    pub(super) fn offer(&self, frame: &Frame) -> bool {
        let mut state = self.lock();
        let fits =
            state.events == 0 || state.events < EVENTS && state.event_bytes + frame.text.len() <= BYTES;
        let takes = fits && matches!(state.fate, Fate::Open);
        if takes {
            state.events += 1;
            state.event_bytes += frame.text.len();
            state.entries.push_back(Entry::Event(frame.clone()));
        } else if matches!(state.fate, Fate::Open) {
            *state = State { fate: Fate::Overflowed, ..State::default() };
        }
        drop(state);
        self.news.notify_one();
        takes
    }

    /// Adds a piece of text, or counts it as missed.
    pub(super) fn offer_delta(&self, text: &Bytes) {
        let mut state = self.lock();
        if !matches!(state.fate, Fate::Open) {
            return;
        }
        if state.delta_bytes + text.len() <= DELTA_BYTES {
            state.delta_bytes += text.len();
            state.entries.push_back(Entry::Delta(text.clone()));
        } else {
            state.missed += 1;
        }
        drop(state);
        self.news.notify_one();
    }

    /// Counts pieces of text that got lost on the way here.
    pub(super) fn miss(&self, count: u64) {
        self.lock().missed += count;
        self.news.notify_one();
    }

    /// Nothing more will be added.
    pub(super) fn close(&self, end: End) {
        let mut state = self.lock();
        if matches!(state.fate, Fate::Open) {
            state.fate = Fate::Closed(end);
        }
        drop(state);
        self.news.notify_one();
    }

    /// Takes out what waits longest. Text that got lost is told of behind the text that did not.
    pub(super) fn take(&self) -> Found {
        let mut state = self.lock();
        if state.missed > 0 && !matches!(state.entries.front(), Some(Entry::Delta(_))) {
            return Found::Missed(std::mem::take(&mut state.missed));
        }
        match state.entries.pop_front() {
            Some(Entry::Event(frame)) => {
                state.events -= 1;
                state.event_bytes -= frame.text.len();
                Found::Event(frame)
            }
            Some(Entry::Delta(text)) => {
                state.delta_bytes -= text.len();
                Found::Delta(text)
            }
            None => match &state.fate {
                Fate::Open => Found::Nothing,
                Fate::Overflowed => Found::Overflowed,
                Fate::Closed(end) => Found::Closed(end.clone()),
            },
        }
    }

    /// Whether events got lost.
    pub(super) fn has_overflowed(&self) -> bool {
        matches!(self.lock().fate, Fate::Overflowed)
    }

    /// Waits until there may be something.
    pub(super) async fn news(&self) {
        self.news.notified().await;
    }

    /// Events that wait, and their bytes.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> (usize, usize) {
        let state = self.lock();
        (state.events, state.event_bytes)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
