//! Prepares what the `edit` and `write` tools do to a file.
//!
//! Joins the engine that computes new content with the one that replaces files. What it returns says what will
//! happen before anything has; the caller records that and then commits.

use super::{
    PathError, Resolved,
    replace::{Original, Prepared, ReplaceError},
};
use crate::tool::text_edit::{self, Edit, EditError};

/// Why a change to a file was refused; the file is as it was.
#[derive(Debug, thiserror::Error)]
pub enum MutateError {
    #[error(transparent)]
    Replace(#[from] ReplaceError),
    #[error("{path} is unchanged")]
    Edit { path: String, source: EditError },
}

/// A change that is ready to be made.
#[derive(Debug)]
pub struct Change {
    /// Commit this to make it.
    pub prepared: Prepared,
    /// What the model is told once it is made.
    pub summary: String,
    /// The lines that change, where they are known; the model is told them too.
    pub diff: Option<String>,
}

/// Prepares the edits of the file at `target`.
///
/// # Errors
/// Says which edit doesn't apply, or why the file can't be changed.
pub fn edit(target: &Resolved, edits: &[Edit]) -> Result<Change, MutateError> {
    let path = || target.shown().to_owned();
    let refused = |source| MutateError::Edit { path: path(), source };
    text_edit::validate(edits).map_err(refused)?;
    let original = Original::read(target)?;
    let Some(bytes) = original.bytes() else {
        return Err(ReplaceError::from(PathError::NotFound { path: path() }).into());
    };
    let edited = text_edit::apply(bytes, edits).map_err(refused)?;
    let replacements = match edits.len() {
        1 => "1 replacement".to_owned(),
        count => format!("{count} replacements"),
    };
    let summary =
        format!("Edited {}: {replacements}, the first on line {}.\n", path(), edited.first_changed_line);
    Ok(Change { prepared: original.replace_with(edited.bytes), summary, diff: Some(edited.diff.text) })
}

/// Prepares `content` as the whole content of the file at `target`, which need not exist.
///
/// # Errors
/// Says why the file can't be written.
pub fn write(target: &Resolved, content: &str) -> Result<Change, MutateError> {
    let original = Original::read(target)?;
    let (old, verb) = match original.bytes() {
        Some(old) => (old, "Replaced"),
        None => (&[][..], "Created"),
    };
    let bytes = text_edit::keep_bom(old, content);
    let summary = format!("{verb} {}: {} bytes.", target.shown(), bytes.len());
    Ok(Change { prepared: original.replace_with(bytes), summary, diff: None })
}

/// All lines that a change makes differ, for whoever is to approve of it.
///
/// # Errors
/// The file is no longer the one that the change was prepared from.
pub fn whole_diff(change: &Change) -> Result<String, MutateError> {
    let target = change.prepared.target();
    let original = Original::read(target)?;
    if original.hash() != change.prepared.hash_before {
        return Err(ReplaceError::Changed { path: target.shown().to_owned() }.into());
    }
    Ok(text_edit::whole(original.bytes().unwrap_or_default(), change.prepared.bytes()))
}
