//! Copies what can still be read of a damaged log into a new one, row by row.
//!
//! The old file is only read. As far as SQLite finds its way in it that does; where it does not, pages are read one by one.
//! What lies on pages that cannot be read is lost. A run that is open afterwards may have lost its last events, so it ends.

use std::{collections::BTreeMap, fs::OpenOptions, os::unix::fs::OpenOptionsExt, path::Path};

use rusqlite::{Connection, OpenFlags, Statement, ToSql, params_from_iter, types::Value};

use super::{
    OpenError, ahead_damage,
    mend::{self, Log, Trust},
    orphans,
    pages::{Entry, Pages},
    schema, survey,
};
use crate::domain::{
    event::Event,
    id::{RunId, Seq},
};

/// Tables that are copied; what stands beside the log comes first, so that a run is known before its events.
const TABLES: [&str; 8] = ["run", "append", "batch", "task", "checkpoint", "setting", "audit", "damaged"];

/// Looks at one table of places that cannot be read.
const TRIES: u32 = 100_000;

/// What could be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Salvaged {
    /// Runs of which everything is there, to their end.
    pub whole: u64,
    /// Runs of which something may be lost. They have ended.
    pub cut: u64,
    /// Those of them of which nothing but the end is there.
    pub ends: u64,
    /// Runs of which there are events, but not what was asked.
    pub pieces: u64,
    /// Tasks of batches without a run: those that had not started, and those whose runs are lost.
    pub without_run: u64,
}

/// Makes a log at `fresh` of what can be read of the one at `old`. Of runs whose ids are lost, `known` may have them.
///
/// # Errors
/// The new one cannot be written.
pub fn salvage(old: &Path, fresh: &Path, known: &[RunId]) -> Result<Salvaged, OpenError> {
    let failed = |source| OpenError::sqlite(fresh, source);
    make_private(fresh)?;
    let source = open(old).ok();
    let version = source.as_ref().and_then(|old| schema::version(old).ok()).unwrap_or_default();
    schema::make(fresh, version).map_err(failed)?;
    let (mut known, mut unread) = (known.to_vec(), 0);
    let mut db = Connection::open(fresh).map_err(failed)?;
    let change = db.transaction().map_err(failed)?;
    for table in source.iter().flat_map(|_| TABLES) {
        if let Some(source) = &source {
            copy(source, &change, table, &mut unread).map_err(failed)?;
        }
    }
    // What was deleted may be on pages that nothing leads to, so they are read only if something is missing.
    if unread > 0 || source.is_none() || ahead_damage(old).is_some() {
        known.extend(scan(&Pages::of(old), &change).map_err(failed)?);
    }
    change.commit().map_err(failed)?;
    drop(db);
    // Brings it up to date.
    let mut db = schema::open_writer(fresh, super::Durability::Power, std::time::Duration::ZERO)?;
    mend_all(&mut db, &known).map_err(failed)
}

/// Makes the file for its owner alone. SQLite's own files beside it have its mode.
fn make_private(fresh: &Path) -> Result<(), OpenError> {
    let made = OpenOptions::new().append(true).create(true).mode(0o600).open(fresh);
    made.map(drop).map_err(|source| OpenError::Unwritable { path: fresh.to_owned(), source })
}

/// Opens a file to read it even if it is shorter than it says.
fn open(old: &Path) -> rusqlite::Result<Connection> {
    // Beside an empty one SQLite takes a write-ahead log for a leftover.
    if old.metadata().map_or(0, |facts| facts.len()) == 0 {
        return Err(rusqlite::Error::InvalidPath(old.to_owned()));
    }
    let db = Connection::open_with_flags(old, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    db.pragma_update(None, "writable_schema", true)?;
    Ok(db)
}

/// Puts back rows of runs whose events are there, and ends what may have lost something.
fn mend_all(db: &mut Connection, known: &[RunId]) -> rusqlite::Result<Salvaged> {
    let mut salvaged = Salvaged::default();
    let change = db.transaction()?;
    for number in orphans::numbers(&change)? {
        if orphans::restore(&change, number, known)?.is_none() {
            salvaged.pieces += 1;
        }
    }
    for (number, run) in survey::runs(&change)? {
        let is_whole = match mend::look(&change, number, Trust::Nothing)? {
            Ok(Log { goes_on, facts }) => {
                goes_on || facts.last().is_some_and(|last| matches!(last.fact.event, Event::RunEnd(_)))
            }
            Err(torn) => {
                salvaged.ends += u64::from(torn.sound == Seq::START);
                false
            }
        };
        *(if is_whole { &mut salvaged.whole } else { &mut salvaged.cut }) += 1;
        mend::mend(&change, number, run, Trust::Nothing)?;
        let open = "SELECT standing IS 'open' FROM run WHERE pos = ?1";
        if change.prepare_cached(open)?.query_row([number], |row| row.get(0))? {
            mend::end_open(&change, number, run)?;
        }
    }
    let without_run = "SELECT count(*) FROM task WHERE NOT EXISTS
        (SELECT 1 FROM run WHERE run.batch = task.batch AND run.task_id = task.task_id)";
    salvaged.without_run = change.query_row(without_run, [], |row| row.get(0))?;
    change.commit()?;
    Ok(salvaged)
}

/// Takes in the rows of all pages that can be read, and gives the ids that may be those of runs.
fn scan(pages: &Pages, fresh: &Connection) -> rusqlite::Result<Vec<RunId>> {
    let mut inserts = BTreeMap::new();
    for table in TABLES {
        let columns = columns(fresh, table)?;
        if !columns.is_empty() {
            inserts.insert(table, (insert_into(table, &columns), columns.len()));
        }
    }
    let mut ids = Vec::new();
    for Entry { number, mut values } in pages.entries() {
        let (Some(number), Some((insert, width))) =
            (number, table_of(&values).and_then(|table| inserts.get(table)))
        else {
            // An index names what it leads to.
            if let ([Value::Blob(id), Value::Integer(_)], None) = (&values[..], number) {
                ids.extend(<[u8; 16]>::try_from(&id[..]).map(RunId::from_bytes));
            }
            continue;
        };
        if let Some(first @ Value::Null) = values.first_mut() {
            *first = Value::Integer(number);
        }
        values.resize(*width, Value::Null);
        match fresh.prepare_cached(insert)?.execute(params_from_iter(&values)) {
            Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull) => {
                return Err(error);
            }
            // What is there already, or is no row of such a table.
            Ok(_) | Err(_) => {}
        }
    }
    Ok(ids)
}

