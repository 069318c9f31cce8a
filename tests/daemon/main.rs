//! The daemon from outside: real sockets and processes, clients that behave and clients that do not.

mod abuse;
mod harness;
mod port;
mod socket;
mod systemd;
