//! What a run can do to the world: tools, and the rules they share.

pub mod output;
pub mod process;
pub mod workspace;
