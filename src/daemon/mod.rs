//! herder as a daemon: HTTP with JSON and server-sent events, over a Unix socket.
//!
//! What is asked is put to [`crate::app`] and the supervisor; what happens is read from the store. Knows nothing of
//! terminals: the command line is one of its clients.

pub mod api;
pub mod board;
pub mod client;
pub mod desk;
pub mod hub;
pub mod lifetime;
mod notify;
mod process;
pub mod server;
pub(crate) mod users;
pub mod wire;
