//! Sudden deaths: herder is killed at each place where something changes, and again and again at random; whoever starts it
//! again finds nothing lost, nothing done twice and no process left.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(
    clippy::print_stdout,
    reason = "a failed test tells its seed, and every test how often it was deadly"
)]

#[path = "../daemon/process.rs"]
#[expect(dead_code, reason = "most of it is for tests of the daemon")]
mod process;

mod again;
mod asked;
mod held;
mod isolated;
mod leftovers;
mod points;
mod prune;
mod random;
mod record;
mod torn;
mod work;
