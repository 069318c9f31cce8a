//! Decides how far a program reaches: what it may write to, and whether it has the network.

use std::{
    path::{Path, PathBuf},
    sync::Once,
};

use super::{LaunchError, Program};
use crate::tool::{
    process::confine::{Confinement, Network},
    workspace::hidden::real,
};

/// How far the programs of a launcher reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    pub files: FileBounds,
    /// What programs that may change things may write to beside their workspace; what is not there is left out.
    pub write_roots: Vec<PathBuf>,
    pub network: Network,
}

/// Where programs may write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileBounds {
    /// Wherever their user may.
    #[default]
    Open,
    /// In their workspace and their `TMPDIR`.
    Workspace,
    /// They are not run, since the kernel cannot keep them to their workspace.
    Refused,
}

/// What a program is trusted with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// It changes nothing but its `TMPDIR`: it runs beside others that read, and again after an interruption.
    ReadOnly,
    /// It may do anything: it runs alone in its workspace, and at most once.
    Anything,
}

impl Bounds {
    /// Whether programs are kept to their workspace.
    pub fn confine_files(&self) -> bool {
        match self.files {
            FileBounds::Workspace => true,
            FileBounds::Open | FileBounds::Refused => false,
        }
    }

    /// Those of a program that works in `workspace`.
    pub(super) fn of(
        &self,
        program: &Program,
        workspace: &Path,
        tmpdir: &Path,
    ) -> Result<Confinement, LaunchError> {
        let write = match (self.files, program.reach) {
            (FileBounds::Refused, _) => return Err(LaunchError::Unconfinable),
            (FileBounds::Open, _) => None,
            (FileBounds::Workspace, Reach::ReadOnly) => Some(vec![tmpdir.to_owned()]),
            (FileBounds::Workspace, Reach::Anything) => {
                let own = [workspace, tmpdir].into_iter().map(Path::to_owned);
                Some(own.chain(self.write_roots.iter().cloned()).collect())
            }
        };
        Ok(Confinement { write, network: program.network.unwrap_or(self.network) })
    }
}

/// Tells a person, once, that programs can change herder's own files: nothing can be taken out of a folder that they may
/// write to.
#[derive(Debug)]
pub struct Exposure {
    kept: Option<PathBuf>,
    told: Once,
}

impl Exposure {
    /// Of the files in `folder`, which exists later if not now.
    pub fn of(folder: Option<&Path>) -> Self {
        Self { kept: folder.and_then(real), told: Once::new() }
    }

    pub(super) fn look_at(&self, confinement: &Confinement) {
        if let Some((kept, root)) = self.found(confinement) {
            self.told.call_once(|| {
                tracing::warn!(files = %kept.display(), folder = %root.display(), "commands can change herder's own files");
            });
        }
    }

    fn found<'a>(&'a self, confinement: &'a Confinement) -> Option<(&'a Path, &'a Path)> {
        let (kept, write) = (self.kept.as_deref()?, confinement.write.as_deref()?);
        write.iter().find(|root| kept.starts_with(root)).map(|root| (kept, root.as_path()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_commands_may_write_to_are_found_wherever_links_lead() {
        let place = tempfile::tempdir().unwrap();
        let real = place.path().canonicalize().unwrap();
        std::fs::create_dir(real.join("state")).unwrap();
        std::os::unix::fs::symlink(real.join("state"), real.join("link")).unwrap();
        let within =
            |folder: &str| Confinement { write: Some(vec![real.join(folder)]), ..Confinement::default() };
        let exposure = Exposure::of(Some(&real.join("link/spill")));
        for (folder, found) in [("", true), ("state", true), ("other", false)] {
            assert_eq!(exposure.found(&within(folder)).is_some(), found, "{folder}");
        }
        assert_eq!(exposure.found(&Confinement::default()), None);
        assert_eq!(Exposure::of(None).found(&within("")), None);
    }
}
