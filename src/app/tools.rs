//! The tools that a configuration gives its runs.

use std::{path::PathBuf, sync::Arc};

use super::confinement;
use crate::{
    config::{self, Config, ConfigError},
    tool::{
        builtin::{BuiltinOptions, builtin},
        command::{CommandError, CommandOptions, CommandTool, Reach},
        launcher::{Exposure, Launcher},
        output::Limits,
        process::{ProcessLimits, ProcessRunner},
        scratch::{self, Scratch},
        toolbox::{RegisterError, Toolbox},
        workspace::sensitive::Sensitive,
    },
};

/// Why the tools cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum ToolsError {
    #[error(transparent)]
    Builtin(#[from] RegisterError),
    #[error("{place}: command_tools.{name}")]
    Register { place: String, name: String, source: RegisterError },
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error(transparent)]
    Schema(#[from] ConfigError),
}

/// The policy that lets everything pass, files that are likely to hold secrets included.
const TRUSTED: &str = "trusted";

const MIB: u64 = 1 << 20;

/// The tools that herder brings along, and those that the configuration defines. Output that is too long to show is kept
/// under `spill_root`.
///
/// # Errors
/// A tool of the configuration is none, or has the name of another.
pub fn toolbox(config: &Config, spill_root: Option<PathBuf>) -> Result<Toolbox, ToolsError> {
    let tools = &config.tools;
    let launcher = Arc::new(Launcher {
        runner: ProcessRunner::default(),
        scratch: Scratch::of_process(&std::env::temp_dir()),
        exposure: Exposure::of(spill_root.as_deref()).into(),
        spill_root,
        env_pass: tools.env_pass.clone(),
        limits: process_limits(tools.process),
        bounds: confinement::bounds(config),
        output: Limits {
            lines: tools.output_lines.get(),
            bytes: tools.output_bytes.get(),
            line_chars: tools.line_chars.get(),
        },
        grace: config.supervisor.grace(),
    });
    let trusted = config.defaults.policy == TRUSTED;
    let mut toolbox = Toolbox::default();
    for tool in builtin(BuiltinOptions {
        launcher: launcher.clone(),
        bash_timeout: tools.bash_timeout(),
        sensitive: if trusted { Sensitive::Include } else { Sensitive::Skip },
    }) {
        toolbox.register(tool)?;
    }
    for (name, tool) in &config.command_tools {
        let options = CommandOptions {
            name: name.as_str().into(),
            description: tool.description.as_str().into(),
            schema: Arc::new(tool.schema.read()?),
            argv: tool.command.iter().map(Into::into).collect(),
            reach: if tool.read_only { Reach::ReadOnly } else { Reach::Anything },
            network: tool.network.map(confinement::network),
            timeout: tool.timeout(),
        };
        toolbox.register(Arc::new(CommandTool::new(options, launcher.clone())?)).map_err(|source| {
            ToolsError::Register { place: tool.place.clone(), name: name.clone(), source }
        })?;
    }
    Ok(toolbox)
}

/// Removes the temporary folders of processes that were killed, in its own time.
pub fn remove_left_behind() {
    tokio::task::spawn_blocking(|| scratch::remove_left_behind(&std::env::temp_dir()));
}

pub(super) fn process_limits(limits: config::ProcessLimits) -> ProcessLimits {
    let bytes = |mib: Option<u64>| mib.map(|mib| mib.saturating_mul(MIB));
    ProcessLimits {
        memory_bytes: bytes(limits.memory_mib),
        cpu: limits.cpu_s.map(std::time::Duration::from_secs),
        file_bytes: bytes(limits.file_size_mib),
        processes: limits.processes,
        ..ProcessLimits::default()
    }
}
