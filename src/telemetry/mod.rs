//! What herder tells about itself while it works: log lines, spans, numbers. None of it is of record.
//!
//! Names of metrics and fields of spans stand here alone, so that two places cannot spell one thing in two ways.

pub mod log;
pub mod metric;
pub mod prometheus;
mod sentence;
pub mod span;
