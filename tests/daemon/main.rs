//! The daemon from outside: real sockets and processes, clients that behave and clients that do not.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod abuse;
mod followers;
mod harness;
mod port;
mod socket;
mod systemd;
