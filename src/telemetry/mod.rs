//! What herder tells of itself.

pub mod metric;
