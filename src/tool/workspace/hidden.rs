//! herder's own files, which no tool on files may see or change: its log would tell of other runs, and could be made to say
//! that somebody answered.
//!
//! What it is started with again, its configuration among it, they may read but not change. All are known by their real paths. A workspace that herder itself made among them is open to its run all the same.

use std::path::{Path, PathBuf};

/// Files and trees that are no part of any workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hidden {
    trees: Vec<PathBuf>,
    shelters: Vec<PathBuf>,
    fixed: Vec<PathBuf>,
}

impl Hidden {
    /// What is at `trees` and below, but for the workspaces that lie in `shelters`. Either may not be there yet.
    pub fn new(
        trees: impl IntoIterator<Item = PathBuf>,
        shelters: impl IntoIterator<Item = PathBuf>,
    ) -> Self {
        let real = |paths: &mut dyn Iterator<Item = PathBuf>| paths.filter_map(|path| real(&path)).collect();
        let (trees, shelters) = (real(&mut trees.into_iter()), real(&mut shelters.into_iter()));
        Self { trees, shelters, fixed: Vec::new() }
    }

    /// Files that may be read, but not changed. They may not be there yet.
    #[must_use]
    pub fn fixing(self, files: impl IntoIterator<Item = PathBuf>) -> Self {
        Self { fixed: files.into_iter().filter_map(|file| real(&file)).collect(), ..self }
    }

    /// Files below `root`, a real path, that may not be changed.
    pub(super) fn fixed_in(&self, root: &Path) -> Vec<PathBuf> {
        self.fixed.iter().filter(|file| file.starts_with(root)).cloned().collect()
    }

    /// Those that bear on paths below `root`, a real path.
    pub(super) fn from(&self, root: &Path) -> Vec<PathBuf> {
        self.bearing_on(root).map(Path::to_owned).collect()
    }

    /// One that `root`, a real path, holds or lies in.
    pub fn around(&self, root: &Path) -> Option<&Path> {
        self.bearing_on(root).next()
    }

    fn bearing_on(&self, root: &Path) -> impl Iterator<Item = &Path> {
        let is_sheltered = move |tree: &Path| {
            let mut around = self.shelters.iter().filter(|shelter| shelter.starts_with(tree));
            around.any(|shelter| root != shelter && root.starts_with(shelter))
        };
        let bears =
            move |tree: &&Path| tree.starts_with(root) || root.starts_with(tree) && !is_sheltered(tree);
        self.trees.iter().map(PathBuf::as_path).filter(bears)
    }
}

/// The real path of what is there or could be.
pub fn real(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    path.ancestors().find_map(|parent| {
        let rest = path.strip_prefix(parent).ok()?;
        let real = parent.canonicalize().ok()?;
        // Joined with nothing it would end in a slash.
        Some(if rest == Path::new("") { real } else { real.join(rest) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workspace_in_a_shelter_is_open_and_what_is_around_it_is_not() {
        let hidden = Hidden::new(["/w/out.state".into(), "/w/out".into()], ["/w/out.state/work".into()]);
        let from = |root: &str| hidden.from(Path::new(root)).len();
        assert_eq!([from("/w"), from("/"), from("/w/src")], [2, 2, 0]);
        assert_eq!([from("/w/out.state"), from("/w/out.state/work"), from("/w/out.state/spill")], [1, 1, 1]);
        assert_eq!([from("/w/out.state/work/run"), from("/w/out.state/work/run/sub")], [0, 0]);
    }

    #[test]
    fn what_is_not_there_yet_is_known_by_where_links_lead() {
        let place = tempfile::tempdir().unwrap();
        let real_place = place.path().canonicalize().unwrap();
        std::fs::create_dir(real_place.join("here")).unwrap();
        std::os::unix::fs::symlink("here", real_place.join("link")).unwrap();
        assert_eq!(real(&real_place.join("link/new/file")), Some(real_place.join("here/new/file")));
        assert_eq!(real(&real_place.join("link")), Some(real_place.join("here")));
    }
}
