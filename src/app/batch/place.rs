//! Where the results of a batch go, and whether that still leads where it led when the batch was started.
//!
//! What runs can write to may lie around the results: a link that one of them put there must not have herder write over the
//! file that it leads to.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::BatchError;
use crate::tool::workspace::hidden::real;

/// The place as it was named, and the file that it led to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OutPlace {
    named: String,
    real: String,
}

impl OutPlace {
    /// What OUT leads to now, to be written to and to be kept on record.
    pub(super) fn of(out: &Path) -> (PathBuf, Self) {
        let named = std::path::absolute(out).unwrap_or_else(|_| out.to_owned());
        let at = real(out).unwrap_or_else(|| named.clone());
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let place = Self { named: text(&named), real: text(&at) };
        (at, place)
    }

    /// Whether OUT leads where it led at first, or a person has named another place, which is no link.
    ///
    /// # Errors
    /// It leads elsewhere by now.
    pub(super) fn check(&self, out: &Path, first: Option<&Self>) -> Result<(), BatchError> {
        let is_renamed = first.is_none_or(|first| first.named != self.named);
        let is_link = out.symlink_metadata().is_ok_and(|facts| facts.is_symlink());
        if first.is_some_and(|first| first.real == self.real) || is_renamed && !is_link {
            return Ok(());
        }
        Err(BatchError::OutLeadsElsewhere { out: out.display().to_string(), real: self.real.clone() })
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn a_link_that_was_there_at_first_is_followed_and_one_that_came_later_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("one"), "").unwrap();
        fs::write(at("other"), "").unwrap();
        symlink(at("one"), at("out")).unwrap();
        let (_, first) = OutPlace::of(&at("out"));
        let fits = |name: &str| OutPlace::of(&at(name)).1.check(&at(name), Some(&first)).is_ok();
        assert!(fits("out") && fits("one") && fits("other"));
        fs::remove_file(at("out")).unwrap();
        symlink(at("other"), at("out")).unwrap();
        assert!(!fits("out") && fits("other"));
        assert!(
            OutPlace::of(&at("out")).1.check(&at("out"), None).is_err(),
            "it is not known what it led to"
        );
        assert!(OutPlace::of(&at("one")).1.check(&at("one"), None).is_ok());
    }

    #[test]
    fn a_folder_on_the_way_that_became_a_link_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("sub/out");
        fs::create_dir(folder.path().join("sub")).unwrap();
        fs::create_dir(folder.path().join("outside")).unwrap();
        let (_, first) = OutPlace::of(&out);
        assert!(OutPlace::of(&out).1.check(&out, Some(&first)).is_ok());
        fs::remove_dir(folder.path().join("sub")).unwrap();
        symlink("outside", folder.path().join("sub")).unwrap();
        assert!(OutPlace::of(&out).1.check(&out, Some(&first)).is_err());
    }
}
