//! A connection over the Unix socket, of which one can see that its client has gone.
//!
//! A client that is done sending still waits for its answer; one that has closed its end does not. Both look the same to who
//! reads, but not to who looks at the socket itself.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_util::FutureExt;
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::UnixStream,
    time::sleep,
};

/// A client that has gone is noticed at the latest after this, if something is there to be read or the end is.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// One end of a connection.
#[derive(Clone)]
pub(super) struct Wire(Arc<UnixStream>);

impl Wire {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self(Arc::new(stream))
    }

    /// Waits until the client can neither send nor receive. Costs nothing while a client is silent and there.
    pub(super) async fn hung_up(&self) {
        // An error means that the runtime is ending, or the connection; whoever reads meets it too.
        while self.0.ready(Interest::READABLE).await.is_ok() {
            let now = self.0.ready(Interest::READABLE | Interest::WRITABLE).now_or_never();
            if now.is_some_and(|state| state.is_ok_and(|state| state.is_write_closed())) {
                return;
            }
            sleep(LOOK_EVERY).await;
        }
        std::future::pending().await
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(context))?;
            match self.0.try_read_buf(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read.map(drop)),
            }
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(context))?;
            match self.0.try_write_vectored(slices) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = rustix::net::shutdown(&*self.0, rustix::net::Shutdown::Write);
        Poll::Ready(ended.map_err(io::Error::from))
    }
}
