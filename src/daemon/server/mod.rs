//! Serves the daemon's routes: over its Unix socket, and over a TCP port of this machine.
//!
//! Who may ask is settled here, so a route meets callers who are let in and knows them by [`Caller`]. Clients that are slow,
//! silent, endless, too many or gone cost a bounded amount of memory and files, and cost each other nothing. An end is
//! orderly within [`Limits::grace`]. Knows nothing of what the routes are.

mod body;
mod caller;
mod connection;
mod loopback;
mod refusal;
pub mod socket;
pub mod systemd;
mod token;
mod wire;

use std::{io, sync::Arc, time::Duration};

use axum::Router;
use futures_util::future::join_all;
use tokio::{
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use caller::{Access, Caller, Role, Via};
pub use loopback::{LoopbackError, bind_loopback};
pub use token::{Token, TokenError};

use connection::{Door, Shared};
use wire::Wire;

use crate::domain::time::Pauses;

/// Connections beyond the limit that are told so. Beyond these too, clients wait in the system's own queue.
const TURNED_AWAY: usize = 64;

/// How long to leave off accepting when the system has no more files or memory for it, at first and at most.
const PAUSES: Pauses = Pauses::between(Duration::from_millis(10), Duration::from_secs(1));

/// What a client may cost.
#[derive(Clone, Debug)]
pub struct Limits {
    pub connections: usize,
    /// For the whole head of a request; also how long a connection may be idle between two.
    pub header_time: Duration,
    pub header_bytes: usize,
    /// Without a byte of a request's body that a route waits for.
    pub body_stall: Duration,
    /// Without the client taking a byte of what is to be sent.
    pub write_stall: Duration,
    /// From the beginning of the server's end until connections that are still open are cut off.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            header_time: Duration::from_secs(10),
            header_bytes: 64 * 1024,
            body_stall: Duration::from_secs(30),
            write_stall: Duration::from_secs(60),
            grace: Duration::from_secs(10),
        }
    }
}

/// That the server is ending: an extension of every request. An answer that goes on by itself is to end when this is so.
#[derive(Clone, Debug)]
pub struct Ending(CancellationToken);

impl Ending {
    pub fn token(&self) -> &CancellationToken {
        &self.0
    }
}

/// Where clients come in.
pub enum Listener {
    Unix {
        /// Ours to remove; none if the socket is somebody else's. Declared first, to be dropped first.
        file: Option<socket::SocketFile>,
        listener: UnixListener,
    },
    Tcp {
        listener: TcpListener,
        token: Token,
    },
}

enum Peer {
    Unix(UnixStream),
    Tcp(TcpStream, Token),
}

impl Listener {
    /// The socket that was bound. Its file goes when the server ends. To be called within the runtime, as its siblings.
    pub fn bound(bound: socket::Bound) -> io::Result<Self> {
        let socket::Bound { file, listener } = bound;
        Ok(Self::Unix { file: Some(file), listener: UnixListener::from_std(listener)? })
    }

    /// A socket that another process bound, and looks after.
    pub fn inherited(listener: std::os::unix::net::UnixListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self::Unix { file: None, listener: UnixListener::from_std(listener)? })
    }

    /// A port of this machine, whoever bound it.
    pub fn tcp(listener: std::net::TcpListener, token: Token) -> Result<Self, LoopbackError> {
        let unknown = std::net::SocketAddr::from(([0, 0, 0, 0], 0));
        let address = listener.local_addr().unwrap_or(unknown);
        if !address.ip().is_loopback() {
            return Err(LoopbackError::NotLoopback(address));
        }
        let listening = listener.set_nonblocking(true).and_then(|()| TcpListener::from_std(listener));
        let listener = listening.map_err(|source| LoopbackError::Io { address, source })?;
        Ok(Self::Tcp { listener, token })
    }

    async fn accept(&self) -> io::Result<Peer> {
        match self {
            Self::Unix { listener, .. } => Ok(Peer::Unix(listener.accept().await?.0)),
            Self::Tcp { listener, token } => {
                let (stream, _) = listener.accept().await?;
                // Without it answers are only slower.
                let _ = stream.set_nodelay(true);
                Ok(Peer::Tcp(stream, token.clone()))
            }
        }
    }
}

/// Serves `router` until `ending` is cancelled and the clients are done, or their time is up. Dropped, it cuts them off.
pub async fn serve(
    router: Router,
    access: Access,
    limits: Limits,
    listeners: Vec<Listener>,
    ending: CancellationToken,
) {
    let server = Server {
        access,
        seats: Arc::new(Semaphore::new(limits.connections)),
        turned_away: Arc::new(Semaphore::new(TURNED_AWAY)),
        connections: TaskTracker::new(),
        shared: Arc::new(Shared { router, limits, ending: Ending(ending), dead: CancellationToken::new() }),
    };
    let _cut_off = server.shared.dead.clone().drop_guard();
    join_all(listeners.into_iter().map(|listener| server.listen(listener))).await;
    server.ending().cancelled().await;
    server.connections.close();
    if timeout(server.shared.limits.grace, server.connections.wait()).await.is_err() {
        tracing::warn!(connections = server.connections.len(), "cut off at the end");
        server.shared.dead.cancel();
        server.connections.wait().await;
    }
}

struct Server {
    access: Access,
    seats: Arc<Semaphore>,
    turned_away: Arc<Semaphore>,
    connections: TaskTracker,
    shared: Arc<Shared>,
}

/// The place that a connection takes up.
struct Seat {
    /// Whether there is no other than to be told so.
    full: bool,
    _held: OwnedSemaphorePermit,
}

impl Server {
    fn ending(&self) -> &CancellationToken {
        self.shared.ending.token()
    }

    async fn listen(&self, listener: Listener) {
        let work = async {
            let mut pauses = PAUSES;
            loop {
                match listener.accept().await {
                    Ok(peer) => {
                        pauses.restart();
                        let Some(seat) = self.seat().await else { return };
                        self.start(peer, seat);
                    }
                    Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept connections");
                        sleep(pauses.take()).await;
                    }
                }
            }
        };
        self.ending().run_until_cancelled(work).await;
    }

    /// Waits for a place; one to be turned away from will do. `None` never comes, as no place is ever abolished.
    async fn seat(&self) -> Option<Seat> {
        tokio::select! {
            biased;
            seat = self.seats.clone().acquire_owned() => Some(Seat { full: false, _held: seat.ok()? }),
            seat = self.turned_away.clone().acquire_owned() => Some(Seat { full: true, _held: seat.ok()? }),
        }
    }

    fn start(&self, peer: Peer, seat: Seat) {
        let shared = self.shared.clone();
        match peer {
            Peer::Unix(stream) => {
                let door = if seat.full { Door::Full } else { Door::Unix(self.access.caller(&stream)) };
                let wire = Wire::new(stream);
                self.connections.spawn(async move {
                    connection::serve(wire.clone(), door, shared, wire.hung_up()).await;
                    drop(seat);
                });
            }
            Peer::Tcp(stream, token) => {
                let door = if seat.full { Door::Full } else { Door::Tcp(token, self.access.tcp) };
                self.connections.spawn(async move {
                    connection::serve(stream, door, shared, std::future::pending()).await;
                    drop(seat);
                });
            }
        }
    }
}
