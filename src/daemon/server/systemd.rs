//! What a service manager and the daemon tell each other.
//!
//! Sockets that are handed down, states that are reported, and a watchdog that is fed only while the daemon does its work. All
//! of it comes to nothing where no manager asked for it, and a manager that does not listen holds no thread up. Knows nothing
//! of what the daemon does.

use std::{
    env, io,
    net::TcpListener,
    os::{
        fd::AsFd,
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram, UnixListener},
        },
    },
    time::Duration,
};

use listenfd::ListenFd;
use rustix::net::sockopt::socket_acceptconn;
use sd_notify::NotifyState;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// How long the manager may take to make room for what it has to hear.
const PATIENCE: Duration = Duration::from_secs(30);

/// Sockets that the manager bound. They stay its own: their files are not removed.
#[derive(Debug, Default)]
pub struct Inherited {
    pub unix: Vec<UnixListener>,
    pub tcp: Vec<TcpListener>,
}

/// Why a socket that was handed down cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("socket {place} from the service manager is neither a Unix nor a TCP socket to listen on")]
pub struct OddSocket {
    pub place: usize,
    #[source]
    pub source: io::Error,
}

/// Takes the sockets that were handed down, once; not blocking, and not passed on to commands. Changes the environment, so it
/// comes before there are threads.
pub fn inherited() -> Result<Inherited, OddSocket> {
    let mut handed = ListenFd::from_env();
    let mut taken = Inherited::default();
    for place in 0..handed.len() {
        let odd = |source| OddSocket { place, source };
        if let Ok(Some(listener)) = handed.take_unix_listener(place) {
            check(&listener).and_then(|()| listener.set_nonblocking(true)).map_err(odd)?;
            taken.unix.push(listener);
        } else if let Some(listener) = handed.take_tcp_listener(place).map_err(odd)? {
            check(&listener).and_then(|()| listener.set_nonblocking(true)).map_err(odd)?;
            taken.tcp.push(listener);
        }
    }
    Ok(taken)
}

/// A socket that is not listened on could never be accepted from.
fn check(socket: impl AsFd) -> io::Result<()> {
    if socket_acceptconn(socket)? { Ok(()) } else { Err(rustix::io::Errno::INVAL.into()) }
}

/// The daemon answers.
pub async fn ready(status: &str) {
    let pid = NotifyState::MainPid(std::process::id());
    announce(&[NotifyState::Ready, pid, NotifyState::Status(&line(status))]).await;
}

/// The daemon reads its configuration anew; [`ready`] follows.
pub async fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => announce(&[NotifyState::Reloading, now]).await,
        Err(error) => tracing::warn!(%error, "the service manager was not told of the reload"),
    }
}

/// The daemon is ending.
pub async fn stopping(status: &str) {
    announce(&[NotifyState::Stopping, NotifyState::Status(&line(status))]).await;
}

/// What the daemon is doing, for a person to read.
pub fn status(text: &str) {
    mention(&[NotifyState::Status(&line(text))]);
}

/// A second line would be read as another report.
fn line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

/// Tells what changes the manager's mind, as soon as it has room for it.
async fn announce(states: &[NotifyState<'_>]) {
    let told = async {
        let Some(manager) = manager()? else { return Ok(()) };
        let manager = tokio::net::UnixDatagram::from_std(manager)?;
        manager.send(report(states).as_bytes()).await.map(drop)
    };
    let told = timeout(PATIENCE, told).await.unwrap_or_else(|late| Err(late.into()));
    log_untold(told);
}

/// Tells what the next report makes up for: one that there is no room for is left out.
fn mention(states: &[NotifyState<'_>]) {
    let told = manager().and_then(|manager| match manager {
        Some(manager) => manager.send(report(states).as_bytes()).map(drop),
        None => Ok(()),
    });
    match told {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            tracing::debug!("the service manager does not listen");
        }
        told => log_untold(told),
    }
}

/// Nobody is worse off if the manager does not hear it, but for the start and the watchdog, which it then sees to.
fn log_untold(told: io::Result<()>) {
    if let Err(error) = told {
        tracing::warn!(%error, "the service manager was not told");
    }
}

fn report(states: &[NotifyState<'_>]) -> String {
    states.iter().map(|state| format!("{state}\n")).collect()
}

/// A way to the manager, if there is one, that never blocks: the manager's queue is short, and its reader may be busy.
fn manager() -> io::Result<Option<UnixDatagram>> {
    let Some(place) = env::var_os("NOTIFY_SOCKET") else { return Ok(None) };
    let address = match place.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(&place)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.connect_addr(&address)?;
    Ok(Some(socket))
}

/// Feeds the manager's watchdog for as long as `alive` answers that the daemon does its work, each time anew and in time.
/// Ends at once where there is none.
pub async fn watchdog<F: Future<Output = bool>>(alive: impl FnMut() -> F) {
    if let Some(period) = sd_notify::watchdog_enabled().filter(|period| !period.is_zero()) {
        feed(period, alive, || mention(&[NotifyState::Watchdog])).await;
    }
}

async fn feed<F: Future<Output = bool>>(
    period: Duration,
    mut alive: impl FnMut() -> F,
    mut ping: impl FnMut(),
) {
    let half = (period / 2).max(Duration::from_millis(1));
    let mut rounds = interval(half);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        rounds.tick().await;
        match timeout(half, alive()).await {
            Ok(true) => ping(),
            Ok(false) | Err(_) => tracing::error!("the daemon's work stands still; its watchdog is not fed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::{pending, ready},
        sync::atomic::{AtomicU32, Ordering::Relaxed},
    };

    use super::*;

    const PERIOD: Duration = Duration::from_secs(20);

    async fn pings<F: Future<Output = bool>>(rounds: u32, alive: impl FnMut() -> F) -> u32 {
        let count = AtomicU32::new(0);
        let feeding = feed(PERIOD, alive, || {
            count.fetch_add(1, Relaxed);
        });
        let end = PERIOD / 2 * rounds - Duration::from_secs(1);
        assert!(timeout(end, feeding).await.is_err());
        count.into_inner()
    }

    #[tokio::test(start_paused = true)]
    async fn the_watchdog_is_fed_twice_a_period_while_the_daemon_answers() {
        assert_eq!(pings(6, || ready(true)).await, 6);
    }

    #[tokio::test(start_paused = true)]
    async fn a_daemon_that_says_no_or_nothing_is_not_vouched_for() {
        assert_eq!(pings(6, || ready(false)).await, 0);
        assert_eq!(pings(6, pending).await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_daemon_that_comes_round_is_vouched_for_again() {
        let mut asked = 0;
        let fed = pings(6, || {
            asked += 1;
            ready(asked > 2)
        });
        assert_eq!(fed.await, 4);
    }

    #[test]
    fn a_status_is_one_line() {
        assert_eq!(line("12 runs\nREADY=1"), "12 runs READY=1");
    }
}
