//! Folders with one thing wrong with them: it is told, it is mended, and nothing else is touched.

use std::{fs, path::Path, sync::Arc};

use super::*;
use crate::{
    app::state::{State, StateError},
    config::Durability,
    domain::{
        event::{Event, Fact},
        id::{RunId, Seq},
        run::{Input, Run},
        time::Timestamp,
    },
    store::RunFilter,
};

fn run_id(number: u128) -> RunId {
    RunId::new(uuid::Uuid::from_u128(number))
}

fn task(run: RunId, text: &str) -> Vec<Fact> {
    let spec = serde_json::json!({"task": text, "attempt": 1, "model": "m", "workspace": "/w"});
    let submit = Input::Submit(Arc::new(serde_json::from_value(spec).unwrap()));
    Run::new(run).decide(submit, Timestamp::from_micros(1)).unwrap()
}

/// A folder with `runs` runs whose tasks fill some pages each; those with an odd number were cancelled.
async fn folder(runs: u128) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let state = State::to_write(folder.path(), Durability::Process).unwrap();
    for run in (1..=runs).map(run_id) {
        let mut facts = task(run, &"count the words ".repeat(900));
        if run.as_bytes()[15] % 2 == 1 {
            let state = Run::replay(run, &facts);
            let end = Input::End(crate::domain::outcome::Outcome::Cancelled);
            facts.extend(state.decide(end, Timestamp::from_micros(2)).unwrap());
        }
        state.store.durable(state.store.append(run, Seq::START, &facts).unwrap()).await.unwrap();
    }
    state.close().await;
    folder
}

fn troubles(folder: &Path) -> Vec<String> {
    let lines = examine(folder).unwrap().into_iter();
    // How full this machine's disk is is not this folder's trouble.
    let lines = lines.filter(|line| line.grade != Grade::Ok && !line.what.contains("MiB free"));
    lines.map(|line| format!("{}: {}", line.place, line.what)).collect()
}

fn log(folder: &Path) -> rusqlite::Connection {
    rusqlite::Connection::open(folder.join("log.db")).unwrap()
}

async fn runs(folder: &Path, filter: RunFilter) -> usize {
    let state = State::to_write(folder, Durability::Process).unwrap();
    let count = state.store.runs(filter).await.unwrap().len();
    state.close().await;
    count
}

fn open() -> RunFilter {
    RunFilter { ended: Some(false), ..RunFilter::default() }
}

#[tokio::test]
async fn a_sound_folder_has_no_troubles_and_is_left_as_it_is() {
    let folder = folder(4).await;
    let before = fs::read(folder.path().join("log.db")).unwrap();
    assert_eq!(troubles(folder.path()), [""; 0]);
    assert_eq!(repair(folder.path()).unwrap(), [""; 0]);
    assert!(fs::read(folder.path().join("log.db")).unwrap() == before);
    let held = State::to_write(folder.path(), Durability::Process).unwrap();
    let lines = examine(folder.path()).unwrap();
    let holder = format!("in use by process {}", std::process::id());
    assert!(lines.iter().any(|line| line.what == holder), "{lines:?}");
    assert!(matches!(repair(folder.path()), Err(RepairError::Folder(FolderError::InUse { .. }))));
    held.close().await;
}

