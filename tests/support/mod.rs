//! What several tests need: model servers that are strict with us, and as bad as wanted with their answers.

pub(crate) mod bill;
pub(crate) mod chat;
pub(crate) mod hear;
pub(crate) mod limited;
pub(crate) mod messages;
pub(crate) mod responses;
pub(crate) mod server;

/// A port of this machine where nobody listens: as long as it stays bound, nobody else takes it.
pub(crate) fn unheard() -> (tokio::net::TcpSocket, std::net::SocketAddr) {
    let bound = tokio::net::TcpSocket::new_v4().unwrap();
    bound.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = bound.local_addr().unwrap();
    (bound, address)
}
