//! The daemon from outside: real sockets and processes, clients that behave and clients that do not.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod abuse;
mod approvals;
mod continuing;
mod crash;
mod durable;
mod followers;
mod gate;
mod guarded;
mod harness;
mod managed;
mod open_files;
mod openapi;
mod port;
mod process;
mod requests;
mod socket;
mod starting;
mod stopping;
mod systemd;
mod taken_up;
