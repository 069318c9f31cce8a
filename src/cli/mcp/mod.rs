//! `herder mcp`: the daemon's runs as tools of the Model Context Protocol, over stdin and stdout.
//!
//! Another client of the daemon, so that agents can start and watch agents. Stdout carries the protocol alone. Each call is
//! answered within a minute, whatever becomes of it, and what it answers is bounded.

use std::io::Read;

use clap::Args;
use rmcp::{
    RoleServer,
    service::{RunningService, ServerInitializeError, serve_server_with_ct},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    runtime::Handle,
    signal::unix::{SignalKind, signal},
};
use tokio_util::sync::CancellationToken;

use super::{Context, Exit};
use crate::daemon::client::Client;

mod input;
mod server;
mod show;
#[cfg(test)]
mod tests;
mod tools;
mod wait;

use server::Server;

pub(super) const ABOUT: &str = "Offer the daemon's runs as tools to other agents, by MCP on stdin and stdout

An MCP client starts this command and speaks with it; it asks the daemon. The tools: submit, status, list, result, events, \
wait, steer, follow_up, cancel, pause, resume, requeue, each named herder_... Ends with stdin.";

pub(super) const AFTER: &str = "EXAMPLES
  herder mcp

  As most clients are told of it:
  {\"mcpServers\": {\"herder\": {\"command\": \"herder\", \"args\": [\"mcp\"]}}}";

/// Flags of `herder mcp`.
#[derive(Clone, Debug, Args)]
pub struct McpArgs {}

/// Bytes of stdin that wait to be read.
const WAITING: usize = 64 * 1024;

/// Runs the command.
pub(crate) async fn main(McpArgs {}: McpArgs, _context: Context, client: Client) -> anyhow::Result<Exit> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let end = CancellationToken::new();
    let serving = serve(client, stdin()?, tokio::io::stdout(), end.clone());
    let mut serving = std::pin::pin!(serving);
    let exit = tokio::select! {
        served = &mut serving => return served.map(|()| Exit::Done),
        _ = interrupt.recv() => Exit::Interrupted,
        _ = terminate.recv() => Exit::Terminated,
    };
    end.cancel();
    serving.await?;
    Ok(exit)
}

/// Serves one client until it has said everything, or `end` is cancelled.
async fn serve(
    client: Client,
    from: impl AsyncRead + Send + Unpin + 'static,
    to: impl AsyncWrite + Send + Unpin + 'static,
    end: CancellationToken,
) -> anyhow::Result<()> {
    finish(serve_server_with_ct(Server::new(client), (from, to), end).await).await
}

async fn finish(
    started: Result<RunningService<RoleServer, Server>, ServerInitializeError>,
) -> anyhow::Result<()> {
    match started {
        Ok(running) => {
            running.waiting().await?;
            Ok(())
        }
        // It left, or was to leave, before it had said who it is.
        Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// What comes over stdin. A thread of its own reads it: one of the runtime's would keep the process from its end.
fn stdin() -> std::io::Result<impl AsyncRead + Send + Unpin + 'static> {
    let (mut to, from) = tokio::io::duplex(WAITING);
    let runtime = Handle::current();
    std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
        let mut bytes = vec![0; WAITING];
        // An error ends it as its end does.
        while let Ok(count @ 1..) = std::io::stdin().lock().read(&mut bytes) {
            if runtime.block_on(to.write_all(&bytes[..count])).is_err() {
                break;
            }
        }
    })?;
    Ok(from)
}
