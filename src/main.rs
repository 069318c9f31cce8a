//! The `herder` command.

fn main() {}
