//! The tables of `log.db`, and how a connection to it is set up.
//!
//! A row of `append` is one append: event `i` of it has place `pos + i`, so places are dense over all events and no
//! single event is indexed. A run is named there by the place of its first event: runs that live at one time have
//! numbers close together, so a commit of many runs changes a few pages of the index where ids would change one for
//! each run. What is asked for without reading a log stands in tables beside it, which the writer changes in the same
//! transaction; a run has the standing `open` there, then its outcome's name. Appends that turned out to be damaged are
//! moved to `damaged` as they were found. The schema grows by steps only; a file of a newer version is left alone, and
//! one of an older version that is only read stays as it is.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior, config::DbConfig};

use super::{Durability, OpenError};

/// Step `n` brings a file from version `n` to `n + 1`. Steps are added, never changed.
const STEPS: &[&str] = &[
    "
CREATE TABLE append (
    pos INTEGER PRIMARY KEY,
    run INTEGER NOT NULL,
    first_seq INTEGER NOT NULL,
    count INTEGER NOT NULL CHECK (count > 0),
    body BLOB NOT NULL,
    UNIQUE (run, first_seq)
) STRICT;
CREATE TABLE run (
    pos INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
    batch BLOB CHECK (length(batch) = 16),
    task_id TEXT,
    attempt INTEGER,
    submitted_at INTEGER,
    ended_at INTEGER,
    end BLOB
) STRICT;
CREATE INDEX run_batch ON run (batch) WHERE batch IS NOT NULL;
CREATE INDEX run_task ON run (task_id) WHERE task_id IS NOT NULL;
CREATE INDEX run_open ON run (pos) WHERE ended_at IS NULL;
CREATE TABLE batch (
    idx INTEGER PRIMARY KEY,
    batch BLOB NOT NULL UNIQUE CHECK (length(batch) = 16),
    name TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    options TEXT NOT NULL
) STRICT;
CREATE TABLE task (
    idx INTEGER PRIMARY KEY,
    batch BLOB NOT NULL CHECK (length(batch) = 16),
    task_id TEXT NOT NULL,
    hash TEXT NOT NULL,
    UNIQUE (batch, task_id)
) STRICT;
CREATE TABLE checkpoint (
    run BLOB NOT NULL UNIQUE CHECK (length(run) = 16),
    through INTEGER NOT NULL,
    state BLOB NOT NULL
) STRICT;
",
    "
ALTER TABLE run ADD COLUMN standing TEXT;
ALTER TABLE run ADD COLUMN detail TEXT;
ALTER TABLE run ADD COLUMN about TEXT;
ALTER TABLE run ADD COLUMN model TEXT;
ALTER TABLE run ADD COLUMN labels TEXT;
ALTER TABLE run ADD COLUMN priority INTEGER;
ALTER TABLE run ADD COLUMN predecessor BLOB CHECK (length(predecessor) = 16);
ALTER TABLE run ADD COLUMN submission_key TEXT;
ALTER TABLE run ADD COLUMN submission_digest TEXT;
UPDATE run SET standing = 'open' WHERE submitted_at IS NOT NULL;
UPDATE run SET standing = said ->> 'outcome', detail = said ->> 'detail'
FROM (SELECT pos AS number, CAST(end AS TEXT) AS said FROM run)
WHERE pos = number AND submitted_at IS NOT NULL AND json_valid(said);
UPDATE run SET
    about = trim(replace(replace(substr(spec ->> 'task', 1, 120), char(10), ' '), char(9), ' ')),
    model = spec ->> 'model',
    labels = spec -> 'labels',
    priority = coalesce(spec ->> 'priority', 0),
    predecessor = unhex(replace(spec ->> 'predecessor', '-', ''))
FROM (
    SELECT pos AS number,
        CASE WHEN json_valid(CAST(body AS TEXT)) THEN CAST(body AS TEXT) -> 0 -> 'data' END AS spec
    FROM append WHERE first_seq = 1
)
WHERE pos = number AND submitted_at IS NOT NULL;
DROP INDEX run_open;
CREATE INDEX run_standing ON run (standing);
CREATE INDEX run_batch_standing ON run (batch, standing) WHERE batch IS NOT NULL;
CREATE INDEX run_detail ON run (detail) WHERE detail IS NOT NULL;
CREATE INDEX run_predecessor ON run (predecessor) WHERE predecessor IS NOT NULL;
CREATE INDEX run_submission ON run (submission_key) WHERE submission_key IS NOT NULL;
CREATE TABLE setting (
    name TEXT NOT NULL UNIQUE,
    value TEXT NOT NULL
) STRICT;
CREATE TABLE audit (
    idx INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    uid INTEGER,
    user TEXT,
    client TEXT,
    verb TEXT NOT NULL,
    target TEXT NOT NULL,
    changed INTEGER NOT NULL,
    detail TEXT
) STRICT;
CREATE INDEX audit_target ON audit (target);
",
    "ALTER TABLE run ADD COLUMN owner TEXT;",
    "
ALTER TABLE append ADD COLUMN sum INTEGER;
CREATE TABLE damaged (
    idx INTEGER PRIMARY KEY,
    found_at INTEGER NOT NULL,
    why TEXT NOT NULL,
    pos INTEGER NOT NULL,
    run BLOB,
    first_seq INTEGER,
    count INTEGER,
    body BLOB,
    sum INTEGER
) STRICT;
",
];

