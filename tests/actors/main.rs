//! Runs under a real supervision tree: real tools on real files, or doubles on paused time.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod accounts;
mod answers;
mod approvals;
mod arrival;
mod bad_calls;
mod budget;
mod cancel;
mod cancel_call;
mod doubles;
mod drain;
mod fallbacks;
mod full_log;
mod http;
mod limited;
mod limits;
mod moved;
mod mutation;
mod origins;
mod overflow;
mod pause;
mod pause_in_trouble;
mod refusals;
mod restart;
mod same_ids;
mod silence;
mod stage;
mod streams;
#[expect(dead_code, reason = "shared with tests that need more of it")]
#[path = "../support/mod.rs"]
mod support;
mod thoughts;
