//! The tables of `log.db`, and how a connection to it is set up.
//!
//! A row of `append` is one append: event `i` of it has place `pos + i`, so places are dense over all events and no
//! single event is indexed. A run is named there by the place of its first event: runs that live at one time have
//! numbers close together, so a commit of many runs changes a few pages of the index where ids would change one for
//! each run. What is asked for without reading a log stands in tables beside it, which the writer
//! changes in the same transaction. The schema only ever grows, by steps; a file of a newer version is left alone.

use std::{ffi::OsStr, path::Path, time::Duration};

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior, config::DbConfig};

use super::{Durability, OpenError};

/// Step `n` brings a file from version `n` to `n + 1`. Steps are added, never changed.
const STEPS: &[&str] = &["
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
    if found == 0 { Err(empty()) } else { Ok(db) }
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
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    if Path::new(&log).exists() {
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
    let found = version(db).map_err(|source| OpenError::sqlite(path, source))?;
    if found > STEPS.len() {
        return Err(OpenError::Newer { path: path.to_owned(), found, known: STEPS.len() });
    }
    Ok(found)
}

fn version(db: &Connection) -> rusqlite::Result<usize> {
    db.pragma_query_value(None, "user_version", |row| row.get(0))
}

fn migrate(db: &mut Connection) -> rusqlite::Result<()> {
    let change = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for (from, step) in STEPS.iter().enumerate().skip(version(&change)?) {
        change.execute_batch(step)?;
        change.pragma_update(None, "user_version", from + 1)?;
    }
    change.commit()
}
