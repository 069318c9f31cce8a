//! What a log does that was damaged while it was closed: it keeps what is sound, says what is not, and loses nothing.

use std::{fs, path::Path};

use rusqlite::params;

use super::{tests::temp, *};
use crate::{
    domain::{
        event::Event,
        outcome::{Breakage, Outcome},
    },
    store::samples::{run_end, run_id, submitted, texts, turn},
};

/// A log with runs 1 to 3, all open, written turn about: each was submitted and has begun three turns.
async fn three_runs(path: &Path) {
    let store = open(path);
    for run in 1..=3 {
        put(&store, run, 0, &[submitted(1, None, "t", 1)]).await;
    }
    for place in 1..=3 {
        for run in 1..=3 {
            put(&store, run, place, &[turn(u32::try_from(place).unwrap())]).await;
        }
    }
}

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, Options::default()).unwrap()
}

async fn put(store: &SqliteStore, run: u64, expected: u64, facts: &[Fact]) {
    store.durable(store.append(run_id(run), Seq::new(expected), facts).unwrap()).await.unwrap();
}

async fn log(store: &SqliteStore, run: u64) -> Vec<Envelope> {
    store.read(run_id(run), Seq::START).await.unwrap()
}

fn raw(path: &Path) -> rusqlite::Connection {
    rusqlite::Connection::open(path).unwrap()
}

/// How many events of run 2 are set aside, and why.
fn set_aside(path: &Path) -> (usize, String) {
    let db = raw(path);
    let mut select = db.prepare("SELECT run, why FROM damaged ORDER BY idx").unwrap();
    let rows =
        select.query_map([], |row| Ok((row.get::<_, [u8; 16]>(0)?, row.get::<_, String>(1)?))).unwrap();
    let rows: Vec<_> = rows.map(Result::unwrap).collect();
    assert!(rows.iter().all(|(run, _)| run == run_id(2).as_bytes()));
    (rows.len(), rows.into_iter().next().unwrap().1)
}

#[tokio::test]
async fn a_run_with_a_damaged_append_keeps_what_is_before_it_and_ends_and_the_others_go_on() {
    let row = "SELECT body FROM append WHERE run = 2 AND first_seq = 3";
    type Wound = fn(&rusqlite::Connection, Vec<u8>);
    let wounds: [(Wound, &str, usize); 7] = [
        (
            |db, mut body| {
                body[50] ^= 1;
                db.execute("UPDATE append SET body = ?1 WHERE run = 2 AND first_seq = 3", [body]).unwrap();
            },
            "the checksum does not match",
            2,
        ),
        (
            |db, _| {
                let empty = params![Vec::<u8>::new()];
                db.execute("UPDATE append SET sum = NULL, body = ?1 WHERE run = 2 AND first_seq = 3", empty)
                    .unwrap();
            },
            "not a list of events",
            2,
        ),
        (
            |db, _| {
                db.execute("DELETE FROM append WHERE run = 2 AND first_seq = 3", []).unwrap();
            },
            "event 3 is due, and 4 stands there",
            1,
        ),
        (
            |db, _| {
                db.execute("UPDATE append SET first_seq = 9 WHERE run = 2 AND first_seq = 3", []).unwrap();
            },
            "event 3 is due, and 9 stands there",
            2,
        ),
        (
            |db, _| {
                db.execute("UPDATE append SET first_seq = -3 WHERE run = 2 AND first_seq = 3", []).unwrap();
            },
            "event 3 is due, and -3 stands there",
            2,
        ),
        (
            |db, _| {
                db.execute("UPDATE append SET sum = NULL, count = 2 WHERE run = 2 AND first_seq = 3", [])
                    .unwrap();
            },
            "1 events where 2 were written",
            2,
        ),
        (
            |db, _| {
                db.execute("UPDATE append SET run = 2, first_seq = 5 WHERE run = 3 AND first_seq = 4", [])
                    .unwrap();
            },
            "the checksum does not match",
            1,
        ),
    ];
    for (number, (wound, why, aside)) in wounds.into_iter().enumerate() {
        let (_folder, path) = temp();
        three_runs(&path).await;
        let before = texts(&log(&open(&path), 2).await);
        let db = raw(&path);
        let body = db.query_row(row, [], |row| row.get(0)).unwrap();
        wound(&db, body);
        drop(db);
        let store = open(&path);
        let facts = log(&store, 2).await;
        let sound = if number < 6 { 2 } else { 4 };
        assert_eq!(texts(&facts[..sound]), before[..sound], "wound {number}");
        let kinds: Vec<_> = facts[sound..].iter().map(|one| one.fact.event.kind()).collect();
        assert_eq!(kinds, ["restart", "turn_end", "run_end"]);
        let Some(Event::RunEnd(end)) = facts.last().map(|one| &one.fact.event) else { panic!("{facts:?}") };
        let error = format!("the log of this run is damaged from event {} on: {why}", sound + 1);
        assert_eq!((end.outcome, end.error.as_deref()), (Outcome::Failed(Breakage::Store), Some(&*error)));
        let failed = RunFilter { outcome: Some("store".into()), ..RunFilter::default() };
        let records = store.runs(failed).await.unwrap();
        assert_eq!(records.iter().map(|one| one.run).collect::<Vec<_>>(), [run_id(2)]);
        put(&store, 1, 4, &[turn(4)]).await;
        let places: Vec<u64> =
            store.read_all(Pos::START, 100).await.unwrap().iter().map(|one| one.pos.get()).collect();
        assert!(places.windows(2).all(|pair| pair[0] < pair[1]), "{places:?}");
        drop(store);
        assert_eq!(set_aside(&path), (aside, why.to_owned()));
        // Mended once, it is sound.
        drop(open(&path));
        assert_eq!(set_aside(&path).0, aside);
    }
}

