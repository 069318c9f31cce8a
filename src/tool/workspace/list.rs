//! Lists a folder.
//!
//! Sorted by name, folders marked with `/`; links are shown, not followed. Bounded however large the folder is.

use std::{collections::BTreeSet, ffi::OsStr, fmt::Write, io, os::unix::ffi::OsStrExt, path::Path};

use rustix::fs::{AtFlags, Dir, FileType, statat};

use super::{PathError, Resolved, temp::is_temporary, text};
use crate::tool::output::Limits;

/// Entries that are shown, if the limits let as many.
pub const MAX_ENTRIES: usize = 1_000;

/// Lists the folder at `target` as text for a model, within `limits` but for the notice.
///
/// # Errors
/// Refuses what is not a folder or cannot be read.
pub fn list(target: &Resolved, limits: Limits) -> Result<String, PathError> {
    let unusable = |error: rustix::io::Errno| PathError::Unusable {
        path: target.shown().to_owned(),
        source: io::Error::from(error),
    };
    let folder = target.open_folder()?;
    let is_hidden =
        |name: &[u8]| target.root.hides(&Path::new(&**target.key()).join(OsStr::from_bytes(name)));
    let most = MAX_ENTRIES.min(limits.lines);
    let mut first = BTreeSet::new();
    let mut count = 0_usize;
    for entry in Dir::read_from(&folder).map_err(unusable)? {
        let entry = entry.map_err(unusable)?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..")
            || is_temporary(name.to_bytes())
            || is_hidden(name.to_bytes())
        {
            continue;
        }
        count += 1;
        let mut kind = entry.file_type();
        if kind == FileType::Unknown
            && let Ok(stat) = statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)
        {
            kind = FileType::from_raw_mode(stat.st_mode);
        }
        first.insert((name.to_owned(), mark(kind)));
        if first.len() > most {
            first.pop_last();
        }
    }
    if count == 0 {
        return Ok("The folder is empty.".to_owned());
    }
    let mut text = String::new();
    let mut shown = 0;
    for (name, mark) in &first {
        let name = text::name(name.to_bytes());
        if text.len() + name.len() + mark.len() + 1 > limits.bytes {
            break;
        }
        let _ = writeln!(text, "{name}{mark}");
        shown += 1;
    }
    if shown < count {
        let _ = writeln!(
            text,
            "[{shown} of {count} entries shown; list a folder below, or use grep with a glob.]"
        );
    }
    Ok(text)
}

fn mark(kind: FileType) -> &'static str {
    match kind {
        FileType::Directory => "/",
        FileType::Symlink => " (link)",
        FileType::Fifo => " (named pipe)",
        FileType::Socket => " (socket)",
        FileType::CharacterDevice | FileType::BlockDevice => " (device)",
        FileType::RegularFile | FileType::Unknown => "",
    }
}
