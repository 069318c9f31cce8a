//! The `herder` command.

use std::process::ExitCode;

use clap::Parser;
use herder::cli::Cli;

/// Thousands of runs allocate and free small things on every core: this is a quarter of their CPU time with the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // A process that guards a command, or becomes one, does that and nothing else.
    if let Some(code) = herder::tool::process::dispatch() {
        return code;
    }
    let _armed = herder::crash::arm();
    Cli::parse().run().into()
}
