//! Runs a command as a guarded process that leaves nothing behind.
