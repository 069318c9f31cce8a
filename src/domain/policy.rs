//! Whether a call may run.

use serde::{Deserialize, Serialize};

/// What policy says of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It runs.
    Allow,
    /// A person decides; where none can, it does not run.
    Ask,
    /// It does not run.
    Deny,
}
