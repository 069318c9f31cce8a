//! The last appends as they were handed over, so that whoever follows the log at its head neither reads nor decodes it.
//!
//! Bounded in number and in bytes. What is not here any more is in the file; nothing is here that is not.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::domain::{
    event::{Envelope, FORMAT, Fact},
    id::{Pos, RunId, Seq},
};

/// Appends that are kept: some transactions of the fullest.
const APPENDS: usize = 2_048;
/// Bytes that are kept, as stored, give or take one append.
const BYTES: usize = 4 << 20;

/// One append in its place.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) pos: Pos,
    pub(super) run: RunId,
    pub(super) first: Seq,
    pub(super) facts: Arc<[Fact]>,
    /// How long it is as stored.
    pub(super) bytes: usize,
}

impl Kept {
    /// The place after its last fact.
    fn end(&self) -> Pos {
        self.pos.plus(self.facts.len() as u64)
    }

    fn envelopes(&self) -> impl Iterator<Item = Envelope> {
        self.facts.iter().zip(0..).map(|(fact, index)| Envelope {
            v: FORMAT,
            pos: self.pos.plus(index),
            run: self.run,
            seq: self.first.plus(index),
            fact: fact.clone(),
        })
    }
}

#[derive(Debug, Default)]
pub(super) struct Tail(Mutex<Appends>);

#[derive(Debug, Default)]
struct Appends {
    kept: VecDeque<Kept>,
    bytes: usize,
}

impl Tail {
    /// Adds what was committed, before anybody is told of it.
    pub(super) fn extend(&self, committed: Vec<Kept>) {
        let mut appends = self.lock();
        for append in committed {
            if appends.kept.back().is_some_and(|last| last.end() != append.pos) {
                *appends = Appends::default();
            }
            appends.bytes += append.bytes;
            appends.kept.push_back(append);
        }
        while appends.kept.len() > APPENDS || appends.bytes > BYTES {
            let Some(oldest) = appends.kept.pop_front() else { break };
            appends.bytes -= oldest.bytes;
        }
    }

    /// The facts after `after`: whole appends, until there are `limit` facts. Nothing if they are not all here.
    pub(super) fn read(&self, after: Pos, limit: usize) -> Option<Vec<Envelope>> {
        let appends = self.lock();
        let (oldest, newest) = (appends.kept.front()?, appends.kept.back()?);
        if after.get().saturating_add(1) < oldest.pos.get() || after >= newest.end() {
            return None;
        }
        let start = appends.kept.partition_point(|append| append.end().get() <= after.get() + 1);
        let mut facts = Vec::new();
        for append in appends.kept.range(start..) {
            facts.extend(append.envelopes().skip_while(|one| one.pos <= after));
            if facts.len() >= limit.max(1) {
                break;
            }
        }
        Some(facts)
    }

    /// Forgets everything.
    pub(super) fn clear(&self) {
        *self.lock() = Appends::default();
    }

    fn lock(&self) -> MutexGuard<'_, Appends> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{
        EventStore,
        samples::{run_id, texts, turn},
        sqlite::{Options, SqliteStore},
    };

    fn kept(pos: u64, facts: u32, bytes: usize) -> Kept {
        let facts = (0..facts).map(turn).collect();
        Kept { pos: Pos::new(pos), run: run_id(1), first: Seq::new(pos), facts, bytes }
    }

    fn places(tail: &Tail, after: u64, limit: usize) -> Option<Vec<u64>> {
        let facts = tail.read(Pos::new(after), limit)?;
        Some(facts.iter().map(|one| one.pos.get()).collect())
    }

    #[test]
    fn it_gives_whole_appends_after_a_cursor_that_lies_in_it_and_nothing_otherwise() {
        let tail = Tail::default();
        assert_eq!(places(&tail, 0, 9), None);
        tail.extend(vec![kept(10, 2, 1), kept(12, 3, 1), kept(15, 1, 1)]);
        assert_eq!(places(&tail, 8, 9), None);
        assert_eq!(places(&tail, 9, 9), Some(vec![10, 11, 12, 13, 14, 15]));
        assert_eq!(places(&tail, 9, 3), Some(vec![10, 11, 12, 13, 14]));
        assert_eq!(places(&tail, 10, 1), Some(vec![11]));
        assert_eq!(places(&tail, 12, 0), Some(vec![13, 14]));
        assert_eq!(places(&tail, 15, 9), Some(Vec::new()));
        assert_eq!(places(&tail, 16, 9), None);
        assert_eq!(places(&tail, u64::MAX, 9), None);
    }

    #[test]
    fn it_is_bounded_and_has_no_hole() {
        let tail = Tail::default();
        tail.extend((1..=APPENDS as u64 + 5).map(|pos| kept(pos, 1, 1)).collect());
        assert_eq!(places(&tail, 4, 1), None);
        assert_eq!(places(&tail, 5, 1), Some(vec![6]));
        let next = APPENDS as u64 + 6;
        tail.extend(vec![kept(next, 1, BYTES - 10)]);
        assert_eq!(places(&tail, next - 12, 1), None);
        assert_eq!(places(&tail, next - 11, 1), Some(vec![next - 10]));
        tail.extend(vec![kept(next + 100, 1, 1)]);
        assert_eq!(places(&tail, next, 1), None);
        assert_eq!(places(&tail, next + 99, 1), Some(vec![next + 100]));
    }

    #[tokio::test]
    async fn a_page_is_the_same_from_here_as_from_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.db");
        let writer = SqliteStore::open(&path, Options::default()).unwrap();
        let mut last = None;
        for (place, size) in [(0, 1), (1, 3), (4, 2), (6, 4)] {
            let facts: Vec<_> = (0..size).map(turn).collect();
            for run in 1..=3 {
                last = Some(writer.append(run_id(run), Seq::new(place), &facts).unwrap());
            }
        }
        writer.durable(last.unwrap()).await.unwrap();
        let reader = SqliteStore::open_for_reading(&path, Options::default()).unwrap();
        for after in (0..=31).chain([u64::MAX]).map(Pos::new) {
            for limit in [0, 1, 2, 5, 100] {
                assert_eq!(reader.tail.read(after, limit).map(|facts| facts.len()), None);
                let here = writer.read_all(after, limit).await.unwrap();
                let there = reader.read_all(after, limit).await.unwrap();
                assert_eq!(texts(&here), texts(&there), "{limit} after {after}");
            }
        }
    }
}
