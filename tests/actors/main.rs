//! Runs under a real supervision tree: real tools on real files, or doubles on paused time.

#[path = "../support/mod.rs"]
mod http_support;

mod cancel;
mod doubles;
mod drain;
mod http;
mod limits;
mod mutation;
mod origins;
mod restart;
mod support;
