//! Copies what can still be read of a damaged log into a new one, row by row.
//!
//! The old file is only read. What lies on pages that cannot be read is lost; where it was is narrowed down until only that
//! is. A run that is open afterwards may have lost its last events, so it ends.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, Statement, ToSql, params_from_iter, types::Value};

use super::{OpenError, mend, schema};
use crate::domain::id::RunId;

/// Tables that are copied; what stands beside the log comes first, so that a run is known before its events.
const TABLES: [&str; 8] = ["run", "append", "batch", "task", "checkpoint", "setting", "audit", "damaged"];

/// Looks at one table of places that cannot be read.
const TRIES: u32 = 100_000;

/// What could be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Salvaged {
    /// Rows that were copied.
    pub rows: u64,
    /// Stretches of rows that could not be read, or that are no rows of a log.
    pub lost: u64,
    /// Runs that were open and ended for it.
    pub ended: u64,
}

/// Makes a log at `fresh` of what can be read of the one at `old`.
///
/// # Errors
/// The new one cannot be written.
pub fn salvage(old: &Path, fresh: &Path) -> Result<Salvaged, OpenError> {
    let failed = |source| OpenError::sqlite(fresh, source);
    let source = open(old).ok();
    let version = source.as_ref().and_then(|old| schema::version(old).ok()).unwrap_or_default();
    schema::make(fresh, version).map_err(failed)?;
    let mut salvaged = Salvaged::default();
    if let Some(source) = source {
        let mut db = Connection::open(fresh).map_err(failed)?;
        let change = db.transaction().map_err(failed)?;
        for table in TABLES {
            copy(&source, &change, table, &mut salvaged).map_err(failed)?;
        }
        change.commit().map_err(failed)?;
    }
    // Brings it up to date.
    let mut db = schema::open_writer(fresh, super::Durability::Power, std::time::Duration::ZERO)?;
    salvaged.ended = end_open_runs(&mut db).map_err(failed)?;
    Ok(salvaged)
}

/// Opens a file to read it even if it is shorter than it says.
fn open(old: &Path) -> rusqlite::Result<Connection> {
    let db = Connection::open_with_flags(old, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    db.pragma_update(None, "writable_schema", true)?;
    Ok(db)
}

fn end_open_runs(db: &mut Connection) -> rusqlite::Result<u64> {
    let change = db.transaction()?;
    let open: Vec<(i64, [u8; 16])> = change
        .prepare("SELECT pos, id FROM run WHERE standing = 'open' ORDER BY pos")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    for (number, run) in &open {
        mend::end_open(&change, *number, RunId::from_bytes(*run))?;
    }
    change.commit()?;
    Ok(open.len() as u64)
}

fn copy(old: &Connection, fresh: &Connection, table: &str, salvaged: &mut Salvaged) -> rusqlite::Result<()> {
    let columns: Vec<String> = fresh
        .prepare("SELECT name FROM pragma_table_info(?1)")?
        .query_map([table], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    if columns.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = columns.iter().map(|name| format!("\"{name}\"")).collect();
    let (names, marks) = (names.join(", "), vec!["?"; columns.len()].join(", "));
    let mut insert = fresh.prepare(&format!("INSERT OR IGNORE INTO {table} ({names}) VALUES ({marks})"))?;
    let select = |order| {
        let sql = format!(
            "SELECT rowid, {names} FROM {table} NOT INDEXED WHERE rowid BETWEEN ?1 AND ?2 ORDER BY rowid {order}"
        );
        old.prepare(&sql)
    };
    let (Ok(mut up), Ok(mut down)) = (select("ASC"), select("DESC")) else {
        // Not even its description is left.
        salvaged.lost += 1;
        return Ok(());
    };
    let mut ranges = vec![(0, i64::MAX - 1)];
    for _ in 0..TRIES {
        let Some((low, high)) = ranges.pop() else { return Ok(()) };
        let Some(low) =
            read(&mut up, (low, high), &mut insert, salvaged)?.map(|last| last.map_or(low, |last| last + 1))
        else {
            continue;
        };
        let Some(high) = read(&mut down, (low, high), &mut insert, salvaged)?
            .map(|last| last.map_or(high, |last| last - 1))
        else {
            continue;
        };
        if low >= high {
            salvaged.lost += 1;
        } else {
            let middle = low + (high - low) / 2;
            ranges.extend([(middle + 1, high), (low, middle)]);
        }
    }
    salvaged.lost += ranges.len() as u64;
    Ok(())
}

/// Copies rows until the last, or until one cannot be read; then tells which was the last before it, if one was.
fn read(
    select: &mut Statement<'_>,
    (low, high): (i64, i64),
    insert: &mut Statement<'_>,
    salvaged: &mut Salvaged,
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
            Ok(1) => salvaged.rows += 1,
            Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull) => {
                return Err(error);
            }
            // What is no row of such a table.
            Ok(_) | Err(_) => salvaged.lost += 1,
        }
    }
}
