//! The providers against servers that nobody here wrote: aimock, and any server that a variable names.
//!
//! `.ci/aimock` installs the first and runs these tests. For the second, set `HERDER_TEST_MODEL_URL` (the address before
//! `/chat/completions`), `HERDER_TEST_MODEL` and, if it wants one, `HERDER_TEST_MODEL_KEY`.

#[cfg(test)]
mod aimock;
#[cfg(test)]
mod conversation;
#[cfg(test)]
mod named;
#[cfg(test)]
#[path = "../support/mod.rs"]
#[expect(dead_code, reason = "shared with tests that need more of it")]
mod support;