#[tokio::test]
async fn damage_in_the_log_is_told_with_its_run_and_mended() {
    let told = [
        (
            "UPDATE append SET body = x'5b' WHERE pos = 1",
            "run 00000000-0000-0000-0000-000000000001: its log cannot be read from event 1 on, at position 1: \
             the checksum does not match",
        ),
        (
            "UPDATE run SET standing = 'open' WHERE pos = 1",
            "run 00000000-0000-0000-0000-000000000001: is open, and its log has its end",
        ),
        (
            "UPDATE run SET standing = 'done' WHERE pos = 1",
            "run 00000000-0000-0000-0000-000000000001: ended otherwise than its log says",
        ),
        (
            "UPDATE run SET end = x'5b' WHERE pos = 1",
            "run 00000000-0000-0000-0000-000000000001: does not have the end that its log has",
        ),
        (
            "UPDATE run SET labels = '[' WHERE pos = 1",
            "run 00000000-0000-0000-0000-000000000001: is of another task than its log says",
        ),
        (
            "UPDATE run SET attempt = 7 WHERE pos = 1",
            "run 00000000-0000-0000-0000-000000000001: is of another task than its log says",
        ),
        (
            "DELETE FROM run WHERE pos = 1",
            "log.db: the run from position 1 on is not known, and 1 appends of it are there",
        ),
    ];
    for (wound, expected) in told {
        let folder = folder(2).await;
        assert_eq!(log(folder.path()).execute(wound, []).unwrap(), 1);
        assert_eq!(troubles(folder.path()), [expected], "{wound}");
        assert_eq!(repair(folder.path()).unwrap().len(), 1, "{wound}");
        assert_eq!(troubles(folder.path()), [""; 0], "{wound}");
        // What was open still is.
        assert_eq!(runs(folder.path(), open()).await, 1, "{wound}");
    }
}

#[tokio::test]
async fn an_end_that_a_log_has_lost_is_put_back() {
    let folder = folder(1).await;
    let whole = "UPDATE append SET sum = NULL, count = 1,
        body = CAST('[' || (CAST(body AS TEXT) -> 0) || ']' AS BLOB)";
    log(folder.path()).execute(whole, []).unwrap();
    let lost = "run 00000000-0000-0000-0000-000000000001: has ended, and its log does not have its end";
    assert_eq!(troubles(folder.path()), [lost]);
    repair(folder.path()).unwrap();
    assert_eq!(troubles(folder.path()), [""; 0]);
    let state = State::to_write(folder.path(), Durability::Process).unwrap();
    let facts = state.store.read(run_id(1), Seq::START).await.unwrap();
    assert!(matches!(facts.last().unwrap().fact.event, Event::RunEnd(_)));
    state.close().await;
}

#[tokio::test]
async fn of_a_file_with_pages_of_garbage_everything_else_is_salvaged_and_the_old_one_kept() {
    let folder = folder(40).await;
    let path = folder.path().join("log.db");
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2 / 4096 * 4096;
    bytes[middle..middle + 4096].fill(0x5a);
    fs::write(&path, &bytes).unwrap();
    assert!(!troubles(folder.path()).is_empty());
    let done = repair(folder.path()).unwrap();
    assert!(done.iter().any(|done| done.contains("runs salvaged whole ")), "{done:?}");
    assert_eq!(troubles(folder.path()), [""; 0]);
    let aside = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let aside: Vec<_> = aside.filter(|path| path.to_string_lossy().contains("log.db.damaged-")).collect();
    assert_eq!(aside.len(), 1);
    assert!(fs::read(&aside[0]).unwrap() == bytes);
    // Nothing goes on that may have lost what came last.
    assert_eq!(runs(folder.path(), open()).await, 0);
    let left = runs(folder.path(), RunFilter::default()).await;
    assert!(left >= 30, "{left} of 40 left");
}

#[tokio::test]
async fn a_file_that_was_cut_off_or_is_no_database_is_refused_by_writers_and_salvaged() {
    type Wound = fn(Vec<u8>) -> Vec<u8>;
    let wounds: [(Wound, usize); 3] = [
        (|bytes| bytes[..bytes.len() * 3 / 4].to_vec(), 1),
        (|bytes| [b"not a database, by any means. ".repeat(9).as_slice(), &bytes[270..]].concat(), 0),
        (|_| Vec::new(), 0),
    ];
    for (number, (wound, least)) in wounds.into_iter().enumerate() {
        let folder = folder(40).await;
        let path = folder.path().join("log.db");
        fs::create_dir_all(folder.path().join("spill").join(run_id(1).to_string())).unwrap();
        fs::write(&path, wound(fs::read(&path).unwrap())).unwrap();
        let before = fs::read(&path).unwrap();
        let refused = State::to_write(folder.path(), Durability::Process).map(drop).unwrap_err();
        let StateError::Log(OpenError::Malformed { .. } | OpenError::Gone { .. }) = &refused else {
            panic!("wound {number}: {refused}")
        };
        assert!(fs::read(&path).unwrap() == before, "wound {number}");
        assert!(!troubles(folder.path()).is_empty());
        repair(folder.path()).unwrap();
        assert!(runs(folder.path(), RunFilter::default()).await >= least, "wound {number}");
        assert_eq!(runs(folder.path(), open()).await, 0);
    }
}

