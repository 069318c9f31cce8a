//! The section `[confine]`: what the kernel keeps commands from.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{Config, ConfigError, layer::Layers};

/// What commands may write to and reach.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Confine {
    pub files: ConfineFiles,
    pub network: Network,
    write_roots: Vec<PathBuf>,
}

/// Whether commands may write outside their workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConfineFiles {
    /// Not where the kernel can keep them from it.
    On,
    /// They may.
    Off,
    /// They may not, and are not run where the kernel cannot keep them from it.
    Require,
}

/// Whether commands may use the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Network {
    Allow,
    Deny,
}

impl Config {
    /// What commands may write to beside their workspace.
    pub fn write_roots(&self) -> Vec<PathBuf> {
        let home = self.variable("HOME");
        self.confine.write_roots.iter().filter_map(|root| absolute(root, home.as_deref())).collect()
    }

    pub(super) fn check_write_roots(&self, layers: &Layers<'_>) -> Result<(), ConfigError> {
        let home = self.variable("HOME");
        match self.confine.write_roots.iter().find(|root| absolute(root, home.as_deref()).is_none()) {
            Some(root) => {
                let what = format!("{}: want a path that begins with / or ~/", root.display());
                Err(layers.refuse(&["confine", "write_roots"], what))
            }
            None => Ok(()),
        }
    }
}

fn absolute(path: &Path, home: Option<&str>) -> Option<PathBuf> {
    let path = match (path.strip_prefix("~"), home) {
        (Ok(below), Some(home)) => Path::new(home).join(below),
        (Ok(_), None) | (Err(_), _) => path.to_owned(),
    };
    path.is_absolute().then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tilde_is_the_home_folder_and_nothing_else_is_relative() {
        let at = |path: &str| absolute(Path::new(path), Some("/home/me"));
        assert_eq!(at("/srv/cache"), Some("/srv/cache".into()));
        assert_eq!(at("~/.cargo"), Some("/home/me/.cargo".into()));
        assert_eq!((at("cache"), at("~other/x")), (None, None));
        assert_eq!(absolute(Path::new("~/.cargo"), None), None);
    }
}
