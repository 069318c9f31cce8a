//! What a person has done to runs, and how the daemon is asked for it.

use crate::{
    cli::say::{When, tell},
    daemon::{
        client::{Client, ClientError, Route},
        wire::{Changed, Pause, Say},
    },
};

/// An order, with the names that people know things by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Order { verb: Verb, target: Target },
    Steer { run: String, name: String, text: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Cancel,
    Pause,
    Resume,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Run { id: String, name: String },
    Batch { id: String, name: String },
    All,
}

impl Verb {
    const fn path(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Pause => "pause",
            Self::Resume => "resume",
        }
    }

    /// What is said when it is done, and when it had been so before.
    const fn done(self) -> (&'static str, &'static str) {
        match self {
            Self::Cancel => ("will be cancelled", "had ended, or was being cancelled"),
            Self::Pause => ("paused", "was paused already"),
            Self::Resume => ("goes on", "was not paused"),
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Run { name, .. } => write!(f, "run {name}"),
            Self::Batch { name, .. } => write!(f, "batch {name}"),
            Self::All => f.write_str("everything"),
        }
    }
}

impl std::fmt::Display for Action {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Order { verb, target } => write!(f, "{} {target}", verb.path()),
            Self::Steer { name, .. } => write!(f, "steer run {name}"),
        }
    }
}

impl Action {
    /// Has the daemon do it, and says in one sentence what came of it.
    pub(super) async fn perform(self, client: &Client) -> Result<String, String> {
        let what = self.to_string();
        self.ask(client).await.map_err(|error| format!("{what}: {error}"))
    }

    async fn ask(self, client: &Client) -> Result<String, ClientError> {
        match self {
            Self::Order { verb, target } => {
                let route = match &target {
                    Target::Run { id, .. } => Route::to(["v1", "runs", id, verb.path()]),
                    Target::Batch { id, .. } => Route::to(["v1", "batches", id, verb.path()]),
                    Target::All => Route::to(["v1", verb.path()]),
                };
                let changed: Changed = client.post(&route, &Pause::default()).await?;
                let (done, before) = verb.done();
                Ok(format!("{target} {}", if changed.changed { done } else { before }))
            }
            Self::Steer { run, name, text } => {
                let say = Say { text, expected_turn: None };
                tell(client, &run, When::Steer, &say).await?;
                Ok(format!("run {name} hears it after this turn's calls"))
            }
        }
    }
}