#[tokio::test]
async fn what_a_repair_had_salvaged_before_it_died_is_put_in_its_place_by_the_next() {
    let folder = folder(3).await;
    let at = |name: &str| folder.path().join(name);
    fs::rename(at("log.db"), at("log.db.salvaged")).unwrap();
    // It could be worked with, and does not know what was done.
    let other = self::folder(2).await;
    fs::copy(other.path().join("log.db"), at("log.db")).unwrap();
    fs::write(at("log.db-wal"), "of the old one").unwrap();
    let refused = State::to_write(folder.path(), Durability::Process).map(drop);
    assert!(matches!(refused, Err(StateError::Log(OpenError::Malformed { .. }))), "{refused:?}");
    assert!(troubles(folder.path()).contains(&"log.db: a repair was cut short".to_owned()));
    repair(folder.path()).unwrap();
    assert_eq!(troubles(folder.path()), [""; 0]);
    assert_eq!(runs(folder.path(), RunFilter::default()).await, 3);
}

#[tokio::test]
async fn what_belongs_to_nothing_is_told_and_what_was_never_finished_is_removed() {
    let folder = folder(1).await;
    let at = |name: &str| folder.path().join(name);
    fs::create_dir_all(at("spill").join(run_id(1).to_string())).unwrap();
    fs::create_dir_all(at("spill").join(run_id(9).to_string())).unwrap();
    fs::create_dir_all(at("batches")).unwrap();
    fs::write(at("batches/.arriving-x"), "").unwrap();
    fs::write(at("batches").join(format!("{}.0.jsonl", run_id(5))), "").unwrap();
    fs::write(at("notes.txt"), "").unwrap();
    fs::create_dir_all(at("answers")).unwrap();
    for run in [run_id(1), run_id(9)] {
        fs::create_dir_all(at("work").join(run.to_string())).unwrap();
        fs::write(at("work").join(format!("{run}.json")), "").unwrap();
    }
    let stray = [
        "notes.txt: herder did not put this here".to_owned(),
        format!("spill/{}: outputs of a run that is not of record", run_id(9)),
        format!("work/{}: workspace of a run that is not of record", run_id(9)),
        format!("batches/{}.0.jsonl: input of a batch that is not of record", run_id(5)),
    ];
    let unfinished = "batches/.arriving-x: a file that was never finished".to_owned();
    assert_eq!(troubles(folder.path()), [&[unfinished], &stray[..]].concat());
    repair(folder.path()).unwrap();
    assert_eq!(troubles(folder.path()), stray);
}

#[tokio::test]
async fn no_log_is_begun_beside_what_runs_have_left() {
    for name in ["spill", "batches", "work", "patches", "answers"] {
        let folder = folder(0).await;
        fs::write(folder.path().join("log.db"), "").unwrap();
        fs::create_dir_all(folder.path().join(name).join("x")).unwrap();
        let refused = State::to_write(folder.path(), Durability::Process).map(drop);
        assert!(matches!(refused, Err(StateError::Log(OpenError::Gone { .. }))), "{name}: {refused:?}");
    }
}

#[tokio::test]
async fn a_damaged_format_is_told_and_written_anew() {
    let folder = folder(1).await;
    fs::write(folder.path().join("format"), "her").unwrap();
    let told = "format: the file that says what the folder is, is damaged or missing";
    assert_eq!(troubles(folder.path()), [told]);
    repair(folder.path()).unwrap();
    assert_eq!(troubles(folder.path()), [""; 0]);
    assert_eq!(runs(folder.path(), RunFilter::default()).await, 1);
    let nowhere = examine(&folder.path().join("nowhere"));
    assert!(matches!(nowhere, Err(FolderError::Missing { .. })));
}
