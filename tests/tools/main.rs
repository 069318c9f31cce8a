//! The tools as they are called: what a model reads of them, and what they leave. `bash` and command tools have the real
//! binary as their guard.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say so and end"
)]

mod bash;
mod command;
mod confine;
mod files;
mod harness;
mod races;