/// The table that a row is of, by the kinds of its values. In one that is numbered the first stands for the number.
fn table_of(values: &[Value]) -> Option<&'static str> {
    use Value::{Blob, Integer, Null, Text};
    match values {
        [Null, Integer(_), Integer(_), Integer(_), Blob(_)]
        | [Null, Integer(_), Integer(_), Integer(_), Blob(_), Null | Integer(_)] => Some("append"),
        [Null, Blob(_), Text(_), Text(_)] => Some("task"),
        [Null, Blob(_), Text(_), Integer(_), Text(_)] => Some("batch"),
        [Blob(_), Integer(_), Blob(_)] => Some("checkpoint"),
        [Text(_), Text(_)] => Some("setting"),
        [
            Null,
            Integer(_),
            Integer(_) | Null,
            Text(_) | Null,
            Text(_) | Null,
            Text(_),
            Text(_),
            Integer(_),
            _,
        ] => Some("audit"),
        [Null, Integer(_), Text(_), Integer(_), Blob(_) | Null, ..] if values.len() == 9 => Some("damaged"),
        [Null, Blob(id), Blob(_) | Null, Text(_) | Null, ..] if id.len() == 16 && values.len() >= 8 => {
            Some("run")
        }
        _ => None,
    }
}

fn columns(fresh: &Connection, table: &str) -> rusqlite::Result<Vec<String>> {
    let mut columns = fresh.prepare("SELECT name FROM pragma_table_info(?1)")?;
    let names = columns.query_map([table], |row| row.get::<_, String>(0))?;
    names.map(|name| name.map(|name| format!("\"{name}\""))).collect()
}

fn insert_into(table: &str, columns: &[String]) -> String {
    let (names, marks) = (columns.join(", "), vec!["?"; columns.len()].join(", "));
    format!("INSERT OR IGNORE INTO {table} ({names}) VALUES ({marks})")
}

/// Copies a table, and counts the stretches of it that could not be read or are no rows of it.
fn copy(old: &Connection, fresh: &Connection, table: &str, unread: &mut u64) -> rusqlite::Result<()> {
    let columns = columns(fresh, table)?;
    if columns.is_empty() {
        return Ok(());
    }
    let names = columns.join(", ");
    let mut insert = fresh.prepare(&insert_into(table, &columns))?;
    let select = |order| {
        let sql = format!(
            "SELECT rowid, {names} FROM {table} NOT INDEXED WHERE rowid BETWEEN ?1 AND ?2 ORDER BY rowid {order}"
        );
        old.prepare(&sql)
    };
    let (Ok(mut up), Ok(mut down)) = (select("ASC"), select("DESC")) else {
        // Not even its description is left.
        *unread += 1;
        return Ok(());
    };
    let mut ranges = vec![(0, i64::MAX - 1)];
    for _ in 0..TRIES {
        let Some((low, high)) = ranges.pop() else { return Ok(()) };
        let Some(low) =
            read(&mut up, (low, high), &mut insert, unread)?.map(|last| last.map_or(low, |last| last + 1))
        else {
            continue;
        };
        let Some(high) =
            read(&mut down, (low, high), &mut insert, unread)?.map(|last| last.map_or(high, |last| last - 1))
        else {
            continue;
        };
        if low >= high {
            *unread += 1;
        } else {
            let middle = low + (high - low) / 2;
            ranges.extend([(middle + 1, high), (low, middle)]);
        }
    }
    *unread += ranges.len() as u64;
    Ok(())
}

/// Copies rows until the last, or until one cannot be read; then tells which was the last before it, if one was.
fn read(
    select: &mut Statement<'_>,
    (low, high): (i64, i64),
    insert: &mut Statement<'_>,
    unread: &mut u64,
) -> rusqlite::Result<Option<Option<i64>>> {
    let width = select.column_count();
    let Ok(mut rows) = select.query([low, high]) else { return Ok(Some(None)) };
    let mut last = None;
    loop {
        let row = match rows.next() {
            Ok(Some(row)) => row,
            Ok(None) => return Ok(None),
            Err(_) => return Ok(Some(last)),
        };
        let Ok(number) = row.get::<_, i64>(0) else { return Ok(Some(last)) };
        let values = (1..width).map(|column| row.get::<_, Value>(column)).collect::<Result<Vec<_>, _>>();
        last = Some(number);
        let inserted = values
            .and_then(|values| insert.execute(params_from_iter(values.iter().map(|one| one as &dyn ToSql))));
        match inserted {
            Ok(1) => {}
            Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull) => {
                return Err(error);
            }
            // What is no row of such a table.
            Ok(_) | Err(_) => *unread += 1,
        }
    }
}
