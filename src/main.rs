//! The `herder` command.

use std::process::ExitCode;

use clap::Parser;
use herder::cli::Cli;

fn main() -> ExitCode {
    // A process that guards a command, or becomes one, does that and nothing else.
    if let Some(code) = herder::tool::process::dispatch() {
        return code;
    }
    Cli::parse().run().into()
}
