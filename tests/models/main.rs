//! `herder models`, as a user has it, against servers over real sockets: good ones, and bad ones of every kind.

#[cfg(test)]
mod check;
#[cfg(test)]
mod list;
#[cfg(test)]
mod place;
#[cfg(test)]
#[path = "../support/mod.rs"]
#[expect(dead_code, reason = "shared with tests that need more of it")]
mod support;
