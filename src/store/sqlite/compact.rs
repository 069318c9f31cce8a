//! Gives the room back that a log's file has to spare.
//!
//! Until then it is used again for what is written next; nothing is lost without this. Knows nothing of what was there.

use std::path::Path;

use super::{Durability, OpenError, Options, schema};

/// Writes the file at `path` anew without the room to spare. Nobody else may write to it meanwhile; that takes as much room
/// again as what is in it.
///
/// # Errors
/// It cannot be opened, or there is too little room; then it is as it was.
pub fn compact(path: &Path) -> Result<(), OpenError> {
    let failed = |source| OpenError::sqlite(path, source);
    let db = schema::open_writer(path, Durability::Power, Options::default().busy_timeout)?;
    db.execute_batch("VACUUM").map_err(failed)?;
    // Somebody who reads keeps the write-ahead log from being folded in; it is at the next close.
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).map_err(failed)
}
