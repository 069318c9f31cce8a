//! Puts the parts together: from configuration and input to a supervisor at work.

pub mod input;