/// What whoever reads a file of version `n` and may not take the steps after it is given in their place. It hides the
/// file's own tables of the same names. What was asked of a run stays unknown: it would have to be read from the log.
const STAND_INS: [&str; STEPS.len()] = ["", "
CREATE TEMP VIEW run AS SELECT pos, id, batch, task_id, attempt, submitted_at, ended_at, end,
    CASE
        WHEN submitted_at IS NULL THEN NULL
        WHEN ended_at IS NULL THEN 'open'
        WHEN json_valid(CAST(end AS TEXT)) THEN CAST(end AS TEXT) ->> 'outcome'
    END AS standing,
    CASE WHEN json_valid(CAST(end AS TEXT)) THEN CAST(end AS TEXT) ->> 'detail' END AS detail,
    NULL AS about, NULL AS model, NULL AS labels, NULL AS priority, NULL AS predecessor,
    NULL AS submission_key, NULL AS submission_digest, NULL AS owner
FROM main.run;
CREATE TEMP VIEW append AS SELECT *, NULL AS sum FROM main.append;
CREATE TEMP TABLE damaged (idx INTEGER);
CREATE TEMP TABLE setting (name TEXT, value TEXT);
CREATE TEMP TABLE audit (
    idx INTEGER, at INTEGER, uid INTEGER, user TEXT, client TEXT, verb TEXT, target TEXT, changed INTEGER, detail TEXT
);
", "
CREATE TEMP VIEW run AS SELECT *, NULL AS owner FROM main.run;
CREATE TEMP VIEW append AS SELECT *, NULL AS sum FROM main.append;
CREATE TEMP TABLE damaged (idx INTEGER);
", "
CREATE TEMP VIEW append AS SELECT *, NULL AS sum FROM main.append;
CREATE TEMP TABLE damaged (idx INTEGER);
"];

/// Pages that the write-ahead log may hold before it is copied into the file: each copy costs two waits for the disk.
const CHECKPOINT_PAGES: i64 = 4096;

/// Opens the file to write to it, makes it if it is missing and brings its schema up to date.
pub(super) fn open_writer(
    path: &Path,
    durability: Durability,
    busy_timeout: Duration,
) -> Result<Connection, OpenError> {
    let opened = |source| OpenError::sqlite(path, source);
    check_whole(path)?;
    let mut db = Connection::open(path).map_err(opened)?;
    set_up(&db, busy_timeout).map_err(opened)?;
    let synchronous = match durability {
        Durability::Power => "FULL",
        Durability::Process => "NORMAL",
    };
    db.pragma_update(None, "journal_mode", "WAL").map_err(opened)?;
    db.pragma_update(None, "synchronous", synchronous).map_err(opened)?;
    db.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES).map_err(opened)?;
    check_version(path, &db)?;
    migrate(&mut db).map_err(opened)?;
    Ok(db)
}

