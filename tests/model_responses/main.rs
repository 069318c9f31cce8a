//! The Responses provider against a server, over real sockets.

#[cfg(test)]
mod answers;
#[cfg(test)]
mod ask;
#[cfg(test)]
mod ends;
#[cfg(test)]
mod requests;
#[cfg(test)]
#[path = "../support/mod.rs"]
#[expect(dead_code, reason = "shared with tests that need more of it")]
mod support;
