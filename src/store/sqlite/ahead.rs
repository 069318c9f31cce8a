//! The write-ahead log, frame by frame: how far SQLite believes it, and what lies behind that.
//!
//! SQLite takes the first frame whose checksum does not fit for the end and drops what follows: a death while a commit is
//! written leaves such a frame. Commits are written one after the other, so a whole one behind the one that is broken says
//! that this is no end, but damage. A frame's checksum goes on from that of the frame before, so frames behind a broken one can
//! be checked as well. Writes nothing, and knows nothing of what pages hold.

use std::{
    fs::File,
    io::{BufReader, Read},
    path::Path,
};

use super::{
    OpenError,
    pages::{PAGE_BYTES, is_page, page_bytes, u32_at},
    schema::beside,
};

const MAGIC: u32 = 0x377f_0682;
const HEAD: usize = 32;
const FRAME_HEAD: usize = 24;

/// Damage before whole commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AheadDamage {
    /// Bytes before the frame that is broken.
    pub at: u64,
    /// Whole commits behind the one that is broken.
    pub commits: u64,
}

/// Looks for damage in what goes before the log at `path`, which nobody may write to meanwhile. Reads it once.
pub fn ahead_damage(path: &Path) -> Option<AheadDamage> {
    let ahead = Ahead::of(path)?;
    let mut broken = (!ahead.is_sound).then_some(0);
    // Whether the commit that is broken goes on.
    let (mut goes_on, mut commits) = (false, 0);
    for frame in ahead.frames() {
        if broken.is_none() {
            if !frame.is_whole {
                (broken, goes_on) = (Some(frame.at), !frame.commits);
            }
        } else if frame.commits && frame.is_ours {
            commits += u64::from(frame.is_whole && !goes_on);
            goes_on = false;
        }
    }
    broken.filter(|_| commits > 0).map(|at| AheadDamage { at, commits })
}

/// Whether everything is believed that goes before the log at `path`, which nobody may write to meanwhile.
///
/// # Errors
/// SQLite would drop commits of it without a word.
pub fn check_ahead(path: &Path) -> Result<(), OpenError> {
    match ahead_damage(path) {
        Some(_) => Err(OpenError::Malformed { path: path.to_owned(), source: None }),
        None => Ok(()),
    }
}

type Sum = [u32; 2];

/// A write-ahead log.
pub(super) struct Ahead {
    file: File,
    /// Bytes of a page.
    pub(super) bytes: usize,
    /// Whether its head is what was written.
    is_sound: bool,
    is_big_endian: bool,
    /// What its frames are known by; those that an earlier use of the file left have others.
    salts: [u8; 8],
    sums: [Sum; 2],
}

/// A page that was written.
pub(super) struct Frame {
    pub(super) page: u32,
    /// Bytes before it.
    pub(super) at: u64,
    /// Whether it is the last of a commit.
    pub(super) commits: bool,
    /// Whether it says that it belongs here.
    pub(super) is_ours: bool,
    /// Whether it is what was written, too.
    pub(super) is_whole: bool,
}

impl Frame {
    /// Where the page itself is.
    pub(super) const fn content(&self) -> u64 {
        self.at + FRAME_HEAD as u64
    }
}

impl Ahead {
    /// Of the log at `path`, if there is one. Where its head is damaged, what it would say is told from what there is.
    pub(super) fn of(path: &Path) -> Option<Self> {
        let mut file = File::open(beside(path, "-wal")).ok()?;
        let mut start = [0; HEAD + FRAME_HEAD];
        let read = file.by_ref().take(start.len() as u64).read(&mut start).ok()?;
        if read < HEAD {
            return None;
        }
        let (head, first) = start.split_at(HEAD);
        let is_known = u32_at(head, 0)? & !1 == MAGIC;
        let is_big_endian = match head[3] {
            0x82 => false,
            0x83 => true,
            _ => cfg!(target_endian = "big"),
        };
        let (stored, computed) = (sum_at(head, 24)?, sum([0; 2], &head[..24], is_big_endian));
        let said = is_page(usize::try_from(u32_at(head, 8)?).ok()?);
        let is_sound = is_known && stored == computed && said.is_some();
        let of_the_file = || File::open(path).ok().as_ref().and_then(page_bytes);
        let bytes = said.filter(|_| is_sound).or_else(of_the_file).unwrap_or(PAGE_BYTES);
        let salts = if is_sound { &head[16..24] } else { &first[8..16] };
        let salts = salts.try_into().ok()?;
        Some(Self { file, bytes, is_sound, is_big_endian, salts, sums: [stored, computed] })
    }

    /// Every frame that is there, whole or not.
    pub(super) fn frames(&self) -> impl Iterator<Item = Frame> + '_ {
        let mut frame = vec![0; FRAME_HEAD + self.bytes];
        let mut file = self.file.try_clone().and_then(|mut file| {
            std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(HEAD as u64))?;
            Ok(BufReader::with_capacity(1 << 18, file))
        });
        let (mut at, mut before) = (HEAD as u64, self.sums);
        std::iter::from_fn(move || {
            file.as_mut().ok()?.read_exact(&mut frame).ok()?;
            let stored = sum_at(&frame, 16)?;
            let sum_after = |before| {
                let head = sum(before, &frame[..8], self.is_big_endian);
                sum(head, &frame[FRAME_HEAD..], self.is_big_endian)
            };
            let computed = sum_after(before[0]);
            // Of the one before either what it holds may be damaged or the sum that it has.
            let fits = stored == computed || (before[1] != before[0] && stored == sum_after(before[1]));
            before = [stored, if fits { stored } else { computed }];
            let (page, is_ours) = (u32_at(&frame, 0)?, frame[8..16] == self.salts);
            let commits = u32_at(&frame, 4)? != 0;
            let found = Frame { page, at, commits, is_ours, is_whole: is_ours && fits && page > 0 };
            at += frame.len() as u64;
            Some(found)
        })
    }

    pub(super) const fn file(&self) -> &File {
        &self.file
    }
}

