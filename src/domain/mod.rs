//! The rules of a run, as data and pure functions.
//!
//! No IO, no async, no clock, no randomness, no hash order: one list of inputs always gives one run. Whatever
//! the rules need from the world (the time, a schema's verdict, a seed) arrives as an argument.

pub mod admission;
pub mod batch;
pub mod budget;
pub mod call;
pub mod context;
pub mod event;
pub mod form;
pub mod gate;
pub mod glance;
pub mod id;
pub mod json;
pub mod message;
pub mod outcome;
pub mod policy;
pub mod restart;
pub mod retry;
pub mod run;
pub mod schedule;
pub mod script;
pub mod task;
pub mod text;
pub mod time;
pub mod usage;
