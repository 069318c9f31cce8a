//! Reaches the daemon: where it is, where else runs may be read, and how long one that went away is waited for.

use std::{error::Error as _, io, path::Path, time::Duration};

use tokio::time::Instant;

use super::{Context, UsageError, start::say};
use crate::{
    app::state::{State, StateError, default_folder},
    daemon::{
        client::{Client, ClientError, Route},
        server::socket::{self, SocketError, SocketPath, Surroundings},
        wire::{Status, Submitted},
    },
    domain::time::Pauses,
    store::folder::FolderError,
};

/// How long a daemon that went away is waited for.
pub(super) const WINDOW: Duration = Duration::from_secs(30);

/// Between two tries to reach it: at first, and at most.
const PAUSES: Pauses = Pauses::between(Duration::from_millis(50), Duration::from_secs(1));

/// The client of a command that only the daemon can do. Nothing is asked yet.
pub(super) fn client(context: &Context) -> anyhow::Result<Client> {
    if context.state.is_some() {
        let what = "--state: this asks the daemon, which has a state folder of its own; leave it out";
        return Err(UsageError(what.to_owned()).into());
    }
    client_at(context)
}

pub(super) fn client_at(context: &Context) -> anyhow::Result<Client> {
    let place = place(context.socket.as_deref())?;
    // What is said to a stranger's socket is said to a stranger. Where there is none, that is told when it is asked.
    if place.path().exists() {
        socket::check_folder(&place)?;
    }
    Ok(Client::at_socket(place.path())?)
}

/// Submits something that may be submitted twice without harm, since it has a key. A daemon that goes away in the middle is
/// waited for; one that is not there at all is not.
pub(super) async fn submit(
    client: &Client,
    route: &Route,
    media_type: &str,
    key: Option<&str>,
    body: impl Fn() -> reqwest::Body,
) -> Result<Submitted, ClientError> {
    let submit = || client.submit(route, media_type, body(), key);
    if key.is_some() { surely(submit).await } else { submit().await }
}

/// Asks for what may be asked for twice without harm: again, if the answer was lost.
pub(super) async fn surely<T, Asked>(mut ask: impl FnMut() -> Asked) -> Result<T, ClientError>
where
    Asked: Future<Output = Result<T, ClientError>>,
{
    match ask().await {
        Err(ClientError::Lost { .. }) => patiently(WINDOW, ask).await,
        answer => answer,
    }
}

/// Where runs are read.
pub(super) enum Source {
    Folder(State),
    Daemon(Client, Box<Status>),
}

/// A state folder that was named is read, else the daemon is asked. If there is none, and nobody said where it should be,
/// the folder is read that `herder run` uses.
pub(super) async fn source(context: &Context) -> anyhow::Result<Source> {
    if let Some(folder) = &context.state {
        return Ok(Source::Folder(State::to_read(folder)?));
    }
    let client = client_at(context)?;
    let none = match client.get(&Route::to(["v1", "status"])).await {
        Ok(status) => return Ok(Source::Daemon(client, status)),
        Err(error @ ClientError::NoDaemon { .. }) if context.socket.is_none() => error,
        Err(error) => return Err(error.into()),
    };
    let Some(folder) = default_folder() else { return Err(none.into()) };
    match State::to_read(&folder) {
        Ok(state) => {
            say(&format!("no daemon answers; read from {}, where `herder run` keeps runs", folder.display()));
            Ok(Source::Folder(state))
        }
        Err(StateError::Folder(FolderError::Missing { .. })) => Err(none.into()),
        Err(error) => Err(error.into()),
    }
}

/// How the daemon stands, if there is one.
pub(super) async fn daemon(context: &Context) -> Option<Box<Status>> {
    client_at(context).ok()?.get(&Route::to(["v1", "status"])).await.ok()
}

/// Where the daemon's socket is, as it was named or as is customary.
pub(super) fn place(named: Option<&Path>) -> Result<SocketPath, SocketError> {
    socket::locate(named, &Surroundings::of_this_process())
}

/// Asks again for as long as the daemon may only be away for a moment.
pub(super) async fn patiently<T, Asked>(
    window: Duration,
    mut ask: impl FnMut() -> Asked,
) -> Result<T, ClientError>
where
    Asked: Future<Output = Result<T, ClientError>>,
{
    let mut wait = Patience::new(window);
    loop {
        match ask().await {
            Err(error) => wait.after(error).await?,
            answer => return answer,
        }
    }
}

/// Waits for a daemon that went away, each time a little longer, until it has been away for too long.
pub(super) struct Patience {
    window: Duration,
    away: Option<Instant>,
    pauses: Pauses,
}

impl Patience {
    pub(super) const fn new(window: Duration) -> Self {
        Self { window, away: None, pauses: PAUSES }
    }

    /// It has answered.
    pub(super) const fn answered(&mut self) {
        self.away = None;
        self.pauses.restart();
    }

    /// Waits before the next try. Gives the error back if there is no sense in one.
    pub(super) async fn after(&mut self, error: ClientError) -> Result<(), ClientError> {
        let away = *self.away.get_or_insert_with(Instant::now);
        if !error.may_pass() || away.elapsed() + self.pauses.coming() > self.window {
            return Err(error);
        }
        tokio::time::sleep(self.pauses.take()).await;
        Ok(())
    }
}

/// The one sentence that an error of the client is to a person. How HTTP puts it is of no use to them.
pub(super) fn told(error: &ClientError) -> String {
    match error {
        ClientError::NoDaemon { place, source } => match forbidden(source) {
            true => format!("{place} may not be opened: the daemon there belongs to somebody else"),
            false => error.to_string(),
        },
        ClientError::Version { .. }
        | ClientError::Refused(_)
        | ClientError::Lost { .. }
        | ClientError::NotHerder { .. }
        | ClientError::Setup(_) => error.to_string(),
    }
}

fn forbidden(error: &reqwest::Error) -> bool {
    let mut cause = error.source();
    while let Some(inner) = cause {
        if let Some(error) = inner.downcast_ref::<io::Error>() {
            return error.kind() == io::ErrorKind::PermissionDenied;
        }
        cause = inner.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_daemon_that_stays_away_is_waited_for_no_longer_than_the_window() {
        let socket = Path::new("/nowhere/herder.sock");
        let client = Client::at_socket(socket).expect("a client");
        let start = Instant::now();
        let route = Route::to(["v1", "status"]);
        let asked = patiently(WINDOW, || client.get::<Status>(&route)).await;
        assert!(matches!(asked, Err(ClientError::NoDaemon { .. })));
        assert!(start.elapsed() > WINDOW / 2 && start.elapsed() <= WINDOW, "{:?}", start.elapsed());
    }
}