#[tokio::test]
async fn a_run_of_which_nothing_is_sound_has_ended_all_the_same() {
    let (_folder, path) = temp();
    three_runs(&path).await;
    raw(&path).execute("UPDATE append SET body = x'00' WHERE run = 2 AND first_seq = 1", []).unwrap();
    let store = open(&path);
    let facts = log(&store, 2).await;
    assert!(matches!(&facts[..], [only] if matches!(only.fact.event, Event::RunEnd(_))), "{facts:?}");
    let open = RunFilter { ended: Some(false), ..RunFilter::default() };
    assert_eq!(store.runs(open).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_row_that_does_not_know_of_its_runs_end_is_told() {
    let (_folder, path) = temp();
    three_runs(&path).await;
    let store = open(&path);
    put(&store, 2, 4, &[run_end(9)]).await;
    drop(store);
    let forgotten =
        "UPDATE run SET standing = 'open', ended_at = NULL, end = NULL, detail = NULL WHERE pos = 2";
    raw(&path).execute(forgotten, []).unwrap();
    let record = open(&path).runs(RunFilter::default()).await.unwrap().remove(1);
    assert_eq!(record.end.map(|end| end.outcome), Some(Outcome::Done));
}

#[tokio::test]
async fn an_event_of_a_later_version_is_no_damage() {
    let (_folder, path) = temp();
    three_runs(&path).await;
    let later = r#"[{"v":1,"at":1,"turn":1,"kind":"tea_break","data":{}}]"#.as_bytes();
    raw(&path)
        .execute("UPDATE append SET sum = NULL, body = ?1 WHERE run = 2 AND first_seq = 4", [later])
        .unwrap();
    let store = open(&path);
    let open = RunFilter { ended: Some(false), ..RunFilter::default() };
    assert_eq!(store.runs(open).await.unwrap().len(), 3);
    assert_eq!(store.read_some(run_id(2), Seq::START, 2).await.unwrap().len(), 2);
}

#[tokio::test]
async fn appends_without_a_checksum_are_read_for_what_they_say() {
    let (_folder, path) = temp();
    three_runs(&path).await;
    let before = texts(&log(&open(&path), 2).await);
    raw(&path).execute("UPDATE append SET sum = NULL", []).unwrap();
    assert_eq!(texts(&log(&open(&path), 2).await), before);
}

#[tokio::test]
async fn a_file_that_is_no_sound_database_is_left_as_it_is_and_names_what_mends_it() {
    let (folder, path) = temp();
    three_runs(&path).await;
    let sound = fs::read(&path).unwrap();
    let wal = schema::beside(&path, "-wal");
    let garbage = |from: usize| {
        let mut bytes = sound.clone();
        bytes[from..].fill(0x5a);
        bytes
    };
    let wounds: [(Vec<u8>, &[u8]); 4] = [
        (
            b"somebody's notes, which are long enough to be taken for a header of a database, and then some"
                .to_vec(),
            b"",
        ),
        (garbage(100), b""),
        (sound[..sound.len() / 2].to_vec(), b""),
        (Vec::new(), b"a write-ahead log"),
    ];
    for (number, (file, log)) in wounds.into_iter().enumerate() {
        fs::write(&path, &file).unwrap();
        if log.is_empty() {
            drop(fs::remove_file(&wal))
        } else {
            fs::write(&wal, log).unwrap()
        }
        for opened in [
            SqliteStore::open(&path, Options::default()),
            SqliteStore::open_for_reading(&path, Options::default()),
        ] {
            let error = opened.map(drop).unwrap_err();
            assert!(matches!(error, OpenError::Malformed { .. }), "wound {number}: {error}");
            let remedy = format!("`herder doctor {} --repair`", folder.path().display());
            assert!(error.to_string().contains(&remedy), "{error}");
        }
        assert!(fs::read(&path).unwrap() == file, "wound {number}");
        assert!(log.is_empty() || fs::read(&wal).unwrap() == log, "wound {number}");
    }
}
