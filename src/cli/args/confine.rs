//! Flags that say what the kernel keeps commands from.

use clap::{Args, ValueEnum};

use crate::config::Flag;

/// What commands of tools are kept from.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Commands of tools")]
pub struct ConfineArgs {
    /// Whether commands may write in their workspace, TMPDIR and /dev/shm alone
    #[arg(long, value_name = "WHAT")]
    pub confine: Option<ConfineArg>,
    /// Whether commands may use the network
    #[arg(long, value_name = "WHAT")]
    pub network: Option<NetworkArg>,
}

/// Whether commands are confined to their workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ConfineArg {
    /// Where the kernel can do that
    On,
    /// They may write wherever their user may
    Off,
    /// Or they are not run
    Require,
}

/// Whether commands may use the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NetworkArg {
    /// They may
    Allow,
    /// They are left with Unix sockets
    Deny,
}

impl ConfineArgs {
    pub(in crate::cli) fn flags(self, flags: &mut Vec<Flag>) {
        let files = self.confine.map(|files| match files {
            ConfineArg::On => "on",
            ConfineArg::Off => "off",
            ConfineArg::Require => "require",
        });
        let network = self.network.map(|network| match network {
            NetworkArg::Allow => "allow",
            NetworkArg::Deny => "deny",
        });
        flags.extend(files.map(|files| Flag::new("--confine", &["confine", "files"], files)));
        flags.extend(network.map(|network| Flag::new("--network", &["confine", "network"], network)));
    }
}
