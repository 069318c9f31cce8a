//! `bash` and command tools under the real binary as guard: what a model reads of them, and what they leave.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say so and end"
)]

mod bash;
mod command;
mod confine;
mod harness;
