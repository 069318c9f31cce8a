//! Whether a stored append is what was written, and stands where it was written.
//!
//! A checksum covers the run, the place in it, the number of events and their text; appends of versions before it have
//! none and are taken for what they say. Knows nothing of what is done about damage.

use rusqlite::{Row, types::ValueRef};

use crate::{
    domain::{
        event::{Envelope, decode},
        id::{Pos, RunId, Seq},
    },
    store::{StoreError, damage::Damage},
};

/// The columns that [`Stored::of`] reads, in its order.
macro_rules! columns {
    () => {
        "append.pos, id, first_seq, count, body, sum"
    };
}
pub(super) use columns;

/// The checksum of an append that follows event `expected` of its run.
pub(super) fn sum(run: &RunId, first: i64, count: i64, body: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(run.as_bytes());
    sum.update(&first.to_be_bytes());
    sum.update(&count.to_be_bytes());
    sum.update(body);
    sum.finalize()
}

/// An append as it lies in the file. Nothing of it is believed yet.
pub(super) struct Stored<'a> {
    pub(super) pos: Pos,
    /// Nothing if the run's own row is not there.
    pub(super) run: Option<RunId>,
    pub(super) first: i64,
    count: i64,
    pub(super) body: &'a [u8],
    sum: Option<i64>,
}

impl<'a> Stored<'a> {
    /// Reads a row of [`columns`].
    pub(super) fn of(row: &'a Row<'_>) -> rusqlite::Result<Self> {
        let run: Option<[u8; 16]> = row.get(1)?;
        let body = match row.get_ref(4)? {
            ValueRef::Blob(body) => body,
            ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Text(_) => &[],
        };
        Ok(Self {
            pos: Pos::new(row.get(0)?),
            run: run.map(RunId::from_bytes),
            first: row.get(2)?,
            count: row.get(3)?,
            body,
            sum: row.get(5)?,
        })
    }

    /// The run, for whoever must name one.
    fn named(&self) -> RunId {
        self.run.unwrap_or(RunId::from_bytes([0; 16]))
    }

    /// Whether it has a checksum that says that it is what was written.
    pub(super) fn is_vouched_for(&self) -> bool {
        self.sum.is_some() && self.check().is_ok()
    }

    fn check(&self) -> Result<(), Damage> {
        let Some(run) = self.run else { return Err(Damage::Orphan) };
        match self.sum {
            Some(known) if known != i64::from(sum(&run, self.first, self.count, self.body)) => {
                Err(Damage::Sum)
            }
            Some(_) | None => Ok(()),
        }
    }

    /// What it holds.
    pub(super) fn read(&self) -> Result<Vec<Envelope>, Damage> {
        self.check()?;
        let first = u64::try_from(self.first).ok().filter(|first| *first > 0);
        let first = first.ok_or(Damage::Place { expected: Seq::new(1), found: self.first })?;
        let facts = decode(self.body, self.named(), self.pos, Seq::new(first))?;
        if i64::try_from(facts.len()) == Ok(self.count) {
            Ok(facts)
        } else {
            Err(Damage::Count { expected: self.count, found: facts.len() })
        }
    }

    /// The same, as a store tells it.
    pub(super) fn envelopes(&self) -> Result<Vec<Envelope>, StoreError> {
        self.read().map_err(|damage| self.damaged(damage))
    }

    pub(super) fn damaged(&self, damage: Damage) -> StoreError {
        StoreError::Damaged { pos: self.pos, run: self.named(), source: damage.into() }
    }

    /// Whether it follows event `before` of its run.
    pub(super) fn follows(&self, before: Seq) -> Result<(), Damage> {
        let expected = before.plus(1);
        if u64::try_from(self.first) == Ok(expected.get()) {
            Ok(())
        } else {
            Err(Damage::Place { expected, found: self.first })
        }
    }

    /// The place of its last event, if it is where it says.
    pub(super) fn last(&self) -> Seq {
        Seq::new(u64::try_from(self.first.saturating_add(self.count).saturating_sub(1)).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_stays_what_it_was_and_covers_everything() {
        let run = RunId::from_bytes([7; 16]);
        let whole = sum(&run, 1, 2, b"[1,2]");
        assert_eq!(whole, 460_812_552, "what is in people's files no longer fits");
        let others = [
            sum(&RunId::from_bytes([8; 16]), 1, 2, b"[1,2]"),
            sum(&run, 2, 2, b"[1,2]"),
            sum(&run, 1, 3, b"[1,2]"),
            sum(&run, 1, 2, b"[1,3]"),
        ];
        assert!(!others.contains(&whole));
    }
}
