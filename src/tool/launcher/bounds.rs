//! Decides how far a program reaches: what it may write to, and whether it has the network.

use std::path::{Path, PathBuf};

use super::{LaunchError, Program};
use crate::tool::process::confine::{Confinement, Network};

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
                let roots = self.write_roots.iter().filter(|root| root.exists()).cloned();
                Some([workspace.to_owned(), tmpdir.to_owned()].into_iter().chain(roots).collect())
            }
        };
        Ok(Confinement { write, network: program.network.unwrap_or(self.network) })
    }
}
