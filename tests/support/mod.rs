//! What several tests need: a model server that is strict with us and as bad as wanted with its answers.

pub(crate) mod bill;
pub(crate) mod chat;
pub(crate) mod hear;
pub(crate) mod messages;
pub(crate) mod responses;
pub(crate) mod server;
