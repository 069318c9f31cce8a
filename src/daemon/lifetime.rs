//! The daemon's life: it starts, takes up what an earlier one left, serves, and stops in order.
//!
//! The socket comes first, since it tells of a daemon that is there already; then the state's lock, which is given back
//! last, so one daemon has a state at a time. Clients are answered once the open runs are known; until they are taken up
//! it says that it is starting. Its end: nothing new, runs to the end of their turn, streams, connections, the log.

use std::{
    collections::BTreeMap,
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::{
    api,
    desk::{By, Desk, Parts, Phase, Place, Stop},
    hub::Hub,
    notify::{Teller, tell_of_approvals, tell_of_failures, tell_of_notices},
    server::{
        self, Access, Limits, Listener, LoopbackError, Token, TokenError, bind_loopback,
        socket::{self, SocketError, SocketPath},
        systemd::{self, Inherited},
    },
    users,
};
use crate::{
    app::{
        batches::{self, Batches, SpoolError},
        herder::{Herder, People, StartError},
        state::{State, StateError},
    },
    config::{Config, ConfigError, Effective, Files, Role, Sources},
    store::StoreError,
    telemetry::prometheus::{self, MetricsError},
};

/// How often a service manager is told what is going on.
const STATUS: Duration = Duration::from_secs(10);

/// How long changes that nobody waits for any more, and news, have at the end.
const WINDING_UP: Duration = Duration::from_secs(5);

/// What a daemon is started with.
pub struct Setup {
    pub config: Config,
    pub effective: Effective,
    /// What the configuration is read from again.
    pub sources: Sources,
    /// Where it keeps its runs.
    pub state: PathBuf,
    /// Where it listens.
    pub socket: SocketPath,
    /// Sockets that a service manager bound for it. They must have been taken before there were threads.
    pub inherited: Inherited,
}

/// Why there is no daemon.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error("daemon.listen: {0}")]
    Listen(#[from] LoopbackError),
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error("daemon.roles: there is no user {0:?}")]
    NoUser(String),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Inputs(#[from] SpoolError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    #[error("the process cannot watch signals, or use a socket that it was given")]
    System(#[from] std::io::Error),
}

/// Serves until it is told to stop. `ready` is told once all that was left is taken up.
///
/// # Errors
/// It cannot start, or not go on with what was left.
pub async fn serve(setup: Setup, ready: impl FnOnce(&Desk)) -> Result<(), ServeError> {
    let mut signals = Signals::watch()?;
    // A daemon that is there already is told of as that, though it has the state, too.
    let mut doors = Doors::unix(&setup)?;
    let state = State::to_write(&setup.state, setup.config.store.durability)?;
    doors.ports(&setup)?;
    let access = access(&setup.config)?;
    let limits = Limits { connections: setup.config.daemon.max_connections.get(), ..Limits::default() };
    let (desk, streams) = open_desk(setup, state, &doors).await?;
    let ending = CancellationToken::new();
    let serving = server::serve(api::router(desk.clone()), access, limits, doors.listeners, ending.clone());
    let serving = tokio::spawn(serving);
    let watchdog = tokio::spawn({
        let desk = desk.clone();
        systemd::watchdog(move || {
            let desk = desk.clone();
            async move { desk.alive().await }
        })
    });
    let began = begin(&desk, &mut signals).await;
    let mut answers = None;
    if matches!(began, Ok(Begun::Ready)) {
        // Whoever has the folder and not the socket leaves answers there.
        answers = desk.herder().take_answers();
        ready(&desk);
        desk.work().spawn({
            let desk = desk.clone();
            async move { desk.keep_pruned().await }
        });
        until_stopped(&desk, &mut signals).await;
    }
    finish(&desk, &mut signals).await;
    drop(answers);
    streams.cancel();
    ending.cancel();
    // Only a panic could be lost here, and it has told of itself.
    let _ = serving.await;
    watchdog.abort();
    desk.close(WINDING_UP).await;
    desk.herder().close().await;
    began.map(drop)
}

/// Where clients come in.
struct Doors {
    listeners: Vec<Listener>,
    socket: PathBuf,
    listen: Option<SocketAddr>,
}

impl Doors {
    fn unix(setup: &Setup) -> Result<Self, ServeError> {
        let mut doors = Self { listeners: Vec::new(), socket: setup.socket.path().to_owned(), listen: None };
        for listener in &setup.inherited.unix {
            if let Some(path) = listener.local_addr()?.as_pathname() {
                doors.socket = path.to_owned();
            }
            doors.listeners.push(Listener::inherited(listener.try_clone()?)?);
        }
        if setup.inherited.unix.is_empty() {
            let group = setup.config.daemon.group.as_deref().map(socket::group_id).transpose()?;
            doors.listeners.push(Listener::bound(socket::bind(&setup.socket, group)?)?);
        }
        Ok(doors)
    }

    /// Comes once the state is ours: the token is kept there.
    fn ports(&mut self, setup: &Setup) -> Result<(), ServeError> {
        let daemon = &setup.config.daemon;
        let mut ports =
            setup.inherited.tcp.iter().map(TcpListener::try_clone).collect::<Result<Vec<_>, _>>()?;
        if let Some(address) = daemon.listen {
            ports.push(bind_loopback(address)?);
        }
        for port in ports {
            let file = daemon.token_file.clone().unwrap_or_else(|| setup.state.join("token"));
            self.listen = port.local_addr().ok();
            self.listeners.push(Listener::tcp(port, Token::read_or_make(&file)?)?);
        }
        Ok(())
    }
}

/// Who may do what. Members of the group may look unless they have a role of their own.
fn access(config: &Config) -> Result<Access, ServeError> {
    let role = |role: Role| match role {
        Role::Viewer => server::Role::Viewer,
        Role::Operator => server::Role::Operator,
        Role::Approver => server::Role::Approver,
    };
    let mut roles = BTreeMap::new();
    for (user, given) in &config.daemon.roles {
        let uid = users::uid(user).ok_or_else(|| ServeError::NoUser(user.clone()))?;
        roles.insert(uid, role(*given));
    }
    let group_default = config.daemon.group.is_some().then_some(server::Role::Viewer);
    Ok(Access { roles, group_default, tcp: role(config.daemon.tcp_role), ..Access::own() })
}

async fn open_desk(
    setup: Setup,
    state: State,
    doors: &Doors,
) -> Result<(Arc<Desk>, CancellationToken), ServeError> {
    let Setup { config, effective, sources, state: folder, .. } = setup;
    let metrics = Box::new(prometheus::record()?);
    let people = if config.approvals.ask { People::Asked } else { People::Absent };
    let herder = Herder::start(&config, state, [], people).await?;
    let services = herder.supervisor.services().clone();
    let streams = CancellationToken::new();
    let hub = Hub::start(services.store.clone(), services.live.clone(), &streams).await?;
    let batches = Batches::new(batches::Parts {
        supervisor: herder.supervisor.clone(),
        store: services.store.clone(),
        folder: folder.join("batches"),
        config: Arc::new(config.clone()),
        clock: services.clock.clone(),
        add_model: herder.add_model(),
    })?;
    batches.load().await?;
    let place = Place {
        state: folder,
        socket: doors.socket.clone(),
        listen: doors.listen,
        started_at: services.clock.now(),
    };
    let files = Files::read(&sources)?;
    let (stop, teller) = (Stop::default(), Teller::new());
    let parts =
        Parts { herder, batches, hub, place, config, effective, sources, files, stop, metrics, teller };
    Ok((Arc::new(Desk::new(parts)), streams))
}

/// How the beginning ended.
enum Begun {
    Ready,
    /// It was told to stop meanwhile.
    Stopped,
}

/// Takes up what an earlier daemon left. A pause comes first, or what is paused would go on for a moment.
async fn begin(desk: &Arc<Desk>, signals: &mut Signals) -> Result<Begun, ServeError> {
    let take_up = async {
        let notices = desk.herder().supervisor.notices();
        tokio::spawn(tell_of_notices(desk.clone(), notices));
        tokio::spawn(tell_of_approvals(desk.clone()));
        desk.restore_gates().await?;
        desk.settle().await?;
        desk.restore_spent().await?;
        let recovered = desk.batches().recover().await?;
        desk.watch_batches().await;
        tokio::spawn(tell_of_failures(desk.clone()));
        desk.take_up(recovered.others).await;
        Ok::<_, StoreError>(())
    };
    tokio::select! {
        taken_up = take_up => taken_up?,
        () = signals.until_stop() => {
            let _ = desk.stop().ask(false);
        }
        () = desk.stop().asked() => {}
    }
    if desk.stop().is_asked() {
        return Ok(Begun::Stopped);
    }
    desk.set_phase(Phase::Ready);
    systemd::ready("ready").await;
    Ok(Begun::Ready)
}

/// Waits until the daemon is to stop, and reads its configuration again when it is told to.
async fn until_stopped(desk: &Arc<Desk>, signals: &mut Signals) {
    let mut status = tokio::time::interval(STATUS);
    if std::mem::take(&mut signals.reload_later) {
        tokio::spawn(reload(desk.clone()));
    }
    loop {
        tokio::select! {
            _ = status.tick() => {
                let load = desk.herder().supervisor.load().await;
                systemd::status(&format!("{} live, {} queued, {} held", load.live, load.queued, load.held));
            }
            () = desk.stop().asked() => return,
            told = signals.next() => match told {
                Told::Stop => {
                    let _ = desk.stop().ask(false);
                }
                // Beside this: whatever it waits for, the daemon can be stopped.
                Told::Reload => drop(tokio::spawn(reload(desk.clone()))),
            },
        }
    }
}

async fn reload(desk: Arc<Desk>) {
    systemd::reloading().await;
    match desk.reload(&By::default()).await {
        Ok(report) => tracing::info!(?report, "configuration read again"),
        Err(error) => tracing::error!(error = error.message, "configuration left as it was"),
    }
    systemd::ready("ready").await;
}

/// Has everything come to rest.
async fn finish(desk: &Arc<Desk>, signals: &mut Signals) {
    desk.set_phase(Phase::Stopping);
    systemd::stopping("runs end their turn").await;
    desk.batches().close();
    let supervisor = &desk.herder().supervisor;
    let mut drain = std::pin::pin!(supervisor.drain(desk.config().supervisor.drain()));
    tokio::select! {
        // In this order, or an interruption that is asked for at once would be told before there is anything to cut short.
        biased;
        () = &mut drain => {}
        () = desk.stop().asked_now() => {
            supervisor.interrupt();
            drain.await;
        }
        () = signals.until_stop() => {
            supervisor.interrupt();
            drain.await;
        }
    }
    if desk.log_trouble().is_some() {
        // What waits for room would wait for ever; what was durable is.
        desk.herder().close().await;
    }
    desk.batches().closed().await;
}

/// What a signal says.
#[derive(PartialEq, Eq)]
enum Told {
    Stop,
    Reload,
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
    /// It was told to read its configuration again, while it could not.
    reload_later: bool,
}

impl Signals {
    fn watch() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
            reload_later: false,
        })
    }

    async fn next(&mut self) -> Told {
        tokio::select! {
            Some(()) = self.interrupt.recv() => Told::Stop,
            Some(()) = self.terminate.recv() => Told::Stop,
            Some(()) = self.hang_up.recv() => Told::Reload,
            else => std::future::pending().await,
        }
    }

    async fn until_stop(&mut self) {
        while self.next().await != Told::Stop {
            self.reload_later = true;
        }
    }
}
