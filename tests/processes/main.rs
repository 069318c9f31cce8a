//! Commands run under the real binary as guard: whatever they do, nothing of them survives.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say so and end"
)]

mod confined;
mod endings;
mod harness;
mod leftovers;
mod output;
