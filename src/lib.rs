//! herder runs many LLM agent runs at once under one supervisor.

pub mod actor;
pub mod app;
pub mod cli;
pub mod clock;
pub mod config;
pub mod domain;
pub mod model;
pub mod store;
pub mod telemetry;
pub mod tool;
