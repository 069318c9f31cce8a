//! The `herder` command.

use std::process::ExitCode;

use clap::Parser;
use herder::cli::Cli;

fn main() -> ExitCode {
    Cli::parse().run().into()
}
