//! The Chat Completions provider against a server, over real sockets.

#[cfg(test)]
mod answers;
#[cfg(test)]
mod ask;
#[cfg(test)]
mod cancel;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod requests;
#[cfg(test)]
#[expect(dead_code, reason = "shared with tests that need more of it")]
#[path = "../support/mod.rs"]
mod support;
