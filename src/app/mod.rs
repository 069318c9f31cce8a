//! Puts the parts together: from configuration and input to a supervisor at work.
//!
//! The only place that names a concrete store, provider or tool set.

mod accounts;
pub mod approvals;
pub mod batch;
pub mod batches;
pub mod check;
pub mod confinement;
pub mod continued;
pub mod conversation;
pub mod doctor;
pub mod herder;
pub mod input;
pub mod isolation;
pub mod models;
pub mod own_files;
pub mod prune;
pub mod spent;
pub mod state;
pub mod tools;
pub mod transfer;
pub mod waiting;
