//! Reads rows from the pages of a damaged file one by one, whatever has become of the pages that lead to them.
//!
//! SQLite finds a page by those above it, up to the first of the file; where one of them is gone, all that is below it seems
//! to be. What a page of rows holds can be read all the same. What was deleted may be found again, as long as nothing was
//! written over it. Of the write-ahead log what was committed counts, also behind damage. Writes nothing, and knows nothing
//! of tables.

use std::{collections::BTreeMap, fs::File, os::unix::fs::FileExt, path::Path};

use rusqlite::types::Value;

use super::ahead::Ahead;

/// What herder's files have, where nothing says otherwise.
pub(super) const PAGE_BYTES: usize = 4096;

const FILE_HEAD: &[u8] = b"SQLite format 3\0";

const LEAF_OF_ROWS: u8 = 13;
const LEAF_OF_INDEX: u8 = 10;

/// The pages of a file, as its write-ahead log has them.
pub(super) struct Pages {
    file: Option<File>,
    ahead: Option<Ahead>,
    bytes: usize,
    count: u32,
    /// Where in the write-ahead log the pages are that were committed there.
    newer: BTreeMap<u32, u64>,
    /// The same of those that are not what was written.
    broken: Vec<(u32, u64)>,
}

/// What one entry of a page holds; a row of a table has a number.
pub(super) struct Entry {
    pub(super) number: Option<i64>,
    pub(super) values: Vec<Value>,
}

impl Pages {
    /// Of the file at `path`, or of what is left beside it.
    pub(super) fn of(path: &Path) -> Self {
        let file = File::open(path).ok().filter(|file| file.metadata().is_ok_and(|facts| facts.is_file()));
        let ahead = Ahead::of(path);
        let bytes = file.as_ref().and_then(page_bytes).or_else(|| ahead.as_ref().map(|ahead| ahead.bytes));
        let bytes = bytes.unwrap_or(PAGE_BYTES);
        let fits = ahead.as_ref().filter(|ahead| ahead.bytes == bytes);
        let (newer, broken) = fits.map(committed).unwrap_or_default();
        let length = file.as_ref().and_then(|file| file.metadata().ok()).map_or(0, |facts| facts.len());
        let count = u32::try_from(length / bytes as u64).unwrap_or(u32::MAX);
        let count = count.max(newer.keys().next_back().copied().unwrap_or_default());
        Self { file, ahead, bytes, count, newer, broken }
    }

