//! `herder completions`: the script that lets a shell complete herder's words.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::{Cli, Exit, stdout::Output};

pub(super) const ABOUT: &str = "Print the script that completes commands and flags in a shell";

pub(super) const AFTER: &str = "EXAMPLES
  herder completions bash > ~/.local/share/bash-completion/completions/herder
  herder completions zsh > ~/.zfunc/_herder
  herder completions fish > ~/.config/fish/completions/herder.fish";

/// Flags of `herder completions`.
#[derive(Clone, Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// Runs the command.
pub(crate) fn main(args: &CompletionsArgs) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "herder", &mut script);
    let mut out = Output::stdout();
    let _open = out.line(String::from_utf8_lossy(&script).trim_end())?;
    let _open = out.flush()?;
    Ok(Exit::Done)
}
