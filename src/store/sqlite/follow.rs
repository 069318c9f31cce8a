//! Noticing, in a process that only reads, that another one has written.
//!
//! SQLite tells nobody across processes, so this looks now and then, and only while somebody watches.

use std::{
    sync::{Arc, mpsc},
    thread::JoinHandle,
    time::Duration,
};

use rusqlite::Connection;
use tokio::sync::watch;

use super::writer::last_pos;
use crate::domain::id::Pos;

/// How long an event may stand in the log before a reader in another process hears of it.
const INTERVAL: Duration = Duration::from_millis(50);

/// Tells `durable` how far the log goes, until the sender it returns is dropped.
pub(super) fn start(
    db: Connection,
    durable: Arc<watch::Sender<Pos>>,
) -> std::io::Result<(mpsc::Sender<()>, JoinHandle<()>)> {
    tell(&db, &durable);
    let (open, closed) = mpsc::channel();
    let thread = std::thread::Builder::new().name("log-follower".to_owned()).spawn(move || {
        while closed.recv_timeout(INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout) {
            if !durable.is_closed() {
                tell(&db, &durable);
            }
        }
    })?;
    Ok((open, thread))
}

fn tell(db: &Connection, durable: &watch::Sender<Pos>) {
    match last_pos(db) {
        Ok(pos) => {
            durable.send_if_modified(|last| std::mem::replace(last, pos) != pos);
        }
        Err(error) => tracing::warn!(error = %error, "log not readable"),
    }
}