    /// Everything that can be read, page by page; what may not be what was written comes last.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        let sound = (1..=self.count).map(|number| (number, self.page(number)));
        let broken = self.broken.iter().map(|(number, at)| (*number, self.newer_page(*at)));
        sound.chain(broken).flat_map(|(number, page)| self.entries_of(number, &page.unwrap_or_default()))
    }

    fn page(&self, number: u32) -> Option<Vec<u8>> {
        match self.newer.get(&number) {
            Some(at) => self.newer_page(*at),
            None => self.read(self.file.as_ref()?, u64::from(number.checked_sub(1)?) * self.bytes as u64),
        }
    }

    fn newer_page(&self, at: u64) -> Option<Vec<u8>> {
        self.read(self.ahead.as_ref()?.file(), at)
    }

    fn read(&self, file: &File, at: u64) -> Option<Vec<u8>> {
        let mut page = vec![0; self.bytes];
        file.read_exact_at(&mut page, at).ok()?;
        Some(page)
    }

    fn entries_of(&self, number: u32, page: &[u8]) -> Vec<Entry> {
        let head = if number == 1 { 100 } else { 0 };
        let kind = page.get(head).copied().unwrap_or_default();
        if !matches!(kind, LEAF_OF_ROWS | LEAF_OF_INDEX) {
            return Vec::new();
        }
        let cells = u16_at(page, head + 3).unwrap_or_default();
        let places = (0..usize::from(cells)).filter_map(|cell| u16_at(page, head + 8 + 2 * cell));
        places.filter_map(|place| self.entry(page, usize::from(place), kind == LEAF_OF_ROWS)).collect()
    }

    fn entry(&self, page: &[u8], place: usize, is_row: bool) -> Option<Entry> {
        let mut rest = Rest { bytes: page, at: place };
        let length = usize::try_from(rest.varint()?).ok()?;
        let number = if is_row { Some(rest.varint()?.cast_signed()) } else { None };
        let most = if is_row { self.bytes - 35 } else { (self.bytes - 12) * 64 / 255 - 23 };
        let payload = self.payload(page, rest.at, length, most)?;
        Some(Entry { number, values: values(&payload)? })
    }

    /// The bytes of an entry; those that did not fit are on pages of their own.
    fn payload(&self, page: &[u8], at: usize, length: usize, most: usize) -> Option<Vec<u8>> {
        if length as u64 > u64::from(self.count) * self.bytes as u64 {
            return None;
        }
        let (least, overflowing) = ((self.bytes - 12) * 32 / 255 - 23, self.bytes - 4);
        let local = match length {
            length if length <= most => length,
            length => {
                Some(least + (length - least) % overflowing).filter(|here| *here <= most).unwrap_or(least)
            }
        };
        let mut bytes = page.get(at..at + local)?.to_vec();
        let mut next = if local < length { u32_at(page, at + local)? } else { 0 };
        while bytes.len() < length {
            let page = self.page(next)?;
            let here = overflowing.min(length - bytes.len());
            bytes.extend(page.get(4..4 + here)?);
            next = u32_at(&page, 0)?;
        }
        Some(bytes)
    }
}

pub(super) fn page_bytes(file: &File) -> Option<usize> {
    let mut head = [0; 18];
    file.read_exact_at(&mut head, 0).ok()?;
    let bytes = u16_at(&head, 16).filter(|_| head.starts_with(FILE_HEAD))?;
    is_page(if bytes == 1 { 1 << 16 } else { usize::from(bytes) })
}

pub(super) fn is_page(bytes: usize) -> Option<usize> {
    (bytes.is_power_of_two() && (512..=1 << 16).contains(&bytes)).then_some(bytes)
}

/// Where the pages are that were committed; each later one replaces an earlier one. And those that are not what was written.
fn committed(ahead: &Ahead) -> (BTreeMap<u32, u64>, Vec<(u32, u64)>) {
    let (mut pages, mut broken) = (BTreeMap::new(), Vec::new());
    let (mut open, mut open_broken) = (BTreeMap::new(), Vec::new());
    for frame in ahead.frames().filter(|frame| frame.is_ours) {
        if frame.is_whole {
            open.insert(frame.page, frame.content());
        } else {
            open_broken.push((frame.page, frame.content()));
        }
        if frame.commits {
            pages.append(&mut open);
            broken.append(&mut open_broken);
        }
    }
    (pages, broken)
}

/// The values of a row or an entry; nothing if they are none.
fn values(payload: &[u8]) -> Option<Vec<Value>> {
    let mut head = Rest { bytes: payload, at: 0 };
    let end = usize::try_from(head.varint()?).ok()?;
    let (mut body, mut values) = (Rest { bytes: payload, at: end }, Vec::new());
    while head.at < end {
        values.push(match head.varint()? {
            0 => Value::Null,
            kind @ 1..=4 => body.integer(usize::try_from(kind).ok()?)?,
            5 => body.integer(6)?,
            6 => body.integer(8)?,
            7 => Value::Real(f64::from_be_bytes(body.take(8)?.try_into().ok()?)),
            8 => Value::Integer(0),
            9 => Value::Integer(1),
            10 | 11 => return None,
            kind if kind % 2 == 0 => Value::Blob(body.take(usize::try_from((kind - 12) / 2).ok()?)?.to_vec()),
            kind => {
                let text = body.take(usize::try_from((kind - 13) / 2).ok()?)?;
                Value::Text(String::from_utf8(text.to_vec()).ok()?)
            }
        });
    }
    (head.at == end && body.at == payload.len()).then_some(values)
}

