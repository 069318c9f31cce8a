//! The `herder` command as its users have it: whole commands on real folders, judged by what they print, leave and
//! end with.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say so and end"
)]

mod asking;
mod batch;
mod daemon;
mod daemon_batch;
mod daemon_mcp;
mod daemon_runs;
mod doubt;
mod input;
mod metrics;
mod reading;
mod resume;
mod run;
mod selection;
mod signals;
mod support;
