//! What several tests need: model servers that are strict with us, and as bad as wanted with their answers.

pub(crate) mod bill;
pub(crate) mod chat;
pub(crate) mod hear;
pub(crate) mod limited;
pub(crate) mod messages;
pub(crate) mod responses;
pub(crate) mod server;