fn sum_at(bytes: &[u8], at: usize) -> Option<Sum> {
    Some([u32_at(bytes, at)?, u32_at(bytes, at + 4)?])
}

fn sum([mut a, mut b]: Sum, bytes: &[u8], is_big_endian: bool) -> Sum {
    let word = |bytes: [u8; 4]| {
        if is_big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    };
    for pair in bytes.as_chunks::<4>().0.as_chunks::<2>().0 {
        a = a.wrapping_add(word(pair[0])).wrapping_add(b);
        b = b.wrapping_add(word(pair[1])).wrapping_add(a);
    }
    [a, b]
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    const COMMITS: usize = 6;

    /// A log as a process leaves it that is killed: each commit of `pages` pages, and where each ends.
    fn killed(pages: usize) -> (tempfile::TempDir, PathBuf, Vec<u8>, Vec<usize>) {
        let folder = tempfile::tempdir().unwrap();
        let (live, path) = (folder.path().join("live.db"), folder.path().join("log.db"));
        let db = rusqlite::Connection::open(&live).unwrap();
        db.execute_batch("PRAGMA page_size = 512; PRAGMA journal_mode = WAL; CREATE TABLE t (a, b);")
            .unwrap();
        db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        let mut ends = Vec::new();
        for commit in 0..COMMITS {
            db.execute("INSERT INTO t VALUES (?1, zeroblob(?2))", (commit, pages * 450)).unwrap();
            ends.push(usize::try_from(beside(&live, "-wal").metadata().unwrap().len()).unwrap());
        }
        let bytes = std::fs::read(beside(&live, "-wal")).unwrap();
        std::fs::copy(&live, &path).unwrap();
        (folder, path, bytes, ends)
    }

    fn told(path: &Path, bytes: &[u8]) -> Option<AheadDamage> {
        std::fs::write(beside(path, "-wal"), bytes).unwrap();
        ahead_damage(path)
    }

    /// The same with sums of the other byte order.
    fn turned(bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        bytes[3] ^= 1;
        let is_big_endian = bytes[3] & 1 == 1;
        let put = |place: &mut [u8], sum: Sum| {
            place[..4].copy_from_slice(&sum[0].to_be_bytes());
            place[4..].copy_from_slice(&sum[1].to_be_bytes());
        };
        let mut last = sum([0; 2], &bytes[..24], is_big_endian);
        put(&mut bytes[24..32], last);
        for frame in bytes[HEAD..].chunks_mut(FRAME_HEAD + 512) {
            last = sum(sum(last, &frame[..8], is_big_endian), &frame[FRAME_HEAD..], is_big_endian);
            put(&mut frame[16..24], last);
        }
        bytes
    }

    #[test]
    fn a_log_that_was_cut_short_anywhere_is_no_damage() {
        let (_folder, path, bytes, _) = killed(2);
        for length in (0..=bytes.len()).step_by(7).chain([bytes.len()]) {
            assert_eq!(told(&path, &bytes[..length]), None, "{length}");
        }
    }

    #[test]
    fn a_flipped_byte_before_the_last_commit_is_told_with_its_place_and_what_is_lost() {
        for pages in [1, 3] {
            let (_folder, path, native, ends) = killed(pages);
            for bytes in [turned(&native), native] {
                assert_eq!(told(&path, &bytes), None);
                for at in (0..bytes.len()).step_by(5) {
                    let mut bytes = bytes.clone();
                    bytes[at] ^= 0x41;
                    let behind = ends.iter().filter(|end| **end > at).count() as u64 - 1;
                    let found = told(&path, &bytes);
                    if at < HEAD {
                        assert!(found.is_some_and(|found| found.at == 0), "{at}: {found:?}");
                        continue;
                    }
                    let frame = (at - HEAD) / (FRAME_HEAD + 512) * (FRAME_HEAD + 512) + HEAD;
                    let at_frame = AheadDamage { at: frame as u64, commits: behind };
                    // A byte of the number that says where a commit ends may seem to end one earlier.
                    let is_end = (4..8).contains(&((at - HEAD) % (FRAME_HEAD + 512)));
                    if is_end && behind > 0 {
                        assert!(found.is_some_and(|found| found.at == at_frame.at), "{at}: {found:?}");
                    } else if !is_end {
                        assert_eq!(found, Some(at_frame).filter(|_| behind > 0), "{at} of {pages}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_an_earlier_use_of_the_file_left_behind_the_end_is_no_damage() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.db");
        let db = rusqlite::Connection::open(&path).unwrap();
        db.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (a);").unwrap();
        let fill = |rows| {
            for row in 0..rows {
                db.execute("INSERT INTO t VALUES (?1)", [row]).unwrap();
            }
        };
        fill(20);
        db.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(())).unwrap();
        fill(3);
        let whole = Ahead::of(&path).unwrap().frames().filter(|frame| frame.is_whole).count();
        assert_eq!((whole, Ahead::of(&path).unwrap().frames().count() > 20), (3, true));
        assert_eq!(ahead_damage(&path), None);
    }
}
