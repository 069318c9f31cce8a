//! A batch as text and as history: what a line of the input asks for, and what the journal leaves to be done.
//!
//! Pure: lines and records come in, tasks, plans and sentences about mistakes go out. Reads no file and looks nothing up.

mod canonical;
mod halt;
mod line;
mod reconcile;
mod retry;

pub use canonical::canonical;
pub use halt::{Halt, HaltAfter, HaltHow};
pub use line::{LineError, ScriptSource, TaskLine};
pub use reconcile::{
    Known, Latest, LatestState, Misfit, Plan, Resume, RetryFailed, Settled, StaleLines, Start, Wanted,
    reconcile,
};
pub use retry::{is_worth_a_retry, retry_delay};
