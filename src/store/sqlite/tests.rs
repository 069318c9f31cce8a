//! What a log in a file promises beyond the contract of every store: other processes, kills and locks.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use tokio::time::timeout;

use super::*;
use crate::store::{
    feed::Feed,
    folder::{FolderError, StateFolder},
    samples::{end, every_kind, run_end, run_id, submitted, texts, turn},
};

const DEADLINE: Duration = Duration::from_secs(60);

pub(super) fn temp() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.db");
    (folder, path)
}

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, Options::default()).unwrap()
}

async fn put(store: &SqliteStore, run: u64, expected: u64, facts: &[Fact]) -> Result<(), StoreError> {
    store.durable(store.append(run_id(run), Seq::new(expected), facts)?).await
}

async fn seqs(store: &SqliteStore, run: u64) -> Vec<u64> {
    store.read(run_id(run), Seq::START).await.unwrap().iter().map(|one| one.seq.get()).collect()
}

/// Runs one of the `as_child` tests below in a process of its own and gives it a folder to work in.
fn child(role: &str, folder: &Path) -> (Child, BufReader<ChildStdout>) {
    spawn(Command::new(std::env::current_exe().unwrap()), role, folder)
}

fn spawn(mut command: Command, role: &str, folder: &Path) -> (Child, BufReader<ChildStdout>) {
    let (_, module) = module_path!().split_once("::").unwrap();
    let mut child = command
        .args(["--exact", &format!("{module}::as_child::{role}"), "--ignored", "--nocapture"])
        .env("HERDER_TEST_FOLDER", folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    (child, output)
}

/// Reads what a child says until a line starts with `key`, and returns the rest of that line.
fn hear(output: &mut impl BufRead, key: &str) -> String {
    let mut line = String::new();
    loop {
        line.clear();
        assert_ne!(output.read_line(&mut line).unwrap(), 0, "the child ended before it said {key:?}");
        if let Some(rest) = line.trim_end().strip_prefix(key) {
            return rest.to_owned();
        }
    }
}

#[tokio::test]
async fn what_was_handed_over_is_there_after_the_store_was_dropped_and_opened_again() {
    let (_folder, path) = temp();
    let store = open(&path);
    put(&store, 1, 0, &every_kind()).await.unwrap();
    for place in 0..100 {
        store.append(run_id(2), Seq::new(place), &[turn(1)]).unwrap();
    }
    let before = texts(&store.read(run_id(1), Seq::START).await.unwrap());
    drop(store);
    assert!(!path.with_extension("db-wal").exists(), "a closed log is one file");
    let store = open(&path);
    assert_eq!(texts(&store.read(run_id(1), Seq::START).await.unwrap()), before);
    assert_eq!(seqs(&store, 2).await, (1..=100).collect::<Vec<_>>());
    assert_eq!(store.watch().borrow().get(), 100 + every_kind().len() as u64);
    put(&store, 2, 100, &[turn(2)]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_process_loses_nothing_that_it_was_told_is_durable() {
    let (folder, path) = temp();
    let (mut child, mut output) = child("writes_and_tells_what_is_durable", folder.path());
    let mut told = 0;
    while told < 300 {
        told = hear(&mut output, "durable ").parse().unwrap();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    for line in output.lines() {
        told = line.unwrap().strip_prefix("durable ").and_then(|rest| rest.parse().ok()).unwrap_or(told);
    }
    let store = open(&path);
    let found = seqs(&store, 1).await;
    assert_eq!(found, (1..=found.len() as u64).collect::<Vec<_>>());
    assert!(found.len() as u64 >= told, "{} found, {told} told", found.len());
    put(&store, 1, found.len() as u64, &[turn(1)]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_torn_end_of_the_write_ahead_log_costs_what_was_torn_and_no_more() {
    let (folder, path) = temp();
    let (mut child, mut output) = child("writes_and_tells_what_is_durable", folder.path());
    while hear(&mut output, "durable ").parse::<u64>().unwrap() < 50 {}
    child.kill().unwrap();
    child.wait().unwrap();
    let log = std::fs::OpenOptions::new().write(true).open(path.with_extension("db-wal")).unwrap();
    log.set_len(log.metadata().unwrap().len() - 1000).unwrap();
    let store = open(&path);
    let found = seqs(&store, 1).await;
    assert_eq!(found, (1..=found.len() as u64).collect::<Vec<_>>());
    assert!(found.len() >= 48, "{} found", found.len());
    put(&store, 1, found.len() as u64, &[turn(1)]).await.unwrap();
}

#[test]
fn a_second_writing_process_is_refused_by_the_pid_of_the_first() {
    let (folder, _) = temp();
    let (mut child, mut output) = child("holds_the_state_folder", folder.path());
    hear(&mut output, "held");
    let refused = StateFolder::open_for_writing(folder.path()).unwrap_err();
    assert!(
        matches!(refused, FolderError::InUse { holder, .. } if holder.pid() == Some(child.id())),
        "{refused}"
    );
    child.kill().unwrap();
    child.wait().unwrap();
    StateFolder::open_for_writing(folder.path()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_in_another_process_sees_every_event_once() {
    let (folder, path) = temp();
    drop(open(&path));
    let reader = Arc::new(SqliteStore::open_for_reading(&path, Options::default()).unwrap());
    let mut feed = Feed::all(Arc::clone(&reader) as _, Pos::START);
    let (mut child, _output) = child("has_eight_runs_append_200_events_each", folder.path());
    let mut places = Vec::new();
    while places.len() < 8 * 200 {
        let page = timeout(DEADLINE, feed.next()).await.unwrap().unwrap();
        places.extend(page.iter().map(|one| one.pos.get()));
    }
    assert_eq!(places, (1..=8 * 200).collect::<Vec<_>>());
    assert!(child.wait().unwrap().success());
    assert_eq!(seqs(&reader, 8).await, (1..=200).collect::<Vec<_>>());
    assert!(matches!(put(&reader, 1, 200, &[turn(1)]).await, Err(StoreError::Closed)));
}

#[tokio::test]
async fn a_closed_log_in_a_folder_that_cannot_be_written_is_read() {
    let (folder, path) = temp();
    let set_mode =
        |mode| std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(mode)).unwrap();
    let store = open(&path);
    put(&store, 1, 0, &[turn(1)]).await.unwrap();
    drop(store);
    set_mode(0o500);
    let reader = SqliteStore::open_for_reading(&path, Options::default()).unwrap();
    assert_eq!(seqs(&reader, 1).await, [1]);
    set_mode(0o700);
}

#[test]
fn reading_where_nothing_was_written_is_an_error_that_says_so() {
    let (_folder, path) = temp();
    let missing = SqliteStore::open_for_reading(&path, Options::default()).map(drop).unwrap_err();
    assert!(matches!(missing, OpenError::Empty { .. }), "{missing}");
    assert!(!path.exists());
    std::fs::write(&path, "").unwrap();
    let empty = SqliteStore::open_for_reading(&path, Options::default()).map(drop).unwrap_err();
    assert!(matches!(empty, OpenError::Empty { .. }), "{empty}");
}

#[test]
fn a_log_of_a_later_version_is_refused_and_left_as_it_is() {
    let (_folder, path) = temp();
    drop(open(&path));
    rusqlite::Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let before = std::fs::read(&path).unwrap();
    for opened in [
        SqliteStore::open(&path, Options::default()),
        SqliteStore::open_for_reading(&path, Options::default()),
    ] {
        assert!(matches!(opened.map(drop), Err(OpenError::Newer { found: 99, known: 4, .. })));
    }
    assert!(std::fs::read(&path).unwrap() == before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_held_for_a_moment_delays_and_one_held_longer_is_a_named_error() {
    let (_folder, path) = temp();
    let patient = Options { busy_timeout: Duration::from_secs(60), ..Options::default() };
    let store = SqliteStore::open(&path, patient).unwrap();
    let intruder = rusqlite::Connection::open(&path).unwrap();
    intruder.execute_batch("BEGIN IMMEDIATE").unwrap();
    let ticket = store.append(run_id(1), Seq::START, &[turn(1)]).unwrap();
    assert!(timeout(Duration::from_millis(300), store.durable(ticket)).await.is_err());
    intruder.execute_batch("COMMIT").unwrap();
    timeout(DEADLINE, store.durable(ticket)).await.unwrap().unwrap();
    drop(store);

    let hasty = Options { busy_timeout: Duration::from_millis(50), ..Options::default() };
    let store = SqliteStore::open(&path, hasty).unwrap();
    intruder.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = timeout(DEADLINE, put(&store, 1, 1, &[turn(2)])).await.unwrap().unwrap_err();
    let StoreError::Unavailable(source) = error else { panic!("not unavailable: {error}") };
    assert_eq!(source.to_string(), "database is locked");
    intruder.execute_batch("COMMIT").unwrap();
    put(&store, 1, 1, &[turn(2)]).await.unwrap();
    assert_eq!(seqs(&store, 1).await, [1, 2]);
}

#[tokio::test]
async fn three_hundred_runs_open_no_more_files() {
    let (folder, path) = temp();
    let store = open(&path);
    let open_files = || {
        let own = std::fs::read_dir("/proc/self/fd")
            .unwrap()
            .filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok());
        own.filter(|file| file.starts_with(folder.path())).count()
    };
    let mut counts = Vec::new();
    for run in 0..300 {
        put(&store, run, 0, &[submitted(1, None, "t", 1), run_end(2)]).await.unwrap();
        assert_eq!(seqs(&store, run).await, [1, 2]);
        assert_eq!(store.read_all(Pos::START, 10).await.unwrap().len(), 10.min(2 * (run as usize + 1)));
        if run % 50 == 49 {
            counts.push(open_files());
        }
    }
    assert_eq!(counts, [counts[0]; 6]);
    drop(store);
    assert_eq!(open_files(), 0);
}

#[tokio::test]
async fn a_damaged_row_is_reported_with_its_place_and_never_passed_over() {
    let (_folder, path) = temp();
    let store = open(&path);
    for place in 0..3 {
        put(&store, 1, place * 2, &[turn(1), turn(2)]).await.unwrap();
    }
    drop(store);
    let db = rusqlite::Connection::open(&path).unwrap();
    let whole: Vec<u8> = db.query_row("SELECT body FROM append WHERE pos = 3", [], |row| row.get(0)).unwrap();
    let unknown = String::from_utf8_lossy(&whole).replace("turn_start", "tea_break").into_bytes();
    for damaged in [unknown, b"[]".to_vec(), vec![0xff], whole[..20].to_vec()] {
        db.execute("UPDATE append SET body = ?1 WHERE pos = 3", [damaged]).unwrap();
        let store = open(&path);
        for error in [
            store.read(run_id(1), Seq::START).await.unwrap_err(),
            store.read_all(Pos::new(2), 100).await.unwrap_err(),
        ] {
            let StoreError::Damaged { pos, run, .. } = error else { panic!("not damaged: {error}") };
            assert_eq!((pos, run), (Pos::new(3), run_id(1)));
        }
        assert_eq!(store.read_all(Pos::START, 100).await.unwrap().len(), 2);
        assert_eq!(store.read(run_id(1), Seq::new(4)).await.unwrap().len(), 2);
    }
}

#[tokio::test]
async fn a_page_of_large_facts_is_short_and_the_whole_log_of_a_run_is_read_all_the_same() {
    let (_folder, path) = temp();
    let store = open(&path);
    let text = "x".repeat(600 << 10);
    let large = || Fact {
        event: crate::domain::event::Event::RunEnd(Box::new(crate::domain::event::RunEnd {
            text: text.as_str().into(),
            ..end()
        })),
        ..turn(1)
    };
    put(&store, 1, 0, &[large(), large(), large()]).await.unwrap();
    for place in 3..8 {
        put(&store, 1, place, &[large()]).await.unwrap();
    }
    drop(store);
    // Opened anew, it has nothing in memory.
    let store = open(&path);
    for (after, here) in [(0, 3), (3, 2), (5, 2), (7, 1), (8, 0)] {
        assert_eq!(store.read_some(run_id(1), Seq::new(after), 64).await.unwrap().len(), here);
        assert_eq!(store.read_all(Pos::new(after), 64).await.unwrap().len(), here);
    }
    assert_eq!(store.read(run_id(1), Seq::START).await.unwrap().len(), 8);
}

/// Not tests of their own: what the tests above have another process do.
mod as_child {
    use super::*;

    fn folder() -> PathBuf {
        std::env::var_os("HERDER_TEST_FOLDER").unwrap().into()
    }

    fn say(words: &str) {
        // Not `println`: a test's own output is buffered and would be lost with a kill.
        writeln!(std::io::stdout(), "{words}").unwrap();
    }

    #[tokio::test]
    #[ignore = "run by another test in a process of its own"]
    async fn writes_and_tells_what_is_durable() {
        let store = open(&folder().join("log.db"));
        say("");
        for place in 0.. {
            put(&store, 1, place, &[turn(1)]).await.unwrap();
            say(&format!("durable {}", place + 1));
        }
    }

    #[test]
    #[ignore = "run by another test in a process of its own"]
    fn holds_the_state_folder() {
        let _held = StateFolder::open_for_writing(&folder()).unwrap();
        say("\nheld");
        // Until the parent kills this process, or is gone.
        let _ = std::io::stdin().read_line(&mut String::new());
    }

    #[tokio::test(flavor = "multi_thread")]
    #[ignore = "run by another test in a process of its own"]
    async fn has_eight_runs_append_200_events_each() {
        let store = Arc::new(open(&folder().join("log.db")));
        let runs = (1..=8).map(|run| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for place in 0..200 {
                    put(&store, run, place, &[turn(1)]).await.unwrap();
                }
            })
        });
        for run in runs.collect::<Vec<_>>() {
            run.await.unwrap();
        }
    }
}