/// Opens the file to read it. Whoever writes to it goes on.
pub(super) fn open_reader(path: &Path, busy_timeout: Duration) -> Result<Connection, OpenError> {
    let empty = || OpenError::Empty { path: path.to_owned() };
    check_whole(path)?;
    if !path.exists() {
        return Err(empty());
    }
    let (db, found) = match open_to_read(path, path.as_os_str(), busy_timeout) {
        Err(OpenError::Sqlite { source, .. }) if is_unwritable(&source) => {
            let uri = still_uri(path).ok_or(OpenError::Sqlite { path: path.to_owned(), source })?;
            open_to_read(path, uri.as_ref(), busy_timeout)?
        }
        opened => opened?,
    };
    if found == 0 {
        return Err(empty());
    }
    if let Some(stand_ins) = STAND_INS.get(found) {
        db.execute_batch(stand_ins).map_err(|source| OpenError::sqlite(path, source))?;
    }
    Ok(db)
}

/// Whether it may be opened. A log with nothing in it has no write-ahead log either: SQLite would take the latter for a leftover and remove it.
fn check_whole(path: &Path) -> Result<(), OpenError> {
    if path.is_dir() {
        return Err(OpenError::NoFile { path: path.to_owned() });
    }
    let bytes = |path: &Path| path.metadata().map_or(0, |facts| facts.len());
    // In this order: a log that is begun meanwhile has something in it before what goes ahead of it does.
    if bytes(&beside(path, "-wal")) > 0 && bytes(path) == 0 {
        return Err(OpenError::Malformed { path: path.to_owned(), source: None });
    }
    Ok(())
}

/// The file of the log's that has this at the end of its name.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn open_to_read(path: &Path, name: &OsStr, busy_timeout: Duration) -> Result<(Connection, usize), OpenError> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    let opened = |source| OpenError::sqlite(path, source);
    let db = Connection::open_with_flags(name, flags).map_err(opened)?;
    set_up(&db, busy_timeout).map_err(opened)?;
    let found = check_version(path, &db)?;
    Ok((db, found))
}

/// Readers share a small file beside the log with the writer. Where they cannot make it, they cannot read this way.
fn is_unwritable(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly))
}

/// Names the file as one that nobody is changing. That is so if there is no write-ahead log beside it: a writer has
/// one as long as it lives, and one that was killed leaves it behind.
fn still_uri(path: &Path) -> Option<String> {
    if beside(path, "-wal").exists() {
        return None;
    }
    let escaped = path.to_str()?.replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    Some(format!("file:{escaped}?immutable=1"))
}

fn set_up(db: &Connection, busy_timeout: Duration) -> rusqlite::Result<()> {
    db.busy_timeout(busy_timeout)?;
    db.set_prepared_statement_cache_capacity(32);
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, false)?;
    Ok(())
}

fn check_version(path: &Path, db: &Connection) -> Result<usize, OpenError> {
    // The version stands in the file's head; that the tables can be read says more.
    let tables = |db: &Connection| db.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()));
    let found = tables(db).and_then(|()| version(db)).map_err(|source| OpenError::sqlite(path, source))?;
    if found > STEPS.len() {
        return Err(OpenError::Newer { path: path.to_owned(), found, known: STEPS.len() });
    }
    Ok(found)
}

pub(super) fn version(db: &Connection) -> rusqlite::Result<usize> {
    db.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// Makes a file of that version; of the latest, if there is no such version.
pub(super) fn make(path: &Path, version: usize) -> rusqlite::Result<()> {
    let mut db = Connection::open(path)?;
    db.pragma_update(None, "journal_mode", "WAL")?;
    let version = if (1..=STEPS.len()).contains(&version) { version } else { STEPS.len() };
    let change = db.transaction()?;
    for step in STEPS.iter().take(version) {
        change.execute_batch(step)?;
    }
    change.pragma_update(None, "user_version", version)?;
    change.commit()
}

fn migrate(db: &mut Connection) -> rusqlite::Result<()> {
    let change = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for (from, step) in STEPS.iter().enumerate().skip(version(&change)?) {
        change.execute_batch(step)?;
        change.pragma_update(None, "user_version", from + 1)?;
    }
    change.commit()
}
