//! herder runs many LLM agent runs at once under one supervisor.

pub mod domain;
pub mod tool;
