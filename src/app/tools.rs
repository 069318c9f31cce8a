//! The tools that a configuration gives its runs.

use std::path::PathBuf;

use crate::{
    config::Config,
    tool::toolbox::{RegisterError, Toolbox},
};

/// Why the tools cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum ToolsError {
    #[error(transparent)]
    Register(#[from] RegisterError),
}

/// tmp
pub fn toolbox(_config: &Config, _spill_root: Option<PathBuf>) -> Result<Toolbox, ToolsError> {
    Ok(Toolbox::default())
}
