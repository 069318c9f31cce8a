//! The `herder` command as its users have it: whole commands on real folders, judged by what they print, leave and
//! end with.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say so and end"
)]

mod accounts;
mod answering;
mod approvals;
mod approvals_terminal;
mod asked_once;
mod asking;
mod batch;
mod budget;
mod cancelling;
mod confine;
mod continuing;
mod daemon;
mod daemon_batch;
mod daemon_mcp;
mod daemon_runs;
mod damage;
mod doubt;
mod full_disk;
mod input;
mod isolate;
mod isolate_hard;
mod isolate_left;
mod locked;
mod mending;
mod metrics;
#[expect(dead_code, reason = "shared with tests that need more of it")]
#[path = "../support/mod.rs"]
mod model;
mod planted;
mod policy;
mod provider;
mod prune;
mod reading;
mod resume;
mod run;
mod selection;
mod signals;
mod support;
