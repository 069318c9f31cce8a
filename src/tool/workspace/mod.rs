//! Paths confined to a workspace, and the identity of what they name.
