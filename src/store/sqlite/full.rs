//! A log whose disk is full: nothing fails, nothing is lost, and it goes on by itself once there is room.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::time::timeout;

use super::{tests::temp, *};
use crate::store::samples::{every_kind, run_id, turn};

const DEADLINE: Duration = Duration::from_secs(60);

/// A log that may not grow, in which one checkpoint takes up much room, and run 1 has one event.
async fn full() -> (tempfile::TempDir, PathBuf, SqliteStore) {
    let (folder, path) = temp();
    let db = schema::open_writer(&path, Durability::Process, Duration::from_secs(60)).unwrap();
    let store = SqliteStore::over(db, &path, Options::default()).unwrap();
    store.append(run_id(1), Seq::START, &[turn(1)]).unwrap();
    store.durable(store.save_checkpoint(run_id(1), Seq::new(1), vec![7; 4 << 20]).unwrap()).await.unwrap();
    drop(store);
    let db = schema::open_writer(&path, Durability::Process, Duration::from_secs(60)).unwrap();
    let pages: u32 = db.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
    db.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(())).unwrap();
    let store = SqliteStore::over(db, &path, Options::default()).unwrap();
    (folder, path, store)
}

fn large() -> Vec<Fact> {
    (0..200).flat_map(|_| every_kind()).collect()
}

async fn stands(store: &SqliteStore, stuck: bool) {
    let mut health = store.health();
    timeout(DEADLINE, health.wait_for(|health| health.is_stuck() == stuck)).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_waits_and_is_written_in_order_once_there_is_room() {
    let (_folder, path, store) = full().await;
    let step = large().len() as u64;
    let chain = [1, 1 + step].map(|place| store.append(run_id(1), Seq::new(place), &large()).unwrap());
    stands(&store, true).await;
    assert!(timeout(Duration::from_millis(300), store.durable(chain[0])).await.is_err());
    // Questions are answered all the same, with what is durable.
    assert_eq!(timeout(DEADLINE, store.read(run_id(1), Seq::START)).await.unwrap().unwrap().len(), 1);
    let db = rusqlite::Connection::open(&path).unwrap();
    db.busy_timeout(DEADLINE).unwrap();
    db.execute("DELETE FROM checkpoint", []).unwrap();
    for ticket in chain {
        timeout(DEADLINE, store.durable(ticket)).await.unwrap().unwrap();
    }
    stands(&store, false).await;
    assert_eq!(store.read(run_id(1), Seq::START).await.unwrap().len() as u64, 1 + 2 * step);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_is_closed_while_it_is_full_gives_up_and_loses_nothing_that_was_durable() {
    let (_folder, path, store) = full().await;
    let ticket = store.append(run_id(1), Seq::new(1), &large()).unwrap();
    stands(&store, true).await;
    let store = Arc::new(store);
    let closing = Arc::clone(&store);
    timeout(DEADLINE, tokio::task::spawn_blocking(move || closing.close())).await.unwrap().unwrap();
    assert!(matches!(store.durable(ticket).await, Err(StoreError::Unavailable(_))));
    let store = SqliteStore::open(&path, Options::default()).unwrap();
    assert_eq!(store.read(run_id(1), Seq::START).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_to_a_file_that_turns_out_to_be_damaged() {
    let (_folder, path) = temp();
    let store = SqliteStore::open(&path, Options::default()).unwrap();
    store.durable(store.append(run_id(1), Seq::START, &[turn(1)]).unwrap()).await.unwrap();
    drop(store);
    let db = schema::open_writer(&path, Durability::Power, Duration::ZERO).unwrap();
    // A page that this connection has not read yet.
    let root = "SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_autoindex_run_1'";
    let root: u64 = db.query_row(root, [], |row| row.get(0)).unwrap();
    let store = SqliteStore::over(db, &path, Options::default()).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let page = usize::try_from(root - 1).unwrap() * 4096;
    bytes[page..page + 4096].fill(0x5a);
    std::fs::write(&path, &bytes).unwrap();
    for place in [1, 2] {
        let ticket = store.append(run_id(1), Seq::new(place), &[turn(2)]).unwrap();
        let failed = timeout(DEADLINE, store.durable(ticket)).await.unwrap().unwrap_err();
        assert!(matches!(failed, StoreError::Malformed(_)), "{failed}");
    }
}

/// A write beyond the limit is an error like that of a full disk once its signal is ignored, which only a shell can do for the
/// child.
#[tokio::test]
async fn a_file_that_may_not_grow_is_a_full_disk_and_once_it_may_everything_is_written() {
    let (folder, path) = temp();
    let (_, module) = module_path!().split_once("::").unwrap();
    let status = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -S -f 2000; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &format!("{module}::as_child::fills_the_disk_and_makes_room"), "--ignored"])
        .env("HERDER_TEST_FOLDER", folder.path())
        .stdout(Stdio::null())
        .status();
    assert!(status.unwrap().success());
    let store = SqliteStore::open(&path, Options::default()).unwrap();
    assert_eq!(store.read(run_id(2), Seq::START).await.unwrap().len(), 1);
}

/// Not a test of its own: what the one above has another process do.
mod as_child {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    #[ignore = "run by another test in a process of its own"]
    async fn fills_the_disk_and_makes_room() {
        let folder: PathBuf = std::env::var_os("HERDER_TEST_FOLDER").unwrap().into();
        let store = SqliteStore::open(&folder.join("log.db"), Options::default()).unwrap();
        let step = large().len() as u64;
        let mut health = store.health();
        let (mut head, mut tickets) = (0, Vec::new());
        while !health.borrow_and_update().is_stuck() {
            let ticket = store.append(run_id(1), Seq::new(head), &large()).unwrap();
            (head, tickets) = (head + step, [tickets, vec![ticket]].concat());
            tokio::select! {
                written = store.durable(ticket) => written.unwrap(),
                stuck = health.changed() => stuck.unwrap(),
            }
        }
        let other = store.append(run_id(2), Seq::START, &[turn(1)]).unwrap();
        let limit = getrlimit(Resource::Fsize);
        setrlimit(Resource::Fsize, Rlimit { current: limit.maximum, ..limit }).unwrap();
        for ticket in tickets.into_iter().chain([other]) {
            timeout(DEADLINE, store.durable(ticket)).await.unwrap().unwrap();
        }
        assert_eq!(store.read(run_id(1), Seq::START).await.unwrap().len() as u64, head);
    }
}
