//! Paths confined to a workspace, and the identity of what they name.

#[derive(Debug)]
pub struct Workspace;
impl Workspace { pub fn root(&self) -> &str { "" } }
