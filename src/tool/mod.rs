//! What a run can do to the world: tools, and the rules they share.

pub mod process;
pub mod text_edit;
pub mod workspace;