/// Bytes that are yet to be read.
struct Rest<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Rest<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(taken)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for _ in 0..8 {
            let byte = *self.take(1)?.first()?;
            number = number << 7 | u64::from(byte & 0x7f);
            if byte < 0x80 {
                return Some(number);
            }
        }
        Some(number << 8 | u64::from(*self.take(1)?.first()?))
    }

    fn integer(&mut self, width: usize) -> Option<Value> {
        let bytes = self.take(width)?;
        let sign = if *bytes.first()? < 0x80 { 0 } else { -1 };
        Some(Value::Integer(bytes.iter().fold(sign, |number, byte| number << 8 | i64::from(*byte))))
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    fn of_table(pages: &Pages) -> Vec<(i64, Vec<Value>)> {
        let rows = pages.entries().filter_map(|entry| Some((entry.number?, entry.values)));
        let mut rows: Vec<_> = rows.filter(|(_, values)| values.len() == 5).collect();
        // The first page has what the tables are called.
        rows.retain(|(_, values)| !matches!(values[0], Value::Text(_)));
        rows.sort_by_key(|(number, _)| *number);
        rows
    }

    #[test]
    fn rows_are_what_sqlite_says_they_are_wherever_their_pages_lie() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.db");
        let db = Connection::open(&path).unwrap();
        db.execute_batch(
            "PRAGMA journal_mode = WAL; CREATE TABLE t (a INTEGER PRIMARY KEY, i, r, t, b);
             CREATE INDEX ti ON t (t);",
        )
        .unwrap();
        let bytes = [0, 1, 400, 4_050, 4_061, 4_062, 5_000, 9_000, 100_000];
        for (number, length) in (-4_i32..).zip(bytes) {
            let factor = [0, 1, 127, 40_000, 9_000_000, 1_i64 << 33, 1 << 50][length % 7];
            let integer = i64::from(number - 1) * factor;
            db.execute(
                "INSERT INTO t VALUES (?1, ?2, ?3, ?4, ?5)",
                (number, integer, f64::from(number) / 3.0, "é".repeat(length / 7), vec![7_u8; length]),
            )
            .unwrap();
        }
        db.execute("UPDATE t SET i = NULL WHERE a = 2", []).unwrap();
        let mut select = db.prepare("SELECT a, NULL, i, r, t, b FROM t ORDER BY a").unwrap();
        let expected = select.query_map([], |row| {
            Ok((row.get(0)?, (1..6).map(|column| row.get(column)).collect::<Result<Vec<Value>, _>>()?))
        });
        let expected: Vec<(i64, Vec<Value>)> = expected.unwrap().map(Result::unwrap).collect();
        assert!(of_table(&Pages::of(&path)) == expected, "in the write-ahead log");
        db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        assert!(of_table(&Pages::of(&path)) == expected, "in the file");
        let mut whole = std::fs::read(&path).unwrap();
        whole[..4096].fill(0x5a);
        let other = folder.path().join("other.db");
        std::fs::write(&other, whole).unwrap();
        assert!(of_table(&Pages::of(&other)) == expected, "behind garbage");
    }

    #[test]
    fn of_garbage_nothing_is_read_and_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.db");
        for seed in 1..200_u32 {
            let mut state = seed;
            let mut page: Vec<u8> = std::iter::repeat_with(|| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                state.to_be_bytes()[0]
            })
            .take(8192)
            .collect();
            page[4096] = if seed % 2 == 0 { LEAF_OF_ROWS } else { LEAF_OF_INDEX };
            std::fs::write(&path, &page).unwrap();
            let read: usize = Pages::of(&path).entries().map(|entry| entry.values.len()).sum();
            assert!(read <= 8192, "{seed}");
        }
    }
}
